//! Completeness on tables small enough to work out by hand.

use arrow::array::RecordBatch;

use super::testing::*;
use super::*;
use crate::error::Class;

type Request = (&'static str, &'static str, Option<&'static str>);
type Turn = (&'static str, &'static str, &'static str, Option<&'static str>);
type Label = (&'static str, &'static str, &'static str, i32);
type Slate = (&'static str, &'static str, &'static str, &'static [&'static str], i32);

/// Tables as rows: requests (store, id, split); turns (store, id, session, content); labels (store, request, turn,
/// relevance); pools (store, request, turn); slates (store, request, status, turns, tokens), of budget 100.
#[derive(Default)]
struct Rows {
    requests: Vec<Request>,
    turns: Vec<Turn>,
    labels: Vec<Label>,
    pools: Vec<(&'static str, &'static str, &'static str)>,
    slates: Vec<Slate>,
}

impl Rows {
    fn batches(&self) -> [RecordBatch; 5] {
        let of = |pairs: Vec<(&str, &str)>, more: Vec<Named>| {
            let mut columns = keys(&pairs);
            columns.extend(more);
            batch(columns)
        };
        let (r, t, l, p, s) = (&self.requests, &self.turns, &self.labels, &self.pools, &self.slates);
        let mut turns = store_keys(&t.iter().map(|t| t.0).collect::<Vec<_>>());
        turns.extend([
            ("turn_id", texts(t.iter().map(|t| Some(t.1)))),
            ("session_id", texts(t.iter().map(|t| Some(t.2)))),
            ("content_hash", hashes(t.iter().map(|t| t.3))),
        ]);
        [
            of(r.iter().map(|r| (r.0, r.1)).collect(), vec![("split", texts(r.iter().map(|r| r.2)))]),
            of(
                l.iter().map(|l| (l.0, l.1)).collect(),
                vec![("turn_id", texts(l.iter().map(|l| Some(l.2)))), ("relevance", ints(l.iter().map(|l| l.3)))],
            ),
            batch(turns),
            of(p.iter().map(|p| (p.0, p.1)).collect(), vec![("turn_id", texts(p.iter().map(|p| Some(p.2))))]),
            of(
                s.iter().map(|s| (s.0, s.1)).collect(),
                vec![
                    ("status", texts(s.iter().map(|s| Some(s.2)))),
                    ("turn_ids", text_lists(&s.iter().map(|s| s.3).collect::<Vec<_>>())),
                    ("tokens", ints(s.iter().map(|s| s.4))),
                    ("budget_tokens", ints(s.iter().map(|_| 100))),
                ],
            ),
        ]
    }

    fn measure(&self) -> crate::error::Result<Report> {
        let [requests, labels, turns, pools, slates] = self.batches().map(|b| vec![b]);
        let tables = Tables { requests: &requests, labels: &labels, turns: &turns, pools: &pools, slates: &slates };
        completeness(&tables, Bootstrap::default())
    }
}

/// Three questions over one store: q1 (kappa 1) whole in pool and slate; q2 (kappa 2) whole in the pool, half in the
/// slate; q3 (kappa 3) two of three in the pool. q4 has only a turn of relevance 0.
fn three() -> Rows {
    Rows {
        requests: vec![
            ("s", "q1", Some("test")),
            ("s", "q2", Some("test")),
            ("s", "q3", Some("dev")),
            ("s", "q4", Some("dev")),
        ],
        turns: vec![
            ("s", "a", "s1", Some("alpha")),
            ("s", "b", "s1", Some("beta")),
            ("s", "c", "s2", Some("gamma")),
            ("s", "d", "s3", Some("delta")),
        ],
        labels: vec![
            ("s", "q1", "a", 1),
            ("s", "q1", "b", 2),
            ("s", "q2", "b", 1),
            ("s", "q2", "c", 1),
            ("s", "q3", "a", 1),
            ("s", "q3", "c", 1),
            ("s", "q3", "d", 1),
            ("s", "q4", "d", 0),
        ],
        pools: vec![
            ("s", "q1", "a"),
            ("s", "q1", "b"),
            ("s", "q1", "c"),
            ("s", "q2", "c"),
            ("s", "q2", "b"),
            ("s", "q3", "a"),
            ("s", "q3", "c"),
            ("s", "q4", "a"),
        ],
        slates: vec![
            ("s", "q1", "ok", &["b", "a"], 90),
            ("s", "q2", "ok", &["c"], 60),
            ("s", "q3", "degraded", &["a", "c"], 80),
            ("s", "q4", "empty", &[], 0),
        ],
    }
}

fn class<'a>(report: &'a Report, split: &str, kappa: &str) -> &'a ClassReport {
    let split = report.splits.iter().find(|s| s.split == split).unwrap();
    split.classes.iter().find(|c| c.kappa == kappa).unwrap()
}

fn values(class: &ClassReport) -> [Option<f64>; 3] {
    [class.r_pool, class.r_rank, class.slate].map(|i| i.map(|i| i.value))
}

#[test]
fn three_questions_by_hand() {
    let report = three().measure().unwrap();
    let splits: Vec<_> = report.splits.iter().map(|s| s.split.as_str()).collect();
    assert_eq!(splits, ["dev", "test", "all"]);
    assert_eq!(values(class(&report, "all", "all")), [Some(2.0 / 3.0), Some(0.5), Some(1.0 / 3.0)]);
    assert_eq!(values(class(&report, "all", "1")), [Some(1.0); 3]);
    assert_eq!(values(class(&report, "all", "2")), [Some(1.0), Some(0.0), Some(0.0)]);
    // No pool of kappa 3 is complete: the rank factor is taken over nothing.
    assert_eq!(values(class(&report, "all", "3+")), [Some(0.0), None, Some(0.0)]);
    assert_eq!(values(class(&report, "all", "2+")), [Some(0.5), Some(0.0), Some(0.0)]);
    assert_eq!(values(class(&report, "dev", "1")), [None; 3]);
    assert_eq!(class(&report, "test", "all").n, 2);

    let all = &report.splits[2];
    assert_eq!((all.requests, all.without_evidence, all.missing_slates, all.slates), (4, 1, 0, 4));
    assert_eq!(all.mean_tokens, Some((90.0 + 60.0 + 80.0) / 4.0));
    assert_eq!(all.budget_share, Some(230.0 / 400.0));
    assert_eq!(all.statuses, Statuses { ok: 2, empty: 1, unknown_store: 0, degraded: 1 });
    assert_eq!(report.splits[1].mean_tokens, Some(75.0));
    assert_eq!(report.warnings, Warnings::default());
}

#[test]
fn slate_completeness_is_the_product() {
    let report = three().measure().unwrap();
    for class in report.splits.iter().flat_map(|s| &s.classes) {
        if let [Some(pool), Some(rank), Some(slate)] = values(class) {
            assert!((pool * rank - slate).abs() < 1e-12, "{class:?}");
        }
    }
}

#[test]
fn a_slate_that_its_pool_does_not_hold_is_said() {
    let mut rows = three();
    rows.slates[2].3 = &["a", "c", "d"];
    let report = rows.measure().unwrap();
    assert_eq!(report.warnings.complete_outside_pool, 1);
    assert!(report.to_string().contains("of different runs"));
}

#[test]
fn a_duplicate_counts_as_the_evidence() {
    let mut rows = three();
    // q3 lacks "delta" (d); e says the same in another session, and so does a turn of another store.
    rows.turns.push(("s", "e", "s9", Some("delta")));
    rows.turns.push(("other", "e2", "s9", Some("delta")));
    rows.requests.push(("other", "q", None));
    rows.pools.push(("s", "q3", "e"));
    rows.slates[2].3 = &["a", "c", "e"];
    let report = rows.measure().unwrap();
    assert_eq!(values(class(&report, "all", "3+")), [Some(1.0); 3]);
    let q3 = report.outcomes.iter().find(|o| o.request_id == "q3").unwrap();
    assert_eq!(q3.kappa, 3, "kappa counts sessions of labelled turns only");

    rows.pools.pop();
    rows.pools.push(("s", "q3", "e2"));
    let report = rows.measure().unwrap();
    assert_eq!(class(&report, "all", "3+").n_pool, 0, "another store's turn is no duplicate");
}

#[test]
fn evidence_that_says_the_same_twice_needs_one_of_the_two() {
    let rows = Rows {
        requests: vec![("s", "q", None)],
        turns: vec![("s", "a", "s1", Some("same")), ("s", "b", "s2", Some("same"))],
        labels: vec![("s", "q", "a", 1), ("s", "q", "b", 1)],
        pools: vec![("s", "q", "b")],
        slates: vec![("s", "q", "ok", &["b"], 10)],
    };
    let report = rows.measure().unwrap();
    assert_eq!(values(class(&report, "all", "2")), [Some(1.0); 3]);
}

#[test]
fn the_same_turn_id_in_two_stores_is_two_turns() {
    let rows = Rows {
        requests: vec![("s", "q", None), ("t", "q", None)],
        turns: vec![("s", "a", "s1", Some("x")), ("t", "a", "s1", Some("y"))],
        labels: vec![("s", "q", "a", 1), ("t", "q", "a", 1)],
        pools: vec![("t", "q", "a")],
        slates: vec![("t", "q", "ok", &["a"], 10), ("s", "q", "ok", &[], 0)],
    };
    let report = rows.measure().unwrap();
    assert_eq!(values(class(&report, "all", "1")), [Some(0.5), Some(1.0), Some(0.5)]);
}

#[test]
fn turns_without_content_are_evidence_that_nothing_holds() {
    let rows = Rows {
        requests: vec![("s", "q", None), ("s", "r", None)],
        turns: vec![("s", "a", "s1", None), ("s", "b", "s1", None)],
        labels: vec![("s", "q", "a", 1), ("s", "r", "b", 1)],
        pools: vec![("s", "q", "b")],
        slates: vec![("s", "q", "empty", &[], 0), ("s", "r", "empty", &[], 0)],
    };
    let report = rows.measure().unwrap();
    assert_eq!(values(class(&report, "all", "1")), [Some(0.0), None, Some(0.0)], "two nulls are not the same text");
}

#[test]
fn what_does_not_fit_together_is_counted() {
    let mut rows = three();
    rows.labels.push(("s", "q1", "zz", 1));
    rows.labels.push(("s", "q9", "a", 1));
    rows.slates.push(("s", "q9", "ok", &["a"], 1000));
    rows.slates.remove(0);
    let report = rows.measure().unwrap();
    assert_eq!(report.warnings.labels_without_turn, 1);
    assert_eq!(report.warnings.labels_without_request, 1);
    assert_eq!(report.warnings.slates_without_request, 1);
    // q1 is left with a and b, but has no slate.
    assert_eq!(values(class(&report, "all", "1")), [Some(1.0), Some(0.0), Some(0.0)]);
    assert_eq!(report.splits[2].missing_slates, 1);
    assert_eq!(report.splits[2].mean_tokens, Some(140.0 / 3.0));
    let text = report.to_string();
    assert!(text.contains("warning: 1 labels name a turn that is not in its store and were dropped"), "{text}");
}

#[test]
fn two_systems_at_once_are_refused() {
    let mut rows = three();
    rows.slates.push(rows.slates[0]);
    let e = rows.measure().unwrap_err();
    assert_eq!(e.class, Class::Data);
    assert!(e.to_string().contains("request \"q1\" of store \"s\" has two slates"), "{e}");
    assert!(e.to_string().contains("one system at a time"));
}

#[test]
fn nothing_is_shown_as_nothing() {
    for report in [Rows::default().measure().unwrap(), completeness(&Tables::default(), Bootstrap::default()).unwrap()]
    {
        assert_eq!(report.splits.len(), 1);
        let text = report.to_string();
        assert!(!text.contains("NaN"), "{text}");
        assert!(text.lines().nth(1).unwrap().split_whitespace().eq(["all", "all", "0", "-", "-", "-"]), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["splits"][0]["classes"][0]["slate"].is_null());
        assert!(json["splits"][0]["mean_tokens"].is_null() && json["splits"][0]["budget_share"].is_null());
    }
}

#[test]
fn a_missing_column_is_named() {
    let [requests, ..] = Rows::default().batches();
    let requests = vec![requests.project(&[0, 1]).unwrap()];
    let e = completeness(&Tables { requests: &requests, ..Tables::default() }, Bootstrap::default()).unwrap_err();
    assert_eq!(e.to_string(), "requests: there is no column request_id");
}

#[test]
fn text_and_data_say_the_same() {
    let report = three().measure().unwrap();
    let text = report.to_string();
    let line = text.lines().find(|l| l.starts_with("all    all ")).unwrap();
    assert!(line.contains("0.667 [0.000, 1.000]") && line.contains("0.333 [0.000, 1.000]"), "{text}");
    assert!(text.contains("57.500") && text.contains("0.575"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["splits"][2]["classes"][0]["r_pool"]["value"], 0.667);
    assert_eq!(json["splits"][2]["statuses"]["degraded"], 1);
    assert!(json.get("outcomes").is_none());
}

#[test]
fn row_order_and_batches_do_not_matter() {
    let rows = three();
    let report = rows.measure().unwrap();
    let [requests, labels, turns, pools, slates] = rows.batches().map(|b| {
        let n = b.num_rows();
        vec![b.slice(n / 2, n - n / 2), b.slice(0, 0), b.slice(0, n / 2)]
    });
    let tables = Tables { requests: &requests, labels: &labels, turns: &turns, pools: &pools, slates: &slates };
    let other = completeness(&tables, Bootstrap::default()).unwrap();
    assert_eq!(other.splits, report.splits);
    assert_eq!(other.warnings, report.warnings);
}
