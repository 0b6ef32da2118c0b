//! Small tables for tests, with the columns and types of the schema.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Float64Array, Int32Array, ListArray, ListBuilder, RecordBatch, StringArray, StringBuilder,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};

use crate::schema;

pub type Named = (&'static str, ArrayRef);

pub fn batch(columns: Vec<Named>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

pub fn texts<S: AsRef<str>>(values: impl IntoIterator<Item = Option<S>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

pub fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

pub fn doubles(values: impl IntoIterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(values))
}

pub fn times(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter(values).with_timezone("UTC"))
}

/// The hash of a content: the tests need only that equal texts have equal ones.
pub fn hashes<'a>(contents: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(BinaryArray::from_iter(contents.into_iter().map(|c| c.map(|c| format!("sha of {c}")))))
}

pub fn text_lists(rows: &[&[&str]]) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(schema::item(DataType::Utf8));
    for row in rows {
        row.iter().for_each(|text| builder.values().append_value(text));
        builder.append(true);
    }
    Arc::new(builder.finish())
}

/// One row's recall lists: name, score, rank.
pub type Places<'a> = &'a [(&'a str, f64, i32)];

pub fn recall_lists(rows: &[Places]) -> ArrayRef {
    let all = || rows.iter().flat_map(|r| r.iter());
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let items = StructArray::from(vec![
        (field("name", DataType::Utf8), texts(all().map(|p| Some(p.0)))),
        (field("score", DataType::Float64), doubles(all().map(|p| Some(p.1)))),
        (field("rank", DataType::Int32), ints(all().map(|p| p.2))),
    ]);
    let DataType::List(item) = schema::lists() else { unreachable!("lists are a list") };
    Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(rows.iter().map(|r| r.len())), Arc::new(items), None))
}

/// The key's columns: tenant '', then store and request.
pub fn keys(of: &[(&str, &str)]) -> Vec<Named> {
    vec![
        ("tenant_id", texts(of.iter().map(|_| Some("")))),
        ("store_id", texts(of.iter().map(|k| Some(k.0)))),
        ("request_id", texts(of.iter().map(|k| Some(k.1)))),
    ]
}

pub fn store_keys(of: &[&str]) -> Vec<Named> {
    vec![("tenant_id", texts(of.iter().map(|_| Some("")))), ("store_id", texts(of.iter().map(|s| Some(*s))))]
}
