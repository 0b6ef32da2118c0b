//! The design space: its axes are independent, and every published system runs.

use super::support::{Night, history, model};

fn night() -> Night {
    let night = Night::new();
    let mut turns = history("a", 40);
    turns.extend(history("b", 25));
    night.turns(&turns).requests(&[
        ("a", "q1", "the kettle and the violin", None),
        ("a", "q2", "!!!", None),
        ("b", "q1", "the passport", Some("2024-03-02T10:05:00Z")),
    ]);
    night
}

/// Each request's ranking is in the order of the column; turns without a value come last, ties go to the earlier turn.
#[track_caller]
fn follows(night: &Night, system: &str, column: &str, descending: bool) {
    let rows = night.rows(&format!(
        "SELECT f.store_id, f.request_id, f.{column}, f.turn_ordinal, r.rank FROM features f JOIN rankings r \
         ON r.system = f.system AND r.store_id = f.store_id AND r.request_id = f.request_id AND r.turn_id = f.turn_id \
         WHERE f.system = '{system}' ORDER BY f.store_id, f.request_id, r.rank"
    ));
    assert!(rows.len() > 5, "{system}: {} rows", rows.len());
    let number = |text: &String| text.parse::<f64>().ok();
    for pair in rows.windows(2).filter(|p| p[0][..2] == p[1][..2]) {
        let ordinals = number(&pair[0][3]) < number(&pair[1][3]);
        let right = match (number(&pair[0][2]), number(&pair[1][2])) {
            (None, None) => ordinals,
            (None, Some(_)) => false,
            (Some(_), None) => true,
            (Some(before), Some(after)) if before == after => ordinals,
            (Some(before), Some(after)) => (before > after) == descending,
        };
        assert!(right, "{system} by {column}: {pair:?}");
    }
}

