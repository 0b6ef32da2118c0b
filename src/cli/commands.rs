//! What each command does: stdout is data, stderr is talk.

use futures::future::LocalBoxFuture;

use super::{BenchCommand, Command, Format, ModelsCommand, learning};
use crate::config::{Job, zone_minutes};
use crate::error::{Context, Error, Result, say};
use crate::evaluate::{Reader, RequestKey};
use crate::{device, distill, import, model, run};

/// Done, with rows set aside or slates that a failed model made worse.
pub(super) const DONE_WITH_REJECTS: u8 = 3;

/// Does what the command line says; gives the exit code. Boxed here, so that the program's crate does not compile the
/// engine once more.
pub fn dispatch(command: Command) -> LocalBoxFuture<'static, Result<u8>> {
    Box::pin(perform(command))
}

async fn perform(command: Command) -> Result<u8> {
    match command {
        Command::Import(args) => do_import(&args),
        Command::Run(args) => do_run(&args).await,
        Command::Plan(args) if distill::is_distill_job(&args.job) => learning::plan(&args).await,
        Command::Plan(args) => {
            let job = Job::read(&args.job, &args.overrides())?;
            print(&run::plan(&job, run::until(args.until.as_deref())?).await?, args.json)
        }
        Command::Check(args) => do_check(&args).await,
        Command::Status(args) => print(&run::status(&args.lake).await?, args.json),
        Command::Judge(args) => learning::judge(&args).await,
        Command::Train(args) => learning::train(&args).await,
        Command::Rankers(args) => learning::rankers(args.command).await,
        Command::Eval(args) => {
            let reader = Reader::open(&args.lake, args.system.as_deref()).await?;
            let report = reader.eval(&args.store).await?;
            if !args.json {
                write(&format!("system {}\n", reader.system))?;
            }
            print(&report, args.json)
        }
        Command::Explain(args) => do_explain(&args).await,
        Command::Show(args) => do_show(&args).await,
        Command::Models(args) => do_models(args.command),
        Command::Bench(args) => {
            let BenchCommand::Device(args) = args.command;
            print(&device::bench::run(&args.options()?)?, args.json)
        }
    }
}

fn do_import(args: &super::Import) -> Result<u8> {
    let format = match args.format {
        Format::Longmemeval => import::Format::LongMemEval,
        Format::Locomo => import::Format::Locomo,
        Format::Beam => import::Format::Beam,
        Format::Chat => import::Format::Chat,
    };
    let options = import::Options {
        default_zone_offset_minutes: zone_minutes(&args.naive_zone)?,
        tenant_id: args.tenant.clone(),
        split: args.split.clone(),
    };
    let report = import::import(format, &args.path, &args.out, &options)?;
    say(&report);
    Ok(if report.rejected() > 0 { DONE_WITH_REJECTS } else { 0 })
}

async fn do_run(args: &super::Run) -> Result<u8> {
    let job = Job::read(&args.job, &args.overrides())?;
    let summary = run::run(&job, run::until(args.until.as_deref())?).await?;
    print(&summary, args.json)?;
    Ok(if summary.is_clean() { 0 } else { DONE_WITH_REJECTS })
}

async fn do_check(args: &super::Run) -> Result<u8> {
    let job = Job::read(&args.job, &args.overrides())?;
    let checked = run::check(&job, run::until(args.until.as_deref())?).await?;
    print(&checked, args.json)?;
    Ok(if checked.rejects.is_empty() { 0 } else { DONE_WITH_REJECTS })
}

async fn do_explain(args: &super::Explain) -> Result<u8> {
    let (reader, key) = find(&args.address).await?;
    print(&reader.explain(key).await?, args.json)
}

async fn do_show(address: &super::Address) -> Result<u8> {
    let (reader, key) = find(address).await?;
    let slate = reader.show(key).await?;
    say(format!("{}\nstatus {}, {} tokens", slate.question, slate.status, slate.tokens));
    write(&slate.text)
}

async fn find(address: &super::Address) -> Result<(Reader, RequestKey<'_>)> {
    let reader = Reader::open(&address.lake, address.system.as_deref()).await?;
    let key = RequestKey { tenant: &address.tenant, store: &address.store, request: &address.request };
    Ok((reader, key))
}

fn do_models(command: ModelsCommand) -> Result<u8> {
    match command {
        ModelsCommand::List => {
            for known in model::known_models() {
                write(&format!("{known}\n"))?;
            }
        }
        ModelsCommand::Fetch { name, models } => {
            let folder = models.unwrap_or_else(model::default_models_dir);
            write(&format!("{}\n", model::fetch(&name, &folder)?.display()))?;
        }
    }
    Ok(0)
}

/// Prints a result: as text, or as JSON.
pub(super) fn print<T: std::fmt::Display + serde::Serialize>(result: &T, json: bool) -> Result<u8> {
    let text = if json { serde_json::to_string_pretty(result).or_internal("plain data")? } else { result.to_string() };
    write(&format!("{}\n", text.trim_end()))
}

/// Writes to stdout. A reader that went away, such as `head`, is no fault.
pub(super) fn write(text: &str) -> Result<u8> {
    use std::io::Write;
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::data("cannot write to stdout").source(e)),
        _ => Ok(0),
    }
}
