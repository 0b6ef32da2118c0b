//! Functions with which inputs become tables: times, shards, fingerprints.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result as SqlResult, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use sha2::{Digest, Sha256};

use super::FUNCTIONS_VERSION;
use crate::schema;
use crate::text::dates;

pub(super) fn all() -> Vec<ScalarUDF> {
    vec![
        ScalarUDF::from(Instant { signature: Signature::any(2, Volatility::Immutable) }),
        ScalarUDF::from(ShardOf { signature: Signature::any(3, Volatility::Immutable) }),
        ScalarUDF::from(Fingerprint { signature: Signature::variadic_any(Volatility::Immutable) }),
    ]
}

/// `instant(value, zone_minutes)`: a text, number or timestamp as a time; NULL where it cannot be read. A time without
/// a zone is taken to be `zone_minutes` east of UTC.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Instant {
    signature: Signature,
}

impl ScalarUDFImpl for Instant {
    fn name(&self) -> &str {
        "instant"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> SqlResult<DataType> {
        Ok(schema::time())
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let values = args.args[0].to_array(args.number_rows)?;
        if values.data_type() == &DataType::Null {
            return Ok(ColumnarValue::Array(arrow::array::new_null_array(&schema::time(), args.number_rows)));
        }
        let zone = arrow::compute::cast(&args.args[1].to_array(1)?, &DataType::Int32)?;
        let zone = zone.as_primitive::<Int32Type>();
        if zone.is_empty() || zone.is_null(0) {
            return exec_err!("instant needs the zone of naive times, in minutes");
        }
        let (times, _) = dates::instants(&values, zone.value(0))?;
        Ok(ColumnarValue::Array(Arc::new(times)))
    }
}

/// `shard_of(tenant_id, store_id, shards)`: the shard that a store lies in, the same on every machine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ShardOf {
    signature: Signature,
}

impl ScalarUDFImpl for ShardOf {
    fn name(&self) -> &str {
        "shard_of"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> SqlResult<DataType> {
        Ok(DataType::Int32)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let n = args.number_rows;
        let tenant = arrow::compute::cast(&args.args[0].to_array(n)?, &DataType::Utf8)?;
        let store = arrow::compute::cast(&args.args[1].to_array(n)?, &DataType::Utf8)?;
        let shards = arrow::compute::cast(&args.args[2].to_array(n)?, &DataType::Int64)?;
        let shards = shards.as_primitive::<Int64Type>();
        let mut out = Vec::with_capacity(n);
        for row in 0..n {
            if shards.value(row) < 1 {
                return exec_err!("shard_of needs 1 shard or more");
            }
            let (tenant, store) = (tenant.as_string::<i32>().value(row), store.as_string::<i32>().value(row));
            out.push(shard_of(tenant, store, shards.value(row) as u64));
        }
        Ok(ColumnarValue::Array(Arc::new(Int32Array::from(out))))
    }
}

fn shard_of(tenant: &str, store: &str, shards: u64) -> i32 {
    let mut hash = Sha256::new();
    hash.update((tenant.len() as u64).to_le_bytes());
    hash.update(tenant);
    hash.update(store);
    (first_long(&hash.finalize()) as u64 % shards) as i32
}

/// `fingerprint(columns...)`: 64 bits of the SHA-256 of a row, nulls and types included, and of the functions' version:
/// what they make of the row belongs to it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fingerprint {
    signature: Signature,
}

impl ScalarUDFImpl for Fingerprint {
    fn name(&self) -> &str {
        "fingerprint"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> SqlResult<DataType> {
        if types.is_empty() { plan_err!("fingerprint needs a column") } else { Ok(DataType::Int64) }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let columns: Vec<ArrayRef> =
            args.args.iter().map(|a| a.to_array(args.number_rows)).collect::<SqlResult<_>>()?;
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        let of = Sha256::new_with_prefix(FUNCTIONS_VERSION.to_le_bytes());
        let print = |row: &[u8]| Some(first_long(&of.clone().chain_update(row).finalize()));
        let prints: Int64Array = rows.iter().map(|row| print(row.as_ref())).collect();
        Ok(ColumnarValue::Array(Arc::new(prints)))
    }
}

fn first_long(digest: &[u8]) -> i64 {
    i64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_stays_in_its_shard() {
        let first = shard_of("", "amara", 64);
        assert_eq!(first, shard_of("", "amara", 64));
        assert!((0..64).contains(&first));
        // The tenant's end is not the store's beginning.
        assert_ne!(
            (0..40).map(|i| shard_of("ab", &format!("c{i}"), 64)).collect::<Vec<_>>(),
            (0..40).map(|i| shard_of("a", &format!("bc{i}"), 64)).collect::<Vec<_>>()
        );
        let used: std::collections::HashSet<_> = (0..1000).map(|i| shard_of("t", &i.to_string(), 64)).collect();
        assert_eq!(used.len(), 64);
    }
}
