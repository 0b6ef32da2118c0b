//! What a run did: for a person, as JSON, and as a row of the `runs` table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use futures::stream;
use serde::Serialize;

use super::losses::Losses;
use super::prepare::Prepared;
use crate::config::Job;
use crate::engine;
use crate::error::Result;
use crate::lake::{Outcome, Unit};
use crate::schema;

/// One table of a run. Stores are those that the table has rows of, or would have.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableSummary {
    pub table: &'static str,
    /// The table's version in the lake after the run.
    pub version: i64,
    pub rows: u64,
    pub rows_computed: u64,
    pub stores: u64,
    pub stores_kept: u64,
    pub stores_computed: u64,
    pub shards_computed: u64,
    /// Rows of the input that were set aside, with their reasons in the `rejects` table.
    pub rejects: u64,
    /// Of tables that a model fills.
    #[serde(flatten)]
    pub losses: Option<Losses>,
    /// How long the table took.
    pub seconds: f64,
}

impl TableSummary {
    pub fn new(table: &'static str) -> Self {
        TableSummary { table, ..Default::default() }
    }
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub run_id: String,
    pub job: String,
    pub system: String,
    pub lake: String,
    pub device: String,
    pub started_at_ms: u128,
    pub seconds: f64,
    pub tables: Vec<TableSummary>,
    /// Slates of this system by status.
    pub slates: BTreeMap<String, u64>,
    pub rejects: u64,
    #[serde(skip)]
    started: Option<SystemTime>,
}

impl Summary {
    pub(super) fn begin(job: &Job, started: SystemTime) -> Self {
        let started_at_ms = started.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        Summary {
            run_id: format!("{started_at_ms}-{}", std::process::id()),
            job: job.name.clone(),
            system: job.system.partition(),
            lake: String::new(),
            device: String::new(),
            started_at_ms,
            seconds: 0.0,
            tables: Vec::new(),
            slates: BTreeMap::new(),
            rejects: 0,
            started: Some(started),
        }
    }

    /// Whether the run ends with rows set aside, or with slates that a failed model made worse.
    pub fn is_clean(&self) -> bool {
        self.rejects == 0 && !self.slates.contains_key("degraded")
    }

    /// Counts what came out, and records the run in the lake.
    pub(super) async fn finish(&mut self, run: &Prepared) -> Result<()> {
        self.lake = run.lake.place().to_string();
        self.device = run.device.clone();
        self.rejects = self.tables.iter().map(|t| t.rejects).sum();
        if self.tables.iter().any(|t| t.table == "slates") {
            self.slates = statuses(run).await?;
        }
        let ended = SystemTime::now();
        self.seconds = self.started.and_then(|s| ended.duration_since(s).ok()).map_or(0.0, |d| d.as_secs_f64());
        let json = serde_json::to_string_pretty(self).expect("plain data");
        run.lake.put(&format!("_runs/{}.json", self.run_id), json.into_bytes()).await?;
        self.record(run, ended).await
    }

    async fn record(&self, run: &Prepared, ended: SystemTime) -> Result<()> {
        let micros = |t: SystemTime| t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64);
        let text = |s: String| Arc::new(StringArray::from(vec![s])) as ArrayRef;
        let time = |t: i64| Arc::new(TimestampMicrosecondArray::from(vec![t]).with_timezone("UTC")) as ArrayRef;
        let row = RecordBatch::try_new(
            schema::RUNS.file_schema(),
            vec![
                text(self.run_id.clone()),
                text(self.job.clone()),
                text(self.system.clone()),
                time(self.started.map_or(0, micros)),
                time(micros(ended)),
                text(serde_json::to_string(self).expect("plain data")),
            ],
        )?;
        let mut snapshot = run.lake.table(&schema::RUNS).await?;
        let unit = Unit { id: self.run_id.clone(), fingerprint: 0, partition: Vec::new() };
        let pending = snapshot.write(unit, stream::iter([Ok(row)])).await?;
        while let Outcome::Lost(now) = snapshot.append(&pending).await? {
            snapshot = now;
        }
        Ok(())
    }
}

async fn statuses(run: &Prepared) -> Result<BTreeMap<String, u64>> {
    let snapshot = run.lake.table(&schema::SLATES).await?;
    let context = run.session()?;
    engine::register_snapshot(&context, &run.lake, &snapshot, &[&run.job.system.partition()], "slates")?;
    let mut out = BTreeMap::new();
    for batch in engine::collect(&context, "SELECT status, count(*) FROM slates GROUP BY status", &[]).await? {
        let counts = batch.column(1).as_primitive::<Int64Type>();
        for (status, n) in batch.column(0).as_string::<i32>().iter().zip(counts.values()) {
            out.insert(status.unwrap_or_default().to_string(), *n as u64);
        }
    }
    Ok(out)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<11} {:>9} {:>9} {:>8} {:>8} {:>8}", "table", "rows", "computed", "stores", "kept", "computed")?;
        for t in &self.tables {
            let computed = if t.rows_computed == 0 { "-".to_string() } else { t.rows_computed.to_string() };
            writeln!(
                f,
                "{:<11} {:>9} {:>9} {:>8} {:>8} {:>8}",
                t.table, t.rows, computed, t.stores, t.stores_kept, t.stores_computed
            )?;
        }
        for line in self.tables.iter().filter_map(|t| t.losses.and_then(|l| l.line(t.table))) {
            writeln!(f, "{line}")?;
        }
        if !self.slates.is_empty() {
            let parts: Vec<_> = self.slates.iter().map(|(status, n)| format!("{n} {status}")).collect();
            writeln!(f, "slates of {}: {}", self.system, parts.join(", "))?;
        }
        if self.rejects > 0 {
            writeln!(f, "{} rows were set aside: their reasons are in {}/rejects", self.rejects, self.lake)?;
        }
        write!(f, "{:.1} s; tables in {}", self.seconds, self.lake)
    }
}
