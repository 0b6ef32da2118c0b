//! Grading by a teacher: a stub of its server, the real binary, the judgements of the lake.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::stub_teacher::{Act, Request, Stub};
use super::support::{Night, Ran, Turn, command, history, memslate, turn};

const THINGS: [&str; 6] = ["kettle", "violin", "passport", "garden", "invoice", "bicycle"];

/// Stores in which the evidence of each question is the one turn that says where its thing was put.
fn night(stores: usize) -> Night {
    let night = Night::new();
    let names: Vec<String> = (0..stores).map(|i| format!("store{i}")).collect();
    let mut turns: Vec<Turn> = Vec::new();
    let (mut requests, mut labels) = (Vec::new(), Vec::new());
    for name in &names {
        turns.extend(history(name, 30));
        for thing in THINGS {
            let id = format!("{name}-{thing}");
            let text = format!("I put the {thing} of {name} on the shelf");
            turns.push(turn(name, &format!("{name}-places"), &id, "2024-05-01T10:00:00Z", &text));
            requests.push((name.clone(), thing.to_string(), format!("where is the {thing} of {name}")));
            labels.push((name.clone(), thing.to_string(), id));
        }
    }
    let requests: Vec<_> = requests.iter().map(|(s, r, q)| (s.as_str(), r.as_str(), q.as_str(), None)).collect();
    let labels: Vec<_> = labels.iter().map(|(s, r, t)| (s.as_str(), r.as_str(), t.as_str())).collect();
    night.turns(&turns).requests(&requests).labels(&labels);
    night
}

/// What lies between a prompt's marks of this name.
fn fenced<'a>(prompt: &'a str, name: &str) -> &'a str {
    let begin = prompt.find(&format!("<{name}-")).expect("an opening mark");
    let inside = &prompt[begin..];
    let inside = &inside[inside.find(">\n").expect("its end") + 2..];
    &inside[..inside.find(&format!("\n</{name}-")).expect("a closing mark")]
}

/// 9 for the turn that says where the thing of the question is, else 0 to 6.
fn grade(prompt: &str) -> u32 {
    let (question, turn) = (fenced(prompt, "question"), fenced(prompt, "turn"));
    let thing = question.trim_start_matches("where is the ");
    if turn == format!("I put the {thing} on the shelf") { 9 } else { turn.len() as u32 % 7 }
}

/// A server of the model "m" that sees the prompt, and how often it came before.
fn server(script: impl Fn(&str, usize) -> Act + Send + Sync + 'static) -> Stub {
    Stub::start(move |request: &Request| script(&prompt(&request.body), request.seen))
}

fn prompt(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).expect("a body of JSON");
    let messages = body["messages"].as_array().expect("messages");
    messages.last().and_then(|m| m["content"].as_str()).expect("a prompt").to_string()
}

fn graded(prompt: &str) -> Act {
    Act::Answer(grade(prompt).to_string())
}

fn right() -> Stub {
    server(|prompt, _| graded(prompt))
}

fn status(code: u16, says: &str) -> Act {
    Act::Status(code, Vec::new(), says.to_string())
}

/// A job of the night's own, with the stub's address.
fn arguments(night: &Night, url: &str, extra: &[&str]) -> Vec<String> {
    let jobs = night.path().join("jobs");
    if !jobs.exists() {
        night.own_jobs();
    }
    let text = |p: PathBuf| p.display().to_string();
    let mut all = vec![text(jobs.join("distill.toml")), "--lake".into(), text(night.lake()), "--json".into()];
    for set in [
        format!("teacher.url=\"{url}\""),
        "sample.split=all".into(),
        "teacher.model=m".into(),
        "teacher.timeout_seconds=2.0".into(),
    ] {
        all.extend(["--set".to_string(), set]);
    }
    if !extra.contains(&"--system") {
        all.extend(["--system".to_string(), "recall_order".to_string()]);
    }
    all.extend(extra.iter().map(|e| e.to_string()));
    all
}

