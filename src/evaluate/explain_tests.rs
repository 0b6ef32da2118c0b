//! An explanation worked out by hand: six turns, a budget of 60, a header of 10 tokens a session.

use std::collections::HashMap;

use super::testing::*;
use super::*;
use crate::error::{Error, Result};

const DAY: i64 = 86_400_000_000;

/// Turn, session, content, tokens, day.
const TURNS: [(&str, &str, Option<&str>, i32, i64); 7] = [
    ("t1", "s1", Some("I moved to Lisbon"), 20, 1),
    ("t2", "s1", Some("A long story"), 90, 1),
    ("t3", "s2", Some("I moved to Lisbon"), 20, 2),
    ("t4", "s2", Some("My cat is called\nFado"), 15, 2),
    ("t5", "s3", Some("Tomorrow's news"), 5, 20),
    ("t6", "s3", Some("I like trams"), 5, 3),
    ("t7", "s3", None, 0, 3),
];

fn cost(turn: &TurnLine, session_first: bool) -> Result<i64> {
    Ok(turn.tokens + if session_first { 10 } else { 0 })
}

fn with(mut columns: Vec<Named>, more: Vec<Named>) -> Vec<arrow::array::RecordBatch> {
    columns.extend(more);
    vec![batch(columns)]
}

fn explained(slate: Option<&[&str]>, beyond_pool: Option<&HashMap<String, Vec<ListPlace>>>) -> Explanation {
    try_explain(slate, beyond_pool, cost).unwrap()
}

fn try_explain(
    slate: Option<&[&str]>,
    beyond_pool: Option<&HashMap<String, Vec<ListPlace>>>,
    cost: impl FnMut(&TurnLine, bool) -> Result<i64>,
) -> Result<Explanation> {
    let requests = with(
        keys(&[("s", "q")]),
        vec![("question", texts([Some("Where do I live?")])), ("asked_at", times([Some(10 * DAY)]))],
    );
    let all = || TURNS.iter();
    let turns = with(
        store_keys(&["s"; 7]),
        vec![
            ("turn_id", texts(all().map(|t| Some(t.0)))),
            ("turn_ordinal", ints(0..7)),
            ("session_id", texts(all().map(|t| Some(t.1)))),
            ("session_ordinal", ints([0, 0, 1, 1, 2, 2, 2])),
            ("role", texts(all().map(|_| Some("user")))),
            ("speaker", texts(all().map(|_| None::<&str>))),
            ("content", texts(all().map(|t| t.2))),
            ("spoken_at", times(all().map(|t| Some(t.4 * DAY)))),
            ("tokens", ints(all().map(|t| t.3))),
        ],
    );
    let labelled = ["t3", "t5", "t6", "t9"];
    let labels =
        with(keys(&[("s", "q"); 4]), vec![("turn_id", texts(labelled.map(Some))), ("relevance", ints([1, 1, 1, 1]))]);
    // Another request's row must not show.
    let pooled = [("s", "q"), ("s", "q"), ("s", "q"), ("s", "other")];
    let pools = with(
        keys(&pooled),
        vec![
            ("turn_id", texts(["t1", "t2", "t4", "t6"].map(Some))),
            ("turn_ordinal", ints([0, 1, 3, 5])),
            ("pool_position", ints([1, 2, 3, 1])),
            ("rrf_score", doubles([0.03, 0.02, 0.01, 0.03].map(Some))),
            ("lists", recall_lists(&[&[("bm25", 7.25, 1), ("dense", 0.5, 2)], &[("dense", 0.75, 1)], &[], &[]])),
        ],
    );
    let features = with(
        keys(&pooled[..3]),
        vec![
            ("turn_id", texts(["t1", "t2", "t4"].map(Some))),
            ("turn_ordinal", ints([0, 1, 3])),
            ("pool_position", ints([1, 2, 3])),
            ("bm25_score", doubles([Some(7.25), None, None])),
            ("ce_prob", doubles([Some(0.875), None, None])),
            ("age_days", doubles([9.0, 9.0, 8.0].map(Some))),
        ],
    );
    let rankings = with(
        keys(&pooled[..2]),
        vec![
            ("turn_id", texts(["t1", "t2"].map(Some))),
            ("turn_ordinal", ints([0, 1])),
            ("score", doubles([Some(1.5), Some(2.5)])),
            ("rank", ints([2, 1])),
        ],
    );
    let slates = match slate {
        None => Vec::new(),
        Some(ids) => with(
            keys(&[("s", "q")]),
            vec![
                ("reference_at", times([Some(10 * DAY)])),
                ("status", texts([Some("ok")])),
                ("turn_ids", text_lists(&[ids])),
                ("tokens", ints([30])),
                ("budget_tokens", ints([60])),
            ],
        ),
    };
    let inputs = Inputs {
        requests: &requests,
        turns: &turns,
        labels: &labels,
        pools: &pools,
        features: &features,
        rankings: &rankings,
        slates: &slates,
        kept: None,
        beyond_pool,
    };
    explain(&inputs, cost)
}

