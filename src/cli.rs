//! The command line, as types, and what its commands do.

mod commands;
mod learning;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Overrides;
use crate::device::bench::{self, Shape};
use crate::error::Result;

pub use commands::dispatch;

/// Chooses, in bulk, the past conversation turns that an LLM agent should see.
#[derive(Debug, Parser)]
#[command(name = "memslate", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn a benchmark or chat logs into turns.parquet, requests.parquet and labels.parquet
    Import(Import),
    /// Run a job: histories in, slates out; what is done already is kept
    Run(Run),
    /// Say what a run would do: stores, rows, tokens, floating-point operations, time
    Plan(Run),
    /// Check a job and its inputs without running it
    Check(Run),
    /// Say what a lake holds and how its last runs went
    Status(Status),
    /// Have a language model grade a sample of pools, to train on or to rank by
    Judge(Judge),
    /// Train a ranker on the features of a lake, with its labels or a teacher's grades
    Train(Train),
    /// List trained rankers, or compare two on one lake
    Rankers(Rankers),
    /// Measure completeness: recall's, the ranking's, the slates'
    Eval(Eval),
    /// Say why each turn of a request's pool is in its slate or out
    Explain(Explain),
    /// Print a request's slate as the reader sees it
    Show(Address),
    /// List the known models, or fetch one
    Models(Models),
    /// Measure this machine
    Bench(Bench),
}

