//! What a run would do, before it is run: stores, rows, tokens, floating-point operations, time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::prelude::SessionContext;
use serde::Serialize;

use super::fingerprint::{self, Prints, Store};
use super::prepare::Prepared;
use super::{gaps, grades, graph, ingest};
use crate::config::Job;
use crate::engine;
use crate::error::Result;
use crate::lake::Lake;
use crate::schema;
use crate::score::Purpose;

/// How many texts are embedded to see how fast the device is.
const SAMPLE_TEXTS: usize = 48;

/// One table of a plan.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Estimate {
    pub table: &'static str,
    pub stores_kept: u64,
    pub stores_to_compute: u64,
    pub rows_to_compute: u64,
    /// Tokens that a model reads, about: o200k tokens, cut at what the model takes.
    pub tokens: u64,
    pub flop: f64,
    /// At the speed measured on a few texts; none for tables without a model.
    pub seconds: Option<f64>,
}

/// A whole plan.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub job: String,
    pub system: String,
    pub device: String,
    pub tables: Vec<Estimate>,
}

/// Per store: turns and requests.
type Sizes = BTreeMap<Store, (u64, u64)>;

/// Plans a job up to the table `last`. Reads inputs and lake, writes nothing.
pub async fn plan(job: &Job, last: &'static str) -> Result<Plan> {
    let readable = match Lake::find(&job.lake, job.shards).await? {
        Some(_) => job.clone(),
        None => Job { lake: "memory:///plan".into(), ..job.clone() },
    };
    let mut run = Prepared::new(&readable, last).await?;
    let context = ingest::texts(&run).await?;
    let sizes = read_inputs(&mut run, &context).await?;
    let mut tables = Vec::new();
    let mut prints: BTreeMap<&'static str, Prints> = run.inputs.clone();
    prints.extend(gaps::prints_now(&run).await?);
    prints.insert("judgements", grades::prints_now(&run).await?);
    for table in graph::until(last) {
        let estimate = match table {
            "labels" => continue,
            "turns" | "requests" => input(&run, table, &sizes).await?,
            "embeddings" => embeddings(&run, &context).await?,
            "scores" => scores(&run, &prints, &sizes, &context).await?,
            _ => {
                let of = fingerprint::of_stores(run.select_print(table), &run.reads[table], &prints);
                prints.insert(table, of);
                derived(&run, table, &prints[table], &sizes).await?
            }
        };
        tables.push(estimate);
    }
    Ok(Plan { job: job.name.clone(), system: job.system.partition(), device: run.device.clone(), tables })
}

async fn read_inputs(run: &mut Prepared, context: &SessionContext) -> Result<Sizes> {
    let mut sizes = Sizes::new();
    for name in ["turns", "requests"] {
        let sql = format!(
            "SELECT shard, tenant_id, store_id, bit_xor(row_fingerprint), count(*) FROM {name} \
             GROUP BY shard, tenant_id, store_id"
        );
        let batches = engine::collect(context, &sql, &[]).await?;
        for batch in &batches {
            let (tenants, stores) = (batch.column(1).as_string::<i32>(), batch.column(2).as_string::<i32>());
            for row in 0..batch.num_rows() {
                let size = sizes.entry((tenants.value(row).into(), stores.value(row).into())).or_default();
                let n = batch.column(4).as_primitive::<Int64Type>().value(row) as u64;
                if name == "turns" { size.0 = n } else { size.1 = n }
            }
        }
        run.inputs.insert(name, fingerprint::from_rows(&batches)?);
    }
    Ok(sizes)
}

/// The fingerprints of the stores that a table of the lake has rows of.
async fn committed(run: &Prepared, table: &str) -> Result<BTreeMap<Store, i64>> {
    let of = schema::table(table).expect("a table of the order");
    let Some(snapshot) = run.lake.existing(of).await? else { return Ok(BTreeMap::new()) };
    let context = run.session()?;
    let system = run.job.system.partition();
    let prefix: &[&str] = if of.partition[0] == "system" { &[&system] } else { &[] };
    engine::register_snapshot(&context, &run.lake, &snapshot, prefix, "t")?;
    let prints = fingerprint::of_table(&context, "t", &[]).await?;
    Ok(prints.into_values().flatten().collect())
}

