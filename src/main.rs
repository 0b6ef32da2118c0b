//! The program: parse, dispatch, exit.

use std::process::ExitCode;

use clap::Parser;
use memslate::cli::{Cli, dispatch};
use memslate::error::say;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("MEMSLATE_LOG").unwrap_or_else(|_| "off".into()))
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            say(format!("error: no threads to run on: {e}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(dispatch(cli.command)) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            say(format!("error: {e}"));
            ExitCode::from(e.exit_code())
        }
    }
}
