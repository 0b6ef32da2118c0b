//! The program: parse, dispatch, exit.

use std::process::ExitCode;

use clap::Parser;
use memslate::cli::{Cli, dispatch};
use memslate::error::say;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    quiet_decoders();
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

/// A decoder may panic on a damaged file. The engine makes an error of it, and that is all that need be said.
fn quiet_decoders() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", |at| at.file());
        let decoder = ["/parquet-", "/arrow-", "/bytes-", "/datafusion-"].iter().any(|library| file.contains(library));
        if !decoder || std::env::var_os("RUST_BACKTRACE").is_some() {
            usual(panic);
        }
    }));
}
