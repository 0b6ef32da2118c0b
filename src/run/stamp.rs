//! Each row with its store's fingerprint.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};

use super::fingerprint::Store;
use crate::error::{Error, Result};
use crate::schema::Table;

/// Adds each row's store's fingerprint, in the column's place.
pub fn stamp(batch: RecordBatch, table: &'static Table, stores: &BTreeMap<Store, i64>) -> Result<RecordBatch> {
    let Some(at) = table.columns.iter().position(|c| c.name == "store_fingerprint") else {
        return Ok(batch);
    };
    let column = |name: &str| batch.column_by_name(name).expect("a checked SELECT").as_string::<i32>();
    let (tenants, ids) = (column("tenant_id"), column("store_id"));
    let mut prints = Vec::with_capacity(batch.num_rows());
    let mut last: Option<(usize, i64)> = None;
    for row in 0..batch.num_rows() {
        // Rows come in the order of stores: most are of the same store as the row before.
        if let Some((before, print)) = last
            && tenants.value(before) == tenants.value(row)
            && ids.value(before) == ids.value(row)
        {
            prints.push(print);
            continue;
        }
        let store = (tenants.value(row).to_string(), ids.value(row).to_string());
        let print = *stores.get(&store).ok_or_else(|| {
            Error::data(format!("a row of store {:?}, which this part of the table does not hold", store.1)).next(
                "a SELECT must keep tenant_id and store_id as they are; inputs must not change while they are read",
            )
        })?;
        prints.push(print);
        last = Some((row, print));
    }
    let mut columns = batch.columns().to_vec();
    columns.insert(at, Arc::new(Int64Array::from(prints)));
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.insert(at, Arc::new(Field::new("store_fingerprint", DataType::Int64, false)));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
