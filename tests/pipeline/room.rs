//! No room left on the disk: one clear error, nothing half-written, and with room again the work goes on.
//!
//! A limit on the size of a file stands for the full disk: the write fails, and the program is not ended.

#![cfg(unix)]

use std::os::unix::process::CommandExt;
use std::path::Path;

use super::support::{Night, Ran, Turn, command, history, memslate};

/// Runs the binary; no file may grow above `bytes`.
fn with_room(bytes: u64, arguments: &[String], path: Option<&Path>) -> Ran {
    let mut limited = command(arguments);
    if let Some(path) = path {
        limited.env("PATH", path);
    }
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: two system calls on values of this closure; without the first, the second would end the program.
        let done = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR }
            && unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } == 0;
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure allocates nothing and touches no lock.
    let output = unsafe { limited.pre_exec(limit) }.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// One error, in a sentence that names the system's own.
#[track_caller]
fn told(ran: &Ran, what: &str) {
    assert_eq!(ran.code, Some(1), "{what}: {}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr.lines().filter(|l| l.starts_with("error: ")).count(), 1, "{what}: {}", ran.stderr);
    assert!(ran.stderr.contains("File too large"), "{what}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{what}: {}", ran.stderr);
}

fn night() -> Night {
    let night = Night::new();
    let turns: Vec<Turn> = ["a", "b", "c"].iter().flat_map(|s| history(s, 60)).collect();
    night.turns(&turns).requests(&[("a", "q", "kettle", None), ("b", "q", "violin", None), ("c", "q", "garden", None)]);
    night.labels(&[("a", "q", "a-t0"), ("b", "q", "b-t1"), ("c", "q", "c-t3")]);
    night
}

#[test]
fn a_run_without_room_ends_and_is_gone_on_with() {
    let whole = night();
    whole.run(&[]).ends_with(0);
    let contents = whole.contents();
    // Where the marker, a table's first commit, the rows of turns, and those of slates do not fit.
    for bytes in [16, 1 << 10, 3 << 10, 6 << 10] {
        let night = night();
        let ran = with_room(bytes, &night.run_arguments(&[]), None);
        told(&ran, &format!("{bytes} bytes"));
        let shown = night.on_lake("status", &[]);
        assert!(shown.code == Some(0) || shown.stderr.contains("there is no lake"), "{bytes}: {}", shown.stderr);
        night.run(&[]).ends_with(0);
        assert_eq!(night.contents(), contents, "{bytes} bytes");
    }
}

#[test]
fn an_import_without_room_leaves_what_was_there() {
    let night = night();
    let out = night.path().join("out");
    let arguments = ["import", "chat", "data/demo", "--out", &out.display().to_string()].map(str::to_string);
    told(&with_room(4 << 10, &arguments, None), "an import");
    assert!(!out.exists());
    memslate(&arguments).ends_with(0);
    let before = std::fs::read(out.join("turns.parquet")).unwrap();
    told(&with_room(4 << 10, &arguments, None), "an import over an import");
    assert!(std::fs::read(out.join("turns.parquet")).unwrap() == before);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3);
}

#[test]
fn a_training_without_room_leaves_the_ranker_that_was_there() {
    let night = night();
    let system = night.path().join("mine.toml");
    let text = "[rank]\nmethod = \"lightgbm\"\nranker = \"mine.txt\"\nfeatures = [\"bm25_score\", \"pool_position\"]\n";
    std::fs::write(&system, text).unwrap();
    let system = system.display().to_string();
    night.run(&["--system", &system, "--until", "features"]).ends_with(0);
    let out = night.path().join("mine.txt");
    let (lake, file) = (night.lake().display().to_string(), out.display().to_string());
    let arguments = ["train", "--lake", &lake, "--system", &system, "--out", &file].map(str::to_string);
    memslate(&arguments).ends_with(0);
    let before = std::fs::read(&out).unwrap();
    told(&with_room(128, &arguments, None), "a training");
    assert!(std::fs::read(&out).unwrap() == before);
    let left: Vec<_> = std::fs::read_dir(night.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".part")), "{left:?}");
}

/// pip's own error is told, and nothing is left where models lie.
#[test]
fn a_fetch_without_room_leaves_no_model() {
    let night = Night::new();
    let (programs, models) = (night.path().join("programs"), night.path().join("models"));
    std::fs::create_dir(&programs).unwrap();
    // In place of python3: it writes where pip is told to, until the limit.
    let script = "#!/bin/sh\nwhile [ \"$1\" != -d ]; do shift; done\n\
                  i=0; while [ $i -lt 999 ]; do echo 0123456789 || { echo 'File too large' >&2; exit 1; }; i=$((i+1)); done \
                  > \"$2/m.whl\"\n";
    let file = programs.join("python3");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = ["models", "fetch", "minilm", "--models", &models.display().to_string()].map(str::to_string);
    told(&with_room(1 << 10, &arguments, Some(&programs)), "a fetch");
    assert_eq!(std::fs::read_dir(&models).unwrap().count(), 0);
}
