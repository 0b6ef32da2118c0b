//! The rules of this code base, read off its source tree: who may import whom, how long a file is, who reads the clock.
//!
//! Each rule is a function from paths and texts to violations, so that each is also tested on input that breaks it.

use std::fs;
use std::path::{Path, PathBuf};

/// A file: its path from the repository's root, with `/`, and its text.
#[derive(Clone)]
struct File {
    path: String,
    text: String,
}

#[test]
fn imports_go_down_the_layers() {
    check(|| rust("src"), layering);
}

#[test]
fn files_are_short() {
    check(|| rust("src"), length);
}

#[test]
fn files_say_what_they_are() {
    check(|| rust("src"), module_docs);
}

#[test]
fn computations_do_not_read_the_clock() {
    check(|| rust("src"), clock);
}

#[test]
fn nothing_is_left_undone() {
    check(|| [rust("src"), rust("tests"), rust("benches")].concat(), undone);
}

#[test]
fn the_product_names_no_folder_of_a_developer() {
    let files = || {
        let mut files = [read("src"), read("jobs")].concat();
        files.extend(read("data").into_iter().filter(|f| ends_with(&f.path, &["toml", "md"])));
        files.extend(["README.md", "CHANGELOG.md"].into_iter().flat_map(read));
        files
    };
    check(files, own_folders);
}

#[test]
fn what_jobs_name_is_there() {
    let jobs = || {
        let all = read("jobs").into_iter();
        all.filter(|f| f.path.matches('/').count() == 1 && ends_with(&f.path, &["toml"])).collect()
    };
    check(jobs, |f| missing_files(f, &|path| root().join(path).is_file()));
}

// --- The tree ---

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn check(files: impl Fn() -> Vec<File>, rule: impl Fn(&File) -> Vec<String>) {
    let violations: Vec<String> = files().iter().flat_map(rule).collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

fn rust(folder: &str) -> Vec<File> {
    read(folder).into_iter().filter(|f| ends_with(&f.path, &["rs"])).collect()
}

/// All files of text in a folder, or one file; nothing where there is none.
fn read(path: &str) -> Vec<File> {
    let mut paths = vec![root().join(path)];
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(entries(&path));
        } else if path.is_file()
            && let Ok(text) = String::from_utf8(fs::read(&path).unwrap())
        {
            let path = path.strip_prefix(root()).unwrap();
            let parts: Vec<_> = path.iter().map(|p| p.to_str().unwrap()).collect();
            files.push(File { path: parts.join("/"), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect()
}

fn ends_with(path: &str, endings: &[&str]) -> bool {
    endings.iter().any(|e| path.strip_suffix(e).is_some_and(|p| p.ends_with('.')))
}

// --- Layering ---

/// From the bottom up. A module imports what is below it; base modules also each other. A stage never imports a stage.
const LAYERS: &[&[&str]] = &[
    &["error", "config", "schema", "system"],
    &["text", "model", "lake"],
    &["device", "ranker", "teacher"],
    &["import", "recall", "score", "features", "rank", "slate"],
    &["engine"],
    &["run", "distill", "publish", "evaluate"],
    &["cli"],
];

/// Modules that import less than their layer may: of what is above the base, only this.
const NARROW: &[(&str, &[&str])] = &[("device", &["model"]), ("ranker", &["text"]), ("teacher", &["text"])];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|l| l.contains(&module))
}

fn layering(file: &File) -> Vec<String> {
    let Some(own) = module_of(&file.path) else { return Vec::new() };
    let Some(own_layer) = layer(&own) else {
        return vec![format!("{}: module {own} stands in no layer", file.path)];
    };
    let code = without_comments(&file.text);
    let all_tests = is_test_file(&file.path);
    let tests_from = if all_tests { 0 } else { test_module(&code) };
    let mut violations = Vec::new();
    for (at, target) in imports(&file.path, &code, if all_tests { code.len() } else { tests_from }) {
        let line = code[..at].matches('\n').count() + 1;
        let Some(target_layer) = layer(&target) else {
            if target.starts_with(|c: char| c.is_ascii_lowercase()) {
                violations.push(format!("{}:{line}: {target} stands in no layer", file.path));
            }
            continue;
        };
        let narrow = NARROW.iter().find(|(m, _)| *m == own).map(|(_, may)| *may);
        let allowed = target == own
            || target_layer == 0 && own_layer == 0
            || target_layer < own_layer && (target_layer == 0 || narrow.is_none_or(|may| may.contains(&&*target)))
            || at >= tests_from && target_layer <= own_layer;
        if !allowed {
            violations.push(format!("{}:{line}: {own} imports {target}, which is not below it", file.path));
        }
    }
    violations
}

/// The top module that a file belongs to; none for lib.rs, which declares them all.
fn module_of(path: &str) -> Option<String> {
    let inside = path.strip_prefix("src/")?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    match first {
        "lib" => None,
        // Programs: they use the library as the command line does.
        "main" | "bin" => Some("cli".into()),
        cli if cli.starts_with("cli") => Some("cli".into()),
        other => Some(other.into()),
    }
}

fn is_test_file(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|f| f == "tests.rs" || f.ends_with("_tests.rs") || f == "testing.rs")
        || path.contains("/tests/")
}

