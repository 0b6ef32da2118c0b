//! Inputs as others write them: many files, other layouts, other types, odd ids, times in any form.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};

use super::support::{Night, Turn, history, memslate, text, turn, turns_batch, write};

const SLATES: &str = "SELECT store_id, request_id, status, tokens, text FROM slates ORDER BY store_id, request_id";

#[test]
fn many_small_files_and_an_empty_one_are_one_input() {
    let (one, many) = (Night::new(), Night::new());
    let turns = history("a", 24);
    one.turns(&turns).requests(&[("a", "q", "the violin", None)]);
    many.requests(&[("a", "q", "the violin", None)]);
    let folder = many.input().join("turns.parquet");
    std::fs::create_dir(&folder).unwrap();
    for (i, part) in turns.chunks(5).enumerate() {
        write(&folder.join(format!("part-{i}.parquet")), &turns_batch(part));
    }
    write(&folder.join("part-none.parquet"), &turns_batch(&[]));
    for night in [&one, &many] {
        night.run(&[]).ends_with(0);
    }
    assert_eq!(one.contents(), many.contents());
    // No file of a table is without rows.
    for file in files(&many.lake()) {
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&file).unwrap());
        assert!(reader.unwrap().metadata().file_metadata().num_rows() > 0, "{}", file.display());
    }
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
        if entry.is_dir() && !entry.ends_with("_delta_log") {
            all.extend(files(&entry));
        } else if entry.extension().is_some_and(|e| e == "parquet") {
            all.push(entry);
        }
    }
    all
}

#[test]
fn more_columns_do_no_harm_and_nested_ones_are_read() {
    let night = Night::new();
    let batch = turns_batch(&history("a", 6));
    let mut columns: Vec<(String, ArrayRef)> =
        batch.schema().fields().iter().map(|f| f.name().clone()).zip(batch.columns().iter().cloned()).collect();
    columns.push(("mood".into(), text(vec![Some("calm".into()); 6])));
    columns.push((
        "client".into(),
        Arc::new(StructArray::from(vec![(Arc::new(Field::new("app", DataType::Utf8, true)), text(vec![None; 6]))])),
    ));
    write(&night.input().join("turns.parquet"), &RecordBatch::try_from_iter(columns).unwrap());
    night.requests(&[("a", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["6"]);
}

/// A session a row, its messages a nested list.
fn sessions(turns: &[Turn]) -> RecordBatch {
    let mut starts = vec![0usize];
    let (mut users, mut ids, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (i, t) in turns.iter().enumerate() {
        if i == 0 || turns[i - 1].session != t.session {
            if i > 0 {
                starts.push(i);
            }
            users.push(t.store.clone());
            ids.push(t.session.clone());
            times.push(t.at.clone());
        }
    }
    starts.push(turns.len());
    let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8, true));
    let column =
        |f: &dyn Fn(&Turn) -> Option<String>| Arc::new(turns.iter().map(f).collect::<StringArray>()) as ArrayRef;
    let messages = StructArray::from(vec![
        (field("role"), column(&|t| t.role.clone())),
        (field("content"), column(&|t| t.content.clone())),
        (field("sent_at"), column(&|t| t.at.clone())),
    ]);
    let lengths = starts.windows(2).map(|w| w[1] - w[0]);
    let item = Arc::new(Field::new("item", arrow::array::Array::data_type(&messages).clone(), true));
    let list = ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(messages), None).unwrap();
    RecordBatch::try_from_iter_with_nullable([
        ("user_id", text(users), true),
        ("conversation_id", text(ids), true),
        ("started_at", text(times), true),
        ("messages", Arc::new(list) as ArrayRef, true),
    ])
    .unwrap()
}

#[test]
fn another_layout_needs_only_another_first_select() {
    let (flat, nested) = (Night::new(), Night::new());
    let mut turns = history("a", 25);
    turns.extend(history("b", 12));
    let requests = [("a", "q", "the violin", None), ("b", "q", "the garden", None)];
    flat.turns(&turns).requests(&requests);
    nested.requests(&requests);
    write(&nested.input().join("sessions.parquet"), &sessions(&turns));
    flat.run(&[]).ends_with(0);
    let mut arguments = nested.run_arguments(&[]);
    arguments[1] = "jobs/sessions.toml".into();
    memslate(&arguments).ends_with(0);
    assert_eq!(flat.rows(SLATES), nested.rows(SLATES));
    assert_eq!(
        nested.column("SELECT turn_id FROM turns WHERE store_id = 'b' ORDER BY turn_ordinal LIMIT 2"),
        ["b-s0:1", "b-s0:2"]
    );
}

