//! Generated stores as the files of a job's inputs.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use memslate::error::{Context, Result};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::support::language::Language;
use crate::support::store::{Store, store};

const SEED: u64 = 7;

/// Writes turns.parquet and requests.parquet into `folder`, unless they are there. A row group is some stores' turns.
pub fn write(folder: &Path, language: &Language, stores: usize, turns: usize, requests: usize) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let part = folder.with_extension("part");
    std::fs::create_dir_all(&part).or_data("the inputs' folder cannot be made")?;
    let (mut turn_file, mut request_file) = (None, None);
    for index in 0..stores {
        let made = store(language, SEED, index as u64, turns, requests);
        let id = format!("store-{index:06}");
        append(&mut turn_file, &part.join("turns.parquet"), &turn_rows(&id, &made)?)?;
        append(&mut request_file, &part.join("requests.parquet"), &request_rows(&id, &made)?)?;
    }
    for file in [turn_file, request_file].into_iter().flatten() {
        file.close().or_data("the inputs cannot be written")?;
    }
    std::fs::rename(&part, folder).or_data("the inputs cannot be put in place")
}

fn append(file: &mut Option<ArrowWriter<File>>, path: &Path, rows: &RecordBatch) -> Result<()> {
    if file.is_none() {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(100_000))
            .build();
        let target = File::create(path).or_data("the inputs cannot be written")?;
        *file = Some(ArrowWriter::try_new(target, rows.schema(), Some(properties)).or_data("the inputs")?);
    }
    file.as_mut().expect("just made").write(rows).or_data("the inputs cannot be written")
}

fn turn_rows(id: &str, store: &Store) -> Result<RecordBatch> {
    let n = store.turns.len();
    let texts = |of: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values((0..n).map(of))) as ArrayRef;
    let numbers =
        |of: &dyn Fn(usize) -> usize| Arc::new(Int32Array::from_iter_values((0..n).map(|i| of(i) as i32))) as ArrayRef;
    let at = &store.turns;
    let times = TimestampMicrosecondArray::from_iter_values(at.iter().map(|t| t.spoken_at)).with_timezone("UTC");
    let none = || Arc::new(StringArray::new_null(n)) as ArrayRef;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("tenant_id", texts(&|_| "scale".into())),
        ("store_id", texts(&|_| id.into())),
        ("session_id", texts(&|i| format!("s{}", at[i].session))),
        ("turn_id", texts(&|i| format!("s{}:{}", at[i].session, at[i].position))),
        ("turn_ordinal", numbers(&|i| i)),
        ("session_ordinal", numbers(&|i| at[i].session)),
        ("position", numbers(&|i| at[i].position)),
        ("spoken_at", Arc::new(times.clone())),
        ("added_at", Arc::new(times)),
        ("role", texts(&|i| at[i].role.into())),
        ("speaker", none()),
        ("content", texts(&|i| at[i].content.clone())),
        ("language", texts(&|_| "en".into())),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))?)
}

fn request_rows(id: &str, store: &Store) -> Result<RecordBatch> {
    let n = store.questions.len();
    let texts = |of: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values((0..n).map(of))) as ArrayRef;
    let asked = TimestampMicrosecondArray::from(vec![store.asked_at; n]).with_timezone("UTC");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("tenant_id", texts(&|_| "scale".into())),
        ("store_id", texts(&|_| id.into())),
        ("request_id", texts(&|i| format!("q{i}"))),
        ("question", texts(&|i| store.questions[i].clone())),
        ("asked_at", Arc::new(asked)),
        ("split", texts(&|_| "test".into())),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))?)
}
