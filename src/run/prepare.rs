//! All that a run needs, before it runs: lake, models, parameters, and the check that every SELECT fits its table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::prelude::{DataFrame, SessionContext};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::fingerprint::{self, Prints};
use super::{grades, graph, ingest, sources};
use crate::config::Job;
use crate::device::{Batcher, Device};
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Error, Result};
use crate::lake::{Lake, Snapshot};
use crate::model;
use crate::rank::Scorer;
use crate::ranker::Ranker;
use crate::schema::{self, Table};
use crate::score::{CrossEncoder, Encoder};
use crate::system::{List, RankMethod, ScoreMethod};
use crate::text::dates;

/// A run's surroundings.
pub struct Prepared {
    pub job: Job,
    pub lake: Lake,
    pub settings: Settings,
    pub functions: Functions,
    pub parameters: Vec<(&'static str, ScalarValue)>,
    /// By function, the hash of the model that it calls.
    pub model_hashes: Vec<(&'static str, String)>,
    pub reads: BTreeMap<&'static str, Vec<&'static str>>,
    /// Fingerprints of the input tables' stores, filled as they are read.
    pub inputs: BTreeMap<&'static str, Prints>,
    /// By table, of stores that lack vectors or logits, filled when that table is up to date.
    pub gaps: BTreeMap<&'static str, Prints>,
    /// The versions that belong together: each table as this run left it, which is what later tables read.
    pub tables: BTreeMap<&'static str, Snapshot>,
    /// The hash of the teacher whose grades are read; empty: none.
    pub teacher: String,
    pub device: String,
}

/// What `check` found.
#[derive(Debug, Serialize)]
pub struct Checked {
    pub job: String,
    pub system: String,
    pub device: String,
    pub rows: BTreeMap<&'static str, u64>,
    pub rejects: BTreeMap<String, u64>,
}

impl Prepared {
    /// Loads what the tables up to `last` need onto the job's device, and checks their SELECTs.
    pub async fn new(job: &Job, last: &'static str) -> Result<Prepared> {
        Self::on(job, last, crate::device::open(&job.device)?).await
    }

    /// As [`Prepared::new`], on this device.
    pub async fn on(job: &Job, last: &'static str, device: Arc<dyn Device>) -> Result<Prepared> {
        let memory_bytes = job.memory_limit.as_deref().map(engine::memory_bytes).transpose()?;
        let settings = Settings::new(memory_bytes)?;
        let loaded = load(job, last, device)?;
        let functions = Functions::new(loaded.models);
        let context = engine::session(&settings, &functions)?;
        let reads = graph::reads(&context, job, last)?;
        let mut parameters = parameters(job, as_of(job)?, &loaded.encoder_hash, &loaded.scorer_hash);
        check_selects(job, &context, &parameters, last).await?;
        sources::check(job, &parameters, (&settings, &functions), last).await?;
        // The last thing that may fail for a setting is before the first that is written.
        let lake = Lake::open_or_create(&job.lake, job.shards).await?;
        let teacher = grades::teacher(&lake, job).await?;
        parameters.retain(|(name, _)| *name != "teacher_hash");
        parameters.push(("teacher_hash", ScalarValue::Utf8(Some(teacher.clone()))));
        let model_hashes = vec![
            ("embed", loaded.encoder_hash),
            ("cross_score", loaded.scorer_hash),
            ("rank_score", loaded.ranking_hash),
        ];
        parameters.push(("shards", ScalarValue::Int64(Some(i64::from(lake.shards())))));
        Ok(Prepared {
            job: job.clone(),
            lake,
            settings,
            functions,
            parameters,
            model_hashes,
            reads,
            inputs: BTreeMap::new(),
            gaps: BTreeMap::new(),
            tables: BTreeMap::new(),
            teacher,
            device: loaded.device,
        })
    }

    /// A session without tables.
    pub fn session(&self) -> Result<SessionContext> {
        engine::session(&self.settings, &self.functions)
    }

    /// The fingerprint of a table's SELECT.
    pub fn select_print(&self, table: &str) -> i64 {
        let sql = self.job.sql.get(table).map_or("", |s| s.text.as_str());
        fingerprint::of_select(table, sql, &self.parameters, &self.model_hashes)
    }

    /// The partition of a table's unit: (system, shard), (shard), or the teacher's, which is of no shard.
    pub fn partition(&self, table: &Table, shard: i32) -> Vec<String> {
        match table.partition {
            ["system", ..] => vec![self.job.system.partition(), shard.to_string()],
            ["teacher_hash"] => vec![self.teacher.clone()],
            _ => vec![shard.to_string()],
        }
    }

    /// Whether a run with this job fills the table at all: no scores without a cross-encoder.
    pub fn fills(&self, table: &str) -> bool {
        match table {
            "scores" => self.job.system.score.method == ScoreMethod::CrossEncoder,
            "embeddings" => uses_vectors(&self.job),
            "judgements" => grades::wanted(&self.job),
            _ => true,
        }
    }

    /// A table's SELECT over the tables of the session, with the columns of `schema.rs` in their order.
    pub async fn select(&self, context: &SessionContext, table: &'static Table) -> Result<DataFrame> {
        select(&self.job, context, &self.parameters, table).await
    }
}

async fn select(
    job: &Job,
    context: &SessionContext,
    parameters: &[(&'static str, ScalarValue)],
    table: &'static Table,
) -> Result<DataFrame> {
    let select = &job.sql[table.name];
    let frame = engine::bind(context, &select.text, parameters).await;
    frame.and_then(|f| fit(f, table)).map_err(|e| e.at(select.file.display().to_string()))
}

/// Plans every SELECT over empty tables.
async fn check_selects(
    job: &Job,
    context: &SessionContext,
    parameters: &[(&'static str, ScalarValue)],
    last: &str,
) -> Result<()> {
    for name in graph::readable() {
        context.register_table(name, engine::empty(schema::table(name).expect("a table")))?;
    }
    for name in graph::until(last).filter(|t| !graph::from_input(t)) {
        select(job, context, parameters, schema::table(name).expect("a table")).await?;
    }
    Ok(())
}

/// Checks a job and its inputs without running it.
pub async fn check(job: &Job, last: &'static str) -> Result<Checked> {
    // A lake that is there must fit; one that is not there is not made by a check.
    Lake::find(&job.lake, job.shards).await?;
    let scratch = Job { lake: "memory:///check".into(), ..job.clone() };
    let prepared = Prepared::new(&scratch, last).await?;
    let (rows, rejects) = ingest::count(&prepared).await?;
    Ok(Checked {
        job: job.name.clone(),
        system: job.system.partition(),
        device: prepared.device.clone(),
        rows,
        rejects,
    })
}

struct Loaded {
    models: Models,
    encoder_hash: String,
    scorer_hash: String,
    ranking_hash: String,
    device: String,
}

fn uses_vectors(job: &Job) -> bool {
    let vectors = |f: &str| matches!(f, "dense_score" | "dense_rank" | "context_cosine");
    job.system.recall.lists.iter().any(|l| matches!(l, List::Dense { .. }))
        || job.system.rank.features.iter().any(|f| vectors(f))
        || job.system.rank.column.as_deref().is_some_and(vectors)
}

fn load(job: &Job, last: &str, device: Arc<dyn Device>) -> Result<Loaded> {
    let needs = |table: &str| graph::until(last).any(|t| t == table);
    let info = device.describe();
    let batcher = Batcher::new(device)?;
    let folder = job.models.clone().unwrap_or_else(model::default_models_dir);
    let mut models = Models::default();
    let (mut encoder_hash, mut scorer_hash) = (String::new(), String::new());
    if needs("embeddings") && uses_vectors(job) {
        let spec = job.encoder.as_deref().ok_or_else(|| {
            Error::usage(format!("system {} needs vectors, but the job names no encoder", job.system.name))
                .next("add `encoder = \"minilm\"` to the job file")
        })?;
        let encoder = Encoder::load(&model::resolve(spec, &folder)?.in_precision(job.precision), &batcher)?;
        encoder_hash = keyed(job, "embeddings", encoder.hash());
        models.encoder = Some(encoder);
    }
    if needs("scores") && job.system.score.method == ScoreMethod::CrossEncoder {
        let spec = job.scorer.as_deref().ok_or_else(|| {
            Error::usage(format!("system {} needs a cross-encoder, but the job names no scorer", job.system.name))
                .next("add `scorer = \"bge-reranker-v2-m3\"` or a model's folder to the job file")
        })?;
        let scorer = CrossEncoder::load(&model::resolve(spec, &folder)?.in_precision(job.precision), &batcher)?;
        scorer_hash = keyed(job, "scores", scorer.hash());
        models.cross_encoder = Some(scorer);
    }
    let mut ranking_hash = serde_json::to_string(&job.system.rank).expect("plain data");
    if needs("rankings") {
        let scorer = scorer(job)?;
        if let Scorer::Lightgbm(ranker) = &scorer {
            ranking_hash.push_str(ranker.hash());
        }
        models.scorer = Some(scorer);
    }
    Ok(Loaded { models, encoder_hash, scorer_hash, ranking_hash, device: format!("{} ({})", info.name, info.detail) })
}

/// What vectors and logits are addressed by besides their text: the model, and the SELECT that gives it the text.
fn keyed(job: &Job, table: &str, model: &str) -> String {
    let select = job.sql.get(table).map_or("", |s| s.text.as_str());
    crate::system::hex(&Sha256::digest(format!("{model}\n{select}")))
}

fn scorer(job: &Job) -> Result<Scorer> {
    let rank = &job.system.rank;
    match rank.method {
        RankMethod::Column => {
            let name = rank.column.clone().expect("a checked system names its column");
            Ok(Scorer::Column { name, descending: rank.descending })
        }
        RankMethod::Lightgbm => {
            let file = rank.ranker.as_deref().expect("a checked system names its ranker");
            Ok(Scorer::Lightgbm(Arc::new(Ranker::load(&job.system_folder.join(file), &rank.features)?)))
        }
    }
}

pub(super) fn as_of(job: &Job) -> Result<Option<i64>> {
    let Some(text) = job.as_of.as_deref() else { return Ok(None) };
    let time = dates::parse_instant(text, job.naive_zone_minutes);
    time.map(Some).ok_or_else(|| {
        Error::usage(format!("as_of {text:?} cannot be read as a time")).next("write it as 2023-05-30T23:17:00Z")
    })
}

/// What a SELECT may name with a `$`.
pub(super) fn parameters(
    job: &Job,
    as_of: Option<i64>,
    encoder_hash: &str,
    scorer_hash: &str,
) -> Vec<(&'static str, ScalarValue)> {
    let text = |s: &str| ScalarValue::Utf8(Some(s.to_string()));
    vec![
        ("recall", json(&job.system.recall)),
        ("slate", json(&slate(job))),
        ("budget_tokens", ScalarValue::Int32(i32::try_from(job.budget_tokens).ok())),
        ("as_of", ScalarValue::TimestampMicrosecond(as_of, Some("UTC".into()))),
        ("encoder_hash", text(encoder_hash)),
        ("scorer_hash", text(scorer_hash)),
        // Known when the lake is open.
        ("teacher_hash", text("")),
        ("ties", text(job.system.rank.ties.name())),
        ("zone", ScalarValue::Int32(Some(job.naive_zone_minutes))),
    ]
}

/// The slate's choices, with the zone in which the job's times are read and shown.
pub(super) fn slate(job: &Job) -> crate::system::Slate {
    let mut slate = job.system.slate.clone();
    if slate.zone_minutes == 0 {
        slate.zone_minutes = job.naive_zone_minutes;
    }
    slate
}

/// Plain data as JSON text.
fn json<T: Serialize>(value: &T) -> ScalarValue {
    ScalarValue::Utf8(Some(serde_json::to_string(value).expect("plain data")))
}

/// Checks a SELECT's columns against the table's, and puts them in order. The store's fingerprint is added later.
pub fn fit(frame: DataFrame, table: &'static Table) -> Result<DataFrame> {
    let given: Schema = frame.schema().as_arrow().clone();
    for field in given.fields() {
        if !table.columns.iter().any(|c| c.name == field.name()) {
            let known: Vec<_> = table.columns.iter().map(|c| c.name).collect();
            return Err(Error::usage(format!("{} has no column {:?}", table.name, field.name()))
                .next(format!("its columns: {}", known.join(", "))));
        }
    }
    let mut columns = Vec::new();
    for column in table.columns.iter().filter(|c| c.name != "store_fingerprint") {
        let field = given.field_with_name(column.name).map_err(|_| {
            Error::usage(format!("the SELECT gives no column {:?}, which {} has", column.name, table.name))
                .next(format!("{}: {}", column.name, column.meaning))
        })?;
        let wanted = column.kind.data_type();
        if !same_type(field.data_type(), &wanted) {
            return Err(Error::usage(format!(
                "column {:?} is {}, but {} has it as {wanted}",
                column.name,
                field.data_type(),
                table.name
            ))
            .next(format!("write CAST({} AS ...) in the SELECT", column.name)));
        }
        columns.push(datafusion::prelude::ident(column.name));
    }
    Ok(frame.select(columns)?)
}

/// Equal but for the names and nullability of what is nested.
fn same_type(given: &DataType, wanted: &DataType) -> bool {
    match (given, wanted) {
        (DataType::List(a), DataType::List(b)) => same_type(a.data_type(), b.data_type()),
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same_type(x.data_type(), y.data_type()))
        }
        (a, b) => a == b,
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}, system {}, device {}", self.job, self.system, self.device)?;
        for (table, rows) in &self.rows {
            writeln!(f, "{table}: {rows} rows")?;
        }
        for (reason, n) in &self.rejects {
            writeln!(f, "would be set aside: {n} x {reason}")?;
        }
        write!(f, "every SELECT fits its table")
    }
}
