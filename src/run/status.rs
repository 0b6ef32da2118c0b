//! What a lake holds, and how its last runs went.

use std::collections::BTreeMap;
use std::fmt;

use arrow::array::AsArray;
use serde::Serialize;

use crate::engine::{self, Functions, Models, Settings};
use crate::error::Result;
use crate::lake::Lake;
use crate::schema;

/// A lake's tables and last runs.
#[derive(Debug, Serialize)]
pub struct Status {
    pub lake: String,
    pub shards: u32,
    pub tables: Vec<TableStatus>,
    /// Rows of the slates by system.
    pub systems: BTreeMap<String, u64>,
    /// Summaries of the last runs, the latest first.
    pub runs: Vec<serde_json::Value>,
}

/// One table of a lake.
#[derive(Debug, Serialize)]
pub struct TableStatus {
    pub table: &'static str,
    pub version: i64,
    pub files: usize,
    pub rows: u64,
    pub bytes: u64,
}

/// Reads a lake; changes nothing.
pub async fn status(url: &str) -> Result<Status> {
    let lake = Lake::open(url).await?;
    let mut tables = Vec::new();
    let mut systems = BTreeMap::new();
    for table in schema::TABLES {
        let Some(snapshot) = lake.existing(table).await? else { continue };
        let files = snapshot.files(&[])?;
        if table.name == "slates" {
            for file in &files {
                *systems.entry(file.partition[0].clone()).or_default() += file.rows;
            }
        }
        tables.push(TableStatus {
            table: table.name,
            version: snapshot.version(),
            files: files.len(),
            rows: files.iter().map(|f| f.rows).sum(),
            bytes: files.iter().map(|f| f.size).sum(),
        });
    }
    Ok(Status { lake: lake.place().to_string(), shards: lake.shards(), tables, systems, runs: runs(&lake).await? })
}

async fn runs(lake: &Lake) -> Result<Vec<serde_json::Value>> {
    let Some(snapshot) = lake.existing(&schema::RUNS).await? else { return Ok(Vec::new()) };
    let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
    engine::register_snapshot(&context, lake, &snapshot, &[], "runs")?;
    let sql = "SELECT summary FROM runs ORDER BY started_at DESC, run_id LIMIT 5";
    let mut out = Vec::new();
    for batch in engine::collect(&context, sql, &[]).await? {
        for text in batch.column(0).as_string::<i32>().iter().flatten() {
            out.push(serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_string())));
        }
    }
    Ok(out)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} shards)", self.lake, self.shards)?;
        writeln!(f, "{:<11} {:>8} {:>6} {:>10} {:>12}", "table", "version", "files", "rows", "bytes")?;
        for t in &self.tables {
            writeln!(f, "{:<11} {:>8} {:>6} {:>10} {:>12}", t.table, t.version, t.files, t.rows, t.bytes)?;
        }
        for (system, rows) in &self.systems {
            writeln!(f, "slates of {system}: {rows}")?;
        }
        for run in &self.runs {
            let text = |key: &str| run[key].as_str().unwrap_or("?").to_string();
            let seconds = run["seconds"].as_f64().unwrap_or(0.0);
            writeln!(f, "run {}: job {}, system {}, {seconds:.1} s", text("run_id"), text("job"), text("system"))?;
        }
        Ok(())
    }
}
