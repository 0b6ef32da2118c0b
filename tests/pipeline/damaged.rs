//! Files of a lake that are damaged: one clear error, whatever the bytes are.

use std::path::{Path, PathBuf};

use super::support::{Night, history};

/// The Parquet files of a table.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "parquet") {
            all.push(path);
        }
    }
    all
}

#[test]
fn damaged_slates_are_told_by_every_reader() {
    let night = Night::new();
    night.turns(&history("a", 10)).requests(&[("a", "q", "kettle", None)]).labels(&[("a", "q", "a-t0")]);
    night.run(&[]).ends_with(0);
    let file = files(&night.lake().join("slates")).remove(0);
    let whole = std::fs::read(&file).unwrap();
    let n = whole.len();
    let changed = |at: usize, bytes: &[u8]| {
        let mut new = whole.clone();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        new
    };
    for (what, bytes) in [
        ("no bytes", Vec::new()),
        ("half of it", whole[..n / 2].to_vec()),
        ("the log's length, of something else", vec![b'x'; n]),
        ("a footer that is longer than the file", changed(n - 8, &u32::MAX.to_le_bytes())),
        ("a footer of nothing", changed(n - 8, &[0; 4])),
        ("zeros in the footer", changed(n - 80, &[0; 60])),
        ("a page of something else", changed(4, &[0xff; 40])),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let one: &[&str] = &["--store", "a", "--request", "q"];
        for (command, arguments) in [("show", one), ("explain", one), ("eval", &[])] {
            let ran = night.on_lake(command, arguments);
            assert_eq!(ran.code, Some(1), "{what}, {command}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.starts_with("error: ") && !ran.stderr.contains("panicked"), "{what}: {}", ran.stderr);
        }
    }
    std::fs::write(&file, whole).unwrap();
    night.on_lake("eval", &[]).ends_with(0);
}

/// An input that is there but cannot be read is not an input that is absent: its rows would leave the lake.
#[cfg(unix)]
#[test]
fn an_input_that_cannot_be_read_is_an_error_and_the_lake_stays() {
    let night = Night::new();
    night.turns(&history("a", 10)).requests(&[("a", "q", "kettle", None)]).labels(&[("a", "q", "a-t0")]);
    night.run(&[]).ends_with(0);
    let labels = night.input().join("labels.parquet");
    std::fs::remove_file(&labels).unwrap();
    // A link to itself is read by nobody, not by an administrator either.
    std::os::unix::fs::symlink(&labels, &labels).unwrap();
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.contains("labels.parquet") && ran.stderr.contains("cannot"), "{}", ran.stderr);
    let kept = night.column("SELECT count(*) FROM labels");
    assert_eq!(kept, ["1"]);
}

#[test]
fn an_input_with_damaged_pages_is_named_and_the_lake_stays() {
    let night = Night::new();
    night.turns(&history("a", 200)).requests(&[("a", "q", "kettle", None)]);
    night.run(&[]).ends_with(0);
    let file = night.input().join("turns.parquet");
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len() / 2;
    bytes[8..end].iter_mut().for_each(|b| *b ^= 0x5a);
    std::fs::write(&file, bytes).unwrap();
    let ran = night.run(&[]).ends_with(1);
    let parts = ["input turns at", "turns.parquet", "write it again"];
    assert!(parts.iter().all(|p| ran.stderr.contains(p)), "{}", ran.stderr);
    assert_eq!(night.column("SELECT count(*) FROM turns"), ["200"]);
}