#[test]
fn every_turn_has_its_reason() {
    let e = explained(Some(&["t1"]), None);
    let rows: Vec<_> = e.turns.iter().map(|t| (t.turn_id.as_str(), t.rank, t.fate.to_string())).collect();
    assert_eq!(
        rows,
        [
            ("t2", Some(1), "did not fit: 100 tokens, 60 left when it came".to_string()),
            ("t1", Some(2), "in slate".to_string()),
            ("t4", None, "not ranked".to_string()),
        ]
    );
    assert_eq!((e.status.as_deref(), e.tokens, e.budget_tokens), (Some("ok"), Some(30), Some(60)));
    assert_eq!(e.notes, Vec::<String>::new());
    let t1 = &e.turns[1];
    assert_eq!((t1.pool_position, t1.score, t1.line_tokens), (Some(1), Some(1.5), Some(20)));
    assert_eq!(t1.relevance, Some(1), "t3, which is evidence, says the same");
    assert_eq!(t1.lists[0], ListPlace { name: "bm25".into(), score: Some(7.25), rank: Some(1) });
    assert_eq!(e.turns[0].relevance, None);
}

#[test]
fn evidence_that_was_not_recalled_has_its_reason() {
    let missed = |e: &Explanation| -> Vec<(String, String)> {
        e.missed.iter().map(|m| (m.turn_id.clone(), m.why.clone())).collect()
    };
    let own = |pairs: [(&str, &str); 3]| pairs.map(|(a, b)| (a.to_string(), b.to_string()));
    // t3's text is in the pool as t1: not missed. t5 was said ten days after the question. t9 is in no table.
    assert_eq!(
        missed(&explained(Some(&["t1"]), None)),
        own([("t5", "said after the reference date"), ("t6", "not in the pool"), ("t9", "not in the store")])
    );
    let place = |name: &str, rank| ListPlace { name: name.into(), score: None, rank };
    let beyond = HashMap::from([("t6".to_string(), vec![place("bm25", None), place("dense", Some(212))])]);
    let e = explained(Some(&["t1"]), Some(&beyond));
    assert_eq!(e.missed[1].why, "not recalled: not in bm25, rank 212 in dense");
}

#[test]
fn a_request_without_a_slate() {
    let e = explained(None, None);
    assert_eq!(e.status, None);
    assert_eq!(e.turns[0].fate, Fate::NoSlate);
    assert_eq!(e.turns[2].fate, Fate::NotRanked);
    assert!(e.to_string().contains("status: no slate\ntokens: - of -\n"));
}

#[test]
fn a_slate_of_another_run_is_said() {
    let e = explained(Some(&["t6"]), None);
    assert_eq!(e.notes.len(), 2, "{:?}", e.notes);
    assert!(e.notes[0].starts_with("1 turns of the slate are not in the ranking"));
}

#[test]
fn text_has_one_line_a_turn_and_data_all_of_it() {
    let e = explained(Some(&["t1"]), None);
    let text = e.to_string();
    assert!(text.starts_with(
        "request: q of store s\nquestion: Where do I live?\nreference date: 1970-01-11T00:00:00Z\nstatus: ok\n\
         tokens: 30 of 60\n"
    ));
    let lines: Vec<&str> = text.lines().collect();
    let head: Vec<_> = lines[6].split_whitespace().collect();
    assert_eq!(
        head,
        "rank score pool bm25 dense ce_prob age_days tokens label fate turn content".split(' ').collect::<Vec<_>>()
    );
    assert!(lines[8].contains("7.250 (1)") && lines[8].contains("0.875") && lines[8].contains("in slate"), "{text}");
    assert!(lines[9].ends_with("My cat is called Fado"), "{text}");
    let json = serde_json::to_value(&e).unwrap();
    assert_eq!(json["reference_at"], "1970-01-11T00:00:00Z");
    assert_eq!(json["turns"][1]["features"]["ce_prob"], 0.875);
    assert!(json["turns"][0]["features"]["bm25_score"].is_null());
    assert_eq!(json["turns"][0]["fate"], "did not fit: 100 tokens, 60 left when it came");
    assert_eq!(json["turns"][2]["content"], "My cat is called\nFado");
}

#[test]
fn the_cost_is_asked_with_the_sessions_date() {
    let mut dates = HashMap::new();
    let seen = |turn: &TurnLine, first: bool| {
        dates.insert(turn.turn_id.clone(), turn.session_started_at);
        cost(turn, first)
    };
    try_explain(Some(&["t1"]), None, seen).unwrap();
    assert_eq!(dates.get("t4"), Some(&Some(2 * DAY)));
    assert_eq!(dates.get("t1"), Some(&Some(DAY)));
}

#[test]
fn one_request_at_a_time_and_errors_pass_through() {
    assert!(explain(&Inputs::default(), cost).unwrap_err().to_string().contains("the request is not there"));
    let two = with(
        keys(&[("s", "q"), ("s", "r")]),
        vec![("question", texts([Some("a"), Some("b")])), ("asked_at", times([None, None]))],
    );
    let inputs = Inputs { requests: &two, ..Inputs::default() };
    assert!(explain(&inputs, cost).unwrap_err().to_string().contains("2 requests match"));
    let failing = |_: &TurnLine, _: bool| Err(Error::internal("no tokenizer"));
    assert_eq!(try_explain(Some(&["t1"]), None, failing).unwrap_err().to_string(), "no tokenizer");
}
