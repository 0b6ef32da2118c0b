//! One night after another: what is kept, what is computed, what a killed run leaves.

use std::process::Stdio;

use super::support::{Night, Turn, command, history, turn};

fn stores(names: &[&str]) -> Vec<Turn> {
    names.iter().flat_map(|n| history(n, 25)).collect()
}

const TABLES: [&str; 4] = ["pools", "features", "rankings", "slates"];

#[test]
fn a_night_without_news_computes_nothing() {
    let night = Night::new();
    night.turns(&stores(&["a", "b", "c"])).requests(&[("a", "q", "kettle", None), ("b", "q", "violin", None)]);
    let first = night.run(&[]).ends_with(0);
    assert_eq!(first.table("slates", "stores_computed"), 2);
    let before = night.contents();
    let again = night.run(&[]).ends_with(0);
    for table in ["turns", "requests", "embeddings", "pools", "features", "rankings", "slates"] {
        assert_eq!(again.table(table, "stores_computed"), 0, "{table}");
        assert_eq!(again.table(table, "rows_computed"), 0, "{table}");
        assert_eq!(again.table(table, "version"), first.table(table, "version"), "{table}");
    }
    assert_eq!(night.contents(), before);
}

#[test]
fn one_new_turn_makes_one_store_new() {
    let night = Night::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    let requests: Vec<_> = names.iter().map(|n| (*n, "q", "the passport", None)).collect();
    // One shard, so that the stores that did not change lie in the file that is written anew.
    night.turns(&stores(&names)).requests(&requests);
    night.run(&["--set", "shards=1"]).ends_with(0);
    let mut turns = stores(&names);
    turns.push(turn("c", "c-new", "c-new", "2024-06-01T10:00:00Z", "the passport is in the drawer"));
    night.turns(&turns);
    let ran = night.run(&[]).ends_with(0);
    assert_eq!(ran.table("embeddings", "rows_computed"), 1);
    for table in TABLES {
        assert_eq!((ran.table(table, "stores_computed"), ran.table(table, "stores_kept")), (1, 5), "{table}");
    }
    // The same tables as of a lake that saw the new turn from the beginning.
    let fresh = Night::new();
    fresh.turns(&turns).requests(&requests);
    fresh.run(&["--set", "shards=1"]).ends_with(0);
    assert_eq!(night.contents(), fresh.contents());
}

#[test]
fn a_store_that_is_gone_leaves_nothing() {
    let night = Night::new();
    night.turns(&stores(&["a", "b"])).requests(&[("a", "q", "kettle", None), ("b", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    night.turns(&stores(&["a"])).requests(&[("a", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    for table in ["turns", "requests", "pools", "features", "rankings", "slates"] {
        assert_eq!(night.column(&format!("SELECT DISTINCT store_id FROM {table}")), ["a"], "{table}");
    }
}

#[test]
fn the_order_of_rows_and_of_threads_changes_nothing() {
    let (one, two) = (Night::new(), Night::new());
    let mut turns = stores(&["a", "b", "c"]);
    let requests = [("a", "q", "kettle", None), ("b", "q", "violin", None), ("c", "q", "garden", None)];
    one.turns(&turns).requests(&requests);
    turns.reverse();
    two.turns(&turns).requests(&requests);
    one.run(&[]).ends_with(0);
    two.run(&["--memory-limit", "16MiB"]).ends_with(0);
    assert_eq!(one.contents(), two.contents());
}

#[test]
fn two_runs_at_once_make_the_tables_once() {
    let names: Vec<String> = (0..6).map(|i| format!("store{i}")).collect();
    let turns: Vec<Turn> = names.iter().flat_map(|n| history(n, 20)).collect();
    let requests: Vec<_> = names.iter().map(|n| (n.as_str(), "q", "the bicycle", None)).collect();
    let (alone, both) = (Night::new(), Night::new());
    for night in [&alone, &both] {
        night.turns(&turns).requests(&requests);
    }
    alone.run(&[]).ends_with(0);
    let start = || command(&both.run_arguments(&[])).stdout(Stdio::null()).spawn().unwrap();
    let (mut one, mut two) = (start(), start());
    assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
    assert_eq!(both.contents(), alone.contents());
}

#[test]
fn inputs_that_are_replaced_while_they_are_read_are_never_mixed() {
    let (night, alone) = (Night::new(), Night::new());
    let requests = [("a", "q", "kettle", None), ("b", "q", "kettle", None)];
    let file = night.input().join("turns.parquet");
    night.turns(&stores(&["b"])).requests(&requests);
    let other = std::fs::read(&file).unwrap();
    for night in [&night, &alone] {
        night.turns(&stores(&["a", "b"])).requests(&requests);
    }
    let whole = std::fs::read(&file).unwrap();
    let place = |bytes: &[u8]| {
        let part = night.path().join("part");
        std::fs::write(&part, bytes).unwrap();
        std::fs::rename(&part, &file).unwrap();
    };
    let mut run = command(&night.run_arguments(&[])).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while run.try_wait().unwrap().is_none() {
        place(&other);
        place(&whole);
    }
    let ran = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // Half a file of either kind may be met as well, and is told as what it looks like.
    assert!(matches!(ran.status.code(), Some(0 | 1)) && !said.contains("panicked"), "{said}");
    night.run(&[]).ends_with(0);
    alone.run(&[]).ends_with(0);
    assert_eq!(night.contents(), alone.contents());
}

#[test]
fn until_stops_after_the_table() {
    let night = Night::new();
    night.turns(&stores(&["a"])).requests(&[("a", "q", "kettle", None)]);
    night.run(&["--until", "features"]).ends_with(0);
    assert_eq!(night.column("SELECT count(*) FROM features"), ["25"]);
    assert_eq!(night.column("SELECT count(*) FROM rankings"), ["0"]);
    night.run(&[]).ends_with(0);
    let status = night.on_lake("status", &["--json"]).ends_with(0).json();
    assert_eq!(status["runs"].as_array().unwrap().len(), 2);
}
