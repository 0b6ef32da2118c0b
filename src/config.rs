//! Job files: which inputs, models, system and SELECTs a run uses. The command line wins over the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::{Context, Error, Result};
use crate::system::System;

/// The numbers in which a model's linear layers compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    #[default]
    F32,
    /// Weights in 8 bits by output channel, rows quantised as they come.
    Int8,
}

/// A job as its file and the command line give it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFile {
    system: String,
    #[serde(default)]
    encoder: Option<String>,
    #[serde(default)]
    scorer: Option<String>,
    #[serde(default)]
    teacher: Option<String>,
    #[serde(default = "auto")]
    device: String,
    #[serde(default)]
    precision: Precision,
    #[serde(default)]
    models: Option<String>,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    lake: Option<String>,
    #[serde(default = "default_budget")]
    budget_tokens: i64,
    #[serde(default)]
    naive_zone: Option<String>,
    #[serde(default)]
    as_of: Option<String>,
    #[serde(default)]
    shards: Option<u32>,
    #[serde(default)]
    memory_limit: Option<String>,
    inputs: BTreeMap<String, Input>,
    sql: BTreeMap<String, String>,
}

/// Where one input lies, relative to `--input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub path: String,
    /// The job goes on without it, as if it had no rows.
    #[serde(default)]
    pub optional: bool,
}

/// A SELECT and the file that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    pub file: PathBuf,
    pub text: String,
}

/// A job, whole and checked.
#[derive(Debug, Clone)]
pub struct Job {
    /// The file's name without its ending.
    pub name: String,
    pub file: PathBuf,
    pub system: System,
    /// The folder of the system's file, which a ranker's path is relative to.
    pub system_folder: PathBuf,
    pub encoder: Option<String>,
    pub scorer: Option<String>,
    /// The beginning of the hash of the teacher whose grades are read; none: the only one of the lake.
    pub teacher: Option<String>,
    pub device: String,
    /// Of encoder and scorer.
    pub precision: Precision,
    pub models: Option<PathBuf>,
    pub input: Option<String>,
    pub lake: String,
    pub budget_tokens: i64,
    /// Minutes east of UTC of times that name no zone.
    pub naive_zone_minutes: i32,
    pub as_of: Option<String>,
    pub shards: Option<u32>,
    pub memory_limit: Option<String>,
    pub inputs: BTreeMap<String, Input>,
    /// By table.
    pub sql: BTreeMap<String, Select>,
}

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub input: Option<String>,
    pub lake: Option<String>,
    pub system: Option<String>,
    pub device: Option<String>,
    pub as_of: Option<String>,
    pub memory_limit: Option<String>,
    /// `key=value`: keys of the job file, or of the system's axes (`recall.pool_size=64`); values as in TOML.
    pub set: Vec<String>,
}

const AXES: [&str; 4] = ["recall", "score", "rank", "slate"];

fn auto() -> String {
    "auto".into()
}
fn default_budget() -> i64 {
    2700
}

impl Job {
    /// Reads a job file and all that it names.
    pub fn read(file: &Path, overrides: &Overrides) -> Result<Job> {
        let place = file.display().to_string();
        let text = read_text(file, "job file")?;
        let mut table: Table = toml::from_str(&text).map_err(|e| Error::usage(tidy(&e)).at(&place))?;
        let mut axes = Table::new();
        let (of_system, of_job): (Vec<String>, Vec<String>) = overrides
            .set
            .iter()
            .cloned()
            .partition(|s| s.split(['.', '=']).next().is_some_and(|first| AXES.contains(&first.trim())));
        apply(&mut table, &of_job)?;
        apply(&mut axes, &of_system)?;
        let flags = [
            ("input", &overrides.input),
            ("lake", &overrides.lake),
            ("system", &overrides.system),
            ("device", &overrides.device),
            ("as_of", &overrides.as_of),
            ("memory_limit", &overrides.memory_limit),
        ];
        for (key, value) in flags {
            if let Some(value) = value {
                table.insert(key.into(), Value::String(value.clone()));
            }
        }
        let job: JobFile = table.try_into().map_err(|e| Error::usage(tidy(&e)).at(&place))?;
        job.whole(file, axes).map_err(|e| if e.exit_code() == 2 { e.at(place) } else { e })
    }
}

