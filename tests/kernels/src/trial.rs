//! Runs `kernel-check` as a process of its own: a wrong kernel aborts, crashes or hangs, and a sanitizer must be loaded
//! before anything else is.

use crate::build::{Sanitizer, compiler};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The exit code by which a sanitizer says that it found something.
const REPORTED: i32 = 99;
/// Far beyond what any trial takes: only a hang gets there.
const HANG: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All cases are right.
    Right,
    /// A case's error is above its bar.
    Wrong,
    /// A sanitizer reported.
    Reported,
    /// The emulation found the program wrong in itself and aborted, or the process crashed.
    Aborted,
    Hung,
    /// The trial itself is wrong: no such case, or no library.
    Invalid,
}

pub struct Trial {
    pub outcome: Outcome,
    pub output: String,
}

/// Runs `checker library arguments`, with what it prints into a file in `folder`.
pub fn run(
    checker: &Path,
    library: &Path,
    sanitizer: Sanitizer,
    arguments: &[&str],
    folder: &Path,
) -> Result<Trial, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let log = folder.join(format!("trial-{}-{number}.txt", std::process::id()));
    let out = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let err = out.try_clone().map_err(|e| e.to_string())?;
    let mut command = Command::new(checker);
    command.arg(library).args(arguments).stdout(out).stderr(err);
    if let Some(runtime) = runtime(sanitizer)? {
        command.env("LD_PRELOAD", runtime);
    }
    command.env("ASAN_OPTIONS", format!("exitcode={REPORTED}:detect_leaks=0"));
    command.env("UBSAN_OPTIONS", format!("exitcode={REPORTED}:print_stacktrace=1"));
    command.env("TSAN_OPTIONS", format!("exitcode={REPORTED}:halt_on_error=1"));

    let mut child = command.spawn().map_err(|e| format!("{}: {e}", checker.display()))?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break Some(status),
            None if started.elapsed() > HANG => {
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                break None;
            }
            None => sleep(Duration::from_millis(5)),
        }
    };
    let output = String::from_utf8_lossy(&fs::read(&log).map_err(|e| e.to_string())?).into_owned();
    fs::remove_file(&log).map_err(|e| e.to_string())?;
    Ok(Trial { outcome: status.map_or(Outcome::Hung, outcome), output })
}

fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Outcome::Right,
        Some(1) => Outcome::Wrong,
        Some(REPORTED) => Outcome::Reported,
        Some(_) => Outcome::Invalid,
        None => Outcome::Aborted,
    }
}

/// The sanitizer's shared library. The checker is not compiled with it, so it must be loaded first.
fn runtime(sanitizer: Sanitizer) -> Result<Option<PathBuf>, String> {
    let name = match sanitizer {
        Sanitizer::None => return Ok(None),
        Sanitizer::Address => "libasan.so",
        Sanitizer::Thread => "libtsan.so",
    };
    let asked = Command::new(compiler()).arg(format!("-print-file-name={name}")).output().map_err(|e| e.to_string())?;
    let path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    if path.is_absolute() { Ok(Some(path)) } else { Err(format!("{} has no {name}", compiler())) }
}
