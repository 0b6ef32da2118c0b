//! Features of a lake with their labels, a row a pooled turn.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;

use super::super::grades;
use super::agreement::Agreement;
use super::train::Lessons;
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Context, Error, Result};
use crate::lake::{Lake, Place};
use crate::ranker::Row;
use crate::schema;

/// Labels for a third of a grade, where grades are means and not whole numbers.
const FINE: f64 = 3.0;

/// Rows by store, and what is known of their labels.
#[derive(Debug, Default)]
pub struct Rows {
    /// The store of each row.
    pub stores: Vec<String>,
    pub rows: Vec<Row>,
    /// What `relevance` of the lake's labels or a file's says beside a teacher's grade.
    pub agreement: Agreement,
    /// Labels of one grade.
    pub labels_a_grade: f64,
    /// The teacher's hash; empty without one.
    pub teacher: String,
}

/// Reads the rows of the system's features.
///
/// A turn is evidence if it, or a turn of the same store with the same content, is labelled: of equal turns a pool
/// holds one. With a teacher's labels, turns that it has not graded are left out.
pub async fn read(lessons: &Lessons<'_>) -> Result<Rows> {
    let features = &lessons.system.rank.features;
    let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
    let lake = Lake::open(lessons.lake).await?;
    let teacher = register(&context, &lake, lessons).await?;
    let columns: Vec<_> = features.iter().map(|f| format!("CAST(f.{f} AS DOUBLE) AS {f}")).collect();
    let sql = format!(
        "SELECT f.tenant_id, f.store_id, f.request_id, f.turn_ordinal, coalesce(l.relevance, 0) AS relevance, j.grade, {}
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
         LEFT JOIN judgements AS j ON j.question_hash = r.question_hash AND j.content_hash = t.content_hash
         WHERE ($split = 'all' OR r.split = $split) AND (NOT $graded OR j.grade IS NOT NULL)",
        columns.join(", ")
    );
    let by_teacher = lessons.by_teacher();
    let parameters = [
        ("split", ScalarValue::Utf8(Some(lessons.split.to_string()))),
        ("graded", ScalarValue::Boolean(Some(by_teacher))),
    ];
    let batches = engine::collect(&context, &sql, &parameters).await?;
    let mut rows = Rows { labels_a_grade: 1.0, teacher, ..Rows::default() };
    let mut grades = Vec::new();
    for batch in &batches {
        read_batch(batch, features.len(), lessons, &mut rows, &mut grades)?;
    }
    if by_teacher {
        if grades.iter().any(|g| g.fract() != 0.0) {
            rows.labels_a_grade = FINE;
        }
        for (row, grade) in rows.rows.iter_mut().zip(&grades) {
            rows.agreement.add(&row.group, *grade, row.label > 0.0);
            row.label = (grade * rows.labels_a_grade).round() as f32;
        }
    }
    Ok(rows)
}

/// Registers the tables that are read; gives the teacher's hash.
async fn register(context: &SessionContext, lake: &Lake, lessons: &Lessons<'_>) -> Result<String> {
    for table in [&schema::TURNS, &schema::REQUESTS, &schema::LABELS, &schema::FEATURES] {
        if table.name == "labels" && !matches!(lessons.labels, "gold" | "teacher") {
            register_file(context, lessons.labels).await?;
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
    let mut teacher = String::new();
    if lessons.by_teacher() {
        if let Some(judgements) = lake.existing(&schema::JUDGEMENTS).await? {
            teacher = grades::choose(&judgements, lessons.teacher)?;
        }
        if teacher.is_empty() {
            return Err(Error::data("the lake has no grades of a teacher")
                .at(lessons.lake.to_string())
                .next("make them with `memslate judge jobs/distill.toml --lake URL`"));
        }
    }
    match teacher.as_str() {
        "" => drop(context.register_table("judgements", engine::empty(&schema::JUDGEMENTS))?),
        hash => engine::register(context, lake, &schema::JUDGEMENTS, &[hash]).await?,
    }
    Ok(teacher)
}

/// A Parquet file with the columns of the labels table.
async fn register_file(context: &SessionContext, file: &str) -> Result<()> {
    let provider = engine::input(context, &Place::parse(file)?).await.map_err(|e| e.at("--labels"))?;
    let schema = provider.schema();
    if schema.field_with_name("relevance").is_ok_and(|f| !f.data_type().is_integer()) {
        return Err(Error::data("the column relevance must hold whole numbers").at(file.to_string()));
    }
    context.register_table("given_labels", provider)?;
    let sql = "SELECT coalesce(CAST(tenant_id AS VARCHAR), '') AS tenant_id, CAST(store_id AS VARCHAR) AS store_id, \
               CAST(request_id AS VARCHAR) AS request_id, CAST(turn_id AS VARCHAR) AS turn_id, \
               CAST(relevance AS INT) AS relevance FROM given_labels";
    let labels = context.sql(sql).await.map_err(|e| Error::from(e).at(file.to_string()))?;
    context.register_table("labels", labels.into_view())?;
    Ok(())
}

fn read_batch(
    batch: &RecordBatch,
    features: usize,
    lessons: &Lessons,
    into: &mut Rows,
    grades: &mut Vec<f64>,
) -> Result<()> {
    let text = |i: usize| batch.column(i).as_string::<i32>();
    let ordinals = batch.column(3).as_primitive::<Int32Type>();
    let labels = cast(batch.column(4), &DataType::Float64).or_internal("labels are numbers")?;
    let (labels, given) = (labels.as_primitive::<Float64Type>(), batch.column(5).as_primitive::<Float64Type>());
    for row in 0..batch.num_rows() {
        let store = text(1).value(row);
        if lessons.without_stores.iter().any(|s| s == store) {
            continue;
        }
        let values = (0..features).map(|f| {
            let column = batch.column(6 + f).as_primitive::<Float64Type>();
            if column.is_null(row) { f64::NAN } else { column.value(row) }
        });
        into.stores.push(store.to_string());
        into.rows.push(Row {
            group: format!("{:?}/{:?}/{:?}", text(0).value(row), store, text(2).value(row)),
            ordinal: i64::from(ordinals.value(row)),
            label: labels.value(row) as f32,
            values: values.collect(),
        });
        if lessons.by_teacher() {
            grades.push(given.value(row));
        }
    }
    Ok(())
}