impl JobFile {
    fn whole(self, file: &Path, axes: Table) -> Result<Job> {
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        let system_file = system_file(&folder, &self.system);
        let lake = self.lake.ok_or_else(|| {
            Error::usage("no lake is named").next("add `lake = \"PATH or URL\"` to the job file, or --lake URL")
        })?;
        let mut sql = BTreeMap::new();
        for (table, name) in &self.sql {
            if crate::schema::table(table).is_none() {
                return Err(Error::usage(format!("[sql] names the table {table:?}, which does not exist")));
            }
            let path = folder.join(name);
            let text = read_text(&path, &format!("SELECT of {table}"))?;
            sql.insert(table.clone(), Select { file: path, text });
        }
        let naive_zone_minutes = self.naive_zone.as_deref().map_or(Ok(0), zone_minutes)?;
        if self.budget_tokens < 0 {
            return Err(Error::usage(format!("budget_tokens is {}, it cannot be below 0", self.budget_tokens)));
        }
        if i32::try_from(self.budget_tokens).is_err() {
            return Err(Error::usage("budget_tokens is above 2,147,483,647"));
        }
        Ok(Job {
            name: file.file_stem().map_or_else(|| "job".into(), |n| n.to_string_lossy().into_owned()),
            file: file.to_path_buf(),
            system: read_system(&system_file, axes)?,
            system_folder: system_file.parent().unwrap_or(Path::new("")).to_path_buf(),
            encoder: self.encoder,
            scorer: self.scorer,
            teacher: self.teacher,
            device: self.device,
            precision: self.precision,
            models: self.models.map(PathBuf::from),
            input: self.input,
            lake,
            budget_tokens: self.budget_tokens,
            naive_zone_minutes,
            as_of: self.as_of,
            shards: self.shards,
            memory_limit: self.memory_limit,
            inputs: self.inputs,
            sql,
        })
    }
}

/// A system by name stands in `systems/` beside the job file; one with a slash or an ending is a path.
fn system_file(folder: &Path, name: &str) -> PathBuf {
    if name.ends_with(".toml") { PathBuf::from(name) } else { folder.join("systems").join(format!("{name}.toml")) }
}

/// Reads a system by name, from `systems/` in the folder of jobs, or by its TOML file's path.
pub fn system(jobs: &Path, name: &str) -> Result<System> {
    read_system(&system_file(jobs, name), Table::new())
}

fn read_system(file: &Path, axes: Table) -> Result<System> {
    let name = file.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') || name.is_empty() {
        return Err(Error::usage(format!("a system's file is named with letters, digits, - and _; {name:?} is not")));
    }
    let text = read_text(file, "system").map_err(|e| {
        e.next("name a file of systems/ beside the jobs, without its ending, or the path of a TOML file")
    })?;
    if axes.is_empty() {
        return System::parse(&name, &text);
    }
    let mut table: Table = toml::from_str(&text).map_err(|e| Error::usage(tidy(&e)).at(file.display().to_string()))?;
    merge(&mut table, axes);
    System::parse(&name, &toml::to_string(&table).or_internal("a table is TOML")?)
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Reads a text file that a job needs; `what` names it in the error.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|e| Error::usage(format!("the {what} {} cannot be read", path.display())).source(e))
}

/// toml's messages end in a newline and span lines with a picture of the place; both are kept, tidied.
pub(crate) fn tidy(e: &toml::de::Error) -> String {
    e.to_string().trim_end().to_string()
}

/// Puts `key=value` settings into a table, as if its file said so.
pub(crate) fn apply(table: &mut Table, settings: &[String]) -> Result<()> {
    for setting in settings {
        let (key, value) = parse_setting(setting)?;
        put(table, &key, value).map_err(|e| e.at(format!("--set {setting}")))?;
    }
    Ok(())
}

fn parse_setting(setting: &str) -> Result<(Vec<String>, Value)> {
    let wrong = || Error::usage(format!("--set {setting:?} is not key=value"));
    let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
    let key: Vec<String> = key.trim().split('.').map(str::to_string).collect();
    if key.iter().any(String::is_empty) {
        return Err(wrong());
    }
    Ok((key, setting_value(value)))
}

