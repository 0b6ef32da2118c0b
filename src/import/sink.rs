//! The files of an import: written under temporary names and renamed when all of them are whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};

use crate::error::{Context, Error, Result};
use crate::schema::{self, Table};

use super::report::Report;
use super::store::{Reject, Store};
use super::table::{Cell, TableWriter};

/// Where the rows of an import go.
pub struct Sink {
    turns: TableWriter,
    requests: TableWriter,
    labels: TableWriter,
    /// Made with the first row that is set aside.
    rejects: Option<TableWriter>,
    pub report: Report,
    // Dropped after the writers: a file has to be closed before every system lets it be removed.
    files: Files,
}

impl Sink {
    /// Makes the folder where it is missing, and the files under temporary names.
    pub fn create(dir: &Path) -> Result<Self> {
        let mut files = Files::create(dir)?;
        let turns = TableWriter::create(&files.part("turns"), turns_schema())?;
        let requests = TableWriter::create(&files.part("requests"), without(&schema::REQUESTS, &["question_hash"]))?;
        let labels = TableWriter::create(&files.part("labels"), without(&schema::LABELS, &[]))?;
        Ok(Sink { turns, requests, labels, rejects: None, report: Report::default(), files })
    }

    /// Writes a store's rows, and what was set aside while it was read.
    pub fn write(&mut self, store: Store) -> Result<()> {
        let (tenant, name) = (store.tenant_id.as_str(), store.store_id.as_str());
        let language = language_of(&store.sample());
        let (mut turn_ordinal, mut session_ordinal) = (0, 0);
        for session in store.in_time_order() {
            for (turn, position) in session.turns.iter().zip(0..) {
                self.turns.push([
                    Cell::Text(Some(tenant)),
                    Cell::Text(Some(name)),
                    Cell::Text(Some(&session.id)),
                    Cell::Text(Some(&turn.turn_id)),
                    Cell::Int(turn_ordinal),
                    Cell::Int(session_ordinal),
                    Cell::Int(position),
                    Cell::Time(turn.spoken_at),
                    Cell::Time(turn.added_at),
                    Cell::Text(Some(turn.role)),
                    Cell::Text(turn.speaker.as_deref()),
                    Cell::Text(turn.content.as_deref()),
                    Cell::Text(language),
                ])?;
                turn_ordinal += 1;
                self.report.turns += 1;
            }
            session_ordinal += 1;
            self.report.sessions += 1;
        }
        self.report.stores += u64::from(turn_ordinal > 0);
        self.write_requests(&store)?;
        store.rejects.iter().try_for_each(|r| self.reject(tenant, Some(name), r))
    }

    fn write_requests(&mut self, store: &Store) -> Result<()> {
        for request in &store.requests {
            let key = [&store.tenant_id, &store.store_id, &request.request_id].map(|t| Cell::Text(Some(t)));
            self.requests.push([
                key[0],
                key[1],
                key[2],
                Cell::Text(Some(&request.question)),
                Cell::Time(request.asked_at),
                Cell::Text(request.split.as_deref()),
            ])?;
            for turn_id in &request.evidence {
                self.labels.push([key[0], key[1], key[2], Cell::Text(Some(turn_id)), Cell::Int(1)])?;
            }
            self.report.requests += 1;
            self.report.labels += request.evidence.len() as u64;
            let sessions = store.sessions_of(&request.evidence);
            self.report.requests_with_evidence += u64::from(sessions > 0);
            self.report.requests_across_sessions += u64::from(sessions > 1);
        }
        Ok(())
    }

    /// Sets a row aside.
    pub fn reject(&mut self, tenant_id: &str, store_id: Option<&str>, reject: &Reject) -> Result<()> {
        let source = reject.source.name();
        if self.rejects.is_none() {
            self.rejects = Some(TableWriter::create(&self.files.part("rejects"), schema::REJECTS.full_schema())?);
        }
        if let Some(rejects) = &mut self.rejects {
            rejects.push([
                Cell::Text(Some(tenant_id)),
                Cell::Text(store_id),
                Cell::Text(reject.row_id.as_deref()),
                Cell::Text(Some(&reject.fault.reason)),
                Cell::Text(Some(source)),
            ])?;
        }
        *self.report.rejects.entry(source).or_default().entry(reject.fault.kind).or_default() += 1;
        Ok(())
    }

    /// Ends every file, then gives them their names.
    pub fn finish(self) -> Result<Report> {
        for table in [self.turns, self.requests, self.labels].into_iter().chain(self.rejects) {
            table.close()?;
        }
        self.files.publish()?;
        Ok(self.report)
    }
}

fn turns_schema() -> SchemaRef {
    without(&schema::TURNS, &["content_hash", "tokens"])
}

/// A table's columns without those that are computed later.
fn without(table: &Table, computed: &[&str]) -> SchemaRef {
    let fields = table.file_schema().fields().clone();
    let given = |name: &str| name != "store_fingerprint" && !computed.contains(&name);
    Arc::new(Schema::new(fields.iter().filter(|f| given(f.name())).cloned().collect::<Vec<_>>()))
}

fn language_of(store_text: &str) -> Option<&'static str> {
    crate::text::detect_language(store_text)
}

/// The names that a reader may find in the folder of an import.
const NAMES: [&str; 4] = ["turns", "requests", "labels", "rejects"];

/// The files' names; removes what is not whole when it goes.
struct Files {
    dir: PathBuf,
    made_dir: bool,
    parts: Vec<&'static str>,
}

impl Files {
    fn create(dir: &Path) -> Result<Self> {
        let made_dir = !dir.exists();
        fs::create_dir_all(dir)
            .or_data("the output folder cannot be made")
            .map_err(|e| e.at(dir.display().to_string()).next("give a folder that can be written"))?;
        Ok(Files { dir: dir.to_owned(), made_dir, parts: Vec::new() })
    }

    fn part(&mut self, name: &'static str) -> PathBuf {
        self.parts.push(name);
        self.part_path(name)
    }

    fn part_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.parquet.part"))
    }

    /// Renames every part. A name that this import did not write is of an earlier one and goes.
    fn publish(mut self) -> Result<()> {
        for name in NAMES {
            let path = self.dir.join(format!("{name}.parquet"));
            let done = if self.parts.contains(&name) {
                fs::rename(self.part_path(name), &path)
            } else if path.exists() {
                fs::remove_file(&path)
            } else {
                Ok(())
            };
            done.map_err(|e| Error::data("cannot be replaced").source(e).at(path.display().to_string()))?;
        }
        self.parts.clear();
        self.made_dir = false;
        Ok(())
    }
}

impl Drop for Files {
    /// Best effort: a part that stays behind is not of a name that anyone reads, and the next import replaces it.
    fn drop(&mut self) {
        for name in &self.parts {
            let _ = fs::remove_file(self.part_path(name));
        }
        if self.made_dir {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}
