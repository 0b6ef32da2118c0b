//! Runs the nightly job over many large stores and says how time and memory grow.
//!
//! ```text
//! cargo bench --bench scale -- --stores 200 [--shards 64] [--memory-limit 2GiB] [--folder DIR]
//! ```
//!
//! The stores are generated; the encoder's vectors are drawn from a seed, since a CPU would need days for them. All else
//! is the real path: tokenising, tables, recall, features, ranking, slates. Prints one line of JSON: seconds a table, CPU
//! seconds, and the largest resident memory of the process.

mod inputs;
mod model;
mod seeded;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use memslate::config::{Job, Overrides};
use memslate::error::{Context, Error, Result};
use memslate::run;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Args {
    /// Stores to generate
    #[arg(long, default_value_t = 200)]
    stores: usize,
    /// Turns in a store
    #[arg(long, default_value_t = 4900)]
    turns: usize,
    /// Requests to a store
    #[arg(long, default_value_t = 5)]
    requests: usize,
    #[arg(long, default_value_t = 64)]
    shards: u32,
    /// Values of a vector
    #[arg(long, default_value_t = 384)]
    dim: usize,
    #[arg(long, default_value = "2GiB")]
    memory_limit: String,
    /// Where inputs and lake are kept; inputs of the same size are used again, the lake is made anew
    #[arg(long, default_value = "out/scale")]
    folder: PathBuf,
    /// Go on with the lake that is there
    #[arg(long)]
    keep: bool,
    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    match runtime.block_on(measure(&Args::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    let input = args.folder.join(format!("inputs-{}-{}-{}", args.stores, args.turns, args.requests));
    let language = support::language::Language::new();
    inputs::write(&input, &language, args.stores, args.turns, args.requests)?;
    let model = args.folder.join("model");
    model::write(&model, &language, args.dim)?;
    let lake = args.folder.join("lake");
    if lake.exists() && !args.keep {
        std::fs::remove_dir_all(&lake).or_data("the lake of the run before cannot be removed")?;
    }
    let job = job(args, &input, &lake, &model)?;
    let device = Arc::new(seeded::Seeded::new(args.dim));
    let before = peak_mib()?;
    let summary = run::run_on(&job, run::until(None)?, device).await?;
    let tables: serde_json::Map<String, serde_json::Value> =
        summary.tables.iter().map(|t| (t.table.into(), rounded(t.seconds).into())).collect();
    let line = serde_json::json!({
        "stores": args.stores, "turns": args.turns, "requests": args.requests, "shards": args.shards, "dim": args.dim,
        "memory_limit": args.memory_limit, "seconds": rounded(summary.seconds), "cpu_seconds": rounded(support::cpu_time::now().as_secs_f64()),
        "peak_mib_before": before, "peak_mib": peak_mib()?, "lake_mib": mib_of(&lake)?, "slates": summary.slates,
        "table_seconds": tables,
    });
    println!("{line}");
    Ok(())
}

fn job(args: &Args, input: &Path, lake: &Path, model: &Path) -> Result<Job> {
    let text = |path: &Path| Some(path.display().to_string());
    let overrides = Overrides {
        input: text(input),
        lake: text(lake),
        memory_limit: Some(args.memory_limit.clone()),
        set: vec![format!("shards={}", args.shards), format!("encoder={}", model.display())],
        ..Overrides::default()
    };
    Job::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/nightly.toml"), &overrides)
}

/// The largest resident memory of this process so far.
fn peak_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").or_data("/proc is needed for the memory figure")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map(|k| k / 1024).ok_or_else(|| Error::data("/proc/self/status has no VmHWM"))
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

fn mib_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).or_data("the lake cannot be listed")? {
            let entry = entry.or_data("the lake cannot be listed")?;
            let meta = entry.metadata().or_data("the lake cannot be listed")?;
            if meta.is_dir() { folders.push(entry.path()) } else { bytes += meta.len() }
        }
    }
    Ok(bytes >> 20)
}