/// A value as TOML has it; what is no TOML value is text.
pub fn setting_value(text: &str) -> Value {
    match toml::from_str::<Table>(&format!("v = {text}")) {
        Ok(mut table) if table.len() == 1 => table.remove("v").unwrap_or_else(|| Value::String(text.to_string())),
        _ => Value::String(text.to_string()),
    }
}

fn put(table: &mut Table, key: &[String], value: Value) -> Result<()> {
    let (last, path) = key.split_last().expect("a key has a part");
    let mut at = table;
    for part in path {
        let next = at.entry(part.clone()).or_insert_with(|| Value::Table(Table::new()));
        at = next.as_table_mut().ok_or_else(|| Error::usage(format!("{part} has no settings of its own")))?;
    }
    at.insert(last.clone(), value);
    Ok(())
}

/// The user's cache: `$XDG_CACHE_HOME`, or `~/.cache`; none where neither is.
pub fn cache_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").filter(|h| !h.is_empty()).map(|h| PathBuf::from(h).join(".cache"));
    named.or_else(home)
}

/// Minutes east of UTC of `Z`, `+09:00` or `-03:30`.
pub fn zone_minutes(text: &str) -> Result<i32> {
    let wrong = || Error::usage(format!("{text:?} is not a zone")).next("write it as Z or +09:00");
    if text.eq_ignore_ascii_case("z") || text.eq_ignore_ascii_case("utc") {
        return Ok(0);
    }
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(wrong()),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
    let (hours, minutes): (i32, i32) = (hours.parse().map_err(|_| wrong())?, minutes.parse().map_err(|_| wrong())?);
    if !(0..=18).contains(&hours) || !(0..60).contains(&minutes) {
        return Err(wrong());
    }
    Ok(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_in(dir: &Path, text: &str, set: &[&str]) -> Result<Job> {
        std::fs::create_dir_all(dir.join("systems")).unwrap();
        std::fs::write(dir.join("systems/lite.toml"), "[recall]\npool_size = 64\n").unwrap();
        std::fs::write(dir.join("turns.sql"), "SELECT 1").unwrap();
        std::fs::write(dir.join("night.toml"), text).unwrap();
        let set = set.iter().map(|s| s.to_string()).collect();
        Job::read(&dir.join("night.toml"), &Overrides { lake: Some("l".into()), set, ..Default::default() })
    }

    const TEXT: &str =
        "system = \"lite\"\n[inputs]\nturns = { path = \"turns.parquet\" }\n[sql]\nturns = \"turns.sql\"\n";

    #[test]
    fn the_line_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_in(dir.path(), TEXT, &[]).unwrap();
        assert_eq!((job.name.as_str(), job.budget_tokens, job.system.recall.pool_size), ("night", 2700, 64));
        let job =
            job_in(dir.path(), TEXT, &["budget_tokens=1350", "recall.pool_size=32", "naive_zone=+09:00"]).unwrap();
        assert_eq!((job.budget_tokens, job.system.recall.pool_size, job.naive_zone_minutes), (1350, 32, 540));
        let lists = job_in(dir.path(), TEXT, &["recall.lists=[{kind=\"dense\"}]"]).unwrap().system.recall.lists;
        assert_eq!(lists.len(), 1);
    }

    #[test]
    fn unknown_options_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for (set, says) in [
            ("budget=3", "budget"),
            ("recall.pool=3", "pool"),
            ("budget_tokens=-1", "below 0"),
            ("budget_tokens=many", "invalid type"),
            ("precision=int4", "int4"),
            ("nonsense", "key=value"),
            ("naive_zone=Mars", "zone"),
            ("system=other", "other.toml"),
            ("sql.turnz=turns.sql", "turnz"),
            ("sql.turns=gone.sql", "gone.sql"),
        ] {
            let e = job_in(dir.path(), TEXT, &[set]).unwrap_err();
            assert_eq!(e.exit_code(), 2, "{set}");
            assert!(e.to_string().contains(says), "{set}: {e}");
        }
    }
}