#[test]
fn every_combination_of_axes_runs() {
    let night = night();
    let recalls =
        ["[{kind=\"bm25\"}]", "[{kind=\"dense\"}]", "[{kind=\"dense\", weight=2.0}, {kind=\"bm25\", stem=false}]"];
    let ranks = [("pool_position", "false"), ("dense_score", "true"), ("bm25_score", "true"), ("age_days", "false")];
    let slates = [("sessions", None), ("dated", None), ("sessions", Some("slate.gap_cut={head=0.0, tail=0.1}"))];
    for (i, lists) in recalls.iter().enumerate() {
        for (j, (column, descending)) in ranks.iter().enumerate() {
            let (rendering, cut) = slates[(i + j) % slates.len()];
            let mut set = vec![
                format!("recall.lists={lists}"),
                format!("rank.column={column}"),
                format!("rank.descending={descending}"),
                format!("slate.rendering={rendering}"),
            ];
            set.extend(cut.map(str::to_string));
            let extra: Vec<&str> = set.iter().flat_map(|s| ["--set", s.as_str()]).collect();
            let ran = night.run(&extra).ends_with(0);
            let slates = ran.json()["slates"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum::<u64>();
            assert_eq!(slates, 3, "{set:?}");
            follows(&night, ran.json()["system"].as_str().unwrap(), column, *descending == "true");
        }
    }
    let over = "SELECT count(*) FROM slates WHERE tokens > budget_tokens OR tokens <> count_tokens(text)";
    assert_eq!(night.column(over), ["0"]);
    // Each is a system of its own in the lake, and a reader must say which one it means.
    assert_eq!(night.column("SELECT count(DISTINCT system) FROM slates"), ["12"]);
    let ran = night.on_lake("eval", &[]).ends_with(2);
    assert!(ran.stderr.contains("--system"), "{}", ran.stderr);
}

#[test]
fn a_system_that_has_only_pools_is_not_in_the_way() {
    let night = night();
    night.labels(&[("a", "q1", "a-t0")]);
    night.run(&[]).ends_with(0);
    let by_words = ["--set", "rank.column=bm25_score", "--set", "rank.descending=true"];
    night.run(&[&by_words[..], &["--until", "pools"]].concat()).ends_with(0);
    assert_eq!(night.column("SELECT count(DISTINCT system) FROM pools"), ["2"]);
    let report = night.on_lake("eval", &["--json"]).ends_with(0).json();
    let all = report["splits"].as_array().unwrap().iter().find(|s| s["split"] == "all").unwrap().clone();
    assert_eq!((all["slates"].as_u64(), all["missing_slates"].as_u64()), (Some(3), Some(0)));
    night.on_lake("show", &["--store", "a", "--request", "q1"]).ends_with(0);
    // With slates of its own it is one of two.
    night.run(&by_words).ends_with(0);
    night.on_lake("eval", &[]).ends_with(2);
}

#[test]
fn a_question_without_words_is_answered_by_the_dense_list() {
    let night = night();
    night.run(&[]).ends_with(0);
    let lists = "SELECT list_rank(lists, 'bm25'), list_rank(lists, 'dense') FROM pools \
                 WHERE request_id = 'q2' ORDER BY pool_position LIMIT 2";
    assert_eq!(night.rows(lists), [["", "1"], ["", "2"]]);
}

#[test]
fn adaptive_k_takes_the_whole_store_by_cosine() {
    let night = night();
    night.run(&["--system", "adaptive_k"]).ends_with(0);
    assert_eq!(night.column("SELECT count(*) FROM pools WHERE store_id = 'a' AND request_id = 'q1'"), ["40"]);
    let order = "SELECT count(*) FROM (SELECT dense_score, lag(dense_score) OVER (PARTITION BY f.store_id, f.request_id ORDER BY rank) AS before \
                 FROM features f JOIN rankings r ON f.store_id = r.store_id AND f.request_id = r.request_id AND f.turn_id = r.turn_id) \
                 WHERE dense_score > before";
    assert_eq!(night.column(order), ["0"]);
}

#[test]
fn a_cross_encoder_is_asked_once_a_pair() {
    let night = night();
    let scorer = format!("scorer={}", model("bert_scorer"));
    let set = [
        "--set",
        "score.method=cross_encoder",
        "--set",
        "rank.column=ce_prob",
        "--set",
        "rank.descending=true",
        "--set",
        &scorer,
    ];
    let first = night.run(&set).ends_with(0);
    let pairs = night.column("SELECT count(*) FROM pools").remove(0);
    assert_eq!(first.table("scores", "rows_computed").to_string(), pairs);
    // The probability is the sigmoid of the logit, and the ranking follows it.
    let wrong = "SELECT count(*) FROM features f \
        JOIN requests r ON r.store_id = f.store_id AND r.request_id = f.request_id \
        JOIN turns t ON t.store_id = f.store_id AND t.turn_id = f.turn_id \
        JOIN scores s ON s.question_hash = r.question_hash AND s.content_hash = t.content_hash \
        WHERE abs(f.ce_prob - 1.0 / (1.0 + exp(-s.logit))) > 1e-6";
    assert_eq!(night.column(wrong), ["0"]);
    assert_eq!(night.column("SELECT count(*) FROM features WHERE ce_prob IS NULL"), ["0"]);
    let again = night.run(&set).ends_with(0);
    assert_eq!(again.table("scores", "rows_computed"), 0);
    // Another system with the same pools asks nothing again.
    let other = [&set[..], &["--set", "slate.rendering=dated"]].concat();
    assert_eq!(night.run(&other).ends_with(0).table("scores", "rows_computed"), 0);
}

#[test]
fn the_order_of_the_cross_encoder_is_a_system() {
    let night = night();
    let scorer = format!("scorer={}", model("xlmr_scorer"));
    let run = ["--system", "cross_encoder_order", "--set", &scorer];
    let ran = night.run(&run).ends_with(0);
    follows(&night, ran.json()["system"].as_str().unwrap(), "ce_prob", true);
    assert_eq!(night.column("SELECT count(*) FROM features WHERE ce_prob IS NULL"), ["0"]);
    let pairs = ran.table("scores", "rows_computed");
    // Another precision is another model: its logits stand beside the others and never among them.
    let ran = night.run(&[&run[..], &["--set", "precision=int8"]].concat()).ends_with(0);
    assert_eq!(ran.table("scores", "rows_computed"), pairs);
    assert_eq!(night.column("SELECT count(DISTINCT scorer_hash) FROM scores"), ["2"]);
    assert_eq!(night.column("SELECT count(DISTINCT encoder_hash) FROM embeddings"), ["2"]);
    assert_eq!(night.run(&run).ends_with(0).table("scores", "rows_computed"), 0);
}

#[test]
fn agentmemrec_says_what_it_lacks() {
    let night = night();
    let ran = night.run(&["--system", "agentmemrec"]).ends_with(2);
    assert!(ran.stderr.contains("scorer"), "{}", ran.stderr);
    assert!(!night.lake().exists());
}

#[test]
fn a_plan_says_what_a_run_then_does() {
    let night = night();
    let plan = |night: &Night| {
        let mut arguments = night.run_arguments(&[]);
        arguments[0] = "plan".into();
        super::support::memslate(&arguments).ends_with(0).json()
    };
    let before = plan(&night);
    assert!(!night.lake().exists());
    let of = |plan: &serde_json::Value, table: &str, field: &str| {
        let tables = plan["tables"].as_array().unwrap();
        tables.iter().find(|t| t["table"] == table).unwrap()[field].as_u64().unwrap()
    };
    let ran = night.run(&[]).ends_with(0);
    assert_eq!(of(&before, "turns", "rows_to_compute"), 65);
    for table in ["embeddings", "slates"] {
        assert_eq!(of(&before, table, "rows_to_compute"), ran.table(table, "rows_computed"), "{table}");
    }
    // q1 of b may not see the turns of its future: the plan does not know that, and says at most.
    assert!(of(&before, "pools", "rows_to_compute") >= ran.table("pools", "rows_computed"));
    assert!(of(&before, "embeddings", "tokens") > 0);
    let after = plan(&night);
    for table in ["turns", "embeddings", "pools", "features", "rankings", "slates"] {
        assert_eq!(of(&after, table, "rows_to_compute"), 0, "{table}");
    }
}
