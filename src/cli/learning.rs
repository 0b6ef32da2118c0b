//! Teachers and rankers: grading, training, the registry.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::commands::{DONE_WITH_REJECTS, print, write};
use super::{CompareRankers, Judge, RankersCommand, Run, Train};
use crate::config::{self, Job, Overrides};
use crate::distill::{self, Answers, DistillJob};
use crate::error::{Context, Error, Result};
use crate::evaluate::{Bootstrap, Comparison, PARITY_MARGIN, Reader, Report, compare};
use crate::ranker::{Card, Ranker, Trained};
use crate::run::{self, Learnt, Lessons};

/// Ended before all was done, as it was told to.
const STOPPED: u8 = 4;

/// What grading would cost.
pub async fn plan(args: &Run) -> Result<u8> {
    let of_runs = [
        ("--input", &args.input),
        ("--device", &args.device),
        ("--until", &args.until),
        ("--as-of", &args.as_of),
        ("--memory-limit", &args.memory_limit),
    ];
    if let Some((flag, _)) = of_runs.iter().find(|(_, given)| given.is_some()) {
        return Err(Error::usage(format!("{flag} says nothing to a teacher's job"))
            .at(args.job.display().to_string())
            .next("it takes --lake, --system and --set"));
    }
    let job = DistillJob::read(&args.job, &args.overrides())?;
    print(&distill::plan(job).await?, args.json)
}

pub async fn judge(args: &Judge) -> Result<u8> {
    let overrides = Overrides {
        lake: args.lake.clone(),
        system: args.system.clone(),
        set: args.set.clone(),
        ..Overrides::default()
    };
    let job = DistillJob::read(&args.job, &overrides)?;
    if args.limit_cost.is_some_and(|limit| !(limit.is_finite() && limit >= 0.0)) {
        return Err(Error::usage("--limit-cost must be 0 or more"));
    }
    let answers = match (&args.export, &args.collect) {
        (Some(file), _) => Answers::Export(file.clone()),
        (_, Some(file)) => Answers::Collect(file.clone()),
        _ => Answers::Server { limit_cost: args.limit_cost },
    };
    let judged = distill::judge(job, &answers).await?;
    print(&judged, args.json)?;
    Ok(match (judged.tally.stopped_by_cost, judged.is_clean()) {
        (true, _) => STOPPED,
        (false, true) => 0,
        (false, false) => DONE_WITH_REJECTS,
    })
}

pub async fn train(args: &Train) -> Result<u8> {
    let job = job(args)?;
    let system = match &job {
        Some(job) => job.system.clone(),
        None => config::system(Path::new("jobs"), &args.system)?,
    };
    let lessons = Lessons {
        lake: &args.lake,
        system: &system,
        labels: &args.labels,
        teacher: args.teacher.as_deref(),
        split: &args.split,
        without_stores: &args.without_store,
        hold_out: args.hold_out,
    };
    let Learnt { trained, probe, labels } = run::train_from(&lessons, &run::train_params(&args.set)?).await?;
    let held_out = match &probe {
        Some((probe, stores)) => Some(held_out(&job, probe, stores).await?),
        None => None,
    };
    let metrics = json!({ "labels": labels, "held_out": held_out });
    let trained = trained.with_metrics(metrics);
    trained.save(&args.out)?;
    print(&Trainee { card: trained.card() }, args.json)
}

/// The job whose SELECTs make slates; none where its file is the default one and is not there.
fn job(args: &Train) -> Result<Option<Job>> {
    if args.job == Path::new("jobs/nightly.toml") && !args.job.is_file() {
        return Ok(None);
    }
    let overrides =
        Overrides { lake: Some(args.lake.clone()), system: Some(args.system.clone()), ..Overrides::default() };
    Job::read(&args.job, &overrides).map(Some)
}

/// What the ranker that has not seen these stores is worth on them.
async fn held_out(job: &Option<Job>, probe: &Trained, stores: &[String]) -> Result<Value> {
    let card = probe.card();
    let mut report = json!({
        "stores": stores,
        "stopped": card.stopped,
        "groups_learnt_from": card.data.groups - card.data.groups_without_positive,
    });
    let Some(job) = job else {
        report["completeness_not_measured"] = "there is no job file; name one with --job".into();
        return Ok(report);
    };
    let reader = Reader::of_system(&job.lake, job.system.partition()).await?;
    let slates = run::replay(job, Ranker::of(probe, &job.system.rank.features)?, stores).await?;
    let measured = reader.eval_slates(stores, &slates).await?;
    let classes: Vec<Value> = overall(&measured)
        .filter(|class| class.n > 0)
        .map(|class| serde_json::to_value(class).or_internal("plain data"))
        .collect::<Result<_>>()?;
    match classes.is_empty() {
        true => report["completeness_not_measured"] = "the held out stores have no labels".into(),
        false => report["completeness"] = classes.into(),
    }
    Ok(report)
}