#[test]
fn ids_are_ids_and_never_paths() {
    let night = Night::new();
    let long = "x".repeat(300);
    let stores = [
        "550e8400-e29b-41d4-a716-446655440000",
        "main",
        "a/b\\c",
        "con",
        "../up",
        "用户一",
        "it's \"quoted\"",
        "%2F",
        &long,
    ];
    let mut turns = Vec::new();
    for store in stores {
        turns.push(turn(
            store,
            &format!("{store}/s"),
            &format!("{store}#1"),
            "2024-01-01T00:00:00Z",
            "the kettle is red",
        ));
        turns.push(turn(
            store,
            &format!("{store}/s"),
            &format!("{store}#2"),
            "2024-01-01T00:01:00Z",
            "the violin is old",
        ));
    }
    let requests: Vec<_> = stores.iter().map(|s| (*s, *s, "which colour is the kettle", None)).collect();
    night.turns(&turns).requests(&requests);
    night.run(&[]).ends_with(0);
    let mut wanted: Vec<String> = stores.iter().map(|s| s.to_string()).collect();
    wanted.sort();
    assert_eq!(night.column("SELECT store_id FROM slates WHERE status = 'ok' ORDER BY store_id"), wanted);
    for store in stores {
        let shown = night.on_lake("show", &[&format!("--store={store}"), &format!("--request={store}")]).ends_with(0);
        assert!(shown.stdout.contains("the kettle is red"), "{store}");
    }
}

#[test]
fn times_are_times_in_whatever_form() {
    let night = Night::new();
    // Out of order, in four zones, one without a zone: it is in the job's.
    night.turns(&[
        turn("a", "s2", "fourth", "2024-03-10T00:30:00+09:00", "the kettle boils"),
        turn("a", "s1", "second", "2024-03-09T11:00:00Z", "the violin is tuned"),
        turn("a", "s1", "first", "2024-03-09 10:59:59+00:00", "the garden is wet"),
        turn("a", "s3", "third", "2024-03-09 21:00", "the invoice is paid"),
    ]);
    night.requests(&[("a", "q", "kettle", Some("2024-03-11T00:30:00+09:00"))]);
    night.run(&["--set", "naive_zone=+09:00"]).ends_with(0);
    assert_eq!(night.column("SELECT turn_id FROM turns ORDER BY turn_ordinal"), ["first", "second", "third", "fourth"]);
    assert_eq!(night.column("SELECT age_days FROM features WHERE turn_id = 'fourth'"), ["1.0"]);
    assert_eq!(
        night.column("SELECT CAST(spoken_at AS VARCHAR) FROM turns WHERE turn_id = 'third'"),
        ["2024-03-09T12:00:00Z"]
    );
}

#[test]
fn a_session_across_midnight_is_one_session() {
    let night = Night::new();
    night.turns(&[
        turn("a", "night", "n2", "2024-03-10T00:03:00+09:00", "the kettle boils"),
        turn("a", "morning", "m1", "2024-03-09T22:00:00Z", "the kettle is off"),
        turn("a", "night", "n1", "2024-03-09 23:58", "the kettle is on"),
        turn("a", "noon", "d1", "2024-03-09T03:00:00Z", "the kettle is new"),
    ]);
    night.requests(&[("a", "q", "kettle", Some("2024-03-10T23:58:00+09:00"))]);
    night.run(&["--set", "naive_zone=+09:00"]).ends_with(0);
    assert_eq!(
        night.rows("SELECT session_ordinal, position, turn_id FROM turns ORDER BY turn_ordinal"),
        [["0", "0", "d1"], ["1", "0", "n1"], ["1", "1", "n2"], ["2", "0", "m1"]]
    );
    assert_eq!(night.column("SELECT age_days FROM features WHERE turn_id = 'n1'"), ["1.0"]);
    let shown = night.on_lake("show", &["--store", "a", "--request", "q"]).ends_with(0).stdout;
    let headers: Vec<&str> = shown.lines().filter(|l| l.starts_with("### ")).collect();
    // In the job's zone, each with its session's beginning.
    assert_eq!(
        headers,
        ["### Session 1 (2024-03-09 12:00)", "### Session 2 (2024-03-09 23:58)", "### Session 3 (2024-03-10 07:00)"]
    );
}

#[test]
fn chat_logs_become_slates() {
    let night = Night::new();
    let chats = night.path().join("chats");
    std::fs::create_dir(&chats).unwrap();
    let line = r#"{"store_id":"a","session_id":"s","started_at":"2024-05-01T09:00:00Z","messages":[{"role":"user","content":"今天玩成语接龙游戏"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"rain"},{"role":"user","content":[{"type":"text","text":"see the photo"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}"#;
    std::fs::write(chats.join("a.jsonl"), format!("{line}\n")).unwrap();
    let request = r#"{"store_id":"a","request_id":"q","question":"成语接龙","evidence":["s:1"]}"#;
    std::fs::write(chats.join("requests.jsonl"), format!("{request}\n")).unwrap();
    let (chats, out) = (chats.display().to_string(), night.input().display().to_string());
    memslate(&["import", "chat", &chats, "--out", &out]).ends_with(0);
    night.run(&[]).ends_with(0);
    assert_eq!(night.column("SELECT turn_id FROM pools WHERE pool_position = 1"), ["s:1"]);
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["4"]);
    assert_eq!(night.column("SELECT count(*) FROM turns WHERE content LIKE '%base64%'"), ["0"]);
    assert_eq!(night.column("SELECT count(*) FROM pools WHERE turn_id = 's:2'"), ["0"]);
}
