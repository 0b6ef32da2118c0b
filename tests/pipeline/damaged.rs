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
