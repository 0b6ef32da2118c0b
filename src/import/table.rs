//! One Parquet file under way: rows in, row groups out, so that no file's size bounds what can be imported.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::error::{Context, Error, Result};
use crate::schema;

/// A batch goes to the writer at this many rows or bytes, whichever comes first.
const BATCH_ROWS: usize = 8_192;
const BATCH_BYTES: usize = 8 << 20;
/// A row group ends here: what the writer holds in memory, encoded.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// One value of a row.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    Text(Option<&'a str>),
    Int(i32),
    /// Microseconds UTC.
    Time(Option<i64>),
}

enum Builder {
    Text(StringBuilder),
    Int(Int32Builder),
    Time(TimestampMicrosecondBuilder),
}

/// Writes rows of one schema to a file.
pub struct TableWriter {
    path: PathBuf,
    schema: SchemaRef,
    columns: Vec<Builder>,
    writer: ArrowWriter<File>,
    rows: usize,
    bytes: usize,
}

impl TableWriter {
    pub fn create(path: &Path, schema: SchemaRef) -> Result<Self> {
        let file = File::create(path).or_data("cannot be written").map_err(|e| at(e, path))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .build();
        let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))
            .or_internal("Parquet")
            .map_err(|e| at(e, path))?;
        let columns = schema.fields().iter().map(|f| Builder::of(f.data_type())).collect::<Result<_>>()?;
        Ok(TableWriter { path: path.to_owned(), schema, columns, writer, rows: 0, bytes: 0 })
    }

    /// Adds a row; its cells stand in the schema's order.
    pub fn push<const N: usize>(&mut self, cells: [Cell<'_>; N]) -> Result<()> {
        if N != self.columns.len() {
            return Err(Error::internal(format!("{N} cells for {} columns", self.columns.len())));
        }
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            self.bytes += column.push(cell)?;
        }
        self.rows += 1;
        if self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the footer and waits until the file is on the disk.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        let file = self.writer.into_inner().or_data("cannot be written").map_err(|e| at(e, &self.path))?;
        file.sync_all().or_data("cannot be written").map_err(|e| at(e, &self.path))
    }

    fn flush(&mut self) -> Result<()> {
        if self.rows > 0 {
            let arrays = self.columns.iter_mut().map(Builder::finish).collect();
            let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
            self.writer.write(&batch).or_data("cannot be written").map_err(|e| at(e, &self.path))?;
        }
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Builder {
    fn of(data_type: &DataType) -> Result<Self> {
        match data_type {
            DataType::Utf8 => Ok(Builder::Text(StringBuilder::new())),
            DataType::Int32 => Ok(Builder::Int(Int32Builder::new())),
            t if *t == schema::time() => {
                Ok(Builder::Time(TimestampMicrosecondBuilder::new().with_data_type(schema::time())))
            }
            other => Err(Error::internal(format!("no column of type {other} is imported"))),
        }
    }

    /// Appends a value; gives its size in bytes.
    fn push(&mut self, cell: Cell<'_>) -> Result<usize> {
        match (self, cell) {
            (Builder::Text(b), Cell::Text(value)) => {
                b.append_option(value);
                return Ok(value.map_or(0, str::len) + 4);
            }
            (Builder::Int(b), Cell::Int(value)) => b.append_value(value),
            (Builder::Time(b), Cell::Time(value)) => b.append_option(value),
            (_, cell) => return Err(Error::internal(format!("{cell:?} stands in a column of another type"))),
        }
        Ok(8)
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Int(b) => Arc::new(b.finish()),
            Builder::Time(b) => Arc::new(b.finish()),
        }
    }
}

fn at(e: Error, path: &Path) -> Error {
    e.at(path.display().to_string())
}
