//! Where the lines of each store stand, and how they are read again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Context, Error, Result};

use super::super::json::{self, Flaw};
use super::super::sink::Sink;
use super::super::store::{Reject, Source};
use super::super::value::{self, Fault, Object};
use super::super::{Format, Options};

/// A line that has a store.
pub struct Line {
    file: usize,
    /// From 1.
    number: u64,
    offset: u64,
    length: usize,
}

/// The lines of one store, in the order of the files' names and of the lines in them.
#[derive(Default)]
pub struct Lines {
    pub conversations: Vec<Line>,
    pub requests: Vec<Line>,
}

/// All lines that can be read, by (tenant, store).
pub struct Index {
    files: Vec<PathBuf>,
    pub stores: BTreeMap<(String, String), Lines>,
}

/// What decides where a line belongs; the other values are only checked to be JSON.
#[derive(Deserialize)]
struct Head {
    tenant_id: Option<Value>,
    store_id: Option<Value>,
    user_id: Option<Value>,
}

impl Index {
    /// Reads every line once; those that are no JSON or have no store are set aside.
    pub fn of(path: &Path, options: &Options, sink: &mut Sink) -> Result<Self> {
        let files = files(path)?;
        let mut index = Index { files, stores: BTreeMap::new() };
        for file in 0..index.files.len() {
            // One file is conversations, whatever its name.
            let requests = path.is_dir() && name(&index.files[file]).starts_with("requests");
            index.add_file(file, requests, options, sink)?;
        }
        Ok(index)
    }

    /// The place of a line, for people.
    pub fn place(&self, line: &Line) -> String {
        format!("{}:{}", name(&self.files[line.file]), line.number)
    }

    fn add_file(&mut self, file: usize, requests: bool, options: &Options, sink: &mut Sink) -> Result<()> {
        let path = self.files[file].clone();
        let fail = |e: std::io::Error| unreadable(e, &path);
        let mut reader = BufReader::with_capacity(1 << 20, File::open(&path).map_err(fail)?);
        let (mut offset, mut bytes) = (0, Vec::new());
        for number in 1.. {
            bytes.clear();
            let length = reader.read_until(b'\n', &mut bytes).map_err(fail)?;
            if length == 0 {
                break;
            }
            let line = Line { file, number, offset, length };
            offset += length as u64;
            let text = trimmed(&bytes);
            if text.is_empty() {
                continue;
            }
            match owner(text, options) {
                Ok(key) => {
                    let lines = self.stores.entry(key).or_default();
                    if requests { lines.requests.push(line) } else { lines.conversations.push(line) }
                }
                Err(fault) => {
                    let source = if requests { Source::Requests } else { Source::Turns };
                    let reject = Reject { source, row_id: None, fault: fault.at(&self.place(&line)) };
                    sink.reject(&options.tenant_id, None, &reject)?;
                }
            }
        }
        Ok(())
    }
}

/// The tenant and store of a line.
fn owner(text: &[u8], options: &Options) -> Result<(String, String), Fault> {
    // Only objects: a list of three would be read as the head's three fields.
    if text[0] != b'{' {
        return Err(match serde_json::from_slice::<Value>(text) {
            Ok(other) => Fault::wrong_type("the line", &other, "an object"),
            Err(e) => not_json(&e),
        });
    }
    let head: Head = serde_json::from_slice(text).map_err(|e| not_json(&e))?;
    let id = |name, value: &Option<Value>| value.as_ref().map_or(Ok(None), |v| value::id_of(name, v));
    let store = match id("store_id", &head.store_id)? {
        Some(store) => store,
        None => id("user_id", &head.user_id)?.ok_or_else(|| Fault::missing("store_id"))?,
    };
    Ok((id("tenant_id", &head.tenant_id)?.unwrap_or_else(|| options.tenant_id.clone()), store))
}

fn not_json(e: &serde_json::Error) -> Fault {
    // serde's own place counts lines within this one line.
    let what = e.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let (kind, says) = match json::flaw(e) {
        // A line is cut where it ends.
        Flaw::Cut | Flaw::Syntax | Flaw::Unreadable => ("not JSON", "is not JSON"),
        Flaw::NotUtf8 => ("not UTF-8", Flaw::NotUtf8.says()),
        Flaw::HalfCharacter => ("half a character", Flaw::HalfCharacter.says()),
        Flaw::TooDeep => ("nested too deep", Flaw::TooDeep.says()),
    };
    Fault::new(kind, format!("the line {says}: {what} at column {}", e.column()))
}

/// Without a byte order mark and white space around.
fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii()
}

/// The file itself, or the folder's `*.jsonl` by name.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = |e: Error| e.at(path.display().to_string()).next(format!("give {}", Format::Chat.expects()));
    let mut files = Vec::new();
    for entry in fs::read_dir(path).or_data("cannot be listed").map_err(fail)? {
        let file = entry.or_data("cannot be listed").map_err(fail)?.path();
        if file.is_file() && file.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl")) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(fail(Error::data("no *.jsonl file in it")));
    }
    Ok(files)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn unreadable(e: std::io::Error, path: &Path) -> Error {
    Error::data("cannot be read").source(e).at(path.display().to_string())
}

/// Reads lines of the index again, with one file open.
pub struct Reader<'a> {
    index: &'a Index,
    open: Option<(usize, File)>,
}

impl<'a> Reader<'a> {
    pub fn new(index: &'a Index) -> Self {
        Reader { index, open: None }
    }

    /// A line as an object. The first pass only skims values: what it could not see (a broken text, a number out of
    /// range, nesting without end) is a fault of the line here.
    pub fn object(&mut self, line: &Line) -> Result<Result<Object, Fault>> {
        let bytes = self.bytes(line).map_err(|e| unreadable(e, &self.index.files[line.file]))?;
        Ok(serde_json::from_slice(trimmed(&bytes)).map_err(|e| not_json(&e)))
    }

    fn bytes(&mut self, line: &Line) -> std::io::Result<Vec<u8>> {
        if self.open.as_ref().is_none_or(|(file, _)| *file != line.file) {
            self.open = Some((line.file, File::open(&self.index.files[line.file])?));
        }
        let mut bytes = vec![0; line.length];
        if let Some((_, file)) = &mut self.open {
            file.seek(SeekFrom::Start(line.offset))?;
            file.read_exact(&mut bytes)?;
        }
        Ok(bytes)
    }
}
