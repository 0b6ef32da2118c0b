//! Which turn is which, and which comes first, where the input says it badly or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array};

use super::support::{Night, Turn, history, text, turn, turns_batch, with_column, without_column, write};

#[test]
fn a_number_that_does_not_fit_sets_its_row_aside() {
    let night = Night::new();
    night.requests(&[("a", "q", "kettle", None)]);
    // Someone gave milliseconds since 1970 as an ordinal, once.
    let ordinals = Int64Array::from(vec![0, 1, 1_700_000_000_000, 3, 4]);
    let mut batch = with_column(&turns_batch(&history("a", 5)), "turn_ordinal", Arc::new(ordinals));
    for other in ["session_ordinal", "position"] {
        batch = with_column(&batch, other, Arc::new(Int64Array::from(vec![None; 5])));
    }
    write(&night.input().join("turns.parquet"), &batch);
    let ran = night.run(&[]).ends_with(3);
    assert_eq!(ran.json()["rejects"], 1);
    let told = night.rows("SELECT source, row_id, reason FROM rejects").remove(0);
    assert_eq!(told[..2], ["turns", "a-t2"]);
    assert!(told[2].contains("turn_ordinal") && told[2].contains("out of range"), "{told:?}");
    assert_eq!(night.column("SELECT turn_id FROM turns ORDER BY turn_ordinal"), ["a-t0", "a-t1", "a-t3", "a-t4"]);
    assert_eq!(night.column("SELECT cardinality(turn_ids) FROM slates"), ["4"]);
}

#[test]
fn of_two_turns_with_one_id_the_same_is_kept_in_any_order_of_rows() {
    let (one, two) = (Night::new(), Night::new());
    let mut turns = history("a", 12);
    // Id, time and text are the same; who said it, and where, is not.
    let again: Vec<Turn> = turns
        .iter()
        .map(|t| Turn { role: Some("assistant".into()), session: Some("a-elsewhere".into()), ..t.clone() })
        .collect();
    turns.extend(again);
    one.turns(&turns).requests(&[("a", "q", "kettle", None)]);
    turns.reverse();
    two.turns(&turns).requests(&[("a", "q", "kettle", None)]);
    for night in [&one, &two] {
        assert_eq!(night.run(&[]).ends_with(3).json()["rejects"], 12);
        assert_eq!(night.column("SELECT count(*) FROM turns"), ["12"]);
    }
    assert_eq!(one.contents(), two.contents());
}

/// The lines of a slate under each of its headers.
fn under_headers(night: &Night) -> Vec<Vec<String>> {
    let shown = night.on_lake("show", &["--store", "a", "--request", "q"]).ends_with(0).stdout;
    let mut groups: Vec<Vec<String>> = Vec::new();
    for line in shown.lines() {
        match groups.last_mut() {
            Some(group) if !line.starts_with("### ") => group.push(line.to_string()),
            _ => groups.push(Vec::new()),
        }
    }
    groups
}

#[test]
fn sessions_with_the_same_ordinal_are_two_sessions() {
    let times = ["2024-03-01T10:00:00Z", "2024-03-01T10:01:00Z", "2024-03-01T10:02:00Z", "2024-03-01T10:03:00Z"];
    for dated in [true, false] {
        let night = Night::new();
        let said = |i: usize, session: &str, text: &str| {
            let said = turn("a", session, &format!("t{i}"), times[i], text);
            if dated { said } else { Turn { at: None, ..said } }
        };
        let turns = [
            said(0, "s1", "the kettle is red"),
            said(1, "s2", "the kettle is loud"),
            said(2, "s1", "the kettle is old"),
            said(3, "s2", "the kettle is gone"),
        ];
        let same = Arc::new(Int32Array::from(vec![0; 4])) as ArrayRef;
        write(&night.input().join("turns.parquet"), &with_column(&turns_batch(&turns), "session_ordinal", same));
        night.requests(&[("a", "q", "kettle", None)]);
        night.run(&[]).ends_with(0);
        assert_eq!(
            under_headers(&night),
            [
                ["user: the kettle is red", "user: the kettle is old"],
                ["user: the kettle is loud", "user: the kettle is gone"]
            ],
            "dated: {dated}"
        );
    }
}