fn judge(night: &Night, url: &str, extra: &[&str]) -> Ran {
    memslate(&[vec!["judge".to_string()], arguments(night, url, extra)].concat())
}

fn plan(night: &Night, url: &str) -> serde_json::Value {
    memslate(&[vec!["plan".to_string()], arguments(night, url, &[])].concat()).ends_with(0).json()
}

fn journal(night: &Night) -> Option<PathBuf> {
    let found = std::fs::read_dir(night.lake().join("_journals")).ok()?;
    found.map(|e| e.unwrap().path()).find(|p| p.extension().is_some_and(|e| e == "jsonl"))
}

#[test]
fn every_pair_is_graded_once_whoever_asks() {
    let night = night(3);
    night.run(&["--until", "pools"]).ends_with(0);
    let stub = right();
    // 36 turns a store, 64 of a pool at most: 3 stores of 6 requests with 36 turns each.
    let before = plan(&night, &stub.url());
    assert_eq!((before["pairs"].as_u64(), before["to_ask"].as_u64()), (Some(648), Some(648)));
    assert_eq!(stub.posts(), 0);
    // A part first: of each store two requests, the heads of their pools.
    let part = judge(&night, &stub.url(), &["--set", "sample.requests=2", "--set", "sample.pool_size=10"]).ends_with(0);
    assert_eq!((part.json()["pairs"].as_u64(), part.json()["graded"].as_u64()), (Some(60), Some(60)));
    assert_eq!(stub.posts(), 60);
    let all = judge(&night, &stub.url(), &[]).ends_with(0).json();
    assert_eq!((all["graded_before"].as_u64(), all["graded"].as_u64()), (Some(60), Some(588)));
    assert_eq!(stub.posts(), 648);
    // A teacher at another address is the same one; a part of the sample of another seed is known too.
    let again = judge(&night, &stub.url(), &["--set", "sample.seed=8"]).ends_with(0).json();
    assert_eq!((again["graded_before"].as_u64(), stub.posts()), (Some(648), 648));
    assert_eq!(plan(&night, "http://127.0.0.1:9/v1")["to_ask"], 0);
    assert!(journal(&night).is_none());
    let nines = night.column("SELECT count(*) FROM judgements WHERE grade = 9");
    assert_eq!(
        (nines, night.column("SELECT count(DISTINCT judgement_key) FROM judgements")),
        (vec!["18".into()], vec!["648".into()])
    );
    // Another prompt, another teacher.
    let other =
        judge(&night, &stub.url(), &["--set", "teacher.max_tokens=4", "--set", "sample.requests=1"]).ends_with(0);
    assert_eq!((other.json()["graded_before"].as_u64(), other.json()["graded"].as_u64()), (Some(0), Some(108)));
}

#[test]
fn faults_of_the_server_end_in_the_same_grades() {
    let calm = night(1);
    calm.run(&["--until", "pools"]).ends_with(0);
    let stub = right();
    judge(&calm, &stub.url(), &[]).ends_with(0);
    let faulty = night(1);
    faulty.run(&["--until", "pools"]).ends_with(0);
    // Every request meets a fault at its first attempt, a third at its second.
    let stub = server(|prompt, attempt| match (attempt, prompt.len() % 7) {
        (0, 0) => status(429, "slow down"),
        (0, 1) => status(500, "broken"),
        (0, 2) => Act::HangUp,
        (0, 3) => Act::Body("no JSON at all".into()),
        (0, 4) => Act::Body("{\"choices\": []}".into()),
        (0, 5) => Act::Break,
        (0, _) => Act::Slow(Duration::from_secs(3), Box::new(graded(prompt))),
        (1, 0 | 3) => status(503, "still broken"),
        _ => graded(prompt),
    });
    let judged = judge(&faulty, &stub.url(), &["--set", "teacher.concurrency=64"]).ends_with(0).json();
    assert_eq!((judged["graded"].as_u64(), judged["failed"].as_object().map(|f| f.len())), (Some(216), Some(0)));
    assert!(judged["attempts"].as_u64() > Some(2 * 216));
    let rows = "SELECT * FROM judgements ORDER BY judgement_key";
    assert_eq!(faulty.rows(rows), calm.rows(rows));
}

