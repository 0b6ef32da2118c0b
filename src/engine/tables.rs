//! Files as tables: the lake's, and a job's inputs.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use url::Url;

use super::merge::merged;
use super::scan::LakeFiles;
use crate::error::{Error, Result};
use crate::lake::{DataFile, Lake, Place, Snapshot};
use crate::schema::Table;

/// A table of the lake that has no rows.
pub fn empty(table: &Table) -> Arc<dyn TableProvider> {
    Arc::new(EmptyTable::new(table.full_schema()))
}

/// Files of a table of the lake, with the partition's columns.
pub fn files(table: &'static Table, root: &Url, files: Vec<DataFile>) -> Result<Arc<dyn TableProvider>> {
    if files.is_empty() {
        return Ok(empty(table));
    }
    Ok(Arc::new(LakeFiles::new(table, ObjectStoreUrl::parse(root.as_str())?, files)))
}

/// Registers, as `name`, a table of a lake at one version: the files whose partition begins with `prefix`.
pub fn register_snapshot(
    context: &SessionContext,
    lake: &Lake,
    snapshot: &Snapshot,
    prefix: &[&str],
    name: &str,
) -> Result<()> {
    let (root, store) = lake.object_store();
    context.register_object_store(&root, store);
    context.register_table(name, files(snapshot.table, &root, snapshot.files(prefix)?)?)?;
    Ok(())
}

/// Registers a table of a lake at its latest version under its own name; a table that was never made has no rows.
pub async fn register(context: &SessionContext, lake: &Lake, table: &'static Table, prefix: &[&str]) -> Result<()> {
    match lake.existing(table).await? {
        Some(snapshot) => register_snapshot(context, lake, &snapshot, prefix, table.name),
        None => {
            context.register_table(table.name, empty(table))?;
            Ok(())
        }
    }
}

/// A job's input: a Parquet file, or a folder of them. Columns are those of all files together.
pub async fn input(context: &SessionContext, place: &Place) -> Result<Arc<dyn TableProvider>> {
    context.register_object_store(&place.root_url(), place.store.clone());
    let files = place.files().await?;
    let mut urls = Vec::new();
    for file in files {
        let mut url = place.root_url();
        url.set_path(&format!("/{}", file.location));
        if file.size == 0 {
            return Err(Error::data("the file is empty, not Parquet").at(shown(&url)));
        }
        // By URL, so that no character of a path is taken for a pattern.
        urls.push(ListingTableUrl::try_new(url, None)?);
    }
    if urls.is_empty() {
        return Err(Error::data("there is no Parquet file").at(place.to_string()));
    }
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension("");
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options.clone());
    let mut schemas = Vec::new();
    let state = context.state();
    for url in &config.table_paths {
        let schema = options.infer_schema(&state, url).await.map_err(|e| {
            Error::data("the input cannot be read as Parquet").at(shown(url.as_ref())).source(e.strip_backtrace())
        })?;
        schemas.push(schema.as_ref().clone());
    }
    let schema = merged(&schemas).map_err(|e| e.at(place.to_string()))?;
    Ok(Arc::new(ListingTable::try_new(config.with_schema(Arc::new(schema)))?))
}

/// A local file as its path, another one as its URL.
fn shown(url: &Url) -> String {
    url.to_file_path().map_or_else(|()| url.to_string(), |path| path.display().to_string())
}

/// The tables that a SELECT reads, by name as written (`turns`, `input.turns`).
pub fn refers_to(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let state = context.state();
    let dialect = state.config().options().sql_parser.dialect;
    let statement = state.sql_to_statement(sql, &dialect)?;
    let mut names: Vec<String> = state.resolve_table_references(&statement)?.iter().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