async fn input(run: &Prepared, table: &'static str, sizes: &Sizes) -> Result<Estimate> {
    let have = committed(run, table).await?;
    let mut estimate = Estimate { table, ..Default::default() };
    for (store, print) in run.inputs[table].values().flatten() {
        if have.get(store) == Some(print) {
            estimate.stores_kept += 1;
        } else {
            let size = sizes.get(store).copied().unwrap_or_default();
            estimate.stores_to_compute += 1;
            estimate.rows_to_compute += if table == "turns" { size.0 } else { size.1 };
        }
    }
    Ok(estimate)
}

async fn derived(run: &Prepared, table: &'static str, prints: &Prints, sizes: &Sizes) -> Result<Estimate> {
    let have = committed(run, table).await?;
    let mut estimate = Estimate { table, ..Default::default() };
    for (store, print) in prints.values().flatten() {
        if have.get(store) == Some(print) {
            estimate.stores_kept += 1;
            continue;
        }
        let (turns, requests) = sizes.get(store).copied().unwrap_or_default();
        estimate.stores_to_compute += 1;
        estimate.rows_to_compute += if table == "slates" { requests } else { requests * pooled(run, turns) };
    }
    Ok(estimate)
}

fn pooled(run: &Prepared, turns: u64) -> u64 {
    match run.job.system.recall.pool_size {
        0 => turns,
        size => turns.min(size as u64),
    }
}

/// The texts that have no vector yet.
async fn embeddings(run: &Prepared, context: &SessionContext) -> Result<Estimate> {
    let mut estimate = Estimate { table: "embeddings", ..Default::default() };
    let Some(encoder) = &run.functions.models().encoder else { return Ok(estimate) };
    engine::register(context, &run.lake, &schema::EMBEDDINGS, &[]).await?;
    let missing = "SELECT t.text, count_tokens(t.text) AS tokens FROM (
        SELECT shard, content_hash, 'passage' AS purpose, first_value(content) AS text FROM turns
        WHERE content_hash IS NOT NULL GROUP BY shard, content_hash
        UNION ALL
        SELECT shard, question_hash, 'query', first_value(question) FROM requests GROUP BY shard, question_hash
      ) AS t LEFT ANTI JOIN embeddings AS e
      ON e.shard = t.shard AND e.content_hash = t.content_hash AND e.purpose = t.purpose AND e.encoder_hash = $encoder_hash AND e.vector IS NOT NULL";
    let mut sample: Vec<String> = Vec::new();
    for batch in engine::collect(context, missing, &run.parameters).await? {
        let (texts, tokens) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int32Type>());
        let lengths: Vec<usize> = tokens.values().iter().map(|t| (*t as usize + 2).min(encoder.max_tokens())).collect();
        estimate.rows_to_compute += batch.num_rows() as u64;
        estimate.tokens += lengths.iter().sum::<usize>() as u64;
        estimate.flop += encoder.flops(&lengths);
        let room = SAMPLE_TEXTS.saturating_sub(sample.len());
        sample.extend(texts.iter().flatten().take(room).map(str::to_string));
    }
    if !sample.is_empty() {
        let texts: Vec<Option<&str>> = sample.iter().map(|t| Some(t.as_str())).collect();
        let began = Instant::now();
        encoder.embed(&texts, Purpose::Passage)?;
        let seconds = began.elapsed().as_secs_f64() / sample.len() as f64;
        estimate.seconds = Some(seconds * estimate.rows_to_compute as f64);
    }
    Ok(estimate)
}

