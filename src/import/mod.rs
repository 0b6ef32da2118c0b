//! Conversations as others store them -> `turns`, `requests` and `labels` in Parquet, the layout every job reads.
//!
//! Each source has a module that reads it into [`store::Store`]s, one history at a time; [`sink::Sink`] writes them.
//! A row that cannot be read is set aside in `rejects.parquet` with its reason and the others go on. The same input
//! gives the same bytes, and either every file is written whole or none is.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, Result};

mod beam;
mod chat;
mod json;
mod locomo;
mod longmemeval;
mod report;
mod sink;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use report::Report;

/// The layouts that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// LongMemEval: a JSON array of instances, each a question with its own history.
    LongMemEval,
    /// LoCoMo: a JSON array of conversations between two people, each with its questions.
    Locomo,
    /// BEAM: a folder of chats, each a folder with `chat.json` and `probing_questions.json`.
    Beam,
    /// Chat messages in JSON lines, one conversation a line.
    Chat,
}

/// What the sources leave open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Minutes east of UTC that a time without a zone is taken to be in; 0 is UTC.
    pub default_zone_offset_minutes: i32,
    /// The owner of every store that names none.
    pub tenant_id: String,
    /// `dev` or `test`: the split of requests whose source has none (LongMemEval, chat).
    pub split: Option<String>,
}

/// Reads `path` and writes `turns.parquet`, `requests.parquet`, `labels.parquet` and, where rows were set aside,
/// `rejects.parquet` into the folder `out`, which is made where it is missing; files of those names are replaced.
///
/// # Errors
/// `path` is missing, is no JSON or not of the format's shape as a whole; `out` cannot be written. Nothing is left
/// half-written then.
pub fn import(format: Format, path: &Path, out: &Path, options: &Options) -> Result<Report> {
    options.check()?;
    if !path.exists() {
        return Err(Error::data("no such file or folder")
            .at(path.display().to_string())
            .next(format!("give {}", format.expects())));
    }
    let mut sink = sink::Sink::create(out)?;
    match format {
        Format::LongMemEval => longmemeval::read(path, options, &mut sink),
        Format::Locomo => locomo::read(path, options, &mut sink),
        Format::Beam => beam::read(path, options, &mut sink),
        Format::Chat => chat::read(path, options, &mut sink),
    }?;
    sink.finish()
}

impl Format {
    pub const ALL: [Format; 4] = [Format::LongMemEval, Format::Locomo, Format::Beam, Format::Chat];

    pub fn name(self) -> &'static str {
        match self {
            Format::LongMemEval => "longmemeval",
            Format::Locomo => "locomo",
            Format::Beam => "beam",
            Format::Chat => "chat",
        }
    }

    /// What the path has to be, for help and errors.
    pub fn expects(self) -> &'static str {
        match self {
            Format::LongMemEval => {
                "a LongMemEval file: a JSON array of instances (question_id, haystack_sessions, ...)"
            }
            Format::Locomo => "a LoCoMo file: a JSON array of conversations (sample_id, conversation, qa)",
            Format::Beam => "a folder of BEAM chats, or one chat's folder (chat.json, probing_questions.json)",
            Format::Chat => "a JSON-lines file, or a folder of *.jsonl files, with one conversation a line",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
            Error::usage(format!("unknown format {name:?}")).next("give one of longmemeval, locomo, beam, chat")
        })
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        // Real zones lie within -12:00 and +14:00.
        if self.default_zone_offset_minutes.abs() > 14 * 60 {
            return Err(Error::usage(format!(
                "a default zone of {} minutes is further from UTC than any zone",
                self.default_zone_offset_minutes
            ))
            .next("give minutes east of UTC, from -840 to 840: 540 for +09:00"));
        }
        match self.split.as_deref() {
            None | Some("dev" | "test") => Ok(()),
            Some(other) => Err(Error::usage(format!("unknown split {other:?}")).next("give dev or test")),
        }
    }
}
