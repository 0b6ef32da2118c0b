//! Bad input and bad settings: one clear error that says where and what to do, and nothing half-written.

use std::path::Path;

use super::support::{Night, Turn, copy, history, memslate, model, turn, turns_batch, without_column, write};

fn night() -> Night {
    let night = Night::new();
    night.turns(&history("a", 5)).requests(&[("a", "q", "kettle", None)]);
    night
}

#[test]
fn bad_rows_are_set_aside_with_their_reasons() {
    let night = Night::new();
    let good = history("a", 10);
    let mut turns = good.clone();
    let like = |id: &str| Turn { id: Some(id.into()), ..good[0].clone() };
    turns.push(Turn { role: Some("narrator".into()), ..like("bad-role") });
    turns.push(Turn { at: Some("30/02/2024".into()), ..like("bad-time") });
    turns.push(Turn { store: None, ..like("no-store") });
    turns.push(Turn { id: None, ..like("") });
    turns.push(Turn {
        content: Some("said again under the same id".into()),
        at: Some("2024-09-01T00:00:00Z".into()),
        ..good[0].clone()
    });
    turns.push(Turn { role: Some("tool".into()), content: None, ..like("tool-call") });
    night.turns(&turns).requests(&[("a", "q", "kettle", None), ("a", "late", "violin", Some("not a date"))]);
    let ran = night.run(&[]).ends_with(3);
    assert_eq!(ran.json()["rejects"], 6);
    let reasons = night.rows("SELECT source, row_id, reason FROM rejects ORDER BY source, reason");
    let reasons: Vec<_> = reasons.iter().map(|r| r.join("|")).collect();
    assert_eq!(
        reasons,
        [
            "requests|late|asked_at not a date cannot be read as a time",
            "turns|bad-role|role narrator is none of user, assistant, system, tool",
            "turns|bad-time|spoken_at 30/02/2024 cannot be read as a time",
            "turns|no-store|store_id is missing",
            "turns|a-t0|turn_id a-t0 occurs twice in the store",
            "turns||turn_id is missing",
        ]
    );
    // The others went on: ten good turns, and the tool's turn without text, in order but never recalled.
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["11"]);
    assert_eq!(night.column("SELECT content FROM turns WHERE turn_id = 'a-t0'"), ["note 0 about the kettle"]);
    assert_eq!(night.column("SELECT count(*) FROM pools"), ["10"]);
    // A night later they are still told, and a corrected input ends clean.
    night.run(&[]).ends_with(3);
    night.turns(&good).requests(&[("a", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    assert_eq!(night.column("SELECT count(*) FROM rejects"), ["0"]);
}

#[test]
fn check_counts_without_running() {
    let night = Night::new();
    let mut turns = history("a", 3);
    turns.push(Turn { role: Some("narrator".into()), ..turn("a", "s", "x", "2024-01-01", "text") });
    night.turns(&turns).requests(&[("a", "q", "kettle", None)]);
    let mut arguments = night.run_arguments(&[]);
    arguments[0] = "check".into();
    let checked = memslate(&arguments).ends_with(3).json();
    assert_eq!((checked["rows"]["turns"].as_u64(), checked["rejects"].as_object().unwrap().len()), (Some(3), 1));
    assert!(!night.lake().exists());
}

#[test]
fn wrong_settings_end_with_two_and_make_no_lake() {
    let night = night();
    for (extra, says) in [
        (vec!["--set", "budget=3"], "budget"),
        (vec!["--set", "recall.pool=3"], "pool"),
        (vec!["--set", "shards=0"], "shards"),
        (vec!["--until", "slate"], "one of turns"),
        (vec!["--system", "nonesuch"], "nonesuch.toml"),
        (vec!["--memory-limit", "lots"], "lots"),
        (vec!["--as-of", "someday"], "someday"),
        (vec!["--device", "tpu"], "tpu"),
        (vec!["--set", "encoder=nonesuch"], "nonesuch"),
        (vec!["--set", "rank.column=bm25"], "known features"),
        (vec!["--set", "inputs.turns.optinal=true"], "optinal"),
    ] {
        let ran = night.run(&extra);
        assert_eq!(ran.code, Some(2), "{extra:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{extra:?}: {}", ran.stderr);
        assert!(!night.lake().exists(), "{extra:?}");
    }
    let ran = memslate(&["run", "jobs/none.toml", "--lake", "x"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("jobs/none.toml"), "{}", ran.stderr);
}

#[test]
fn missing_inputs_and_wrong_columns_are_named() {
    let night = night();
    std::fs::remove_file(night.input().join("requests.parquet")).unwrap();
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.contains("input requests") && ran.stderr.contains("requests.parquet"), "{}", ran.stderr);
    assert!(!night.lake().exists(), "a missing input");
    std::fs::write(night.input().join("requests.parquet"), "not parquet").unwrap();
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.contains("input requests"), "{}", ran.stderr);
    assert!(!night.lake().exists(), "an input that is not Parquet");
    // A column that the first SELECT names and the file lacks.
    night.requests(&[("a", "q", "kettle", None)]);
    write(&night.input().join("turns.parquet"), &without_column(&turns_batch(&history("a", 2)), "content"));
    let ran = night.run(&[]).ends_with(2);
    assert!(ran.stderr.contains("turns.sql") && ran.stderr.contains("content"), "{}", ran.stderr);
    assert!(!night.lake().exists(), "a missing column");
}

#[test]
fn a_typing_error_in_a_select_is_found_before_the_lake_is_made() {
    let night = night();
    let jobs = night.own_jobs();
    let file = jobs.join("pools.sql");
    let good = std::fs::read_to_string(&file).unwrap();
    for (right, wrong, says) in [
        ("SELECT", "SELEKT", "SELEKT"),
        ("t.spoken_at", "t.spokn_at", "spokn_at"),
        ("recall(kind", "recal(kind", "recal"),
    ] {
        assert!(good.contains(right));
        std::fs::write(&file, good.replace(right, wrong)).unwrap();
        let ran = night.run_job(&jobs, &[]).ends_with(2);
        assert!(ran.stderr.contains("pools.sql") && ran.stderr.contains(says), "{}", ran.stderr);
        assert!(!night.lake().exists(), "{wrong}");
    }
    std::fs::write(&file, good).unwrap();
    night.run_job(&jobs, &[]).ends_with(0);
}

/// A slate is what the reader would have had without knowing the answer.
#[test]
fn no_table_of_a_run_may_read_labels() {
    let night = night();
    night.labels(&[("a", "q", "a-t0")]);
    let jobs = night.own_jobs();
    for table in ["embeddings", "pools", "features", "rankings", "slates"] {
        let file = jobs.join(format!("{table}.sql"));
        let good = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("SELECT * FROM (\n{good}\n) WHERE (SELECT count(*) FROM labels) >= 0\n"))
            .unwrap();
        let ran = night.run_job(&jobs, &[]).ends_with(2);
        assert!(ran.stderr.contains("labels") && ran.stderr.contains(&format!("{table}.sql")), "{}", ran.stderr);
        assert!(!night.lake().exists(), "{table}");
        std::fs::write(&file, good).unwrap();
    }
    night.run_job(&jobs, &[]).ends_with(0);
}