#[derive(Debug, Args)]
pub struct Import {
    pub format: Format,
    /// A file or a folder
    pub path: PathBuf,
    /// The folder that the three files are written to
    #[arg(long)]
    pub out: PathBuf,
    /// The zone of times that name none, such as +09:00
    #[arg(long, default_value = "Z")]
    pub naive_zone: String,
    /// The owner of all imported stores
    #[arg(long, default_value = "")]
    pub tenant: String,
    /// The split of all imported requests, where the format has none of its own
    #[arg(long)]
    pub split: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Longmemeval,
    Locomo,
    Beam,
    /// JSON lines, a conversation a line, messages in the OpenAI chat form
    Chat,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The job file
    pub job: PathBuf,
    /// The folder or URL of the inputs
    #[arg(long)]
    pub input: Option<String>,
    /// The folder or URL of the tables
    #[arg(long)]
    pub lake: Option<String>,
    /// A system of systems/, or a TOML file
    #[arg(long)]
    pub system: Option<String>,
    /// auto, cpu or cuda:N
    #[arg(long)]
    pub device: Option<String>,
    /// The last table to bring up to date
    #[arg(long)]
    pub until: Option<String>,
    /// The reference date of standing requests, in place of their store's latest turn
    #[arg(long)]
    pub as_of: Option<String>,
    /// What sorts and joins may hold before they spill to disk, such as 2GiB
    #[arg(long)]
    pub memory_limit: Option<String>,
    /// A setting of the job (budget_tokens=1350) or the system (recall.pool_size=64)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Run {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            input: self.input.clone(),
            lake: self.lake.clone(),
            system: self.system.clone(),
            device: self.device.clone(),
            as_of: self.as_of.clone(),
            memory_limit: self.memory_limit.clone(),
            set: self.set.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub struct Status {
    #[arg(long)]
    pub lake: String,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Train {
    /// A lake in which a run made features
    #[arg(long)]
    pub lake: String,
    /// The system whose features are learnt from: one of jobs/systems/, or a TOML file
    #[arg(long)]
    pub system: String,
    /// gold: the lake's labels; teacher: the grades of `memslate judge`; or a Parquet file with the columns of the labels
    #[arg(long, default_value = "gold")]
    pub labels: String,
    /// With --labels teacher: the beginning of the teacher's hash, where the lake has more than one
    #[arg(long, value_name = "HASH")]
    pub teacher: Option<String>,
    /// Share of the stores that says when to stop, and on which quality is measured
    #[arg(long, default_value_t = 0.2, value_name = "SHARE")]
    pub hold_out: f64,
    /// The job whose SELECTs and budget make the slates that are measured
    #[arg(long, default_value = "jobs/nightly.toml")]
    pub job: PathBuf,
    /// The requests to learn from; `all`: every one
    #[arg(long, default_value = "dev")]
    pub split: String,
    /// Leave these stores out
    #[arg(long, value_name = "STORE")]
    pub without_store: Vec<String>,
    /// The model file; a report is written beside it as .json
    #[arg(long)]
    pub out: PathBuf,
    /// num_trees, num_leaves, learning_rate, early_stopping_rounds, min_data_in_leaf, bagging_fraction, feature_fraction,
    /// monotone, label_gain, seed
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Judge {
    /// The job file, such as jobs/distill.toml
    pub job: PathBuf,
    /// The folder or URL of the tables
    #[arg(long)]
    pub lake: Option<String>,
    /// The system whose pools are graded: one of systems/, or a TOML file
    #[arg(long)]
    pub system: Option<String>,
    /// Ask for no more once the next request might make this run cost more, at the job's prices
    #[arg(long, value_name = "AMOUNT")]
    pub limit_cost: Option<f64>,
    /// Write the requests to a file of the OpenAI Batch form instead of sending them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["collect", "limit_cost"])]
    pub export: Option<PathBuf>,
    /// Read the answers from a file of that form's results
    #[arg(long, value_name = "FILE", conflicts_with = "limit_cost")]
    pub collect: Option<PathBuf>,
    /// A setting of the job, such as sample.requests=4 or teacher.url="http://host:8000/v1"
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Rankers {
    #[command(subcommand)]
    pub command: RankersCommand,
}

#[derive(Debug, Subcommand)]
pub enum RankersCommand {
    /// The rankers of a folder: what each was trained on, and how good it was
    List {
        #[arg(default_value = "data/ranker")]
        folder: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Slate completeness of two rankers on the same requests, with 95% intervals and a verdict
    Compare(CompareRankers),
}

#[derive(Debug, Args)]
pub struct CompareRankers {
    /// A ranker's file
    pub first: PathBuf,
    /// Another one; differences are its completeness minus the first one's
    pub second: PathBuf,
    #[arg(long)]
    pub lake: String,
    /// The system whose features both rank: one of systems/, or a TOML file
    #[arg(long)]
    pub system: String,
    /// The job whose SELECTs and budget make the slates
    #[arg(long, default_value = "jobs/nightly.toml")]
    pub job: PathBuf,
    /// Only these stores
    #[arg(long, value_name = "STORE")]
    pub store: Vec<String>,
    /// A setting of the job, such as budget_tokens=1350
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Eval {
    #[arg(long)]
    pub lake: String,
    /// The system to measure; may be left out where the lake has one
    #[arg(long)]
    pub system: Option<String>,
    /// Only these stores
    #[arg(long, value_name = "STORE")]
    pub store: Vec<String>,
    #[arg(long)]
    pub json: bool,
}

/// Which request of which lake.
#[derive(Debug, Args)]
pub struct Address {
    #[arg(long)]
    pub lake: String,
    /// The system; may be left out where the lake has one
    #[arg(long)]
    pub system: Option<String>,
    #[arg(long, default_value = "")]
    pub tenant: String,
    #[arg(long)]
    pub store: String,
    #[arg(long)]
    pub request: String,
}

#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub address: Address,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time a device: whole passes, their stages, and what it could do at best
    Device(BenchDevice),
}

#[derive(Debug, Args)]
pub struct BenchDevice {
    /// auto, cpu or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// A known model or a folder; random weights of --shape if not given
    #[arg(long)]
    pub model: Option<String>,
    /// xlmr-large (as bge-m3 and bge-reranker-v2-m3) or minilm
    #[arg(long, default_value = "xlmr-large")]
    pub shape: Shape,
    /// Tokens of a sequence; 0: only the mixture of short and long turns
    #[arg(long, default_value_t = 300, value_name = "TOKENS")]
    pub length: usize,
    /// Tokens of a pass; 0: a batch of the device, 2048 on a CPU
    #[arg(long, default_value_t = 0)]
    pub tokens: usize,
    /// How long each figure may take
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Time each kernel for matrix products, and propose a table for this chip
    #[arg(long)]
    pub tune: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl BenchDevice {
    /// Finds the model, if one is named.
    pub fn options(&self) -> Result<bench::Options> {
        let folder = |spec: &String| crate::model::resolve(spec, &crate::model::default_models_dir());
        Ok(bench::Options {
            device: self.device.clone(),
            model: self.model.as_ref().map(folder).transpose()?,
            shape: self.shape.clone(),
            length_tokens: self.length,
            pass_tokens: self.tokens,
            seconds: self.seconds,
            tune: self.tune,
        })
    }
}

#[derive(Debug, Args)]
pub struct Models {
    #[command(subcommand)]
    pub command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// The models that memslate knows
    List,
    /// Download a model, check it and put it in place
    Fetch {
        name: String,
        /// The folder of models; $MEMSLATE_MODELS or the user's cache folder if not given
        #[arg(long)]
        models: Option<PathBuf>,
    },
}
