//! The job file of a teacher: whose pools, which sample of them, and who grades.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::config::{self, Overrides, apply, read_text, tidy};
use crate::error::{Error, Result};
use crate::system::System;
use crate::teacher::{Prompt, Settings, Teacher};

/// Which requests are sampled, and how much of their pools.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sample {
    pub seed: i64,
    /// A value of `requests.split`; `all`: every request.
    pub split: String,
    /// Stores at most; 0: every one.
    pub stores: i64,
    /// Requests of a store at most; 0: every one.
    pub requests: i64,
    /// Turns of a pool, from its head.
    pub pool_size: i64,
}

impl Default for Sample {
    fn default() -> Self {
        Sample { seed: 7, split: "dev".into(), stores: 0, requests: 0, pool_size: 64 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    system: String,
    #[serde(default)]
    lake: Option<String>,
    #[serde(default)]
    journal: Option<PathBuf>,
    #[serde(default)]
    sample: Sample,
    teacher: Settings,
}

/// A job, whole and checked.
#[derive(Debug)]
pub struct DistillJob {
    /// The file's name without its ending.
    pub name: String,
    pub lake: String,
    pub system: System,
    pub sample: Sample,
    pub teacher: Teacher,
    /// Where answers are kept until the lake has them; none: in the lake, if that is a folder of this machine.
    pub journal: Option<PathBuf>,
}

/// Whether a job file is one of a teacher: it has a section `[teacher]`.
pub fn is_distill_job(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    toml::from_str::<Table>(&text).is_ok_and(|t| matches!(t.get("teacher"), Some(Value::Table(_))))
}

impl DistillJob {
    /// Reads a job file, its system and its prompt. Of what the command line says, `lake`, `system` and `set` are a teacher's.
    ///
    /// # Errors
    /// What is wrong with one of them: a usage error that names the file and the setting.
    pub fn read(file: &Path, overrides: &Overrides) -> Result<DistillJob> {
        let place = file.display().to_string();
        let mut table: Table =
            toml::from_str(&read_text(file, "job file")?).map_err(|e| Error::usage(tidy(&e)).at(&place))?;
        apply(&mut table, &overrides.set)?;
        for (key, value) in [("lake", &overrides.lake), ("system", &overrides.system)] {
            if let Some(value) = value {
                table.insert(key.into(), Value::String(value.clone()));
            }
        }
        let File { system, lake, journal, sample, teacher } =
            table.try_into().map_err(|e| Error::usage(tidy(&e)).at(&place))?;
        sample.check().map_err(|e| e.at(&place))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let lake = lake.ok_or_else(|| {
            Error::usage("no lake is named")
                .at(&place)
                .next("add `lake = \"PATH or URL\"` to the job file, or --lake URL")
        })?;
        let prompt = Prompt::read(&folder.join(&teacher.prompt))?;
        Ok(DistillJob {
            name: file.file_stem().map_or_else(|| "job".into(), |n| n.to_string_lossy().into_owned()),
            lake,
            system: config::system(folder, &system)?,
            sample,
            teacher: Teacher::new(teacher, prompt).map_err(|e| e.at(&place))?,
            journal,
        })
    }
}

impl Sample {
    fn check(&self) -> Result<()> {
        if self.stores < 0 || self.requests < 0 {
            return Err(Error::usage("sample.stores and sample.requests cannot be below 0").next("0 is for every one"));
        }
        if self.pool_size < 1 {
            return Err(Error::usage(format!("sample.pool_size is {}, it must be 1 or more", self.pool_size)));
        }
        Ok(())
    }
}
