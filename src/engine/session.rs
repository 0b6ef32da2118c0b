//! One session: its limits, its functions, and SQL with bound parameters.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::task::JoinError;

use super::Functions;
use crate::error::{Context, Error, Result};

/// What the sessions of one run share: the memory that sorts, joins and aggregates may hold before they spill to disk.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    runtime: Arc<RuntimeEnv>,
    memory_bytes: Option<usize>,
}

/// A hash join holds one of its sides, decoded: so many bytes for a byte of its Parquet files.
const DECODED: u64 = 4;
/// Of the memory limit, the least for a session, and for a thread of one: a sort holds some batches at least.
const SESSION_BYTES: usize = 32 << 20;
/// What a thread's sort sets aside for merging what it spilled, at most: the engine's own figure.
const MERGE_BYTES: usize = 10 << 20;

impl Settings {
    /// Without a limit where `memory_bytes` is none.
    pub fn new(memory_bytes: Option<usize>) -> Result<Settings> {
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = memory_bytes {
            runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
        }
        Ok(Settings { runtime: Arc::new(runtime.build()?), memory_bytes })
    }

    /// How many sessions may work at once on so many shards: one a thread, as far as the memory limit is enough.
    pub fn parallel(&self, shards: usize) -> usize {
        threads().min(shards).min(self.memory_bytes.map_or(usize::MAX, |limit| limit / SESSION_BYTES)).max(1)
    }

    /// Whether `parallel` sessions at once may each hold a side of a join over files of so many bytes.
    fn holds(&self, file_bytes: u64, parallel: usize) -> bool {
        self.share(parallel).is_none_or(|bytes| file_bytes.saturating_mul(DECODED) <= bytes as u64)
    }

    fn share(&self, parallel: usize) -> Option<usize> {
        self.memory_bytes.map(|limit| limit / parallel.max(1))
    }

    /// Threads of one of `parallel` sessions, and what each sets aside to merge. Every thread's sort takes its part of
    /// the limit, however little there is to sort: on many processors, all threads would leave too little for each.
    fn threads_and_merge(&self, parallel: usize) -> (usize, usize) {
        let Some(bytes) = self.share(parallel) else { return (threads(), MERGE_BYTES) };
        let threads = threads().min(bytes / SESSION_BYTES).max(1);
        (threads, (bytes / threads / 8).min(MERGE_BYTES))
    }
}

/// Rows of a batch where sorts spill: merging what was spilled holds a batch of each file, and rows may carry vectors.
const SPILLING_BATCH_ROWS: usize = 1024;

/// A session, one of `parallel` at once, for a SELECT over files of so many bytes. Where the memory limit does not let it
/// hold a side of a join, it sorts both sides, which can spill to disk; a hash join cannot.
pub fn session_over(
    settings: &Settings,
    functions: &Functions,
    file_bytes: u64,
    parallel: usize,
) -> Result<SessionContext> {
    let mut config = config(settings, parallel);
    if !settings.holds(file_bytes, parallel) {
        config = config
            .set_bool("datafusion.optimizer.prefer_hash_join", false)
            .set_usize("datafusion.execution.batch_size", SPILLING_BATCH_ROWS);
    }
    Ok(with(config, settings, functions))
}

/// A session with all functions.
pub fn session(settings: &Settings, functions: &Functions) -> Result<SessionContext> {
    Ok(with(config(settings, 1), settings, functions))
}

fn config(settings: &Settings, parallel: usize) -> SessionConfig {
    let (threads, merge_bytes) = settings.threads_and_merge(parallel);
    SessionConfig::new()
        .with_target_partitions(threads)
        .with_sort_spill_reservation_bytes(merge_bytes)
        .set_bool("datafusion.execution.parquet.schema_force_view_types", false)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false)
        // It takes `embed(...)['vector']` apart, and calls the model once a field and below the joins.
        .set_bool("datafusion.optimizer.enable_leaf_expression_pushdown", false)
        .with_information_schema(false)
}

