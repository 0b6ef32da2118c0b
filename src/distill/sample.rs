//! Which requests are graded: so many of each store, by the hash of the seed and the request, so that the same lake gives the
//! same sample, and a larger sample holds a smaller one.

use std::collections::BTreeSet;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Int32Type;
use datafusion::common::ScalarValue;

use super::job::Sample;
use super::lake::Source;
use crate::engine;
use crate::error::{Error, Result};

/// The sampled requests.
pub struct Sampled {
    /// Columns `shard, tenant_id, store_id, request_id`.
    pub requests: RecordBatch,
    pub shards: BTreeSet<i32>,
}

/// # Errors
/// A sample without a request: a data error.
pub async fn sample(source: &Source, rule: &Sample) -> Result<Sampled> {
    let context = source.session(None)?;
    // Only requests that have a pool; stores and requests are each put in the order of their hash.
    let sql = "
        SELECT shard, tenant_id, store_id, request_id
        FROM (
          SELECT *,
            row_number() OVER (PARTITION BY tenant_id, store_id ORDER BY request_hash, request_id) AS request_place,
            dense_rank() OVER (ORDER BY store_hash, tenant_id, store_id) AS store_place
          FROM (
            SELECT r.shard, r.tenant_id, r.store_id, r.request_id,
              fingerprint($seed, r.tenant_id, r.store_id) AS store_hash,
              fingerprint($seed, r.request_id) AS request_hash
            FROM requests AS r
            LEFT SEMI JOIN pools AS p
              ON p.tenant_id = r.tenant_id AND p.store_id = r.store_id AND p.request_id = r.request_id
            WHERE $split = 'all' OR r.split = $split
          )
        )
        WHERE ($requests = 0 OR request_place <= $requests) AND ($stores = 0 OR store_place <= $stores)
        ORDER BY shard, tenant_id, store_id, request_id";
    let parameters = [
        ("seed", ScalarValue::Utf8(Some(rule.seed.to_string()))),
        ("split", ScalarValue::Utf8(Some(rule.split.clone()))),
        ("requests", ScalarValue::Int64(Some(rule.requests))),
        ("stores", ScalarValue::Int64(Some(rule.stores))),
    ];
    let batches = engine::collect(&context, sql, &parameters).await?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let Some(first) = batches.first().filter(|_| rows > 0) else {
        return Err(Error::data(format!("no request of split {:?} has a pool", rule.split))
            .next("name another one with `--set sample.split=...`; `all` is for every request"));
    };
    let requests = concat_batches(&first.schema(), &batches)?;
    let shards = requests.column(0).as_primitive::<Int32Type>().values().iter().copied().collect();
    Ok(Sampled { requests, shards })
}
