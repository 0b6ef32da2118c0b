//! The aggregate's rows: from Arrow and, where a plan merges partial states, back.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int8Builder, Int32Builder, LargeBinaryArray, LargeBinaryBuilder, LargeStringArray,
    LargeStringBuilder, StructArray, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, Fields, Int8Type, Int32Type, TimestampMicrosecondType};

use crate::error::{Error, Result};
use crate::recall::{Request, StoreBuilder, Turn};
use crate::schema;

const TURN: i8 = 0;
const REQUEST: i8 = 1;

/// Offsets are of 64 bits: a store's texts together may be beyond 2 GiB.
fn fields() -> Fields {
    let field = |name, data_type| Field::new(name, data_type, true);
    vec![
        field("kind", DataType::Int8),
        field("ordinal", DataType::Int32),
        field("id", DataType::LargeUtf8),
        field("text", DataType::LargeUtf8),
        field("language", DataType::LargeUtf8),
        field("content_hash", DataType::LargeBinary),
        field("vector", DataType::LargeBinary),
        field("at", schema::time()),
    ]
    .into()
}

/// The types of the arguments that are kept.
pub fn types() -> Vec<DataType> {
    fields().iter().map(|f| f.data_type().clone()).collect()
}

/// The type of a state: a list of rows.
pub fn list_type() -> DataType {
    DataType::List(schema::item(DataType::Struct(fields())))
}

/// Adds rows in the form of [`types`]. Fails where a row is neither turn nor request, or lacks its id or place.
pub fn push(columns: &[ArrayRef], rows: &mut StoreBuilder) -> Result<()> {
    let kinds = columns[0].as_primitive::<Int8Type>();
    let ordinals = columns[1].as_primitive::<Int32Type>();
    let (ids, texts, languages) =
        (columns[2].as_string::<i64>(), columns[3].as_string::<i64>(), columns[4].as_string::<i64>());
    let (hashes, vectors) = (columns[5].as_binary::<i64>(), columns[6].as_binary::<i64>());
    let times = columns[7].as_primitive::<TimestampMicrosecondType>();
    for row in 0..kinds.len() {
        let id = text(ids, row).ok_or_else(|| Error::data("recall met a row without an id"))?;
        let at = times.is_valid(row).then(|| times.value(row));
        match kinds.is_valid(row).then(|| kinds.value(row)) {
            Some(TURN) if ordinals.is_null(row) => {
                return Err(Error::data("the turn has no ordinal").at(format!("turn {id:?}")));
            }
            Some(TURN) => rows.push_turn(Turn {
                ordinal: ordinals.value(row),
                id,
                content: text(texts, row),
                language: text(languages, row),
                content_hash: bytes(hashes, row),
                vector: bytes(vectors, row),
                spoken_at: at,
            }),
            Some(REQUEST) => rows.push_request(Request {
                id,
                question: text(texts, row).unwrap_or_default(),
                vector: bytes(vectors, row),
                reference_at: at,
            }),
            kind => {
                let kind = kind.map_or("null".to_string(), |kind| kind.to_string());
                return Err(Error::data(format!("kind {kind} is neither 0, a turn, nor 1, a request"))
                    .at(format!("row {id:?}")));
            }
        }
    }
    Ok(())
}

fn text(array: &LargeStringArray, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.value(row))
}

fn bytes(array: &LargeBinaryArray, row: usize) -> Option<&[u8]> {
    array.is_valid(row).then(|| array.value(row))
}

/// The rows in the form of [`types`]: [`push`] reads them back.
pub fn to_arrow(rows: &StoreBuilder) -> Result<StructArray> {
    let (mut kinds, mut ordinals) = (Int8Builder::new(), Int32Builder::new());
    let (mut ids, mut texts, mut languages) =
        (LargeStringBuilder::new(), LargeStringBuilder::new(), LargeStringBuilder::new());
    let (mut hashes, mut vectors) = (LargeBinaryBuilder::new(), LargeBinaryBuilder::new());
    let mut times = TimestampMicrosecondBuilder::new().with_timezone("UTC");
    let turns = rows.turns().map(|t| (TURN, t));
    let requests = rows.requests().map(|r| {
        let (content, spoken_at) = (Some(r.question), r.reference_at);
        (REQUEST, Turn { id: r.id, content, vector: r.vector, spoken_at, ..Default::default() })
    });
    for (kind, row) in turns.chain(requests) {
        kinds.append_value(kind);
        ordinals.append_value(row.ordinal);
        ids.append_value(row.id);
        texts.append_option(row.content);
        languages.append_option(row.language);
        hashes.append_option(row.content_hash);
        vectors.append_option(row.vector);
        times.append_option(row.spoken_at);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(kinds.finish()),
        Arc::new(ordinals.finish()),
        Arc::new(ids.finish()),
        Arc::new(texts.finish()),
        Arc::new(languages.finish()),
        Arc::new(hashes.finish()),
        Arc::new(vectors.finish()),
        Arc::new(times.finish()),
    ];
    Ok(StructArray::try_new(fields(), columns, None)?)
}
