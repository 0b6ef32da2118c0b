//! Makes written units the table's content, in one atomic step.

use std::collections::HashMap;

use deltalake_core::DeltaTableError;
use deltalake_core::kernel::transaction::{CommitBuilder, CommitProperties, TableReference, TransactionError};
use deltalake_core::kernel::{Action, Add, Transaction};
use deltalake_core::protocol::{DeltaOperation, SaveMode};

use super::snapshot::read_error;
use super::{Snapshot, Unit};
use crate::error::{Error, Result};

/// Other runs may commit to other shards at the same time; each costs one more attempt.
const RETRIES: usize = 1000;

/// A unit that is written and not yet committed.
#[derive(Debug, Clone)]
pub struct Pending {
    pub unit: Unit,
    pub(super) adds: Vec<Add>,
    /// Paths of the partition's files when the unit was computed.
    pub(super) replaces: Vec<String>,
    pub rows: u64,
}

/// What became of a commit.
#[derive(Debug)]
pub enum Outcome {
    Committed(Snapshot),
    /// Another run committed to one of the same units first: nothing of ours was committed. Read again which units are
    /// done, and compute the rest anew.
    Lost(Snapshot),
}

impl Snapshot {
    /// Replaces the partitions of all given units and records their fingerprints, all or nothing; `marks` are further
    /// things to record as done.
    pub async fn commit(&self, pending: &[Pending], marks: &[(&str, i64)]) -> Result<Outcome> {
        let mut actions = Vec::new();
        let mut transactions = Vec::new();
        for p in pending {
            // The log finds conflicts only with commits after this snapshot, which may be younger than the rows.
            if self.paths(&p.unit.partition)? != p.replaces {
                return Ok(Outcome::Lost(self.refreshed().await?));
            }
            actions.extend(self.removes(&p.unit.partition)?.into_iter().map(Action::Remove));
            actions.extend(p.adds.iter().cloned().map(Action::Add));
            transactions.push(Transaction::new(&p.unit.id, p.unit.fingerprint));
        }
        transactions.extend(marks.iter().map(|(id, print)| Transaction::new(id, *print)));
        self.commit_actions(actions, transactions, SaveMode::Overwrite, self.predicate(pending)).await
    }

    /// Adds rows beside those that are there.
    pub async fn append(&self, pending: &Pending) -> Result<Outcome> {
        let actions = pending.adds.iter().cloned().map(Action::Add).collect();
        self.commit_actions(actions, Vec::new(), SaveMode::Append, None).await
    }

    async fn commit_actions(
        &self,
        actions: Vec<Action>,
        transactions: Vec<Transaction>,
        mode: SaveMode,
        predicate: Option<String>,
    ) -> Result<Outcome> {
        let state = self.delta.snapshot().map_err(read_error)?.clone();
        let partition_by = Some(self.table.partition.iter().map(|p| p.to_string()).collect());
        let operation = DeltaOperation::Write { mode, partition_by, predicate };
        let properties =
            CommitProperties::default().with_max_retries(RETRIES).with_application_transactions(transactions);
        let commit = CommitBuilder::from(properties)
            .with_actions(actions)
            .with_app_metadata(HashMap::from([("engine".to_string(), serde_json::json!("memslate"))]))
            .build(Some(&state as &dyn TableReference), self.delta.log_store(), operation)
            .await;
        match commit {
            Ok(_) => Ok(Outcome::Committed(self.refreshed().await?)),
            Err(DeltaTableError::Transaction { source: TransactionError::CommitConflict(_) }) => {
                Ok(Outcome::Lost(self.refreshed().await?))
            }
            Err(e) => Err(Error::transient("the commit failed").at(self.table.name).source(e)),
        }
    }

    /// What the commit has read, for the check against commits of others: the partitions that it replaces.
    fn predicate(&self, pending: &[Pending]) -> Option<String> {
        let one = |p: &Pending| {
            let terms = self.table.partition.iter().zip(&p.unit.partition).map(|(column, value)| {
                if *column == "shard" { format!("{column} = {value}") } else { format!("{column} = '{value}'") }
            });
            terms.collect::<Vec<_>>().join(" AND ")
        };
        if self.table.partition.is_empty() || pending.is_empty() {
            return None;
        }
        Some(pending.iter().map(|p| format!("({})", one(p))).collect::<Vec<_>>().join(" OR "))
    }
}
