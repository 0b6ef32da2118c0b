//! What a slate holds, and what it never holds.

use super::support::{Night, Turn, history, turn};

#[test]
fn every_request_gets_a_row_with_a_status() {
    let night = Night::new();
    let mut turns = history("one", 1);
    turns.extend(history("two", 2));
    turns.extend(history("many", 29));
    turns.push(Turn { content: Some("  \n".into()), ..turn("blank", "s", "b1", "2024-01-01T00:00:00Z", "") });
    turns.push(Turn { content: None, ..turn("blank", "s", "b2", "2024-01-01T00:01:00Z", "") });
    night.turns(&turns).requests(&[
        ("one", "q", "the kettle", None),
        ("two", "q", "the violin", None),
        ("many", "q", "the passport", None),
        ("blank", "q", "anything", None),
        ("nowhere", "q", "anything", None),
    ]);
    night.run(&[]).ends_with(0);
    assert_eq!(
        night.rows("SELECT store_id, status, cardinality(turn_ids) FROM slates ORDER BY store_id"),
        [
            ["blank", "empty", "0"],
            ["many", "ok", "29"],
            ["nowhere", "unknown_store", "0"],
            ["one", "ok", "1"],
            ["two", "ok", "2"]
        ]
    );
}

#[test]
fn two_stores_with_the_same_words_keep_to_themselves() {
    let night = Night::new();
    let mut turns: Vec<Turn> = history("a", 20);
    turns.extend(history("b", 20).into_iter().zip(history("a", 20)).map(|(b, a)| Turn { content: a.content, ..b }));
    night.turns(&turns).requests(&[("a", "q", "the kettle", None), ("b", "q", "the kettle", None)]);
    night.run(&[]).ends_with(0);
    for store in ["a", "b"] {
        let ids = night.column(&format!("SELECT unnest(turn_ids) FROM slates WHERE store_id = '{store}'"));
        assert_eq!(ids.len(), 20);
        assert!(ids.iter().all(|id| id.starts_with(&format!("{store}-"))), "{ids:?}");
    }
}

#[test]
fn nothing_after_the_reference_date_is_recalled() {
    let night = Night::new();
    night
        .turns(&history("a", 40))
        .requests(&[("a", "dated", "the violin", Some("2024-03-02T10:04:30Z")), ("a", "standing", "the violin", None)]);
    night.run(&[]).ends_with(0);
    // Sessions of ten turns, a day each: ten of the first day, and minutes 0 to 4 of the second.
    let count = |night: &Night, request: &str| {
        night.column(&format!("SELECT cardinality(turn_ids) FROM slates WHERE request_id = '{request}'")).remove(0)
    };
    assert_eq!((count(&night, "dated"), count(&night, "standing")), ("15".into(), "40".into()));
    let late = "SELECT count(*) FROM pools p JOIN turns t ON p.turn_id = t.turn_id WHERE t.spoken_at > p.reference_at";
    assert_eq!(night.column(late), ["0"]);
    // --as-of is the reference date of standing requests only.
    night.run(&["--as-of", "2024-03-01T23:00:00Z"]).ends_with(0);
    assert_eq!((count(&night, "dated"), count(&night, "standing")), ("15".into(), "10".into()));
}

#[test]
fn a_text_said_forty_times_takes_one_slot() {
    let night = Night::new();
    let mut turns = history("a", 30);
    for i in 0..40 {
        turns.push(turn(
            "a",
            "again",
            &format!("again{i}"),
            &format!("2024-04-01T10:{i:02}:00Z"),
            "the violin is at the repair shop",
        ));
    }
    night.turns(&turns).requests(&[("a", "q", "where is the violin", None)]).labels(&[("a", "q", "again7")]);
    night.run(&[]).ends_with(0);
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["70"]);
    let ids = night.column("SELECT unnest(turn_ids) FROM slates");
    assert_eq!(ids.iter().filter(|id| id.starts_with("again")).count(), 1);
    assert_eq!(ids.len(), 31);
    // The labelled copy is not the one that was chosen, and the evidence is there all the same.
    assert!(!ids.contains(&"again7".to_string()));
    let report = night.on_lake("eval", &["--json"]).ends_with(0).json();
    let all = report["splits"].as_array().unwrap().iter().find(|s| s["split"] == "all").unwrap();
    assert_eq!(all["classes"][0]["slate"]["value"], 1.0);
}

#[test]
fn the_budget_is_kept_and_changes_no_ranking() {
    let night = Night::new();
    let mut turns = history("a", 60);
    turns.push(turn("a", "long", "long", "2024-05-01T10:00:00Z", &"violin practice ".repeat(25_000)));
    night.turns(&turns).requests(&[("a", "q", "violin", None)]);
    night.run(&[]).ends_with(0);
    let ranking = "SELECT turn_id, rank, score FROM rankings ORDER BY rank";
    let before = night.rows(ranking);
    assert_eq!(before.len(), 61);
    let ids = night.column("SELECT unnest(turn_ids) FROM slates");
    // The long turn alone is above the budget: skipped, and the fill went on.
    assert_eq!(ids.len(), 60);
    assert!(!ids.contains(&"long".to_string()));
    for (budget, chosen) in [("0", 0), ("1", 0), ("1000000", 61)] {
        let ran = night.run(&["--set", &format!("budget_tokens={budget}")]).ends_with(0);
        assert_eq!(ran.table("rankings", "stores_computed"), 0, "budget {budget}");
        assert_eq!(ran.table("slates", "stores_computed"), 1, "budget {budget}");
        assert_eq!(night.column("SELECT unnest(turn_ids) FROM slates").len(), chosen, "budget {budget}");
        assert_eq!(night.rows(ranking), before);
    }
    let over = "SELECT count(*) FROM slates WHERE tokens > budget_tokens OR tokens <> count_tokens(text)";
    assert_eq!(night.column(over), ["0"]);
}

#[test]
fn a_turn_is_read_under_its_own_date() {
    let night = Night::new();
    night.turns(&[turn("a", "s", "t", "2023-05-08T13:56:00Z", "I met her yesterday")]);
    night.requests(&[("a", "q", "when did we meet", None)]);
    night.run(&[]).ends_with(0);
    let shown = night.on_lake("show", &["--store", "a", "--request", "q"]).ends_with(0);
    assert_eq!(shown.stdout, "### Session 1 (2023-05-08 13:56)\nuser: I met her yesterday\n");
}

#[test]
fn why_a_turn_is_in_or_out_is_told() {
    let night = Night::new();
    let mut turns = history("a", 12);
    turns.push(turn("a", "long", "long", "2024-05-01T10:00:00Z", &"violin practice ".repeat(200)));
    night.turns(&turns).requests(&[("a", "q", "violin", None)]).labels(&[("a", "q", "a-t1")]);
    night.run(&["--set", "budget_tokens=120"]).ends_with(0);
    let told = night.on_lake("explain", &["--store", "a", "--request", "q"]).ends_with(0).stdout;
    assert!(told.contains("in slate") && told.contains("did not fit"), "{told}");
    let gone = night.on_lake("explain", &["--store", "a", "--request", "nope"]).ends_with(1).stderr;
    assert!(gone.contains("nope"), "{gone}");
}