fn with(config: SessionConfig, settings: &Settings, functions: &Functions) -> SessionContext {
    let context = SessionContext::new_with_config_rt(config, settings.runtime.clone());
    functions.register(&context);
    context
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Plans a SELECT with its `$name` parameters; only those that it names are bound.
pub async fn bind(context: &SessionContext, sql: &str, parameters: &[(&str, ScalarValue)]) -> Result<DataFrame> {
    let frame = context.sql(sql).await?;
    let named = parameters.iter().filter(|(name, _)| names_parameter(sql, name));
    let values: HashMap<String, ScalarAndMetadata> =
        named.map(|(name, value)| (name.to_string(), ScalarAndMetadata::from(value.clone()))).collect();
    if values.is_empty() {
        return Ok(frame);
    }
    Ok(frame.with_param_values(ParamValues::Map(values))?)
}

/// Whether the SELECT names the parameter `$name`.
pub(crate) fn names_parameter(sql: &str, name: &str) -> bool {
    let wanted = format!("${name}");
    sql.match_indices(&wanted)
        .any(|(at, _)| !sql[at + wanted.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// Whether the SELECT calls the function, however it is written.
pub(crate) fn calls(sql: &str, function: &str) -> bool {
    let sql = sql.to_lowercase();
    sql.match_indices(function).any(|(at, _)| {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        !sql[..at].ends_with(word)
            && sql[at + function.len()..].trim_start_matches(['"', ' ', '\n', '\t', '\r']).starts_with('(')
    })
}

/// All rows of a SELECT.
pub async fn collect(
    context: &SessionContext,
    sql: &str,
    parameters: &[(&str, ScalarValue)],
) -> Result<Vec<RecordBatch>> {
    stream(bind(context, sql, parameters).await?).await?.try_collect().await
}

/// The number that a SELECT of one count gives.
pub async fn count(context: &SessionContext, sql: &str, parameters: &[(&str, ScalarValue)]) -> Result<u64> {
    let batches = collect(context, sql, parameters).await?;
    Ok(batches.iter().map(|b| b.column(0).as_primitive::<Int64Type>().iter().flatten().sum::<i64>()).sum::<i64>()
        as u64)
}

/// The rows of a plan as they come. A decoder that panics on the bytes of a damaged file gives an error, as it should
/// have done itself.
pub async fn stream(frame: DataFrame) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let rows = AssertUnwindSafe(frame.execute_stream()).catch_unwind().await.map_err(damaged)??;
    let rows = AssertUnwindSafe(rows).catch_unwind();
    Ok(rows.map(|batch| batch.map_err(damaged)?.map_err(of_task)).boxed())
}

/// The engine tells the panic of a task of its own as an error.
fn of_task(e: DataFusionError) -> Error {
    let said = match e.find_root() {
        DataFusionError::ExecutionJoin(join) if join.is_panic() => join.to_string(),
        DataFusionError::External(inner)
            if inner.downcast_ref::<Arc<JoinError>>().is_some_and(|join| join.is_panic()) =>
        {
            inner.to_string()
        }
        _ => return e.into(),
    };
    // "task 7 panicked with message "..."": the task is the engine's affair.
    broken_off(said.split_once("message ").map_or(said.as_str(), |(_, message)| message))
}

fn damaged(panic: Box<dyn Any + Send>) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    broken_off(said.unwrap_or("no reason is known"))
}

fn broken_off(said: &str) -> Error {
    Error::data("the query broke off, most likely because a file that it reads is damaged")
        .source(said.to_string())
        .next("of an input, write it again; of the lake, take its folder from a copy, or run into a new lake")
}

/// Reads a size such as `512MiB`, `2GiB`, `2g` or a number of bytes.
pub fn memory_bytes(text: &str) -> Result<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || Error::usage(format!("{text:?} is not a size")).next("write it as 512MiB or 2GiB");
    let number: f64 = number.parse().or_usage("size").map_err(|_| wrong())?;
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let bytes = number * scale as f64;
    if bytes < (16 << 20) as f64 || bytes > usize::MAX as f64 {
        return Err(wrong().next("at least 16MiB are needed"));
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(memory_bytes("2GiB").unwrap(), 2 << 30);
        assert_eq!(memory_bytes("512m").unwrap(), 512 << 20);
        assert_eq!(memory_bytes("1.5 GiB").unwrap(), 3 << 29);
        for wrong in ["", "much", "3TiBs", "1", "-2GiB"] {
            assert_eq!(memory_bytes(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn a_join_is_held_where_its_files_are_a_small_part_of_the_limit() {
        let of = |limit| Settings::new(limit).unwrap();
        assert!(of(None).holds(u64::MAX, 64));
        // 4 x 128 MiB in each of two sessions fill 1 GiB.
        assert!(of(Some(1 << 30)).holds(128 << 20, 2));
        assert!(!of(Some(1 << 30)).holds((128 << 20) + 1, 2));
        assert!(of(Some(1 << 30)).holds(256 << 20, 1));
    }

    #[test]
    fn a_small_limit_is_shared_by_few() {
        assert_eq!(Settings::new(None).unwrap().parallel(64), threads().min(64));
        let of = |limit| Settings::new(Some(limit)).unwrap();
        assert_eq!((of(16 << 20).parallel(64), of(32 << 20).parallel(64), of(1 << 40).parallel(1)), (1, 1, 1));
        // An eighth of 16 MiB, of 64 MiB for one of two sessions; never above the engine's own figure.
        assert_eq!(of(16 << 20).threads_and_merge(1), (1, 2 << 20));
        assert_eq!(of(64 << 20).threads_and_merge(2), (1, 4 << 20));
        assert_eq!(of(1 << 40).threads_and_merge(1), (threads(), 10 << 20));
    }

    #[test]
    fn calls_are_found_however_they_are_written() {
        for sql in ["SELECT embed(x)", "SELECT EMBED (x)", "SELECT \"embed\"\n(x)"] {
            assert!(calls(sql, "embed"), "{sql}");
        }
        assert!(!calls("SELECT my_embed(x)", "embed") && !calls("SELECT embed FROM t", "embed"));
    }

    #[test]
    fn parameters_are_whole_names() {
        assert!(names_parameter("SELECT $as_of", "as_of"));
        assert!(!names_parameter("SELECT $as_offset", "as_of"));
    }
}
