//! Lays a unit's rows down as a Parquet file that nobody sees yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use deltalake_core::kernel::Add;
use futures::{Stream, StreamExt};
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use parquet::arrow::AsyncArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tokio::task::JoinSet;

use super::{Pending, Snapshot};
use crate::error::{Context, Error, Result};

const ROW_GROUP_ROWS: usize = 32_768;

/// A part of a table that is computed, committed and skipped as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Job, system and shard: the same for the same part of the table on every night.
    pub id: String,
    /// Of all that the unit's rows depend on.
    pub fingerprint: i64,
    /// Values of the partition's columns; the unit is all rows of this partition.
    pub partition: Vec<String>,
}

impl Snapshot {
    /// Writes the rows of a unit. Columns must be those of the table's files, in order; no file is made for no rows.
    ///
    /// The rows are drawn and encoded on a task of their own: units that are written at once use as many cores. The task
    /// ends with this call.
    pub async fn write(
        &self,
        unit: Unit,
        rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    ) -> Result<Pending> {
        let snapshot = self.clone();
        let mut task = JoinSet::new();
        task.spawn(async move { snapshot.encode(unit, rows).await });
        let done = task.join_next().await.ok_or_else(|| Error::internal("a task that was started is gone"))?;
        done.unwrap_or_else(|e| Err(Error::internal("the task that writes a file broke off").source(e)))
    }

    async fn encode(&self, unit: Unit, rows: impl Stream<Item = Result<RecordBatch>> + Send) -> Result<Pending> {
        let replaces = self.paths(&unit.partition)?;
        let mut rows = std::pin::pin!(rows);
        let mut open: Option<(String, AsyncArrowWriter<BufWriter>)> = None;
        let mut count = 0u64;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let batch = self.checked(&batch)?;
            let writer = match &mut open {
                Some((_, writer)) => writer,
                None => {
                    let name = self.file_name(&unit);
                    let writer = self.writer(&name)?;
                    &mut open.insert((name, writer)).1
                }
            };
            count += batch.num_rows() as u64;
            writer.write(&batch).await.or_data("cannot write Parquet")?;
        }
        let Some((name, writer)) = open else {
            return Ok(Pending { unit, adds: Vec::new(), replaces, rows: 0 });
        };
        writer.close().await.or_data("cannot write Parquet")?;
        let head = self.place.store.head(&self.object_path(&name)).await;
        let size = head.map_err(|e| self.place.error("cannot read back what was written", e))?.size;
        let add = self.add(&unit, name, size, count);
        Ok(Pending { unit, adds: vec![add], replaces, rows: count })
    }

    fn writer(&self, name: &str) -> Result<AsyncArrowWriter<BufWriter>> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a valid level")))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_created_by("memslate".into())
            .build();
        let out = BufWriter::new(self.place.store.clone(), self.object_path(name));
        AsyncArrowWriter::try_new(out, self.table.file_schema(), Some(properties)).or_internal("Parquet writer")
    }

    /// Gives the batch the table's schema; a null where none may be is an error that names the column.
    fn checked(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = self.table.file_schema();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(
                    Error::data(format!("column {:?} has a null, where none may be", field.name())).at(self.table.name)
                );
            }
        }
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(f, c)| arrow::compute::cast(c, f.data_type())).collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(schema, columns).or_internal(format!("rows of {}", self.table.name))
    }

    /// A name that was never used, so that no file is ever written over.
    fn file_name(&self, unit: &Unit) -> String {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let (process, n) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let folders = self.table.partition.iter().zip(&unit.partition).map(|(k, v)| format!("{k}={v}/"));
        format!("{}part-{nanos:x}-{process:x}-{n:x}.parquet", folders.collect::<String>())
    }

    fn object_path(&self, name: &str) -> object_store::path::Path {
        name.split('/').fold(self.place.path.clone(), |path, part| path.join(part))
    }

    fn add(&self, unit: &Unit, path: String, size: u64, rows: u64) -> Add {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        let partition = self.table.partition.iter().zip(&unit.partition);
        Add {
            path,
            partition_values: partition.map(|(k, v)| (k.to_string(), Some(v.clone()))).collect::<HashMap<_, _>>(),
            size: i64::try_from(size).unwrap_or(i64::MAX),
            modification_time: i64::try_from(millis).unwrap_or(0),
            data_change: true,
            stats: Some(format!("{{\"numRecords\":{rows}}}")),
            tags: None,
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        }
    }
}