#[test]
fn answers_without_a_grade_are_set_aside_and_never_a_zero() {
    let night = night(1);
    night.run(&["--until", "pools"]).ends_with(0);
    let stub = server(|prompt, _| {
        let turn = fenced(prompt, "turn");
        match turn.split(' ').nth(1).and_then(|n| n.parse::<u32>().ok()) {
            Some(0) => Act::Answer("11".into()),
            Some(1) => Act::Answer("-1".into()),
            Some(2) => Act::Answer("".into()),
            Some(3) => Act::Answer("I cannot help with that.".into()),
            Some(4) => status(400, "too long for me"),
            _ => Act::Answer("**Score: 7/10**".into()),
        }
    });
    // Six requests meet each of the turns.
    let judged = judge(&night, &stub.url(), &[]).ends_with(3).json();
    let sum = |of: &str| judged[of].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!((judged["graded"].as_u64(), sum("set_aside"), sum("failed")), (Some(31 * 6), 24, 6));
    let grades = night.column("SELECT DISTINCT grade FROM judgements WHERE grade IS NOT NULL");
    assert_eq!(grades, ["7.0"]);
    assert_eq!(night.column("SELECT count(*) FROM judgements WHERE grade IS NULL AND reason <> ''"), ["24"]);
    // What was answered is not asked again; what was refused is.
    let asked = stub.posts();
    let again = judge(&night, &stub.url(), &[]).ends_with(3).json();
    assert_eq!((again["set_aside_before"].as_u64(), stub.posts() - asked), (Some(24), 6));
}

