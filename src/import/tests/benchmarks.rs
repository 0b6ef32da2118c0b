//! LongMemEval, LoCoMo and BEAM.

use super::*;

#[test]
fn longmemeval_sorts_sessions_and_names_turns() {
    let done = imported(Format::LongMemEval, &data("longmemeval.json"), &Options::default());
    assert_eq!(
        done.rows_of(
            "garden",
            "turns",
            "session_id turn_id turn_ordinal session_ordinal position spoken_at role content"
        ),
        [
            "weather|weather:1|0|0|0|2023-05-08T13:56:00Z|user|Is it going to rain?",
            "weather|weather:2|1|0|1|2023-05-08T13:56:00Z|assistant|",
            "weather|weather:5|2|0|2|2023-05-08T13:56:00Z|assistant|-",
            "herbs|herbs:1|3|1|0|2023-05-30T23:17:00Z|user|I planted mint today.",
            "herbs|herbs:2|4|1|1|2023-05-30T23:17:00Z|assistant|Mint spreads fast.",
            "herbs#2|herbs#2:1|5|2|0|2023-05-30T23:17:00Z|user|More herbs?",
            "herbs#2|herbs#2:2|6|2|1|2023-05-30T23:17:00Z|assistant|You could plant dill, as you did last year.",
        ]
    );
    assert_eq!(
        done.rows("requests", "store_id request_id asked_at split"),
        ["garden|garden|2023-06-02T09:30:00Z|-", "piano_abs|piano_abs|2023-06-03T10:00:00Z|-"]
    );
    // Evidence is in an assistant's turn too; a question that cannot be answered has none.
    assert_eq!(done.rows("labels", "request_id turn_id relevance"), ["garden|herbs:1|1", "garden|herbs#2:2|1"]);
    assert_eq!(done.report.stores, 3, "the turns of a question that is set aside stay");
    assert_eq!(done.report.requests_with_evidence, 1);
    assert_eq!(done.report.requests_across_sessions, 1);
}

#[test]
fn longmemeval_sets_bad_rows_aside() {
    let done = imported(Format::LongMemEval, &data("longmemeval.json"), &Options::default());
    assert_eq!(
        done.rows("rejects", "source store_id row_id reason"),
        [
            "turns|garden|weather:3|role \"narrator\" is not user, assistant, system or tool",
            "turns|garden|weather:4|content is 17, not a text, null or a list of parts",
            "turns|garden|broken-date:1|haystack_date \"some day in June\" cannot be read as a time",
            "requests|short-list|short-list|instance 3: haystack_session_ids, haystack_dates and haystack_sessions \
             have 2, 1 and 2 entries",
            "requests|no-date|no-date|question_date \"now\" cannot be read as a time",
            "requests|garden|garden|instance 5: question_id \"garden\" occurs twice",
            "requests|-|-|instance 6: the instance is a list, not an object",
        ]
    );
    assert_eq!(done.report.rejected(), 7);
    assert_eq!(done.report.rejects["turns"]["unreadable date"], 1);
}

#[test]
fn options_fill_what_longmemeval_leaves_open() {
    let options = Options { default_zone_offset_minutes: 540, tenant_id: "acme".into(), split: Some("dev".into()) };
    let done = imported(Format::LongMemEval, &data("longmemeval.json"), &options);
    assert_eq!(done.rows("requests", "tenant_id asked_at split")[0], "acme|2023-06-02T00:30:00Z|dev");
    assert_eq!(done.rows("turns", "tenant_id spoken_at")[0], "acme|2023-05-08T04:56:00Z");
}

#[test]
fn locomo_writes_lines_in_session_order() {
    let done = imported(Format::Locomo, &data("locomo.json"), &Options::default());
    assert_eq!(
        done.rows_of(
            "pair-1",
            "turns",
            "session_id turn_id turn_ordinal session_ordinal position spoken_at role speaker content"
        ),
        [
            "session_1|D1:1|0|0|0|2023-05-08T13:56:00Z|user|Ann|Ann: I bought a tent.",
            "session_1|D1:2|1|0|1|2023-05-08T13:56:00Z|assistant|Bo|Bo: Show me!",
            "session_1|D1:3|2|0|2|2023-05-08T13:56:00Z|user|Ann|Ann: Here it is. [shares a photo of a green tent]",
            "session_2|D2:1|3|1|0|2023-05-20T19:30:00Z|user|Ann|Ann: Plan, part 1.",
            "session_2|D2:2|4|1|1|2023-05-20T19:30:00Z|assistant|Bo|Bo: Plan, part 2.",
            "session_2|D2:3|5|1|2|2023-05-20T19:30:00Z|user|Ann|Ann: Plan, part 3.",
            "session_2|D2:4|6|1|3|2023-05-20T19:30:00Z|assistant|Bo|Bo: Plan, part 4.",
            "session_2|D2:5|7|1|4|2023-05-20T19:30:00Z|user|Ann|Ann: Plan, part 5.",
            "session_2|D2:8|8|1|5|2023-05-20T19:30:00Z|assistant|Bo|  ",
            "session_10|D10:1|9|2|0|2023-06-02T00:05:00Z|assistant|Bo|Bo: We reached the hut after midnight.",
        ]
    );
}

