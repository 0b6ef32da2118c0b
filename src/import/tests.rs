//! Every format over small files of ours, right and wrong. Expected rows are written by hand.

use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

use super::{Format, Options, Report, import};
use crate::error::Error;
use crate::schema;

mod benchmarks;
mod chat;
mod files;

/// A path among the test files.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(name)
}

/// An import into a folder of its own.
struct Imported {
    out: TempDir,
    report: Report,
}

fn imported(format: Format, path: &Path, options: &Options) -> Imported {
    let out = TempDir::new().unwrap();
    let report = import(format, path, out.path(), options).unwrap();
    Imported { out, report }
}

fn failed(format: Format, path: &Path) -> Error {
    let out = TempDir::new().unwrap();
    let e = import(format, path, out.path(), &Options::default()).unwrap_err();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is left behind");
    e
}

impl Imported {
    fn batch(&self, table: &str) -> RecordBatch {
        let file = fs::File::open(self.out.path().join(format!("{table}.parquet"))).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let schema = reader.schema().clone();
        let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
        concat_batches(&schema, &batches).unwrap()
    }

    /// Rows with the named columns, as `a|b`; null is `-`, a time is RFC 3339.
    fn rows(&self, table: &str, columns: &str) -> Vec<String> {
        let batch = self.batch(table);
        let columns: Vec<_> = columns
            .split(' ')
            .map(|name| cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap())
            .collect();
        let cell = |column: &dyn Array, row: usize| match column.is_null(row) {
            true => "-".to_owned(),
            false => column.as_string::<i32>().value(row).to_owned(),
        };
        (0..batch.num_rows()).map(|row| columns.iter().map(|c| cell(c, row)).collect::<Vec<_>>().join("|")).collect()
    }

    /// Rows of the store `store_id`, without that column.
    fn rows_of(&self, store_id: &str, table: &str, columns: &str) -> Vec<String> {
        let prefix = format!("{store_id}|");
        let rows = self.rows(table, &format!("store_id {columns}"));
        rows.iter().filter_map(|row| Some(row.strip_prefix(&prefix)?.to_owned())).collect()
    }
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|f| f.name().as_str()).collect()
}
