//! Files of the lake as a table of the engine: whole files, chosen before the query, so that no filter chooses them.

use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as SqlResult;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;

use object_store::ObjectMeta;

use crate::lake::DataFile;
use crate::schema::{Table, partition_type};

/// Parquet files of one table. The partition's columns come from the table's log, not from the files' paths.
#[derive(Debug)]
pub(super) struct LakeFiles {
    table: &'static Table,
    store: ObjectStoreUrl,
    files: Vec<DataFile>,
}

impl LakeFiles {
    pub(super) fn new(table: &'static Table, store: ObjectStoreUrl, files: Vec<DataFile>) -> Self {
        LakeFiles { table, store, files }
    }

    fn rows(&self) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.table.full_schema());
        statistics.num_rows = Precision::Exact(self.files.iter().map(|f| f.rows as usize).sum());
        statistics
    }

    fn partitioned(&self, file: &DataFile) -> SqlResult<PartitionedFile> {
        let values = self.table.partition.iter().zip(&file.partition);
        let values = values.map(|(column, value)| ScalarValue::try_from_string(value.clone(), &partition_type(column)));
        let values = values.collect::<SqlResult<Vec<_>>>()?;
        // By its metadata: a path given as text would be percent-encoded once more.
        let meta = ObjectMeta {
            location: file.path.clone(),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: file.size,
            e_tag: None,
            version: None,
        };
        Ok(PartitionedFile::new_from_meta(meta).with_partition_values(values))
    }
}

#[async_trait]
impl TableProvider for LakeFiles {
    fn schema(&self) -> SchemaRef {
        self.table.full_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> SqlResult<Arc<dyn ExecutionPlan>> {
        let partition: Vec<_> =
            self.table.partition.iter().map(|p| Arc::new(Field::new(*p, partition_type(p), false))).collect();
        let source = ParquetSource::new(
            TableSchema::builder(self.table.file_schema()).with_table_partition_cols(partition).build(),
        );
        let files = self.files.iter().map(|f| self.partitioned(f)).collect::<SqlResult<Vec<_>>>()?;
        let groups = FileGroup::new(files).split_files(state.config().target_partitions().max(1));
        let config = FileScanConfigBuilder::new(self.store.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.rows())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.rows())
    }
}
