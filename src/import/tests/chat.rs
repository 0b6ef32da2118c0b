//! Chat JSON lines.

use super::*;

/// Imports lines as one file.
fn of_lines(lines: &[String], options: &Options) -> Imported {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("chat.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    imported(Format::Chat, &path, options)
}

fn conversation(store_id: &str, session_id: &str, started_at: &str, content: &str) -> String {
    serde_json::json!({
        "store_id": store_id, "session_id": session_id, "started_at": started_at,
        "messages": [{"role": "user", "content": content}],
    })
    .to_string()
}

#[test]
fn sessions_are_in_time_order_and_turns_as_they_were_said() {
    let done = imported(Format::Chat, &data("chat"), &Options::default());
    let turns =
        done.rows("turns", "tenant_id store_id session_id turn_id turn_ordinal session_ordinal position spoken_at");
    assert_eq!(
        turns,
        [
            "|ann|early|early:1|0|0|0|2023-05-08T00:00:00Z",
            "|ann|early|early:2|1|0|1|2023-05-08T00:00:00Z",
            "|ann|parts|parts:1|2|1|0|2023-05-08T13:56:00Z",
            "|ann|parts|parts:2|3|1|1|2023-05-08T13:56:00Z",
            "|ann|parts|parts:3|4|1|2|2023-05-08T13:56:00Z",
            "|ann|parts|parts:4|5|1|3|2023-05-08T13:56:01Z",
            "|ann|parts|parts:5|6|1|4|2023-05-08T13:56:00Z",
            "|ann|parts|parts:6|7|1|5|2023-05-08T13:56:00Z",
            "|ann|parts|parts:7|8|1|6|2023-05-08T13:56:00Z",
            "|ann|parts|the-answer|9|1|7|2023-05-08T13:56:05.250Z",
            // A session across midnight stays one, in the order in which it was said.
            "|ann|late|late:1|10|2|0|2023-05-09T14:58:00Z",
            "|ann|late|late:2|11|2|1|2023-05-09T15:03:00Z",
            "|ann|bad-rows|bad-rows:7|12|3|0|2023-05-11T00:00:00Z",
            "|ann|bad-start|bad-start:2|13|4|0|2023-05-12T00:00:00Z",
            "|bo|1|1:1|0|0|0|-",
            "acme|ann|early|early:1|0|0|0|-",
        ]
    );
}

#[test]
fn texts_are_kept_and_nothing_else() {
    let done = imported(Format::Chat, &data("chat"), &Options::default());
    let parts: Vec<_> = done
        .rows("turns", "session_id role speaker content")
        .into_iter()
        .filter_map(|row| Some(row.strip_prefix("parts|")?.to_owned()))
        .collect();
    assert_eq!(
        parts,
        [
            "system|-|Be brief.",
            "user|Ann|Ann: What is this?\nAnd why?",
            "assistant|-|-",
            "tool|-|{\"label\":\"cat\"}",
            "user|-|-",
            "assistant|-| \n",
            "tool|-|-",
            "assistant|Bot|Bot: A cat.",
        ]
    );
    assert!(done.rows("turns", "content").iter().all(|c| !c.contains("iVBOR")), "no base64");
}

#[test]
fn bad_rows_are_set_aside_and_the_others_go_on() {
    let done = imported(Format::Chat, &data("chat"), &Options::default());
    assert_eq!(
        done.rows("rejects", "source store_id row_id reason"),
        [
            "turns|-|-|a.jsonl:4: the line is not JSON: EOF while parsing a list at column 33",
            "turns|-|-|b.jsonl:7: store_id is missing",
            "turns|-|-|b.jsonl:8: the line is a list, not an object",
            "requests|-|-|requests.jsonl:8: the line is not JSON: expected ident at column 2",
            "turns|ann|bad-rows:1|a.jsonl:5, message 1: content is 42, not a text, null or a list of parts",
            "turns|ann|bad-rows:2|a.jsonl:5, message 2: role \"narrator\" is not user, assistant, system or tool",
            "turns|ann|bad-rows:3|a.jsonl:5, message 3: role is missing",
            "turns|ann|bad-rows:4|a.jsonl:5, message 4: the message is \"not a message\", not an object",
            "turns|ann|bad-rows:5|a.jsonl:5, message 5: created_at \"half past\" cannot be read as a time",
            "turns|ann|bad-rows:6|a.jsonl:5, message 6: text is 5, not a text",
            "turns|ann|the-answer|turn_id \"the-answer\" occurs twice in its store",
            "turns|ann|bad-rows:9|a.jsonl:5, message 9: id is a list, not a text or a whole number",
            "turns|ann|early:1|turn_id \"early:1\" occurs twice in its store",
            "turns|ann|-|b.jsonl:5: messages is missing",
            "turns|ann|bad-start:1|b.jsonl:6, message 1: started_at \"noonish\" cannot be read as a time",
            "labels|ann|r1|requests.jsonl:1: evidence \"gone\" is no turn of the store",
            "requests|ann|r1|request_id \"r1\" occurs twice in its store",
            "requests|ann|r3|requests.jsonl:4: question is 7, not a text",
            "requests|ann|r4|requests.jsonl:5: split \"train\" is not dev or test",
            "requests|ann|-|requests.jsonl:6: request_id is missing",
        ]
    );
}

#[test]
fn requests_come_from_files_of_that_name() {
    let done = imported(Format::Chat, &data("chat"), &Options::default());
    assert_eq!(
        done.rows("requests", "store_id request_id question asked_at split"),
        [
            "ann|r1|What was on the picture?|2023-05-20T10:00:00Z|test",
            "ann|r2|A standing one?|-|-",
            // A store that does not exist is for the run to answer.
            "nobody|r1|Who is there?|-|-",
        ]
    );
    assert_eq!(done.rows("labels", "request_id turn_id relevance"), ["r1|the-answer|1", "r1|late:1|1"]);
    assert_eq!((done.report.stores, done.report.requests_across_sessions), (3, 1));
}

#[test]
fn any_text_works_as_an_id() {
    let long = "x".repeat(300);
    let ids =
        ["8c2b8f0e-6c1c-4f5e-9a55-0d3a1f1d2b3c", "main", "a/b\\c", "con", "../..", "用户", "เจ้าของ", "a|b\n", &long];
    let lines: Vec<String> = ids.iter().map(|id| conversation(id, id, "2023-05-08", "Hello.")).collect();
    let done = of_lines(&lines, &Options::default());
    let mut expected: Vec<String> = ids.iter().map(|id| format!("{id}|{id}|{id}:1|0|Hello.")).collect();
    expected.sort();
    let mut turns = done.rows("turns", "store_id session_id turn_id turn_ordinal content");
    turns.sort();
    assert_eq!(turns, expected);
    assert_eq!(done.report.rejected(), 0);
    let mut files: Vec<_> = fs::read_dir(done.out.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["labels.parquet", "requests.parquet", "turns.parquet"]);
}

#[test]
fn times_with_and_without_a_zone_stand_in_one_order() {
    // In UTC: 04:00, 05:00, 03:00 and 06:00, with +09:00 for the naive ones.
    let lines = [
        conversation("s", "naive", "2023-05-08 13:00", "b"),
        conversation("s", "zulu", "2023-05-08T05:00:00Z", "c"),
        conversation("s", "tokyo", "2023-05-08T12:00:00+09:00", "a"),
        conversation("s", "naive too", "2023-05-08T15:00:00", "d"),
    ];
    let done = of_lines(&lines, &Options { default_zone_offset_minutes: 540, ..Options::default() });
    assert_eq!(
        done.rows("turns", "session_id session_ordinal spoken_at"),
        [
            "tokyo|0|2023-05-08T03:00:00Z",
            "naive|1|2023-05-08T04:00:00Z",
            "zulu|2|2023-05-08T05:00:00Z",
            "naive too|3|2023-05-08T06:00:00Z",
        ]
    );
}

#[test]
fn a_session_without_a_time_stays_behind_the_one_before_it() {
    let undated = r#"{"store_id":"s","session_id":"undated","messages":[{"role":"user","content":"x"}]}"#;
    let lines = [
        conversation("s", "second", "2023-05-09", "x"),
        undated.to_owned(),
        conversation("s", "first", "2023-05-08", "x"),
        conversation("s", "third", "2023-05-10", "x"),
    ];
    let done = of_lines(&lines, &Options::default());
    assert_eq!(done.rows("turns", "session_id"), ["first", "second", "undated", "third"]);
}

#[test]
fn one_bad_row_among_many_is_one_reject() {
    let mut lines: Vec<String> =
        (0..20_000).map(|n| conversation(&format!("s{}", n % 7), &format!("c{n}"), "2023-05-08", "Hello.")).collect();
    lines[12_345] = conversation("s4", "c12345", "not a time", "Hello.");
    // Valid at a glance, not in full: a surrogate alone is no text.
    lines.push(r#"{"store_id":"s1","session_id":"half","messages":[{"role":"user","content":"\ud83d"}]}"#.to_owned());
    let done = of_lines(&lines, &Options::default());
    assert_eq!((done.report.turns, done.report.rejected()), (19_999, 2));
    assert_eq!(
        done.rows("rejects", "store_id row_id reason")[1],
        "s4|c12345:1|chat.jsonl:12346, message 1: started_at \"not a time\" cannot be read as a time"
    );
    assert_eq!(done.batch("turns").num_rows(), 19_999);
}

#[test]
fn the_time_of_entry_is_kept_where_it_is_given() {
    let line = r#"{"store_id":"s","session_id":"c","started_at":"2023-05-08","added_at":"2023-06-01T00:00:00Z",
        "messages":[{"role":"user","content":"a"},{"role":"user","content":"b","added_at":"2023-06-02T00:00:00Z"}]}"#
        .replace('\n', "");
    let done = of_lines(&[line], &Options::default());
    assert_eq!(done.rows("turns", "added_at"), ["2023-06-01T00:00:00Z", "2023-06-02T00:00:00Z"]);
}
