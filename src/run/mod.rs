//! Runs: job files, the graph of their tables, shards, resuming.
//!
//! A run goes through the tables upstream to downstream. `turns`, `requests` and `labels` are read from the inputs
//! ([`ingest`]); each other table is derived shard by shard ([`derive`]). A shard whose fingerprint is committed is
//! skipped; in a shard that changed, stores that did not change are carried over.

mod derive;
mod fingerprint;
mod gaps;
mod grades;
mod graph;
mod ingest;
mod keys;
mod lessons;
mod losses;
mod mapped;
mod plan;
#[cfg(test)]
mod plan_tests;
mod prepare;
mod progress;
mod replay;
mod sources;
mod stamp;
mod status;
mod summary;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures::future::LocalBoxFuture;

pub use lessons::{Learnt, Lessons, train_from, train_params};
pub use plan::{Estimate, Plan, plan};
pub use prepare::{Checked, Prepared, check};
pub use replay::replay;
pub use status::{Status, status};
pub use summary::{Summary, TableSummary};

use crate::config::Job;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::schema;

/// Tables in the order of a run.
pub const ORDER: [&str; 9] =
    ["turns", "requests", "labels", "embeddings", "pools", "scores", "features", "rankings", "slates"];

/// What a run stops after: checks that `table` is one of a run's tables.
pub fn until(table: Option<&str>) -> Result<&'static str> {
    let Some(table) = table else { return Ok(ORDER[ORDER.len() - 1]) };
    ORDER.iter().find(|t| **t == table).copied().ok_or_else(|| {
        Error::usage(format!("--until {table}: a run makes no such table")).next(format!("one of {}", ORDER.join(", ")))
    })
}

/// Runs a job up to and with the table `last`; what is committed already is not computed again.
pub async fn run(job: &Job, last: &'static str) -> Result<Summary> {
    run_on(job, last, crate::device::open(&job.device)?).await
}

/// As [`run`], on this device in place of the job's. Boxed here, so that a program that calls it does not compile the
/// engine once more.
pub fn run_on<'a>(job: &'a Job, last: &'static str, device: Arc<dyn Device>) -> LocalBoxFuture<'a, Result<Summary>> {
    Box::pin(through(job, last, device))
}

async fn through(job: &Job, last: &'static str, device: Arc<dyn Device>) -> Result<Summary> {
    let started = SystemTime::now();
    let mut prepared = Prepared::on(job, last, device).await?;
    let mut summary = Summary::begin(job, started);
    // What the tables' system is, for those who read them.
    let system = crate::system::System { slate: prepare::slate(job), ..job.system.clone() };
    let system = serde_json::to_vec_pretty(&system).expect("plain data");
    prepared.lake.put(&format!("_systems/{}.json", job.system.partition()), system).await?;
    for table in graph::until(last) {
        let began = Instant::now();
        if table == "features" {
            grades::load(&mut prepared).await?;
        }
        let mut done = match table {
            "turns" | "requests" | "labels" => ingest::table(&mut prepared, table).await?,
            table => derive::table(&mut prepared, schema::table(table).expect("a table of the order")).await?,
        };
        done.seconds = began.elapsed().as_secs_f64();
        progress::report(&done);
        summary.tables.push(done);
    }
    summary.finish(&prepared).await?;
    Ok(summary)
}
