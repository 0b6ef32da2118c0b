//! Which files of a table hold a null in a column, read off the files' footers.

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader};

use super::{DataFile, Snapshot};
use crate::error::{Context, Error, Result};

/// Footers that are read at once.
const PARALLEL: usize = 16;

impl Snapshot {
    /// The files that hold a null in the column, or do not say that they hold none.
    pub async fn with_nulls(&self, files: Vec<DataFile>, column: &str) -> Result<Vec<DataFile>> {
        let checked = stream::iter(files).map(|file| async move {
            let footer = self.footer(&file).await.map_err(|e| e.at(file.path.to_string()))?;
            let mut columns = footer.row_groups().iter().flat_map(|group| group.columns());
            let nulls = columns.any(|c| {
                let named = c.column_path().parts().first().is_some_and(|part| part == column);
                named && c.statistics().and_then(|s| s.null_count_opt()) != Some(0)
            });
            Ok::<_, Error>(nulls.then_some(file))
        });
        let found: Vec<Option<DataFile>> = checked.buffered(PARALLEL).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn footer(&self, file: &DataFile) -> Result<ParquetMetaData> {
        let read = async |from: u64, to: u64| {
            let bytes = self.place.store.get_range(&file.path, from..to).await;
            bytes.map_err(|e| self.place.error("a file of the table cannot be read", e))
        };
        let end = file.size.saturating_sub(FOOTER_SIZE as u64);
        let tail = read(end, file.size).await?;
        let tail: [u8; FOOTER_SIZE] = tail.as_ref().try_into().or_data("the file is cut off")?;
        let length = FooterTail::try_new(&tail).or_data("the file is damaged")?.metadata_length();
        let footer = read(end.saturating_sub(length as u64), end).await?;
        ParquetMetaDataReader::decode_metadata(&footer).or_data("the file is damaged")
    }
}
