//! Texts without a vector: the encoder failed on them.
//!
//! A vector is settled by its text and its model, and so adds nothing to the fingerprints of what is made with it. A
//! missing one does: a shard of embeddings that holds a null is never done, so that each run tries its texts again; and
//! a store that lacks vectors carries that in its fingerprint, so that it is computed again when they are there.

use std::collections::BTreeSet;

use super::fingerprint::{self, Prints};
use super::prepare::Prepared;
use crate::engine;
use crate::error::Result;
use crate::lake::Snapshot;
use crate::schema;

/// As [`prints`], of the lake as it is.
pub async fn prints_now(run: &Prepared) -> Result<Prints> {
    let tables = [&schema::EMBEDDINGS, &schema::TURNS, &schema::REQUESTS].map(|table| run.lake.existing(table));
    match futures::future::try_join_all(tables).await?.as_slice() {
        [Some(embeddings), Some(turns), Some(requests)] => prints(run, embeddings, [turns, requests]).await,
        _ => Ok(Prints::new()),
    }
}

/// The encoder's rows without a vector.
pub const MISSING: &str = "encoder_hash = $encoder_hash AND vector IS NULL";

/// The shards of embeddings in which the run's encoder left a text without a vector.
pub async fn shards(run: &Prepared, snapshot: &Snapshot) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for file in snapshot.with_nulls(snapshot.files(&[])?, "vector").await? {
        let Some(shard) = file.partition.first().and_then(|s| s.parse().ok()) else { continue };
        let context = run.session()?;
        let (root, store) = run.lake.object_store();
        context.register_object_store(&root, store);
        context.register_table("own_rows", engine::files(&schema::EMBEDDINGS, &root, vec![file])?)?;
        let sql = format!("SELECT 1 FROM own_rows WHERE {MISSING} LIMIT 1");
        let rows = engine::collect(&context, &sql, &run.parameters).await?;
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            found.insert(shard);
        }
    }
    Ok(found)
}

/// Of each store that lacks vectors, a fingerprint of the texts that have none. `texts`: turns and requests.
pub async fn prints(run: &Prepared, embeddings: &Snapshot, texts: [&Snapshot; 2]) -> Result<Prints> {
    let mut all = Prints::new();
    for shard in shards(run, embeddings).await? {
        let context = run.session()?;
        for snapshot in [embeddings, texts[0], texts[1]] {
            let shard = shard.to_string();
            engine::register_snapshot(&context, &run.lake, snapshot, &[&shard], snapshot.table.name)?;
        }
        let sql = format!(
            "(SELECT t.shard, t.tenant_id, t.store_id,
                bit_xor(fingerprint(t.content_hash, t.purpose))
                  OVER (PARTITION BY t.tenant_id, t.store_id) AS store_fingerprint
              FROM (
                SELECT shard, tenant_id, store_id, content_hash, 'passage' AS purpose FROM turns
                UNION
                SELECT shard, tenant_id, store_id, question_hash, 'query' FROM requests
              ) AS t
              JOIN (SELECT content_hash, purpose FROM embeddings WHERE {MISSING}) AS e
                ON e.content_hash = t.content_hash AND e.purpose = t.purpose)"
        );
        all.extend(fingerprint::of_table(&context, &sql, &run.parameters).await?);
    }
    Ok(all)
}
