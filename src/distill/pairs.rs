//! The pairs of a sample: each question with each turn of the head of its pool, a pair once.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use datafusion::common::ScalarValue;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use super::lake::Source;
use super::sample::Sampled;
use crate::engine;
use crate::error::{Context, Error, Result};
use crate::teacher::Pair;

/// A question's and a content's hash.
pub type PairHash = ([u8; 32], [u8; 32]);

/// All pairs of a sample, shard by shard, of a shard in the order of requests and pools. Texts are held a batch at a time.
pub fn pairs(source: Arc<Source>, sampled: &Sampled, pool_size: i64) -> BoxStream<'static, Result<Pair>> {
    let requests = sampled.requests.clone();
    let shards = stream::iter(sampled.shards.clone());
    let each = shards.then(move |shard| {
        let (source, requests) = (Arc::clone(&source), requests.clone());
        async move { of_shard(&source, requests, shard, pool_size).await.map_err(|e| e.at(format!("shard {shard}"))) }
    });
    let batches = each.try_flatten();
    let mut seen: HashSet<PairHash> = HashSet::new();
    let rows = batches.flat_map(|batch| stream::iter(batch.and_then(|b| rows(&b)).unwrap_or_else(|e| vec![Err(e)])));
    rows.filter(move |pair| {
        let fresh = pair.as_ref().map_or(true, |p| seen.insert((p.question_hash, p.content_hash)));
        std::future::ready(fresh)
    })
    .boxed()
}

async fn of_shard(
    source: &Source,
    requests: RecordBatch,
    shard: i32,
    pool_size: i64,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let context = source.session(Some(shard))?;
    context.register_batch("sampled", requests)?;
    let sql = "
        SELECT r.question, r.question_hash, t.content, t.content_hash
        FROM sampled AS s
        JOIN requests AS r ON r.tenant_id = s.tenant_id AND r.store_id = s.store_id AND r.request_id = s.request_id
        JOIN pools AS p ON p.tenant_id = s.tenant_id AND p.store_id = s.store_id AND p.request_id = s.request_id
        JOIN turns AS t ON t.tenant_id = p.tenant_id AND t.store_id = p.store_id AND t.turn_ordinal = p.turn_ordinal
        WHERE p.pool_position <= $pool_size AND t.content IS NOT NULL
        ORDER BY s.tenant_id, s.store_id, s.request_id, p.pool_position";
    let parameters = [("pool_size", ScalarValue::Int64(Some(pool_size)))];
    engine::stream(engine::bind(&context, sql, &parameters).await?).await
}

fn rows(batch: &RecordBatch) -> Result<Vec<Result<Pair>>> {
    let text = |i: usize| batch.column(i).as_string::<i32>();
    let bytes = |i: usize| batch.column(i).as_binary::<i32>();
    let (questions, question_hashes, contents, content_hashes) = (text(0), bytes(1), text(2), bytes(3));
    (0..batch.num_rows())
        .map(|row| {
            if content_hashes.is_null(row) {
                return Err(Error::data("a turn with content has no content_hash").at("turns"));
            }
            Ok(Ok(Pair {
                question: questions.value(row).to_string(),
                content: contents.value(row).to_string(),
                question_hash: hash(question_hashes.value(row))?,
                content_hash: hash(content_hashes.value(row))?,
            }))
        })
        .collect()
}

/// SHA-256 as the lake holds it.
pub fn hash(bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().or_data("a hash in the lake has not 32 bytes")
}
