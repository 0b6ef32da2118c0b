//! The slates that another ranker would fill from the features of a lake. Nothing is written.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use datafusion::common::ScalarValue;

use super::prepare;
use crate::config::Job;
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Error, Result};
use crate::lake::Lake;
use crate::rank::Scorer;
use crate::ranker::Ranker;
use crate::schema;

/// Slates of the job's system with this ranker, over these stores (all, if none is named): the columns that a measurement
/// reads, `tenant_id, store_id, request_id, status, turn_ids, tokens, budget_tokens`.
///
/// They are made by the job's own SELECTs of rankings and slates, from the features in the lake.
///
/// # Errors
/// A lake without features of the system: a data error.
pub async fn replay(job: &Job, ranker: Ranker, stores: &[String]) -> Result<Vec<RecordBatch>> {
    let lake = Lake::open(&job.lake).await?;
    let models = Models { scorer: Some(Scorer::Lightgbm(Arc::new(ranker))), ..Models::default() };
    let context = engine::session(&Settings::default(), &Functions::new(models))?;
    let system = job.system.partition();
    let only = StringArray::from_iter_values(stores);
    context.register_batch("wanted", RecordBatch::try_from_iter([("store_of", Arc::new(only) as _)])?)?;
    for table in [&schema::TURNS, &schema::REQUESTS, &schema::EMBEDDINGS, &schema::FEATURES] {
        let Some(snapshot) = lake.existing(table).await? else { return Err(missing(job)) };
        let prefix: &[&str] = if table.name == "features" { &[&system] } else { &[] };
        if table.name == "features" && snapshot.files(prefix)?.is_empty() {
            return Err(missing(job));
        }
        if stores.is_empty() || table.name == "embeddings" {
            engine::register_snapshot(&context, &lake, &snapshot, prefix, table.name)?;
            continue;
        }
        let all = format!("all_{}", table.name);
        engine::register_snapshot(&context, &lake, &snapshot, prefix, &all)?;
        let sql = format!("SELECT * FROM {all} WHERE store_id IN (SELECT store_of FROM wanted)");
        context.register_table(table.name, engine::bind(&context, &sql, &[]).await?.into_view())?;
    }
    // No model is asked, so no vector is looked at.
    let parameters: Vec<(&str, ScalarValue)> = prepare::parameters(job, prepare::as_of(job)?, "", "");
    for table in ["rankings", "slates"] {
        let select = job.sql.get(table).ok_or_else(|| {
            Error::usage(format!("[sql] names no SELECT for the table {table}")).at(job.file.display().to_string())
        })?;
        let rows = engine::bind(&context, &select.text, &parameters).await;
        let rows = rows.map_err(|e| e.at(select.file.display().to_string()))?;
        context.register_table(table, rows.into_view())?;
    }
    let sql = "SELECT tenant_id, store_id, request_id, status, turn_ids, tokens, budget_tokens FROM slates";
    engine::collect(&context, sql, &[]).await
}

fn missing(job: &Job) -> Error {
    Error::data(format!("the lake has no features of system {}", job.system.partition()))
        .at(job.lake.clone())
        .next(format!("make them with `memslate run JOB.toml --system {} --until features`", job.system.name))
}