/// The pairs of the pools that are to be made, and those of the pools that are there and have no logit yet; each with
/// the mean length of a question and a turn.
async fn scores(
    run: &Prepared,
    prints: &BTreeMap<&'static str, Prints>,
    sizes: &Sizes,
    context: &SessionContext,
) -> Result<Estimate> {
    let mut estimate = Estimate { table: "scores", ..Default::default() };
    let Some(cross) = &run.functions.models().cross_encoder else { return Ok(estimate) };
    let pools = derived(run, "pools", &prints["pools"], sizes).await?;
    estimate.rows_to_compute = pools.rows_to_compute + unscored(run, context).await?;
    let sql = "SELECT CAST(coalesce((SELECT avg(tokens) FROM turns), 0) \
               + coalesce((SELECT avg(count_tokens(question)) FROM requests), 0) AS BIGINT)";
    let batches = engine::collect(context, sql, &[]).await?;
    let mean = batches.first().map_or(0, |b| b.column(0).as_primitive::<Int64Type>().value(0)) as usize + 4;
    let length = mean.min(cross.max_tokens());
    estimate.tokens = estimate.rows_to_compute * length as u64;
    estimate.flop = cross.flops(&[length]) * estimate.rows_to_compute as f64;
    if estimate.rows_to_compute > 0 {
        let text = "word ".repeat(length.saturating_sub(8).max(1));
        let pairs = vec![(Some("what was said"), Some(text.as_str())); 8];
        let began = Instant::now();
        cross.score(&pairs)?;
        estimate.seconds = Some(began.elapsed().as_secs_f64() / pairs.len() as f64 * estimate.rows_to_compute as f64);
    }
    Ok(estimate)
}

/// Pairs of the pools in the lake, as far as their turns and requests are those of the inputs, without a logit.
async fn unscored(run: &Prepared, context: &SessionContext) -> Result<u64> {
    let Some(pools) = run.lake.existing(&schema::POOLS).await? else { return Ok(0) };
    engine::register_snapshot(context, &run.lake, &pools, &[&run.job.system.partition()], "pools")?;
    engine::register(context, &run.lake, &schema::SCORES, &[]).await?;
    let sql = "SELECT count(*) FROM (
        SELECT DISTINCT r.shard, r.question_hash, t.content_hash FROM pools AS p
        JOIN requests AS r ON r.tenant_id = p.tenant_id AND r.store_id = p.store_id AND r.request_id = p.request_id
        JOIN turns AS t ON t.tenant_id = p.tenant_id AND t.store_id = p.store_id AND t.turn_id = p.turn_id
      ) AS pairs LEFT ANTI JOIN scores AS s
      ON s.shard = pairs.shard AND s.question_hash = pairs.question_hash AND s.content_hash = pairs.content_hash
      AND s.scorer_hash = $scorer_hash AND s.logit IS NOT NULL";
    let batches = engine::collect(context, sql, &run.parameters).await?;
    Ok(batches.iter().map(|b| b.column(0).as_primitive::<Int64Type>().value(0) as u64).sum())
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}, system {}, device {}", self.job, self.system, self.device)?;
        let (kept, compute) = ("kept", "compute");
        writeln!(
            f,
            "{:<11} {kept:>8} {compute:>8} {:>10} {:>11} {:>9} {:>9}",
            "table", "rows", "tokens", "FLOP", "seconds"
        )?;
        for t in &self.tables {
            let seconds = t.seconds.map_or_else(|| "-".into(), |s| format!("{s:.1}"));
            let (tokens, flop) = if t.tokens == 0 {
                ("-".into(), "-".into())
            } else {
                (t.tokens.to_string(), format!("{:.2e}", t.flop))
            };
            writeln!(
                f,
                "{:<11} {:>8} {:>8} {:>10} {tokens:>11} {flop:>9} {seconds:>9}",
                t.table, t.stores_kept, t.stores_to_compute, t.rows_to_compute
            )?;
        }
        write!(f, "kept and compute are in stores; seconds are of the models, at the speed measured just now")
    }
}