/// Where the unit tests begin: a module under `#[cfg(test)]` whose body is in the file.
fn test_module(code: &str) -> usize {
    let mark = concat!("#[cfg", "(test)]");
    let is_body = |at: &usize| {
        let rest = code[at + mark.len()..].trim_start();
        let rest = rest.strip_prefix("pub ").unwrap_or(rest);
        rest.starts_with("mod ") && rest.split([';', '{']).next().is_some_and(|h| rest[h.len()..].starts_with('{'))
    };
    code.match_indices(mark).map(|(at, _)| at).find(is_body).unwrap_or(code.len())
}

/// Top modules that the code names, with places: `crate::x`, `crate::{x, y::z}`, `memslate::x`, and `super::` chains
/// that lead to the root; from `nested_from` on, the code is one module deeper than its file.
fn imports(path: &str, code: &str, nested_from: usize) -> Vec<(usize, String)> {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let depth = match inside.matches('/').count() {
        0 if inside == "main.rs" || inside == "lib.rs" => 0,
        folders => folders + usize::from(!inside.ends_with("/mod.rs")),
    };
    let mut found = Vec::new();
    for prefix in ["crate::", "memslate::", "super::"] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                continue;
            }
            let rest = code[at..].trim_start_matches("super::");
            let supers = (code.len() - at - rest.len()) / "super::".len();
            if supers == 0 {
                found.extend(first_names(&rest[prefix.len()..]).into_iter().map(|name| (at, name)));
            } else if supers == depth + usize::from(at >= nested_from) {
                found.extend(first_names(rest).into_iter().map(|name| (at, name)));
            }
        }
    }
    found.retain(|(_, name)| name != "self" && !name.is_empty());
    found
}