#[test]
fn a_broken_model_folder_is_named() {
    let night = night();
    let folder = night.path().join("model");
    let encoder = format!("encoder={}", folder.display());
    // The setting is wrong.
    let ran = night.run(&["--set", &encoder]).ends_with(2);
    assert!(ran.stderr.contains(&folder.display().to_string()), "{}", ran.stderr);
    // The folder's files are.
    copy(Path::new(&model("bert_encoder")), &folder);
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    let ran = night.run(&["--set", &encoder]).ends_with(1);
    assert!(ran.stderr.contains("model.safetensors"), "{}", ran.stderr);
    assert!(!night.lake().exists());
}

#[test]
fn a_lake_of_another_make_is_refused() {
    let night = night();
    night.run(&[]).ends_with(0);
    let ran = night.run(&["--set", "shards=8"]).ends_with(2);
    assert!(ran.stderr.contains("64 shards"), "{}", ran.stderr);
    let marker = night.lake().join("_memslate.json");
    std::fs::write(&marker, "{\"format\": 99, \"shards\": 64}").unwrap();
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.contains("format 99"), "{}", ran.stderr);
    let ran = memslate(&["eval", "--lake", &night.input().display().to_string()]).ends_with(1);
    assert!(ran.stderr.contains("there is no lake"), "{}", ran.stderr);
}

#[test]
fn cuda_without_a_gpu_says_so() {
    let night = night();
    let ran = night.run(&["--device", "cuda:0"]);
    if ran.code != Some(0) {
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.to_lowercase().contains("cuda"), "{}", ran.stderr);
        assert!(!night.lake().exists());
    }
    night.run(&["--device", "auto"]).ends_with(0);
}

/// A pasted book, a word without end, one token more than a model reads, and characters that end a text elsewhere.
#[test]
fn texts_of_any_length_and_with_any_character_are_read() {
    let night = Night::new();
    let said = |id: &str, text: &str| turn("a\0b", "s", id, "2024-03-01T10:00:00Z", text);
    let texts = ["the dog and the cat ".repeat(50_000), "x".repeat(1_000_000), "dog ".repeat(8_193), "a\0dog\0".into()];
    let turns: Vec<Turn> = texts.iter().enumerate().map(|(i, text)| said(&format!("t\0{i}"), text)).collect();
    night.turns(&turns).requests(&[("a\0b", "q\0", "the dog", None)]);
    night.run(&[]).ends_with(0);
    // o200k: "the dog and the cat" is five tokens, and a blank before the next; "dog" and " dog" are one each.
    let tokens = "SELECT tokens FROM turns WHERE turn_ordinal IN (0, 2) ORDER BY turn_ordinal";
    let tokens: Vec<usize> = night.column(tokens).iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(tokens, [250_001, 8_194]);
    // Two were cut to what the encoder reads, the word without end is one unknown word to it. None fits the budget.
    assert_eq!(night.column("SELECT count(*) FROM embeddings WHERE truncated"), ["2"]);
    let slate = night.rows("SELECT store_id, request_id, status, turn_ids FROM slates").remove(0);
    assert_eq!(slate, ["a\0b", "q\0", "ok", "[t\u{0}3]"]);
}

#[test]
fn a_column_that_is_no_utf8_is_told() {
    let night = night();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet/no_utf8.parquet");
    std::fs::copy(file, night.input().join("turns.parquet")).unwrap();
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.to_lowercase().contains("utf-8") || ran.stderr.contains("UTF8"), "{}", ran.stderr);
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["0"]);
}

#[test]
fn an_input_that_is_no_parquet_is_named_by_its_path() {
    let night = night();
    let file = night.input().join("turns.parquet");
    for bytes in [&b""[..], b"no Parquet"] {
        std::fs::write(&file, bytes).unwrap();
        let ran = night.run(&[]).ends_with(1);
        assert!(ran.stderr.contains(&format!(", {}: the ", file.display())), "{}", ran.stderr);
        assert!(!night.lake().exists());
    }
}
