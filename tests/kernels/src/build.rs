//! Compiles the kernels for the CPU: plainly, with a planted bug, under a sanitizer. What was compiled once is kept, under
//! the hash of all sources, so that a second run of the tests compiles nothing.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitizer {
    None,
    /// Accesses out of bounds, and undefined behaviour.
    Address,
    /// Races: threads of a block and blocks of a grid are threads to it.
    Thread,
}

/// A library to compile.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// The planted bug, 0 for none.
    pub bug: u32,
    pub sanitizer: Sanitizer,
}

impl Build {
    fn flags(&self) -> Vec<String> {
        let sanitizer: &[&str] = match self.sanitizer {
            Sanitizer::None => &["-O2"],
            Sanitizer::Address => &["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
            // A library's thread-local variables would else be allocated at their first use, in the midst of a fiber, which
            // looks like a race.
            Sanitizer::Thread => &["-O1", "-g1", "-fsanitize=thread", "-ftls-model=initial-exec"],
        };
        let common = ["-std=c++17", "-fPIC", "-shared", "-w"];
        let bug = format!("-DBUG={}", self.bug);
        common.iter().chain(sanitizer).map(|flag| flag.to_string()).chain([bug]).collect()
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The C++ compiler: `CXX`, or g++.
pub fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

/// The library's path: compiled into `folder`, unless it is there.
pub fn library(folder: &Path, build: Build) -> Result<PathBuf, String> {
    let flags = build.flags();
    let mut hasher = DefaultHasher::new();
    (compiler(), &flags).hash(&mut hasher);
    let folder = folder.join(sources_hash()?);
    let path = folder.join(format!("bug{}-{:016x}.so", build.bug, hasher.finish()));
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("library.cc");
    let output = Command::new(compiler())
        .args(&flags)
        .arg("-I")
        .arg(root().join("kernels"))
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(&partial)
        .output()
        .map_err(|e| format!("{}: {e}", compiler()))?;
    if !output.status.success() {
        return Err(format!("{build:?} does not compile:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    fs::rename(&partial, &path).map_err(|e| e.to_string())?;
    Ok(path)
}

/// Removes what was compiled from other sources.
pub fn clean(folder: &Path) -> Result<(), String> {
    let current = sources_hash()?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name() != *current {
            fs::remove_dir_all(entry.path()).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Every C++ source of a library.
pub fn sources() -> Result<Vec<PathBuf>, String> {
    let mut sources = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("library.cc")];
    for folder in ["kernels", "kernels/emulation"] {
        let folder = root().join(folder);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let endings = ["cu", "h", "cc"].map(|e| Some(e.as_ref()));
        sources.extend(entries.flatten().map(|e| e.path()).filter(|path| endings.contains(&path.extension())));
    }
    sources.sort();
    Ok(sources)
}

fn sources_hash() -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    for path in sources()? {
        fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The numbers of all bugs planted in the sources.
pub fn planted_bugs() -> Result<BTreeSet<u32>, String> {
    let mut bugs = BTreeSet::new();
    for path in sources()? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        bugs.extend(text.lines().filter(|line| line.trim_start().starts_with('#')).flat_map(bugs_of));
    }
    Ok(bugs)
}

/// The numbers that a preprocessor line compares `BUG` with.
fn bugs_of(line: &str) -> Vec<u32> {
    let number = |rest: &str| {
        let rest = rest.trim_start();
        let value = rest.strip_prefix("==").or(rest.strip_prefix("!="))?.trim_start();
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    line.split("BUG").skip(1).filter_map(number).collect()
}

/// Does one thing for each item, two at a time. What failed comes back as text.
pub fn in_pairs<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<(), String> + Sync) -> Vec<String> {
    let (next, failures) = (Mutex::new(items.iter()), Mutex::new(Vec::new()));
    let worker = || {
        loop {
            let item = next.lock().unwrap().next();
            let Some(item) = item else { break };
            if let Err(failure) = work(item) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    failures.into_inner().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_read_off_conditions() {
        assert_eq!(bugs_of("#if BUG == 12  // what"), [12]);
        assert_eq!(bugs_of("#  elif BUG!=7 || BUG == 8"), [7, 8]);
        assert_eq!(bugs_of("#ifndef BUG"), [0u32; 0]);
    }

    #[test]
    fn pairs_do_all_and_report_failures() {
        let odd = |n: &u32| if n % 2 == 1 { Err(n.to_string()) } else { Ok(()) };
        let mut failures = in_pairs(&[1, 2, 3, 4, 5], odd);
        failures.sort();
        assert_eq!(failures, ["1", "3", "5"]);
    }
}
