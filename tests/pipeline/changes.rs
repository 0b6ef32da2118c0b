//! Between two nights one thing changes: what depends on it is computed again, and nothing else.

use std::path::Path;

use super::support::{Night, Ran, Turn, copy, history, memslate, model, turn, turns_batch, with_column, write};

/// Stores computed, by table; of embeddings and scores, rows.
const TABLES: [&str; 9] =
    ["turns", "requests", "labels", "embeddings", "pools", "scores", "features", "rankings", "slates"];
type Computed = [u64; 9];

const STORES: [&str; 3] = ["a", "b", "c"];
/// Texts are told apart by their store.
const TURNS: u64 = 8;

fn turns() -> Vec<Turn> {
    let of = |store: &str| {
        let said = |t: Turn| Turn { content: t.content.map(|c| format!("{c}, says {store}")), ..t };
        history(store, TURNS as usize).into_iter().map(said).collect::<Vec<_>>()
    };
    STORES.iter().flat_map(|store| of(store)).collect()
}

fn requests(night: &Night, of_b: &str) {
    let of = |store: &str| if store == "b" { of_b.to_string() } else { format!("the kettle of {store}") };
    let questions: Vec<String> = STORES.iter().map(|s| of(s)).collect();
    let all: Vec<_> = STORES.iter().zip(&questions).map(|(s, q)| (*s, "q", q.as_str(), None)).collect();
    night.requests(&all);
}

/// Three stores with a question each, ranked by a cross-encoder.
fn night() -> Night {
    let night = Night::new();
    night.turns(&turns()).labels(&[("a", "q", "a-t0"), ("b", "q", "b-t0")]);
    requests(&night, "the kettle of b");
    night.own_jobs();
    night
}

fn run(night: &Night, extra: &[&str]) -> Ran {
    let scorer = format!("scorer={}", model("bert_scorer"));
    let mut set = vec!["score.method=cross_encoder", "rank.column=ce_prob", "rank.descending=true"];
    if !extra.iter().any(|e| e.starts_with("scorer=")) {
        set.push(&scorer);
    }
    let all: Vec<&str> = set.into_iter().chain(extra.iter().copied()).flat_map(|s| ["--set", s]).collect();
    night.run_job(&night.path().join("jobs"), &all).ends_with(0)
}

fn computed(ran: &Ran) -> Computed {
    TABLES.map(|t| ran.table(t, if matches!(t, "embeddings" | "scores") { "rows_computed" } else { "stores_computed" }))
}

