//! Texts without a vector and pairs without a logit: the model failed on them.
//!
//! A vector is settled by its text and its model, and so adds nothing to the fingerprints of what is made with it; nor does
//! a logit. A missing one does: a shard of embeddings or scores that holds a null is never done, so that each run tries its
//! texts again; and a store that lacks some carries that in its fingerprint, so that it is computed again when they are
//! there.

use std::collections::{BTreeMap, BTreeSet};

use super::fingerprint::{self, Prints};
use super::prepare::Prepared;
use crate::engine;
use crate::error::Result;
use crate::lake::Snapshot;
use crate::schema;

/// A table whose rows a model makes.
pub struct Gap {
    pub table: &'static str,
    /// The model's value, null where it failed.
    pub column: &'static str,
    /// The rows of the run's model.
    pub own: &'static str,
    /// The tables that say which store a row is of.
    pub stores: &'static [&'static str],
    /// What lacks a value, by store: columns `shard, tenant_id, store_id, a, b` from those tables and `missing`.
    missing: &'static str,
}

const GAPS: [Gap; 2] = [
    Gap {
        table: "embeddings",
        column: "vector",
        own: "encoder_hash = $encoder_hash",
        stores: &["turns", "requests"],
        missing: "SELECT t.shard, t.tenant_id, t.store_id, t.content_hash AS a, t.purpose AS b
              FROM (
                SELECT shard, tenant_id, store_id, content_hash, 'passage' AS purpose FROM turns
                UNION
                SELECT shard, tenant_id, store_id, question_hash, 'query' FROM requests
              ) AS t
              JOIN missing AS e ON e.content_hash = t.content_hash AND e.purpose = t.purpose",
    },
    Gap {
        table: "scores",
        column: "logit",
        own: "scorer_hash = $scorer_hash",
        stores: &["pools", "turns", "requests"],
        missing: "SELECT DISTINCT p.shard, p.tenant_id, p.store_id, r.question_hash AS a, t.content_hash AS b
              FROM pools AS p
              JOIN requests AS r
                ON r.tenant_id = p.tenant_id AND r.store_id = p.store_id AND r.request_id = p.request_id
              JOIN turns AS t
                ON t.tenant_id = p.tenant_id AND t.store_id = p.store_id AND t.turn_ordinal = p.turn_ordinal
              JOIN missing AS s ON s.question_hash = r.question_hash AND s.content_hash = t.content_hash",
    },
];

impl Gap {
    pub fn of(table: &str) -> Option<&'static Gap> {
        GAPS.iter().find(|gap| gap.table == table)
    }

    /// The rows of the run's model without a value.
    pub fn condition(&self) -> String {
        format!("{} AND {} IS NULL", self.own, self.column)
    }

    /// By shard, how many rows of the run's model have no value; shards without such a row are not among them.
    pub async fn shards(&self, run: &Prepared, snapshot: &Snapshot) -> Result<BTreeMap<i32, u64>> {
        let mut found = BTreeMap::new();
        for file in snapshot.with_nulls(snapshot.files(&[])?, self.column).await? {
            let Some(shard) = file.partition.first().and_then(|s| s.parse().ok()) else { continue };
            let context = run.session()?;
            let (root, store) = run.lake.object_store();
            context.register_object_store(&root, store);
            context.register_table("own_rows", engine::files(snapshot.table, &root, vec![file])?)?;
            let sql = format!("SELECT count(*) FROM own_rows WHERE {}", self.condition());
            let rows = engine::count(&context, &sql, &run.parameters).await?;
            if rows > 0 {
                *found.entry(shard).or_default() += rows;
            }
        }
        Ok(found)
    }

    /// Of each store that lacks values, a fingerprint of what has none. `stores`: the tables of [`Gap::stores`];
    /// `lacking`: what [`Gap::shards`] gives.
    async fn prints(
        &self,
        run: &Prepared,
        snapshot: &Snapshot,
        stores: &[&Snapshot],
        lacking: &BTreeMap<i32, u64>,
    ) -> Result<Prints> {
        let mut all = Prints::new();
        for &shard in lacking.keys() {
            let context = run.session()?;
            for snapshot in stores.iter().copied().chain([snapshot]) {
                let partition = run.partition(snapshot.table, shard);
                let prefix: Vec<&str> = partition.iter().map(String::as_str).collect();
                engine::register_snapshot(&context, &run.lake, snapshot, &prefix, snapshot.table.name)?;
            }
            let rows = format!("SELECT * FROM {} WHERE {}", self.table, self.condition());
            context.register_table("missing", engine::bind(&context, &rows, &run.parameters).await?.into_view())?;
            let sql = format!(
                "SELECT shard, tenant_id, store_id, fingerprint(a, b) AS row_fingerprint FROM ({})",
                self.missing
            );
            all.extend(fingerprint::of_rows(&context, &sql, &[]).await?);
        }
        Ok(all)
    }
}

/// The shards of a table in which the run's model left a row without a value.
pub async fn shards(run: &Prepared, snapshot: &Snapshot) -> Result<BTreeSet<i32>> {
    match Gap::of(snapshot.table.name) {
        Some(gap) => Ok(gap.shards(run, snapshot).await?.into_keys().collect()),
        None => Ok(BTreeSet::new()),
    }
}

/// Of each store that lacks values of this table, a fingerprint of what has none; of the tables as the run left them.
pub async fn prints(run: &Prepared, gap: &Gap, snapshot: &Snapshot, lacking: &BTreeMap<i32, u64>) -> Result<Prints> {
    let stores: Vec<&Snapshot> = gap.stores.iter().filter_map(|table| run.tables.get(table)).collect();
    gap.prints(run, snapshot, &stores, lacking).await
}

/// As [`prints`], of every table in the lake as it is.
pub async fn prints_now(run: &Prepared) -> Result<BTreeMap<&'static str, Prints>> {
    let mut all = BTreeMap::new();
    for gap in GAPS.iter().filter(|gap| run.fills(gap.table)) {
        let tables = gap.stores.iter().chain([&gap.table]).map(|name| schema::table(name).expect("a table"));
        let snapshots = futures::future::try_join_all(tables.map(|table| run.lake.existing(table))).await?;
        let Some(snapshots) = snapshots.into_iter().collect::<Option<Vec<Snapshot>>>() else { continue };
        if let Some((own, stores)) = snapshots.split_last() {
            let lacking = gap.shards(run, own).await?;
            all.insert(gap.table, gap.prints(run, own, &stores.iter().collect::<Vec<_>>(), &lacking).await?);
        }
    }
    Ok(all)
}
