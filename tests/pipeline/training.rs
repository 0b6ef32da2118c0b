//! Rankers: trained from a lake, the same from the same data, refused where they do not fit.

use super::support::{Night, Turn, history, memslate, model, turn};

/// Stores in which the evidence of each question is the one turn that names its thing and a place.
fn lessons(reversed: bool) -> Night {
    let night = Night::new();
    let things = ["kettle", "violin", "passport", "garden", "invoice", "bicycle"];
    let names: Vec<String> = (0..6).map(|i| format!("store{i}")).collect();
    let mut turns: Vec<Turn> = Vec::new();
    let (mut requests, mut labels) = (Vec::new(), Vec::new());
    for name in &names {
        turns.extend(history(name, 60));
        for thing in things {
            let id = format!("{name}-{thing}");
            turns.push(turn(
                name,
                &format!("{name}-places"),
                &id,
                "2024-05-01T10:00:00Z",
                &format!("I put the {thing} on the shelf"),
            ));
            requests.push((name.clone(), thing.to_string(), format!("where is the {thing}")));
            labels.push((name.clone(), thing.to_string(), id));
        }
    }
    if reversed {
        turns.reverse();
        requests.reverse();
        labels.reverse();
    }
    let requests: Vec<_> = requests.iter().map(|(s, r, q)| (s.as_str(), r.as_str(), q.as_str(), None)).collect();
    let labels: Vec<_> = labels.iter().map(|(s, r, t)| (s.as_str(), r.as_str(), t.as_str())).collect();
    night.turns(&turns).requests(&requests).labels(&labels);
    night
}

/// A system file of its own, whose ranker is made by the test.
fn system(night: &Night, name: &str, features: &str) -> String {
    let file = night.path().join(format!("{name}.toml"));
    let text = format!("[rank]\nmethod = \"lightgbm\"\nranker = \"{name}.txt\"\nfeatures = [{features}]\n");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

const FEATURES: &str =
    "\"bm25_score\", \"bm25_rank\", \"dense_score\", \"pool_position\", \"position\", \"length_tokens\"";

fn train(night: &Night, system: &str, out: &str, extra: &[&str]) -> super::support::Ran {
    let out = night.path().join(out).display().to_string();
    let arguments = [&["--system", system, "--out", &out, "--json"], extra].concat();
    night.on_lake("train", &arguments)
}

#[test]
fn the_same_data_give_the_same_bytes_and_the_model_ranks() {
    let mut models = Vec::new();
    for reversed in [false, true] {
        let night = lessons(reversed);
        let system = system(&night, "mine", FEATURES);
        night.run(&["--system", &system, "--until", "features"]).ends_with(0);
        let card = train(&night, &system, "mine.txt", &[]).ends_with(0).json();
        assert_eq!(card["data"]["groups"], 36);
        models.push(std::fs::read(night.path().join("mine.txt")).unwrap());
        night.run(&["--system", &system]).ends_with(0);
        // 36 questions, each with one labelled turn that a ranker can learn to find.
        let first = "SELECT count(*) FROM rankings r JOIN labels l ON r.store_id = l.store_id \
                     AND r.request_id = l.request_id AND r.turn_id = l.turn_id WHERE r.rank = 1";
        let first: usize = night.column(first)[0].parse().unwrap();
        assert!(first >= 30, "{first} of 36");
    }
    assert_eq!(models[0], models[1]);
}

#[test]
fn a_ranker_of_other_features_is_refused_by_name() {
    let night = lessons(false);
    let mine = system(&night, "mine", FEATURES);
    night.run(&["--system", &mine, "--until", "features"]).ends_with(0);
    train(&night, &mine, "mine.txt", &[]).ends_with(0);
    std::fs::copy(night.path().join("mine.txt"), night.path().join("other.txt")).unwrap();
    std::fs::copy(night.path().join("mine.json"), night.path().join("other.json")).unwrap();
    let other = system(&night, "other", "\"bm25_score\", \"age_days\"");
    // The settings are well-formed; it is a file of the ranker that does not fit, or is not there.
    let ran = night.run(&["--system", &other]).ends_with(1);
    assert!(ran.stderr.contains("bm25_rank") && ran.stderr.contains("age_days"), "{}", ran.stderr);
    let gone = system(&night, "gone", FEATURES);
    let ran = night.run(&["--system", &gone]).ends_with(1);
    assert!(ran.stderr.contains("gone.txt"), "{}", ran.stderr);
    // Neither left a table behind.
    assert_eq!(night.column("SELECT count(*) FROM rankings"), ["0"]);
}

#[test]
fn too_little_to_learn_from_falls_back_to_the_fused_order() {
    let night = Night::new();
    night.turns(&history("a", 20)).requests(&[("a", "q", "the kettle", None)]);
    let system = system(&night, "mine", FEATURES);
    night.run(&["--system", &system, "--until", "features"]).ends_with(0);
    let card = train(&night, &system, "mine.txt", &[]).ends_with(0).json();
    assert_eq!(
        (card["kind"].as_str(), card["data"]["groups_without_positive"].as_u64()),
        (Some("fused_order"), Some(1))
    );
    night.run(&["--system", &system]).ends_with(0);
    let moved = "SELECT count(*) FROM rankings r JOIN pools p ON r.turn_id = p.turn_id WHERE r.rank <> p.pool_position";
    assert_eq!(night.column(moved), ["0"]);
    let ran = train(&night, &system, "mine.txt", &["--split", "test"]).ends_with(1);
    assert!(ran.stderr.contains("\"test\""), "{}", ran.stderr);
}

#[test]
fn the_demo_makes_slates_that_hold_what_was_asked() {
    let night = Night::new();
    let out = night.input().display().to_string();
    memslate(&["import", "chat", "data/demo", "--out", &out]).ends_with(0);
    // The text model of the tests: words alone must find most of the evidence.
    let encoder = format!("encoder={}", model("bert_encoder"));
    night.run(&["--system", "lite", "--set", &encoder]).ends_with(0);
    let stores =
        night.rows("SELECT store_id, count(DISTINCT session_id) FROM turns GROUP BY store_id ORDER BY store_id");
    assert!(stores.len() >= 6 && stores.iter().all(|s| s[1].parse::<usize>().unwrap() >= 15), "{stores:?}");
    assert_eq!(night.column("SELECT count(*) FROM slates WHERE tokens > 2700 OR status <> 'ok'"), ["0"]);
    assert_eq!(night.column("SELECT count(*) FROM requests"), night.column("SELECT count(*) FROM slates"));
    let report = night.on_lake("eval", &["--json"]).ends_with(0).json();
    let all = report["splits"].as_array().unwrap().iter().find(|s| s["split"] == "all").unwrap().clone();
    assert!(all["without_evidence"].as_u64().unwrap() >= 4);
}