#[test]
fn numbers_in_ids_are_counted_where_nothing_else_tells_the_order() {
    let night = Night::new();
    let said = |session: &str, id: &str| Turn { at: None, ..turn("a", session, id, "", &format!("kettle of {id}")) };
    night.turns(&[said("s10", "t20"), said("s2", "t10"), said("s10", "t3"), said("s2", "t30"), said("s2", "t2")]);
    night.requests(&[("a", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    assert_eq!(
        night.rows("SELECT session_id, turn_id, position FROM turns ORDER BY turn_ordinal"),
        [["s2", "t2", "0"], ["s2", "t10", "1"], ["s2", "t30", "2"], ["s10", "t3", "0"], ["s10", "t20", "1"]]
    );
    assert_eq!(
        night.column("SELECT session_id FROM turns GROUP BY session_id ORDER BY min(session_ordinal)"),
        ["s2", "s10"]
    );
    let kettles = |ids: &[&str]| ids.iter().map(|id| format!("user: kettle of {id}")).collect::<Vec<_>>();
    assert_eq!(under_headers(&night), [kettles(&["t2", "t10", "t30"]), kettles(&["t3", "t20"])]);
}

#[test]
fn an_undated_turn_of_a_later_session_is_of_the_future() {
    let night = Night::new();
    let undated = |session: &str, id: &str| Turn { at: None, ..turn("a", session, id, "", &format!("kettle of {id}")) };
    night.turns(&[
        turn("a", "early", "e1", "2024-03-01T10:00:00Z", "the kettle is red"),
        undated("early", "e2"),
        turn("a", "late", "l1", "2024-03-09T10:00:00Z", "the kettle is gone"),
        undated("late", "l2"),
        turn("a", "late", "l3", "2024-03-09T10:02:00Z", "the kettle is back"),
    ]);
    night.requests(&[("a", "then", "kettle", Some("2024-03-05T00:00:00Z")), ("a", "now", "kettle", None)]);
    night.run(&[]).ends_with(0);
    for (request, recalled) in [("then", vec!["e1", "e2"]), ("now", vec!["e1", "e2", "l1", "l2", "l3"])] {
        for table in ["pools", "features", "rankings"] {
            let sql = format!("SELECT turn_id FROM {table} WHERE request_id = '{request}' ORDER BY turn_id");
            assert_eq!(night.column(&sql), recalled, "{request}: {table}");
        }
    }
}

#[test]
fn a_blank_question_is_set_aside() {
    let night = Night::new();
    night.turns(&history("a", 5));
    night.requests(&[("a", "blank", " \n", None), ("a", "empty", "", None), ("a", "q", "kettle", None)]);
    assert_eq!(night.run(&[]).ends_with(3).json()["rejects"], 2);
    assert_eq!(
        night.rows("SELECT source, store_id, row_id, reason FROM rejects ORDER BY row_id"),
        [["requests", "a", "blank", "question is blank"], ["requests", "a", "empty", "question is blank"]]
    );
    assert_eq!(night.rows("SELECT request_id, status FROM slates"), [["q", "ok"]]);
}

#[test]
fn a_column_of_some_files_is_read_and_null_in_the_others() {
    let turns = history("a", 12);
    let (with, without) = (turns_batch(&turns[..6]), turns_batch(&turns[6..]));
    // English by its words, French by its column.
    let french = |n: usize| (0..n).map(|_| Some("fr".to_string()));
    let with = with_column(&with, "language", text(french(6).collect()));
    let without = without_column(&without, "language");

    let whole = Night::new();
    let languages = text(french(6).chain((0..6).map(|_| None)).collect());
    write(&whole.input().join("turns.parquet"), &with_column(&turns_batch(&turns), "language", languages));
    whole.requests(&[("a", "q", "kettle", None)]);
    whole.run(&[]).ends_with(0);
    assert_eq!(
        whole.column("SELECT turn_id FROM turns WHERE language = 'fr' ORDER BY turn_ordinal"),
        (0..6).map(|i| format!("a-t{i}")).collect::<Vec<_>>()
    );
    // Whichever file is read first.
    for names in [["part-0", "part-1"], ["part-1", "part-0"]] {
        let night = Night::new();
        let folder = night.input().join("turns.parquet");
        std::fs::create_dir(&folder).unwrap();
        for (name, batch) in names.iter().zip([&with, &without]) {
            write(&folder.join(format!("{name}.parquet")), batch);
        }
        night.requests(&[("a", "q", "kettle", None)]);
        night.run(&[]).ends_with(0);
        assert_eq!(night.contents(), whole.contents(), "{names:?}");
    }
}
