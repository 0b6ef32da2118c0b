//! The tables of the lake that a teacher's job reads.

use datafusion::prelude::SessionContext;

use super::job::DistillJob;
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Error, Result};
use crate::lake::{Lake, Snapshot};
use crate::schema;

/// Pools, requests and turns as they are when the job begins.
pub struct Source {
    pub lake: Lake,
    pools: Snapshot,
    requests: Snapshot,
    turns: Snapshot,
    /// The partition of the job's system.
    system: String,
}

impl Source {
    /// # Errors
    /// A lake without pools of the job's system: a data error that says how they are made.
    pub async fn open(job: &DistillJob) -> Result<Source> {
        let lake = Lake::open(&job.lake).await?;
        let system = job.system.partition();
        let missing = || {
            Error::data(format!("the lake has no pools of system {system}"))
                .at(job.lake.clone())
                .next(format!("make them with `memslate run JOB.toml --system {} --until pools`", job.system.name))
        };
        let pools = lake.existing(&schema::POOLS).await?.ok_or_else(missing)?;
        if pools.files(&[&system])?.is_empty() {
            return Err(missing());
        }
        let requests = lake.existing(&schema::REQUESTS).await?.ok_or_else(missing)?;
        let turns = lake.existing(&schema::TURNS).await?.ok_or_else(missing)?;
        Ok(Source { lake, pools, requests, turns, system })
    }

    /// A session over one shard, or over all.
    pub fn session(&self, shard: Option<i32>) -> Result<SessionContext> {
        let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
        let shard = shard.map(|s| s.to_string());
        for snapshot in [&self.pools, &self.requests, &self.turns] {
            let of_system = (snapshot.table.partition[0] == "system").then_some(self.system.as_str());
            let prefix: Vec<&str> = of_system.into_iter().chain(shard.as_deref()).collect();
            engine::register_snapshot(&context, &self.lake, snapshot, &prefix, snapshot.table.name)?;
        }
        Ok(context)
    }
}