fn overall(report: &Report) -> impl Iterator<Item = &crate::evaluate::ClassReport> {
    report.splits.iter().filter(|s| s.split == "all").flat_map(|s| &s.classes)
}

/// A card with what was measured, for people; as JSON, the card.
#[derive(Serialize)]
#[serde(transparent)]
struct Trainee<'a> {
    card: &'a Card,
}

impl fmt::Display for Trainee<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.card)?;
        let (labels, held) = (&self.card.metrics["labels"], &self.card.metrics["held_out"]);
        if let Some(scale) = labels["labels_a_grade"].as_f64() {
            write!(f, "\nlabels: {scale} x the teacher's grade, rounded; teacher {}", text(&labels["teacher"]))?;
        }
        if let Some(agreement) = labels["agreement"].as_object() {
            write!(
                f,
                "\nagreement of the teacher with the labels: auc {:.3}; mean grade of evidence {:.2}, of others {:.2}",
                agreement["auc"].as_f64().unwrap_or(f64::NAN),
                agreement["mean_grade_of_evidence"].as_f64().unwrap_or(f64::NAN),
                agreement["mean_grade_of_others"].as_f64().unwrap_or(f64::NAN),
            )?;
        }
        if let Some(why) = labels["nothing_held_out"].as_str() {
            return write!(f, "\nno store was held out: {why}");
        }
        write!(f, "\nheld out: {} stores", held["stores"].as_array().map_or(0, Vec::len))?;
        if let Some(stopped) = held["stopped"].as_object() {
            write!(
                f,
                "; best with {} trees, NDCG@{} {:.3}",
                stopped["trees"],
                stopped["ndcg_at"],
                stopped["ndcg"].as_f64().unwrap_or(f64::NAN)
            )?;
        }
        for class in held["completeness"].as_array().into_iter().flatten() {
            write!(
                f,
                "\n  kappa {:<4} n {:>5}  slate completeness {}",
                text(&class["kappa"]),
                class["n"],
                class["slate"]["value"].as_f64().map_or("-".into(), |v| format!("{v:.3}"))
            )?;
        }
        match held["completeness_not_measured"].as_str() {
            Some(why) => write!(f, "\n  completeness was not measured: {why}"),
            None => Ok(()),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

pub async fn rankers(command: RankersCommand) -> Result<u8> {
    match command {
        RankersCommand::List { folder, json } => list(&folder, json),
        RankersCommand::Compare(args) => {
            let compared = compared(&args).await?;
            print(&compared, args.json)
        }
    }
}

/// One ranker of a folder.
#[derive(Debug, Serialize)]
struct Listed {
    file: String,
    #[serde(flatten)]
    card: Card,
}

fn list(folder: &Path, as_json: bool) -> Result<u8> {
    let place = || folder.display().to_string();
    let entries = std::fs::read_dir(folder).map_err(|e| Error::usage("cannot be listed").source(e).at(place()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::data("cannot be listed").source(e).at(place()))?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let card = crate::ranker::card(&path)?;
        all.push(Listed { file: path.with_extension("txt").display().to_string(), card });
    }
    if as_json {
        return write(&format!("{}\n", serde_json::to_string_pretty(&all).or_internal("plain data")?));
    }
    for Listed { file, card } in &all {
        write(&format!("{file}\n"))?;
        let shown = Trainee { card }.to_string();
        write(&shown.lines().map(|line| format!("  {line}\n")).collect::<String>())?;
    }
    Ok(0)
}

/// Two rankers on the same requests.
#[derive(Serialize)]
struct Compared {
    first: Report,
    second: Report,
    /// The second minus the first.
    difference: Comparison,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "first\n{}\n\nsecond\n{}\n\nsecond minus first", self.first, self.second)?;
        write!(f, " (parity: not worse by {PARITY_MARGIN} and no significant difference)\n{}", self.difference)
    }
}

async fn compared(args: &CompareRankers) -> Result<Compared> {
    let overrides = Overrides {
        lake: Some(args.lake.clone()),
        system: Some(args.system.clone()),
        set: args.set.clone(),
        ..Overrides::default()
    };
    let job = Job::read(&args.job, &overrides)?;
    let reader = Reader::of_system(&job.lake, job.system.partition()).await?;
    let mut reports = Vec::new();
    for file in [&args.first, &args.second] {
        let ranker = Ranker::load(file, &job.system.rank.features)?;
        let slates = run::replay(&job, ranker, &args.store).await?;
        reports.push(reader.eval_slates(&args.store, &slates).await?);
    }
    let (second, first) = (reports.pop(), reports.pop());
    let (Some(first), Some(second)) = (first, second) else { return Err(Error::internal("two rankers were measured")) };
    let difference = compare(&first, &second, PARITY_MARGIN, Bootstrap::default())?;
    Ok(Compared { first, second, difference })
}