#[test]
fn a_killed_job_asks_for_nothing_that_is_in_the_journal() {
    let night = night(4);
    night.run(&["--until", "pools"]).ends_with(0);
    let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counting = Arc::clone(&asked);
    let stub = server(move |prompt, _| {
        *counting.lock().unwrap().entry(prompt.to_string()).or_default() += 1;
        Act::Slow(Duration::from_millis(20), Box::new(graded(prompt)))
    });
    let concurrency = 8;
    let set = format!("teacher.concurrency={concurrency}");
    let arguments = [
        vec!["judge".to_string()],
        arguments(&night, &stub.url(), &["--set", &set, "--set", "teacher.timeout_seconds=60.0"]),
    ]
    .concat();
    for (killed, stop_at) in [120, 300, 500].into_iter().enumerate() {
        let mut child = command(&arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while stub.posts() < stop_at {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = std::fs::read(journal(&night).unwrap()).unwrap().iter().filter(|b| **b == b'\n').count();
        // What was asked and is not in the journal was under way when a run was killed.
        assert!(lines + concurrency * (killed + 1) >= stop_at, "{lines} of {stop_at}");
    }
    let judged = memslate(&arguments).ends_with(0).json();
    assert!(judged["from_journal"].as_u64() > Some(0));
    assert_eq!(night.column("SELECT count(DISTINCT judgement_key) FROM judgements"), ["864"]);
    assert_eq!(night.column("SELECT count(*) FROM judgements"), ["864"]);
    let twice = asked.lock().unwrap().values().filter(|n| **n > 1).count();
    assert!(twice <= 3 * concurrency, "{twice} pairs were asked more than once");
}

#[test]
fn a_limit_is_not_passed_and_the_rest_is_asked_later() {
    let night = night(1);
    night.run(&["--until", "pools"]).ends_with(0);
    let stub = right();
    // The stub counts 100 prompt tokens and 1 of the answer: at a price of 10,000 a million, 1.01 a pair.
    let priced = ["--set", "teacher.prompt_price=10000.0", "--set", "teacher.completion_price=10000.0"];
    let judged = judge(&night, &stub.url(), &[&priced[..], &["--limit-cost", "100"]].concat()).ends_with(4).json();
    let (cost, graded) = (judged["cost"].as_f64().unwrap(), judged["graded"].as_u64().unwrap());
    assert!(cost <= 100.0 && graded > 0 && (cost - 1.01 * graded as f64).abs() < 1e-6, "{cost} for {graded}");
    let rest = judge(&night, &stub.url(), &priced).ends_with(0).json();
    assert_eq!(rest["graded"].as_u64().unwrap() + graded, 216);
}

#[test]
fn what_is_wrong_is_said_before_anything_is_asked() {
    let night = night(1);
    let stub = right();
    let e = judge(&night, &stub.url(), &[]);
    assert!(e.stderr.contains("there is no lake"), "{}", e.stderr);
    night.run(&["--until", "requests"]).ends_with(0);
    let e = judge(&night, &stub.url(), &[]).ends_with(1);
    assert!(e.stderr.contains("--until pools"), "{}", e.stderr);
    night.run(&["--until", "pools"]).ends_with(0);
    let e = judge(&night, "http://127.0.0.1:9/v1", &[]).ends_with(1);
    assert!(e.stderr.contains("127.0.0.1:9"), "{}", e.stderr);
    let e = judge(&night, &stub.url(), &["--set", "teacher.model=other"]).ends_with(2);
    assert!(e.stderr.contains("\"other\"") && e.stderr.contains("it serves m"), "{}", e.stderr);
    let e = judge(&night, &stub.url(), &["--set", "teacher.key_env=MEMSLATE_NO_SUCH_KEY"]).ends_with(2);
    assert!(e.stderr.contains("MEMSLATE_NO_SUCH_KEY"), "{}", e.stderr);
    let e = judge(&night, &stub.url(), &["--set", "sample.split=autumn"]).ends_with(1);
    assert!(e.stderr.contains("autumn"), "{}", e.stderr);
    let e = judge(&night, &stub.url(), &["--set", "sample.pool_size=0"]).ends_with(2);
    assert!(e.stderr.contains("pool_size"), "{}", e.stderr);
    std::fs::write(night.path().join("jobs/prompts/grade.toml"), "user = \"{question} and nothing\"").unwrap();
    let e = judge(&night, &stub.url(), &[]).ends_with(2);
    assert!(e.stderr.contains("{turn}") && e.stderr.contains("grade.toml"), "{}", e.stderr);
    assert_eq!(stub.posts(), 0);
    let locked = Stub::scripted(|_| status(401, "no such key"));
    night.own_jobs();
    let e = judge(&night, &locked.url(), &[]);
    assert!(e.code != Some(0) && e.stderr.contains("key"), "{}", e.stderr);
    assert_eq!(locked.posts(), 0);
}

#[test]
fn requests_go_out_and_answers_come_back_in_files() {
    let night = night(1);
    night.run(&["--until", "pools"]).ends_with(0);
    let (requests, results) = (night.path().join("requests.jsonl"), night.path().join("results.jsonl"));
    let [out, back] = [&requests, &results].map(|p| p.display().to_string());
    let exported = judge(&night, "http://127.0.0.1:9/v1", &["--export", &out]).ends_with(0).json();
    assert_eq!(exported["exported"], 216);
    let lines: Vec<serde_json::Value> =
        std::fs::read_to_string(&requests).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let result = |line: &serde_json::Value| {
        assert_eq!((line["method"].as_str(), line["url"].as_str()), (Some("POST"), Some("/v1/chat/completions")));
        let prompt = line["body"]["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
        let body = serde_json::json!({
            "choices": [{"index": 0, "message": {"role": "assistant", "content": grade(prompt).to_string()}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91},
        });
        serde_json::json!({
            "id": "vllm-1", "custom_id": line["custom_id"], "error": null,
            "response": {"status_code": 200, "request_id": "r", "body": body},
        })
        .to_string()
    };
    // In another order, two of them twice, ten missing, one of somebody else's.
    let mut all: Vec<String> = lines.iter().rev().map(result).collect();
    let missing = all.split_off(206);
    all.extend([all[3].clone(), all[7].clone()]);
    all.push(missing[0].replace("\"status_code\":200", "\"status_code\":500"));
    std::fs::write(&results, all.join("\n") + "\n").unwrap();
    let collected = judge(&night, "http://127.0.0.1:9/v1", &["--collect", &back]).ends_with(3).json();
    assert_eq!((collected["graded"].as_u64(), collected["duplicates"].as_u64()), (Some(206), Some(2)));
    assert_eq!(plan(&night, "http://127.0.0.1:9/v1")["to_ask"], 10);
    let again = judge(&night, "http://127.0.0.1:9/v1", &["--export", &out]).ends_with(0).json();
    assert_eq!(again["exported"], 10);
    std::fs::write(&results, "\n{\"custom_id\": \"x\n").unwrap();
    let torn = judge(&night, "http://127.0.0.1:9/v1", &["--collect", &back]).ends_with(3).json();
    assert_eq!((torn["torn"].as_u64(), torn["torn_lines"][0].as_u64()), (Some(1), Some(2)));
    let e = judge(&night, "http://127.0.0.1:9/v1", &["--collect", "no/such/file.jsonl"]).ends_with(1);
    assert!(e.stderr.contains("no/such/file.jsonl"), "{}", e.stderr);
}

#[test]
fn the_reference_orders_pools_by_grades_and_follows_them() {
    let night = night(2);
    let llm = ["--system", "llm_reranker"];
    let e = night.run(&llm).ends_with(1);
    assert!(e.stderr.contains("memslate judge"), "{}", e.stderr);
    night.run(&[&llm[..], &["--until", "pools"]].concat()).ends_with(0);
    let stub = right();
    // Of store1 no turn is graded yet.
    judge(&night, &stub.url(), &[&llm[..], &["--set", "sample.stores=1"]].concat()).ends_with(0);
    let first = night.run(&llm);
    let status = "SELECT status, count(*) FROM slates GROUP BY status ORDER BY status";
    assert_eq!(night.rows(status), [["degraded", "6"], ["ok", "6"]], "{}", first.stderr);
    judge(&night, &stub.url(), &llm).ends_with(0);
    // Only the store whose grades came is computed again.
    let ran = night.run(&llm).ends_with(0);
    assert_eq!((ran.table("features", "stores_computed"), ran.table("features", "stores_kept")), (1, 1));
    assert_eq!(night.rows(status), [["ok", "12"]]);
    let wrong = "SELECT count(*) FROM rankings a JOIN rankings b
        ON a.store_id = b.store_id AND a.request_id = b.request_id AND b.rank = a.rank + 1
        JOIN pools pa ON pa.store_id = a.store_id AND pa.request_id = a.request_id AND pa.turn_id = a.turn_id
        JOIN pools pb ON pb.store_id = b.store_id AND pb.request_id = b.request_id AND pb.turn_id = b.turn_id
        WHERE a.score < b.score OR (a.score = b.score AND pa.pool_position > pb.pool_position)";
    assert_eq!(night.column(wrong), ["0"]);
    let best = "SELECT count(*) FROM rankings r JOIN labels l
        ON l.store_id = r.store_id AND l.request_id = r.request_id AND l.turn_id = r.turn_id WHERE r.rank = 1 AND r.score = 9";
    assert_eq!(night.column(best), ["12"]);
    let kept = night.run(&llm).ends_with(0);
    assert_eq!(kept.table("features", "stores_computed"), 0);
}

/// A teacher that is wrong on a tenth of the pairs, seeded by the pair.
fn noisy(prompt: &str) -> u32 {
    let hash = prompt.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let (evidence, low) = (grade(prompt) == 9, (hash >> 20) % 7);
    let high = 9 + (hash >> 30) % 2;
    let wrong = (hash >> 40) % 10 == 0;
    u32::try_from(if evidence != wrong { high } else { low }).unwrap()
}

#[test]
fn a_ranker_learns_from_a_teacher_what_labels_would_have_taught_it() {
    let night = night(6);
    let system = night.path().join("mine.toml");
    let features = ["bm25_score", "bm25_rank", "dense_score", "pool_position", "position", "length_tokens"];
    let text = format!("[rank]\nmethod = \"lightgbm\"\nranker = \"teacher.txt\"\nfeatures = {features:?}\n");
    std::fs::write(&system, text).unwrap();
    let system = system.display().to_string();
    let mine = ["--system", &system];
    night.run(&[&mine[..], &["--until", "features"]].concat()).ends_with(0);
    let out = |name: &str| night.path().join(name).display().to_string();
    let e = night
        .on_lake("train", &["--system", &system, "--labels", "teacher", "--out", &out("teacher.txt")])
        .ends_with(1);
    assert!(e.stderr.contains("memslate judge"), "{}", e.stderr);
    let stub = server(|prompt, _| Act::Answer(noisy(prompt).to_string()));
    judge(&night, &stub.url(), &mine).ends_with(0);
    let cards: BTreeMap<&str, serde_json::Value> = ["gold", "teacher"]
        .map(|labels| {
            let file = out(&format!("{labels}.txt"));
            let arguments = ["--system", &system, "--labels", labels, "--out", &file, "--json"];
            (labels, night.on_lake("train", &arguments).ends_with(0).json())
        })
        .into();
    let card = &cards["teacher"];
    assert_eq!((card["data"]["groups"].as_u64(), card["data"]["rows"].as_u64()), (Some(36), Some(36 * 36)));
    assert_eq!(card["metrics"]["labels"]["labels_a_grade"], 1.0);
    // Wrong on a tenth: evidence is above another turn in 0.9 * 0.9 of the pairs, below in 0.1 * 0.1, and a toss between.
    let auc = card["metrics"]["labels"]["agreement"]["auc"].as_f64().unwrap();
    assert!((0.8..1.0).contains(&auc), "{auc}");
    let held = &card["metrics"]["held_out"];
    assert_eq!(held["stores"].as_array().unwrap().len(), 1);
    assert!(held["stopped"]["trees"].as_u64() >= Some(1) && held["stopped"]["ndcg"].as_f64() > Some(0.0));
    assert!(held["completeness"].as_array().unwrap()[0]["n"].as_u64() == Some(6));
    assert!(cards["gold"]["metrics"]["labels"].get("agreement").is_none_or(|a| a.is_null()));
    let compared = memslate(&[
        "rankers",
        "compare",
        &out("gold.txt"),
        &out("teacher.txt"),
        "--lake",
        &night.lake().display().to_string(),
        "--system",
        &system,
        "--set",
        "budget_tokens=150",
        "--json",
    ])
    .ends_with(0)
    .json();
    let all =
        compared["difference"]["rows"].as_array().unwrap().iter().find(|r| r["split"] == "all" && r["kappa"] == "all");
    let all = all.unwrap();
    assert_eq!(all["n"], 36);
    assert!(all["slate"]["value"].as_f64().unwrap().abs() <= 0.03, "{all}");
    let listed = memslate(&["rankers", "list", &night.path().display().to_string(), "--json"]).ends_with(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert!(listed[1]["file"].as_str().unwrap().ends_with("teacher.txt") && listed[1]["features"][0] == "bm25_score");
    night.run(&mine).ends_with(0);
}
