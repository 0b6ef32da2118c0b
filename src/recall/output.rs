//! Pools as Arrow: `list<struct<...>>`, one list a store.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};

use super::pool::Pooled;
use super::store::Store;
use crate::error::Result;
use crate::schema;
use crate::system::List;

/// A row of a pool. Column names are those of the pools table.
static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    vec![
        Field::new("request_id", DataType::Utf8, false),
        Field::new("turn_id", DataType::Utf8, false),
        Field::new("turn_ordinal", DataType::Int32, false),
        Field::new("reference_at", schema::time(), true),
        Field::new("pool_position", DataType::Int32, false),
        Field::new("rrf_score", DataType::Float64, false),
        Field::new("lists", schema::lists(), false),
    ]
    .into()
});

/// What the aggregate returns.
pub fn data_type() -> DataType {
    DataType::List(schema::item(DataType::Struct(FIELDS.clone())))
}

/// One list that holds all pools of the store, which were made of these lists.
pub fn to_arrow(store: &Store, of: &[List], pooled: &[Pooled]) -> Result<ListArray> {
    let request = |p: &Pooled| store.request(p.request);
    let turn = |p: &Pooled| store.turn(p.turn);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(pooled.iter().map(|p| request(p).id))),
        Arc::new(StringArray::from_iter_values(pooled.iter().map(|p| turn(p).id))),
        Arc::new(Int32Array::from_iter_values(pooled.iter().map(|p| turn(p).ordinal))),
        Arc::new(
            pooled.iter().map(|p| request(p).reference_at).collect::<TimestampMicrosecondArray>().with_timezone("UTC"),
        ),
        Arc::new(Int32Array::from_iter_values(pooled.iter().map(|p| p.pool_position))),
        Arc::new(Float64Array::from_iter_values(pooled.iter().map(|p| p.rrf_score))),
        Arc::new(lists(of, pooled)?),
    ];
    let rows = StructArray::try_new_with_length(FIELDS.clone(), columns, None, pooled.len())?;
    one_list(rows)
}

/// Each turn's places, as [`schema::lists`].
fn lists(of: &[List], pooled: &[Pooled]) -> Result<ListArray> {
    let places = || pooled.iter().flat_map(|p| &p.places);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(places().map(|p| Some(of[p.list].name())).collect::<StringArray>()),
        Arc::new(places().map(|p| Some(p.score)).collect::<Float64Array>()),
        Arc::new(places().map(|p| Some(p.rank)).collect::<Int32Array>()),
    ];
    let DataType::List(item) = schema::lists() else { unreachable!("schema::lists is a list") };
    let DataType::Struct(fields) = item.data_type() else { unreachable!("of structs") };
    let values = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(pooled.iter().map(|p| p.places.len()));
    Ok(ListArray::try_new(item, offsets, Arc::new(values), None)?)
}

/// A list array of one list: all rows.
pub fn one_list(rows: StructArray) -> Result<ListArray> {
    use arrow::array::Array;
    let item = schema::item(rows.data_type().clone());
    Ok(ListArray::try_new(item, OffsetBuffer::from_lengths([rows.len()]), Arc::new(rows), None)?)
}
