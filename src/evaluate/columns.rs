//! Columns of a record batch, found by name and brought to one type, whichever encoding a reader gave them.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};

use crate::error::{Context, Error, Result};
use crate::schema;

/// A text column, without nulls.
pub fn text(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    full(get(batch, name, &DataType::Utf8)?, name).map(|c| c.as_string::<i32>().clone())
}

/// A text column that may hold nulls.
pub fn opt_text(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(get(batch, name, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A column of whole numbers, without nulls.
pub fn ints(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    full(get(batch, name, &DataType::Int64)?, name).map(|c| c.as_primitive::<Int64Type>().clone())
}

/// A column of numbers that may hold nulls.
pub fn doubles(batch: &RecordBatch, name: &str) -> Result<Float64Array> {
    Ok(get(batch, name, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// A column of times in microseconds since 1970, UTC, that may hold nulls.
pub fn times(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    let micros = get(batch, name, &schema::time())?;
    Ok(cast(&micros, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A column of bytes that may hold nulls.
pub fn bytes(batch: &RecordBatch, name: &str) -> Result<BinaryArray> {
    Ok(get(batch, name, &DataType::Binary)?.as_binary::<i32>().clone())
}

/// A column of lists of text, without null lists.
pub fn text_lists(batch: &RecordBatch, name: &str) -> Result<ListArray> {
    let lists = get(batch, name, &DataType::List(schema::item(DataType::Utf8)))?;
    full(lists, name).map(|c| c.as_list::<i32>().clone())
}

/// The recall lists of pooled turns: `list<struct<name, score, rank>>`.
pub fn recall_lists(batch: &RecordBatch, name: &str) -> Result<ListArray> {
    full(get(batch, name, &schema::lists())?, name).map(|c| c.as_list::<i32>().clone())
}

/// The texts of one row of a [`text_lists`] column.
pub fn texts_at(lists: &ListArray, row: usize) -> impl Iterator<Item = &str> {
    let (start, end) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
    let values = lists.values().as_string::<i32>();
    (start..end).filter(|i| values.is_valid(*i)).map(|i| values.value(i))
}

/// A value, unless it is null.
pub fn at(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

/// The columns that name a request.
pub struct Keys {
    pub tenant: StringArray,
    pub store: StringArray,
    pub request: StringArray,
}

impl Keys {
    pub fn of(batch: &RecordBatch) -> Result<Self> {
        Ok(Keys {
            tenant: text(batch, "tenant_id")?,
            store: text(batch, "store_id")?,
            request: text(batch, "request_id")?,
        })
    }

    pub fn at(&self, row: usize) -> (&str, &str, &str) {
        (self.tenant.value(row), self.store.value(row), self.request.value(row))
    }
}

fn get(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef> {
    let column = batch.column_by_name(name).ok_or_else(|| Error::data(format!("there is no column {name}")))?;
    cast(column, data_type).or_data(format!("column {name} is {}, not {data_type}", column.data_type()))
}

fn full(column: ArrayRef, name: &str) -> Result<ArrayRef> {
    if column.null_count() > 0 {
        return Err(Error::data(format!("column {name} holds nulls")));
    }
    Ok(column)
}
