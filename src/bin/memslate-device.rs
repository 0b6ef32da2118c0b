//! A device alone, without the pipeline: a small program to carry to a machine with a GPU, and check and time it there.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use memslate::cli::BenchDevice;
use memslate::device::{self, trial};
use memslate::error::{Context, Result, say};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs models and kernels of memslate on a device, from files of operands.
#[derive(Debug, Parser)]
#[command(name = "memslate-device", version, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what a device is, as JSON
    Info {
        /// auto, cpu or cuda:N
        #[arg(long, default_value = "auto")]
        device: String,
    },
    /// Run a model on token ids
    Forward {
        #[arg(long, default_value = "auto")]
        device: String,
        /// A folder as Hugging Face lays it out
        #[arg(long)]
        model: PathBuf,
        #[arg(long)]
        head: Head,
        /// A safetensors file with whole numbers `tokens` and `lengths`
        #[arg(long)]
        input: PathBuf,
        /// Gets `rows` of f32
        #[arg(long)]
        output: PathBuf,
        #[arg(long, default_value_t = 1)]
        repeat: usize,
        /// Each sequence in a batch of its own
        #[arg(long)]
        alone: bool,
    },
    /// Run single kernels on a GPU, on the operands of a safetensors file
    Kernels {
        #[arg(long, default_value = "auto")]
        device: String,
        #[arg(long)]
        input: PathBuf,
        #[arg(long)]
        output: PathBuf,
    },
    /// Time a device
    Bench(BenchDevice),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Head {
    Embed,
    Score,
}

#[derive(Serialize)]
struct Info {
    device: String,
    detail: String,
    kernel_plan: String,
    batch_tokens: usize,
}

fn main() -> ExitCode {
    match perform(Program::parse().command) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            say(format!("error: {e}"));
            ExitCode::from(e.exit_code())
        }
    }
}

fn perform(command: Command) -> Result<String> {
    match command {
        Command::Info { device } => {
            let info = device::open(&device)?.describe();
            let device::DeviceInfo { name, detail, kernel_plan, batch_tokens, .. } = info;
            json(&Info { device: name, detail, kernel_plan, batch_tokens })
        }
        Command::Forward { device, model, head, input, output, repeat, alone } => {
            let head = match head {
                Head::Embed => device::Head::Embed,
                Head::Score => device::Head::Score,
            };
            json(&trial::forward(&trial::Forward { device, model, head, input, output, repeat, alone })?)
        }
        Command::Kernels { device, input, output } => {
            Ok(format!("{} cases", trial::kernels(&device, &input, &output)?))
        }
        Command::Bench(args) => {
            let report = device::bench::run(&args.options()?)?;
            if args.json { json(&report) } else { Ok(report.to_string()) }
        }
    }
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string_pretty(value).or_internal("plain data")
}
