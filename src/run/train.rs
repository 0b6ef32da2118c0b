//! Training: features and labels of a lake to a ranker file.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;

use crate::config::setting_value;
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Context, Error, Result};
use crate::lake::{Lake, Place};
use crate::ranker::{Dataset, Params, Row, Trained, train};
use crate::schema;
use crate::system::System;

/// What to learn from.
#[derive(Debug, Clone)]
pub struct Lessons<'a> {
    pub lake: &'a str,
    pub system: &'a System,
    /// `gold`, or a Parquet file with the columns of the labels table.
    pub labels: &'a str,
    /// A value of `requests.split`; `all`: every request.
    pub split: &'a str,
    pub without_stores: &'a [String],
}

/// Trains a ranker for the system's features.
///
/// A turn is evidence if it, or a turn of the same store with the same content, is labelled: of equal turns a pool
/// holds one.
pub async fn train_from(lessons: &Lessons<'_>, params: &Params) -> Result<Trained> {
    let features = &lessons.system.rank.features;
    if features.is_empty() {
        return Err(Error::usage(format!("system {} names no rank.features", lessons.system.name))
            .next("name the columns of the features table that its ranker learns from"));
    }
    let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
    let lake = Lake::open(lessons.lake).await?;
    register(&context, &lake, lessons).await?;
    let columns: Vec<_> = features.iter().map(|f| format!("CAST(f.{f} AS DOUBLE) AS {f}")).collect();
    let sql = format!(
        "SELECT f.tenant_id, f.store_id, f.request_id, f.turn_ordinal, coalesce(l.relevance, 0) AS relevance, {}
         FROM features AS f
         JOIN requests AS r
           ON r.tenant_id = f.tenant_id AND r.store_id = f.store_id AND r.request_id = f.request_id
         JOIN turns AS t
           ON t.tenant_id = f.tenant_id AND t.store_id = f.store_id AND t.turn_ordinal = f.turn_ordinal
         LEFT JOIN (
           SELECT l.tenant_id, l.store_id, l.request_id, t.content_hash, max(l.relevance) AS relevance
           FROM labels AS l
           JOIN turns AS t ON t.tenant_id = l.tenant_id AND t.store_id = l.store_id AND t.turn_id = l.turn_id
           GROUP BY l.tenant_id, l.store_id, l.request_id, t.content_hash
         ) AS l
           ON l.tenant_id = f.tenant_id AND l.store_id = f.store_id AND l.request_id = f.request_id
           AND l.content_hash = t.content_hash
         WHERE ($split = 'all' OR r.split = $split)",
        columns.join(", ")
    );
    let split = ScalarValue::Utf8(Some(lessons.split.to_string()));
    let batches = engine::collect(&context, &sql, &[("split", split)]).await?;
    let mut rows = Vec::new();
    for batch in &batches {
        read_rows(batch, features.len(), lessons.without_stores, &mut rows)?;
    }
    if rows.is_empty() {
        return Err(Error::data(format!("no request of split {:?} has features to learn from", lessons.split))
            .at(lessons.lake.to_string())
            .next("run the job with --until features first, or name another --split (`all`: every request)"));
    }
    train(&Dataset::from_rows(features.clone(), rows)?, params)
}

async fn register(context: &SessionContext, lake: &Lake, lessons: &Lessons<'_>) -> Result<()> {
    for table in [&schema::TURNS, &schema::REQUESTS, &schema::LABELS, &schema::FEATURES] {
        if table.name == "labels" && lessons.labels != "gold" {
            let provider =
                engine::input(context, &Place::parse(lessons.labels)?).await.map_err(|e| e.at("--labels"))?;
            let schema = provider.schema();
            if schema.field_with_name("relevance").is_ok_and(|f| !f.data_type().is_integer()) {
                return Err(Error::data("the column relevance must hold whole numbers").at(lessons.labels.to_string()));
            }
            context.register_table("given_labels", provider)?;
            let sql = "SELECT coalesce(CAST(tenant_id AS VARCHAR), '') AS tenant_id, CAST(store_id AS VARCHAR) AS store_id, \
                       CAST(request_id AS VARCHAR) AS request_id, CAST(turn_id AS VARCHAR) AS turn_id, \
                       CAST(relevance AS INT) AS relevance FROM given_labels";
            let labels = context.sql(sql).await.map_err(|e| Error::from(e).at(lessons.labels.to_string()))?;
            context.register_table("labels", labels.into_view())?;
            continue;
        }
        let partition = lessons.system.partition();
        let prefix: &[&str] = if table.name == "features" { &[&partition] } else { &[] };
        let made = match lake.existing(table).await? {
            Some(snapshot) => !snapshot.files(prefix)?.is_empty(),
            None => false,
        };
        if !made && table.name == "features" {
            return Err(Error::data(format!("the lake has no features of system {partition}"))
                .at(lessons.lake.to_string())
                .next(format!(
                    "make them with `memslate run JOB.toml --system {} --until features`",
                    lessons.system.name
                )));
        }
        engine::register(context, lake, table, prefix).await?;
    }
    Ok(())
}

fn read_rows(batch: &RecordBatch, features: usize, without: &[String], rows: &mut Vec<Row>) -> Result<()> {
    let text = |i: usize| batch.column(i).as_string::<i32>();
    let ordinals = batch.column(3).as_primitive::<Int32Type>();
    let labels = cast(batch.column(4), &DataType::Float64).or_internal("labels are numbers")?;
    let labels = labels.as_primitive::<Float64Type>();
    for row in 0..batch.num_rows() {
        let store = text(1).value(row);
        if without.iter().any(|s| s == store) {
            continue;
        }
        let values = (0..features).map(|f| {
            let column = batch.column(5 + f).as_primitive::<Float64Type>();
            if column.is_null(row) { f64::NAN } else { column.value(row) }
        });
        rows.push(Row {
            group: format!("{:?}/{:?}/{:?}", text(0).value(row), store, text(2).value(row)),
            ordinal: i64::from(ordinals.value(row)),
            label: labels.value(row) as f32,
            values: values.collect(),
        });
    }
    Ok(())
}

/// Training parameters from `key=value` settings.
pub fn train_params(settings: &[String]) -> Result<Params> {
    let mut table = toml::Table::try_from(Params::default()).or_internal("parameters are plain data")?;
    for setting in settings {
        let wrong = || Error::usage(format!("--set {setting:?} is not key=value"));
        let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
        table.insert(key.trim().to_string(), setting_value(value));
    }
    table.try_into().map_err(|e: toml::de::Error| Error::usage(e.to_string().trim_end().to_string()).at("--set"))
}