/// The first names of a path: of `x::y` x, of `{a, b::{c, d}}` a and b.
fn first_names(path: &str) -> Vec<String> {
    let name = |s: &str| s.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut nested, mut start) = (Vec::new(), 0, 0);
    for (i, c) in group.char_indices() {
        match c {
            '{' => nested += 1,
            '}' | ',' if nested == 0 => {
                names.push(name(&group[start..i]));
                start = i + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => nested -= 1,
            _ => {}
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

/// The same lines without what follows `//`, unless it stands in a text such as a URL.
fn without_comments(text: &str) -> String {
    let cut = |line: &str| {
        let ends = line.match_indices("//").map(|(at, _)| at);
        let mut ends =
            ends.filter(|at| line[..*at].matches('"').count().is_multiple_of(2) && !line[..*at].ends_with(':'));
        ends.next().map_or(line.to_string(), |at| line[..at].to_string())
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[test]
fn layering_can_fail() {
    let bad = |path: &str, text: &str| !layering(&file(path, text)).is_empty();
    assert!(bad("src/error.rs", "use crate::text::count;"));
    assert!(bad("src/lake/mod.rs", "use crate::text;"));
    assert!(bad("src/text/mod.rs", "use crate::lake::Lake;"));
    assert!(bad("src/device/cpu.rs", "use crate::text::count;"));
    assert!(bad("src/ranker/mod.rs", "use crate::model::weights;"));
    assert!(bad("src/teacher/run.rs", "use crate::lake::Lake;"));
    assert!(bad("src/recall/mod.rs", "use crate::slate::fill;"));
    assert!(bad("src/recall/mod.rs", "use crate::{error::Result, text::{a, b}, slate};"));
    assert!(bad("src/recall/mod.rs", "use crate::{\n    error::Result,\n    engine::Session,\n};"));
    assert!(bad("src/recall/mod.rs", "fn f() { crate::engine::session() }"));
    assert!(bad("src/recall/mod.rs", "use super::slate;"));
    assert!(bad("src/recall/bm25.rs", "use super::super::slate;"));
    assert!(bad("src/recall/bm25.rs", "#[cfg(test)]\nmod tests {\n    use super::super::super::engine;\n}"));
    assert!(bad("src/evaluate/mod.rs", "use crate::publish::Cache;"));
    assert!(bad("src/run/mod.rs", "use crate::evaluate::completeness;"));
    assert!(bad("src/engine/mod.rs", "use crate::run::Job;"));
    assert!(bad("src/recall/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::engine::Session;\n}"));
    assert!(bad("src/recall/mod.rs", "#[cfg(test)]\nmod tests;\nuse crate::slate::fill;"));
    assert!(bad("src/novel/mod.rs", ""));
    assert!(bad("src/recall/mod.rs", "use crate::novel::x;"));

    let good = |path: &str, text: &str| layering(&file(path, text)).is_empty();
    assert!(good("src/error.rs", "use crate::system::System;"));
    assert!(good("src/recall/bm25.rs", "use super::fuse;\nuse crate::recall::x;\nuse crate::text::{count, dates};"));
    assert!(good("src/evaluate/mod.rs", "use crate::slate::fill; use crate::engine::Session; use crate::VERSION;"));
    assert!(good("src/main.rs", "use memslate::run::Job;\nmod cli;\nuse crate::cli::Args;"));
    assert!(good("src/cli.rs", "use memslate::{evaluate, publish};"));
    assert!(good("src/recall/mod.rs", "/// See [`crate::slate`].\nfn f() {} // crate::engine"));
    assert!(good("src/recall/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::slate::fill;\n}"));
    assert!(good("src/recall/bm25.rs", "#[cfg(test)]\nmod tests {\n    use super::super::fuse;\n}"));
    assert!(good("src/recall/bm25_tests.rs", "use super::*;\nuse super::fuse;"));
    assert!(good("src/lib.rs", "pub use crate::run::Job;"));
    let said = layering(&file("src/recall/mod.rs", "\nuse crate::slate::fill;"));
    assert_eq!(said, ["src/recall/mod.rs:2: recall imports slate, which is not below it"]);
}

// --- Rules on one file ---

const LONGEST: usize = 450;

fn length(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    violation(lines > LONGEST, format!("{}: {lines} lines, {LONGEST} at most", file.path))
}

fn module_docs(file: &File) -> Vec<String> {
    violation(!file.text.starts_with("//! "), format!("{}: does not start with //! and what it is", file.path))
}

/// Times are data, but for what a run, a device and a commit say of themselves.
fn clock(file: &File) -> Vec<String> {
    let (path, code) = (&file.path, without_comments(&file.text));
    let may = ["src/run/", "src/main.rs", "src/cli", "src/device/", "src/lake/"].iter().any(|p| path.starts_with(p));
    let calls = ["SystemTime::now", "Utc::now", "Local::now", "Instant::now"].into_iter();
    let calls = calls.filter(|c| !may && code.contains(c));
    calls.map(|call| format!("{path}: reads the clock: {call}")).collect()
}

fn undone(file: &File) -> Vec<String> {
    let marks = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
    ];
    let found = marks.into_iter().filter(|m| file.text.match_indices(m).any(|(at, _)| is_word(&file.text, at, m)));
    found.map(|mark| format!("{}: {mark}", file.path)).collect()
}

/// Whether what stands at a place is not a part of a longer word.
fn is_word(text: &str, at: usize, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
    (edge(before) || !inside(word.chars().next())) && (edge(after) || !inside(word.chars().next_back()))
}

fn own_folders(file: &File) -> Vec<String> {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("../sha", "red")];
    let absolute = |at: usize| {
        let before = file.text[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-/}".contains(c)) || file.text[..at].ends_with("://"))
    };
    let found = folders.into_iter().filter(|f| file.text.match_indices(f).any(|(at, _)| absolute(at)));
    found.map(|folder| format!("{}: names {folder}", file.path)).collect()
}

fn violation(broken: bool, says: String) -> Vec<String> {
    if broken { vec![says] } else { Vec::new() }
}

#[test]
fn rules_on_one_file_can_fail() {
    assert_eq!(length(&file("a", &"\n".repeat(451))), ["a: 451 lines, 450 at most"]);
    assert!(length(&file("a", &"\n".repeat(450))).is_empty());

    for text in ["", "use std::fs;", "// A comment", "//!\nfn f() {}"] {
        assert_eq!(module_docs(&file("a", text)).len(), 1, "{text:?}");
    }
    assert!(module_docs(&file("a", "//! What it is.\n")).is_empty());

    for call in ["std::time::SystemTime::now()", "chrono::Utc::now()", "Local::now()", "let t = Instant::now();"] {
        assert_eq!(clock(&file("src/recall/mod.rs", call)).len(), 1, "{call}");
        assert_eq!(clock(&file("src/engine/mod.rs", call)).len(), 1, "{call}");
        for path in ["src/run/mod.rs", "src/main.rs", "src/cli_eval.rs", "src/device/cpu.rs", "src/lake/mod.rs"] {
            assert!(clock(&file(path, call)).is_empty(), "{path}: {call}");
        }
    }
    assert!(clock(&file("src/text/dates.rs", "/// Never `Utc::now`.")).is_empty());

    for text in [
        concat!("fn f() { to", "do!() }"),
        concat!("unimple", "mented!(\"later\")"),
        concat!("#[ig", "nore]"),
        concat!("#[ig", "nore = \"slow\"]"),
        concat!("// FIX", "ME: later"),
        concat!("// X", "XX later"),
    ] {
        assert_eq!(undone(&file("a", text)).len(), 1, "{text}");
    }
    assert!(undone(&file("a", concat!("let pad = \"XX", "XX\"; // no X", "XXL"))).is_empty());

    for text in [
        concat!("see /wo", "rk/data"),
        concat!("\"/ro", "ot/.cache\""),
        concat!("`../sha", "red/x`"),
        concat!("file:///wo", "rk/lake"),
    ] {
        assert_eq!(own_folders(&file("a", text)).len(), 1, "{text}");
    }
    assert!(own_folders(&file("a", concat!("s3://bucket/wo", "rk/lake and net/wo", "rk/s"))).is_empty());
}

// --- Jobs ---

/// Files that a job names: texts that end in .sql or .toml, beside the job or from the repository's root, and systems by
/// name. What holds a placeholder, and what is a URL, is not looked for.
fn missing_files(file: &File, is_file: &dyn Fn(&str) -> bool) -> Vec<String> {
    let job: toml::Table = match file.text.parse() {
        Ok(job) => job,
        Err(e) => return vec![format!("{}: {e}", file.path)],
    };
    let mut texts = Vec::new();
    strings("", &toml::Value::Table(job), &mut texts);
    let mut violations = Vec::new();
    for (key, text) in texts {
        if text.contains(['{', '$', '*']) || text.contains("://") || text.contains('\n') {
            continue;
        }
        let is_path = ends_with(&text, &["sql", "toml"]);
        let named = if !is_path && (key == "system" || key == "systems") {
            vec![format!("jobs/systems/{text}.toml")]
        } else if is_path {
            vec![format!("jobs/{text}"), text.clone(), format!("jobs/systems/{text}")]
        } else {
            continue;
        };
        if !named.iter().any(|p| is_file(p)) {
            violations.push(format!("{}: {key} names {text:?}, which is not there", file.path));
        }
    }
    violations
}

/// All texts of a job, each with its key.
fn strings(key: &str, value: &toml::Value, into: &mut Vec<(String, String)>) {
    match value {
        toml::Value::String(text) => into.push((key.to_string(), text.clone())),
        toml::Value::Array(items) => items.iter().for_each(|v| strings(key, v, into)),
        toml::Value::Table(table) => table.iter().for_each(|(k, v)| strings(k, v, into)),
        _ => {}
    }
}

#[test]
fn jobs_can_fail() {
    let there = |path: &str| ["jobs/pools.sql", "jobs/systems/recall_order.toml"].contains(&path);
    let said = |text: &str| missing_files(&file("jobs/a.toml", text), &there).len();
    assert_eq!(said("sql = \"gone.sql\""), 1);
    assert_eq!(said("[[steps]]\nsql = \"gone.sql\"\n[[steps]]\nsql = \"pools.sql\""), 1);
    assert_eq!(said("system = \"gone\""), 1);
    assert_eq!(said("systems = [\"systems/recall_order.toml\", \"systems/gone.toml\"]"), 1);
    assert_eq!(said("not toml"), 1);
    assert_eq!(said("sql = \"pools.sql\"\nsystem = \"recall_order\"\ntitle = \"x\""), 0);
    assert_eq!(said("sql = \"jobs/pools.sql\"\nother = \"s3://b/x.sql\"\nsystem = \"{name}\""), 0);
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}
