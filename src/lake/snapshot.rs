//! A table at one version: its files, and which units are done.

use std::sync::Arc;

use deltalake_core::DeltaTable;
use deltalake_core::DeltaTableBuilder;
use deltalake_core::DeltaTableError;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::kernel::{Remove, StructType};
use deltalake_core::logstore::{
    LogStore, LogStoreFactory, ObjectStoreRef, StorageConfig, default_logstore, logstore_factories,
};

use futures::StreamExt;
use object_store::ObjectStore;

use super::Place;
use crate::error::{Context, Error, Result};
use crate::schema::Table;

/// A table at one version.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub table: &'static Table,
    pub(super) place: Place,
    pub(super) delta: DeltaTable,
}

/// A Parquet file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// From the root of the object store.
    pub path: object_store::path::Path,
    pub size: u64,
    pub rows: u64,
    /// Values of the partition's columns, in the table's order.
    pub partition: Vec<String>,
}

impl Snapshot {
    pub(super) async fn open(place: &Place, table: &'static Table) -> Result<Option<Snapshot>> {
        let log = place.path.clone().join("_delta_log");
        let first = place.store.list(Some(&log)).next().await;
        if first.transpose().map_err(|e| place.error("cannot list the table's log", e))?.is_none() {
            return Ok(None);
        }
        let mut delta = connect(place)?;
        match delta.load().await {
            Ok(()) => {}
            // A log in the making: its first version is not there yet.
            Err(DeltaTableError::NotATable(_)) => return Ok(None),
            Err(e) => return Err(read_error(e)),
        }
        let snapshot = Snapshot { table, place: place.clone(), delta };
        snapshot.check_columns()?;
        Ok(Some(snapshot))
    }

    pub(super) async fn open_or_create(place: &Place, table: &'static Table) -> Result<Snapshot> {
        if let Some(snapshot) = Snapshot::open(place, table).await? {
            return Ok(snapshot);
        }
        place.make_folder()?;
        let columns: StructType = table.full_schema().as_ref().try_into_kernel().or_internal("table schema")?;
        let created = connect(place)?
            .create()
            .with_table_name(table.name)
            .with_columns(columns.fields().cloned())
            .with_partition_columns(table.partition.iter().copied())
            .await;
        match created {
            Ok(delta) => Ok(Snapshot { table, place: place.clone(), delta }),
            // Another run made it first.
            Err(e) => match Snapshot::open(place, table).await? {
                Some(snapshot) => Ok(snapshot),
                None => Err(Error::data("cannot make the table").source(e)),
            },
        }
    }

    /// The table as it is now.
    pub async fn refreshed(&self) -> Result<Snapshot> {
        let mut delta = self.delta.clone();
        delta.update_state().await.map_err(read_error)?;
        Ok(Snapshot { delta, ..self.clone() })
    }

    pub fn version(&self) -> i64 {
        self.delta.version().map_or(0, |v| i64::try_from(v).unwrap_or(i64::MAX))
    }

    /// The files whose partition begins with `prefix` (values in the order of the table's partition columns).
    pub fn files(&self, prefix: &[&str]) -> Result<Vec<DataFile>> {
        let state = self.delta.snapshot().map_err(read_error)?;
        let mut files = Vec::new();
        for view in state.log_data().into_iter() {
            let values = view.partition_values_map();
            let partition: Vec<String> =
                self.table.partition.iter().map(|p| values.get(*p).cloned().flatten().unwrap_or_default()).collect();
            if partition.iter().zip(prefix).all(|(have, want)| have == want) {
                let mut path = self.place.path.clone();
                for part in view.object_store_path().parts() {
                    path = path.join(part);
                }
                files.push(DataFile {
                    path,
                    size: u64::try_from(view.size()).unwrap_or(0),
                    rows: view.num_records().unwrap_or(0) as u64,
                    partition,
                });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// The distinct values of the partition's columns.
    pub fn partitions(&self) -> Result<Vec<Vec<String>>> {
        let mut all: Vec<_> = self.files(&[])?.into_iter().map(|f| f.partition).collect();
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// The fingerprint with which a unit was last committed.
    pub async fn done(&self, unit: &str) -> Result<Option<i64>> {
        let state = self.delta.snapshot().map_err(read_error)?;
        state.transaction_version(self.delta.log_store().as_ref(), unit).await.map_err(read_error)
    }

    /// Paths of all files of a partition, in order.
    pub(super) fn paths(&self, partition: &[String]) -> Result<Vec<String>> {
        let mut paths: Vec<String> = self.removes(partition)?.into_iter().map(|r| r.path).collect();
        paths.sort();
        Ok(paths)
    }

    /// Removes of all files of a partition; none for a table without partitions, which is only added to.
    pub(super) fn removes(&self, partition: &[String]) -> Result<Vec<Remove>> {
        if partition.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.delta.snapshot().map_err(read_error)?;
        let mut removes = Vec::new();
        for view in state.log_data().into_iter() {
            let values = view.partition_values_map();
            let same = self
                .table
                .partition
                .iter()
                .zip(partition)
                .all(|(p, want)| values.get(*p).cloned().flatten().as_deref() == Some(want));
            if same {
                removes.push(view.remove_action(true));
            }
        }
        Ok(removes)
    }

    /// Refuses a table whose columns are not those that this program knows.
    fn check_columns(&self) -> Result<()> {
        let have = self.delta.snapshot().map_err(read_error)?.schema();
        let have: Vec<&str> = have.fields().map(|f| f.name().as_str()).collect();
        for field in self.table.full_schema().fields() {
            if !have.contains(&field.name().as_str()) {
                return Err(Error::data(format!("the table in the lake has no column {:?}", field.name()))
                    .next("it was written by another program or version: use a new lake"));
            }
        }
        Ok(())
    }
}

/// Log stores for schemes that deltalake-core leaves to crates of its own: one object store, one log.
struct Plain;

impl LogStoreFactory for Plain {
    fn with_options(
        &self,
        prefixed: ObjectStoreRef,
        root: ObjectStoreRef,
        location: &url::Url,
        options: &StorageConfig,
    ) -> deltalake_core::DeltaResult<Arc<dyn LogStore>> {
        Ok(default_logstore(prefixed, root, location, options))
    }
}

fn connect(place: &Place) -> Result<DeltaTable> {
    let scheme = url::Url::parse(&format!("{}://", place.url.scheme())).or_internal("scheme")?;
    logstore_factories().entry(scheme).or_insert_with(|| Arc::new(Plain));
    DeltaTableBuilder::from_url(place.url.clone())
        .map(|b| b.with_storage_backend(place.store.clone(), place.url.clone()))
        .and_then(DeltaTableBuilder::build)
        .or_data(format!("{place} cannot be opened"))
}

pub(super) fn read_error(e: DeltaTableError) -> Error {
    match e {
        DeltaTableError::ObjectStore { source } => Error::transient("the object store failed").source(source),
        e => Error::data("the table's log cannot be read").source(e),
    }
}
