//! Parquet as other programs write it: pyarrow, polars, duckdb, pandas and fastparquet, in every type and encoding that
//! a history comes in. `tests/data/parquet/make_fixtures.py` made the files.

use std::path::{Path, PathBuf};

use super::support::{Night, copy, memslate};

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The turns that a run of the job makes of this file, laid under the input's name; or what it said.
fn turns(job: &str, input: &str, file: &Path) -> Result<Vec<Vec<String>>, String> {
    let night = Night::new();
    night.requests(&[("a", "q", "kettle", None)]);
    let target = night.input().join(input);
    if file.is_dir() {
        copy(file, &target);
    } else {
        std::fs::copy(file, target).unwrap();
    }
    let mut arguments = night.run_arguments(&["--until", "turns"]);
    arguments[1] = job.into();
    let ran = memslate(&arguments);
    if ran.code != Some(0) {
        return Err(format!("ended with {:?}: {}", ran.code, ran.stderr));
    }
    Ok(night.rows("SELECT * FROM turns ORDER BY store_id, turn_ordinal"))
}

/// Every file of the folder is read as the plain one is.
fn all_alike(job: &str, input: &str, folder: &str, plain: &str, files: &[PathBuf]) -> Vec<Vec<String>> {
    let wanted = turns(job, input, &fixtures(folder)[0].with_file_name(plain)).unwrap();
    let wrong: Vec<String> = files
        .iter()
        .filter_map(|file| match turns(job, input, file) {
            Ok(rows) if rows == wanted => None,
            Ok(rows) => Some(format!("{}: other turns: {rows:?}", name(file))),
            Err(said) => Some(format!("{}: {said}", name(file))),
        })
        .collect();
    assert!(wrong.is_empty(), "wanted {wanted:?}\n{}", wrong.join("\n"));
    wanted
}

#[test]
fn turns_of_every_writer_are_the_same_turns() {
    let files = fixtures("turns");
    assert!(files.len() > 45, "{} files", files.len());
    let wanted = all_alike("jobs/nightly.toml", "turns.parquet", "turns", "plain.parquet", &files);
    // As the script has them.
    let ids: Vec<&str> = wanted.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(ids, ["a-t0", "a-t1", "a-t2", "a-t3", "a-t4", "b-t0", "b-t1"]);
    assert_eq!(wanted[3][7], "2024-03-02T23:59:59Z");
    assert_eq!(wanted[3][11], "今天玩成语接龙游戏");
}

#[test]
fn sessions_of_every_writer_are_the_same_turns() {
    let (two, all): (Vec<_>, Vec<_>) = fixtures("sessions").into_iter().partition(|f| name(f).starts_with("two"));
    let wanted = all_alike("jobs/sessions.toml", "sessions.parquet", "sessions", "plain.parquet", &all);
    let ids: Vec<&str> = wanted.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(ids, ["a-s0:1", "a-s0:2", "a-s0:3", "a-s1:1", "a-s1:2", "b-s0:1", "b-s0:2"]);
    all_alike("jobs/sessions.toml", "sessions.parquet", "sessions", "two_plain.parquet", &two);
}