/// Adds a comment to a SELECT.
fn edit(night: &Night, table: &str) {
    let file = night.path().join(format!("jobs/{table}.sql"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n-- another version\n")).unwrap();
}

/// The fixture with another bias in its last layer: the same dimension, other vectors and logits.
fn other_model(night: &Night, name: &str) -> String {
    let folder = night.path().join(name);
    copy(Path::new(&model(name)), &folder);
    let file = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&0.25f32.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    folder.display().to_string()
}

type Change = (&'static str, fn(&Night) -> Vec<String>, Computed);

fn none(change: fn(&Night)) -> impl Fn(&Night) -> Vec<String> {
    move |night| {
        change(night);
        Vec::new()
    }
}

/// All vectors are of 24 turns and 3 questions, all logits of 24 pairs.
const CHANGES: [Change; 20] = [
    ("nothing", |_| vec![], [0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("the budget", |_| vec!["budget_tokens=100".into()], [0, 0, 0, 0, 0, 0, 0, 0, 3]),
    // Every time names its zone: only the dates that a slate shows are others.
    ("the zone of naive times", |_| vec!["naive_zone=+09:00".into()], [0, 0, 0, 0, 0, 0, 0, 0, 3]),
    ("the date of standing requests", |_| vec!["as_of=2024-06-01".into()], [0, 0, 0, 0, 3, 0, 3, 3, 3]),
    ("the encoder", |n| vec![format!("encoder={}", other_model(n, "bert_encoder"))], [0, 0, 0, 27, 3, 0, 3, 3, 3]),
    ("its dimension", |_| vec![format!("encoder={}", model("xlmr_encoder"))], [0, 0, 0, 27, 3, 0, 3, 3, 3]),
    ("the scorer", |n| vec![format!("scorer={}", other_model(n, "bert_scorer"))], [0, 0, 0, 0, 0, 24, 3, 3, 3]),
    ("the SELECT of turns", |n| none(|n| edit(n, "turns"))(n), [0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("the SELECT of embeddings", |n| none(|n| edit(n, "embeddings"))(n), [0, 0, 0, 27, 3, 0, 3, 3, 3]),
    ("the SELECT of pools", |n| none(|n| edit(n, "pools"))(n), [0, 0, 0, 0, 3, 0, 3, 3, 3]),
    ("the SELECT of scores", |n| none(|n| edit(n, "scores"))(n), [0, 0, 0, 0, 0, 24, 3, 3, 3]),
    ("the SELECT of features", |n| none(|n| edit(n, "features"))(n), [0, 0, 0, 0, 0, 0, 3, 3, 3]),
    ("the SELECT of rankings", |n| none(|n| edit(n, "rankings"))(n), [0, 0, 0, 0, 0, 0, 0, 3, 3]),
    ("the SELECT of slates", |n| none(|n| edit(n, "slates"))(n), [0, 0, 0, 0, 0, 0, 0, 0, 3]),
    (
        "a turn more",
        |n| {
            let more = turn("a", "a-new", "a-new", "2024-06-01T10:00:00Z", "the kettle is in the drawer");
            n.turns(&[turns(), vec![more]].concat());
            vec![]
        },
        [1, 0, 0, 1, 1, 1, 1, 1, 1],
    ),
    (
        "a turn less",
        |n| {
            n.turns(&turns()[1..]);
            vec![]
        },
        [1, 0, 0, 0, 1, 0, 1, 1, 1],
    ),
    (
        "a question",
        |n| {
            requests(n, "the violin of b");
            vec![]
        },
        [0, 1, 0, 1, 1, TURNS, 1, 1, 1],
    ),
    (
        "a label",
        |n| {
            n.labels(&[("a", "q", "a-t1"), ("b", "q", "b-t0")]);
            vec![]
        },
        [0, 0, 1, 0, 0, 0, 0, 0, 0],
    ),
    (
        "the order of rows, in two files of other names",
        |n| {
            let (file, turns) = (n.input().join("turns.parquet"), turns());
            std::fs::remove_file(&file).unwrap();
            std::fs::create_dir(&file).unwrap();
            write(&file.join("x.parquet"), &turns_batch(&turns[9..]));
            write(&file.join("y.parquet"), &turns_batch(&turns[..9]));
            vec![]
        },
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ),
    (
        "a column's type, and what an input is called",
        |n| {
            let batch = turns_batch(&turns());
            let empty = std::sync::Arc::new(arrow::array::NullArray::new(batch.num_rows()));
            write(&n.input().join("history.parquet"), &with_column(&batch, "speaker", empty));
            std::fs::remove_file(n.input().join("turns.parquet")).unwrap();
            vec!["inputs.turns.path=history.parquet".into()]
        },
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ),
];

#[test]
fn what_depends_on_a_change_is_computed_again_and_nothing_else() {
    let base = night();
    assert_eq!(computed(&run(&base, &[])), [3, 3, 2, 27, 3, 24, 3, 3, 3]);
    for (change, make, wanted) in CHANGES {
        let night = Night::new();
        for folder in ["input", "lake", "jobs"] {
            copy(&base.path().join(folder), &night.path().join(folder));
        }
        let set = make(&night);
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let ran = run(&night, &set);
        assert_eq!(computed(&ran), wanted, "{change}: {TABLES:?}");
    }
}

#[test]
fn a_new_ranker_changes_rankings_and_slates_alone() {
    let night = Night::new();
    let turns: Vec<Turn> = STORES.iter().flat_map(|s| history(s, 40)).collect();
    let requests: Vec<_> = STORES.iter().map(|s| (*s, "q", "where is the kettle", None)).collect();
    let ids: Vec<String> = STORES.iter().map(|s| format!("{s}-t9")).collect();
    let labels: Vec<_> = STORES.iter().zip(&ids).map(|(s, id)| (*s, "q", id.as_str())).collect();
    night.turns(&turns).requests(&requests).labels(&labels);
    let system = night.path().join("mine.toml");
    let ranker = night.path().join("mine.txt").display().to_string();
    let text = "[rank]\nmethod = \"lightgbm\"\nranker = \"mine.txt\"\nfeatures = [\"bm25_score\", \"pool_position\"]\n";
    std::fs::write(&system, text).unwrap();
    let system = system.display().to_string();
    night.run(&["--system", &system, "--until", "features"]).ends_with(0);
    let train = |trees: &str| {
        let set = format!("num_trees={trees}");
        night.on_lake("train", &["--system", &system, "--hold-out", "0", "--out", &ranker, "--set", &set]).ends_with(0);
    };
    train("10");
    night.run(&["--system", &system]).ends_with(0);
    train("20");
    let ran = night.run(&["--system", &system]).ends_with(0);
    assert_eq!(computed(&ran), [0, 0, 0, 0, 0, 0, 0, 3, 3]);
    // A plan says so beforehand.
    train("10");
    let mut arguments = night.run_arguments(&["--system", &system]);
    arguments[0] = "plan".into();
    let plan = memslate(&arguments).ends_with(0).json();
    let of = |table: &str| {
        let tables = plan["tables"].as_array().unwrap();
        tables.iter().find(|t| t["table"] == table).unwrap()["stores_to_compute"].as_u64().unwrap()
    };
    assert_eq!(["turns", "pools", "features", "rankings", "slates"].map(of), [0, 0, 0, 3, 3]);
}