#[test]
fn locomo_repairs_evidence() {
    let done = imported(Format::Locomo, &data("locomo.json"), &Options::default());
    assert_eq!(
        done.rows_of("pair-1", "labels", "request_id turn_id relevance"),
        [
            "pair-1:q0|D1:1|1",
            "pair-1:q0|D2:2|1",
            "pair-1:q1|D2:1|1",
            "pair-1:q1|D2:3|1",
            "pair-1:q1|D10:1|1",
            "pair-1:q2|D1:3|1",
            "pair-1:q5|D1:1|1",
        ]
    );
    let report = &done.report;
    // Seven of the first conversation's ten questions can be read, and one of each other's.
    assert_eq!((report.requests, report.dropped_questions), (10, 1));
    assert_eq!((report.requests_with_evidence, report.requests_across_sessions), (7, 2));
    // The bare letter, two ids of no turn, and one of a turn that was set aside.
    assert_eq!(report.dropped_evidence, 4);
}

#[test]
fn locomo_dates_and_splits_its_questions() {
    let done = imported(Format::Locomo, &data("locomo.json"), &Options::default());
    let requests = done.rows("requests", "store_id request_id question asked_at split");
    assert_eq!(requests[0], "pair-1|pair-1:q0|What did Ann buy?|2023-06-02T00:05:00Z|dev");
    assert_eq!(
        requests[7..],
        [
            "pair-2|pair-2:q0|Who says hello?|2022-03-01T09:05:00Z|dev",
            "pair-3|pair-3:q0|Who says hello?|2022-03-01T09:05:00Z|dev",
            "pair-4|pair-4:q0|Who says hello?|2022-03-01T09:05:00Z|test",
        ]
    );
}

#[test]
fn locomo_sets_bad_rows_aside() {
    let done = imported(Format::Locomo, &data("locomo.json"), &Options::default());
    assert_eq!(
        done.rows("rejects", "source store_id row_id reason"),
        [
            "turns|pair-1|D2:6|session_2, turn 6: speaker \"Cleo\" is neither of the two",
            "turns|pair-1|D2:7|session_2, turn 7: text is a list, not a text",
            "turns|pair-1|D4:1|session_4, turn 1: session_4_date_time \"one fine day\" cannot be read as a time",
            "requests|pair-1|pair-1:q8|question is missing",
            "requests|pair-1|pair-1:q9|category is \"temporal\", not a number from 1 to 5",
        ]
    );
}

#[test]
fn locomo_reads_one_conversation_alone() {
    let done = imported(Format::Locomo, &data("locomo_one.json"), &Options::default());
    assert_eq!(done.rows("turns", "store_id turn_id content"), ["pair-1|D1:1|Bo: Hello from pair-1."]);
    assert!(!done.out.path().join("rejects.parquet").exists(), "no row was set aside");
}

#[test]
fn beam_dates_the_chat_from_each_anchor_on() {
    let done = imported(Format::Beam, &data("beam"), &Options::default());
    assert_eq!(
        done.rows_of("1", "turns", "session_id turn_id turn_ordinal session_ordinal position spoken_at role content"),
        [
            "1|0|0|0|0|2024-03-15T00:00:00Z|user|Help me plan a bookshelf.",
            "1|1|1|0|1|2024-03-15T00:00:00Z|assistant|Measure the wall first.",
            "1|2|2|0|2|2024-03-15T00:00:00Z|user|It is 2 m wide",
            "1|3|3|0|3|2024-03-15T00:00:00Z|assistant|Then use three boards.",
            "2|4|4|1|0|2024-03-15T00:00:00Z|user|Which screws?",
            "2|5|5|1|1|2024-03-15T00:00:00Z|assistant|Size 4.",
            "2|6|6|1|2|2024-04-05T00:00:00Z|user|And now?",
            "3|8|7|2|0|-|assistant|After an anchor that cannot be read.",
        ]
    );
    assert_eq!(
        done.rows("rejects", "source store_id row_id reason"),
        [
            "turns|1|6|turn_id \"6\" occurs twice in its store",
            "turns|1|7|batch 3, message 1: time_anchor \"Soon\" cannot be read as a time",
            "turns|1|9|batch 3, message 3: role \"robot\" is not user, assistant, system or tool",
            "requests|1|summarization|the category is \"not a list\", not a list",
        ]
    );
}

#[test]
fn beam_collects_evidence_however_it_is_nested() {
    let done = imported(Format::Beam, &data("beam"), &Options::default());
    assert_eq!(
        done.rows("requests", "store_id request_id asked_at split"),
        [
            "1|abstention:0|2024-04-05T00:00:00Z|dev",
            "1|contradiction_resolution:0|2024-04-05T00:00:00Z|dev",
            "1|information_extraction:0|2024-04-05T00:00:00Z|dev",
            "1|information_extraction:1|2024-04-05T00:00:00Z|dev",
            "7|summarization:0|2024-01-02T00:00:00Z|test",
            "10|summarization:0|2024-01-02T00:00:00Z|test",
            "notes|summarization:0|2024-01-02T00:00:00Z|test",
        ]
    );
    assert_eq!(
        done.rows_of("1", "labels", "request_id turn_id"),
        [
            "contradiction_resolution:0|4",
            "contradiction_resolution:0|0",
            "information_extraction:0|2",
            "information_extraction:1|3"
        ]
    );
    assert_eq!(done.report.dropped_evidence, 1);
    assert_eq!(done.report.requests_across_sessions, 1);
}

#[test]
fn beam_reads_one_chat_alone() {
    let done = imported(Format::Beam, &data("beam/7"), &Options::default());
    assert_eq!(done.rows("turns", "store_id turn_id content"), ["7|0|Chat 7."]);
}
