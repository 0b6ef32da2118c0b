//! The files themselves: their columns, their bytes, and what happens when an input is wrong as a whole.

use super::*;

const ALL: [(Format, &str); 4] = [
    (Format::LongMemEval, "longmemeval.json"),
    (Format::Locomo, "locomo.json"),
    (Format::Beam, "beam"),
    (Format::Chat, "chat"),
];

#[test]
fn columns_are_the_inputs_of_the_schema() {
    for (format, name) in ALL {
        let done = imported(format, &data(name), &Options::default());
        for (table, columns) in [
            (
                schema::TURNS,
                "tenant_id store_id session_id turn_id turn_ordinal session_ordinal position spoken_at added_at role \
                 speaker content language",
            ),
            (schema::REQUESTS, "tenant_id store_id request_id question asked_at split"),
            (schema::LABELS, "tenant_id store_id request_id turn_id relevance"),
            (schema::REJECTS, "tenant_id store_id row_id reason source"),
        ] {
            let written = done.batch(table.name).schema();
            assert_eq!(names(&written).join(" "), columns, "{format} {}", table.name);
            for field in written.fields() {
                let full = table.full_schema();
                assert_eq!(field.as_ref(), full.field_with_name(field.name()).unwrap(), "{format} {}", table.name);
            }
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for (format, name) in ALL {
        let first = imported(format, &data(name), &Options::default());
        let second = imported(format, &data(name), &Options::default());
        assert_eq!(first.report, second.report);
        for table in ["turns", "requests", "labels", "rejects"] {
            let read = |i: &Imported| fs::read(i.out.path().join(format!("{table}.parquet"))).unwrap();
            assert!(read(&first) == read(&second), "{format} {table}");
        }
    }
}

#[test]
fn an_import_replaces_all_of_an_earlier_one() {
    let out = TempDir::new().unwrap();
    let report = import(Format::Chat, &data("chat"), out.path(), &Options::default()).unwrap();
    assert!(report.rejected() > 0 && out.path().join("rejects.parquet").exists());
    import(Format::Locomo, &data("locomo_one.json"), out.path(), &Options::default()).unwrap();
    assert!(!out.path().join("rejects.parquet").exists(), "the rejects were of another import");
}

#[test]
fn a_failed_import_leaves_the_earlier_one_as_it_was() {
    let out = TempDir::new().unwrap();
    import(Format::Chat, &data("chat"), out.path(), &Options::default()).unwrap();
    let before = fs::read(out.path().join("turns.parquet")).unwrap();
    let cut = out.path().join("cut.json");
    let whole = fs::read(data("longmemeval.json")).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let e = import(Format::LongMemEval, &cut, out.path(), &Options::default()).unwrap_err();
    assert!(e.to_string().contains("cut.json: is not whole JSON"), "{e}");
    assert!(fs::read(out.path().join("turns.parquet")).unwrap() == before);
    let parts = fs::read_dir(out.path())
        .unwrap()
        .filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}

#[test]
fn a_folder_made_for_nothing_is_taken_away_again() {
    let base = TempDir::new().unwrap();
    let out = base.path().join("new");
    import(Format::LongMemEval, &data("locomo_one.json"), &out, &Options::default()).unwrap_err();
    assert!(!out.exists());
}

#[test]
fn inputs_that_are_wrong_as_a_whole_say_where_and_what_to_do() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let lone = folder.path().join("lone");
    fs::create_dir(&lone).unwrap();
    fs::write(lone.join("chat.json"), "[]").unwrap();
    for (format, path, what) in [
        (Format::LongMemEval, folder.path().join("none.json"), "none.json: no such file or folder"),
        (Format::Chat, folder.path().join("none.jsonl"), "none.jsonl: no such file or folder"),
        (Format::LongMemEval, write("object.json", "{}"), "object.json: the top of the file has to be a JSON array"),
        (Format::Locomo, write("text.json", "\"a\""), "text.json: the top of the file has to be a JSON array"),
        (Format::Locomo, write("empty.json", " \n"), "empty.json: the top of the file has to be a JSON array"),
        (Format::Locomo, write("more.json", "[] []"), "more.json: is not JSON: trailing characters at line 1 column 4"),
        (Format::LongMemEval, empty.clone(), "empty: is a folder, not a file"),
        (Format::Beam, empty.clone(), "empty: no folder in it has a chat.json"),
        (Format::Beam, data("locomo.json"), "locomo.json: is a file, not a folder"),
        (Format::Beam, lone, "lone: probing_questions.json is missing"),
        (Format::Chat, empty, "empty: no *.jsonl file in it"),
    ] {
        let e = failed(format, &path).to_string();
        assert!(e.contains(what) && e.contains("\n  "), "{format}: {e}");
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said_as_what_it_is() {
    let folder = TempDir::new().unwrap();
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let text = |content: &[u8]| [b"{\"a\": \"", content, b"\"}"].concat();
    for (flawed, what, kind) in [
        (text(b"\xff\xfe"), "is not UTF-8", "not UTF-8"),
        (text(b"\\ud800"), "holds half a character", "half a character"),
        (text(b"\\ud800\\u0041"), "holds half a character", "half a character"),
        (text(b"\\udc00"), "holds half a character", "half a character"),
        (format!("{{\"a\": {}}}", deep(200)).into_bytes(), "is nested deeper than 127 levels", "nested too deep"),
        (b"{\"a\": tru}".to_vec(), "is not JSON", "not JSON"),
    ] {
        let list = folder.path().join("list.json");
        fs::write(&list, [b"[", flawed.as_slice(), b"]"].concat()).unwrap();
        let e = failed(Format::Locomo, &list).to_string();
        let told = e.contains(&format!("list.json: {what}: ")) && e.contains("at line 1 column") && e.contains("\n  ");
        assert!(told, "{what}: {e}");
        // Of a list of lines, the one is set aside and the next goes on.
        let lines = folder.path().join("lines.jsonl");
        let flawed = [b"{\"store_id\": \"s\", \"id\": 1, \"messages\": [], ", &flawed[1..]].concat();
        let good = b"{\"store_id\": \"s\", \"id\": 2, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
        fs::write(&lines, [&flawed[..], b"\n", good].concat()).unwrap();
        let report = imported(Format::Chat, &lines, &Options::default()).report;
        assert_eq!((report.turns, report.rejects["turns"].get(kind)), (1, Some(&1)), "{what}: {report:?}");
    }
    // 127 levels are read.
    let list = folder.path().join("deep.json");
    fs::write(&list, deep(127)).unwrap();
    assert_eq!(imported(Format::Locomo, &list, &Options::default()).report.rejected(), 1);
}

#[test]
fn zeros_and_whole_pairs_of_surrogates_pass_as_text() {
    let folder = TempDir::new().unwrap();
    let lines = folder.path().join("lines.jsonl");
    let message = r#"{"id": "\u0000", "role": "user", "content": "x\u0000y \ud83d\ude00"}"#;
    fs::write(&lines, format!(r#"{{"store_id": "s\u0000t", "id": "a", "messages": [{message}]}}"#)).unwrap();
    let turns = imported(Format::Chat, &lines, &Options::default()).batch("turns");
    let text = |name: &str| turns.column_by_name(name).unwrap().as_string::<i32>().value(0).to_string();
    assert_eq!([text("store_id"), text("turn_id"), text("content")], ["s\0t", "\0", "x\0y \u{1f600}"]);
}

#[test]
fn empty_inputs_give_tables_without_rows() {
    let folder = TempDir::new().unwrap();
    for (format, name) in [(Format::LongMemEval, "a.json"), (Format::Locomo, "b.json"), (Format::Chat, "c.jsonl")] {
        let path = folder.path().join(name);
        fs::write(&path, if format == Format::Chat { "\n\n" } else { "[]" }).unwrap();
        let done = imported(format, &path, &Options::default());
        assert_eq!(done.report, Report::default());
        for table in ["turns", "requests", "labels"] {
            assert_eq!(done.batch(table).num_rows(), 0);
        }
    }
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let far = Options { default_zone_offset_minutes: 32_400, ..Options::default() };
    let split = Options { split: Some("train".into()), ..Options::default() };
    for options in [far, split] {
        let out = TempDir::new().unwrap();
        let e = import(Format::Chat, &data("chat"), out.path(), &options).unwrap_err();
        assert_eq!(e.exit_code(), 2, "{e}");
    }
    assert_eq!("chat".parse::<Format>().unwrap(), Format::Chat);
    assert_eq!("csv".parse::<Format>().unwrap_err().exit_code(), 2);
}
