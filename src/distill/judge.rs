//! Asks a teacher for the grades of a sample, or writes the questions to a file and reads the answers from one.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

use super::fold::{Known, fold};
use super::job::DistillJob;
use super::lake::Source;
use super::pairs::{PairHash, pairs};
use super::report::{Counts, Judged};
use super::sample::sample;
use crate::error::{Error, Result};
use crate::lake::Lake;
use crate::system::hex;
use crate::teacher::{Client, Journal, Judgement, Limits, Pair, Tally, Teacher, ask_all, batch};

/// Answers that are folded into the table together.
const FOLD_ANSWERS: usize = 20_000;

/// Where answers come from.
#[derive(Debug, Clone)]
pub enum Answers {
    /// The teacher's server; money is spent up to a limit.
    Server { limit_cost: Option<f64> },
    /// None yet: the questions are written to a file of the OpenAI Batch form.
    Export(PathBuf),
    /// A file of that form's results.
    Collect(PathBuf),
}

/// Fills the table of judgements for a job's sample.
///
/// # Errors
/// A lake, a prompt, a server or a key that does not fit: before anything is asked. A server that fails for good: after what
/// it has answered is in the table.
pub async fn judge(job: DistillJob, answers: &Answers) -> Result<Judged> {
    let source = Arc::new(Source::open(&job).await?);
    let teacher = Arc::new(job.teacher);
    let (mut journal, kept) = Journal::open(&journal_path(&source.lake, &teacher, job.journal.as_deref())?)?;
    let mut known = Known::of(&source.lake, teacher.hash()).await?;
    // What an earlier run was told and did not live to put into the table.
    fold(&source.lake, &teacher, &kept).await?;
    kept.iter().for_each(|j| known.add(j));
    let sampled = sample(&source, &job.sample).await?;
    let mut judged = Judged::new(&teacher, sampled.requests.num_rows(), kept.len());
    let counts = Arc::new(Counts::default());
    let left = pairs(Arc::clone(&source), &sampled, job.sample.pool_size).try_filter({
        let counts = Arc::clone(&counts);
        move |pair: &Pair| std::future::ready(counts.is_new(&known, &(pair.question_hash, pair.content_hash)))
    });
    match answers {
        Answers::Server { limit_cost } => {
            let client = Client::new(Arc::clone(&teacher))?;
            client.check().await?;
            let asked = Asked { lake: &source.lake, teacher: &teacher, client: &client, limit_cost: *limit_cost };
            judged.tally = asked.all(left, &mut journal).await?;
        }
        Answers::Export(file) => judged.exported = Some(export(&teacher, left, file).await?),
        Answers::Collect(file) => {
            let wanted = left.map_ok(|p| (p.question_hash, p.content_hash)).try_collect().await?;
            let found = collect(&teacher, file, &wanted, &mut judged)?;
            for judgement in &found {
                journal.append(judgement)?;
            }
            journal.sync()?;
            fold(&source.lake, &teacher, &found).await?;
            judged.add(&found);
        }
    }
    judged.close(&counts);
    journal.remove()?;
    Ok(judged)
}

/// A teacher at work on a lake.
struct Asked<'a> {
    lake: &'a Lake,
    teacher: &'a Teacher,
    client: &'a Client,
    limit_cost: Option<f64>,
}

impl Asked<'_> {
    /// Asks for all pairs, a part at a time; each part is in the table before the next is begun.
    async fn all(
        &self,
        pairs: impl Stream<Item = Result<Pair>> + Unpin,
        journal: &mut Journal,
    ) -> Result<Tally> {
        let mut pairs = pairs.peekable();
        let mut all = Tally::default();
        while std::pin::Pin::new(&mut pairs).peek().await.is_some() && !all.stopped_by_cost {
            let limits = Limits { limit_cost: self.limit_cost.map(|limit| (limit - all.cost).max(0.0)) };
            let mut fresh: Vec<Judgement> = Vec::new();
            let part = (&mut pairs).take(FOLD_ANSWERS);
            let asked = ask_all(self.client, part, journal, &limits, |judgement| fresh.push(judgement)).await;
            // What was answered before a server failed is paid for.
            fold(self.lake, self.teacher, &fresh).await?;
            all.add(asked?);
        }
        Ok(all)
    }
}

/// Writes the questions that have no answer yet; gives their number. The file is whole or not there.
async fn export(
    teacher: &Teacher,
    mut pairs: impl Stream<Item = Result<Pair>> + Unpin,
    file: &Path,
) -> Result<u64> {
    let place = || file.display().to_string();
    let failed = |e: std::io::Error| Error::data("cannot be written").source(e).at(place());
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    let mut out = BufWriter::new(std::fs::File::create(&beside).map_err(failed)?);
    let mut count = 0;
    while let Some(pair) = pairs.try_next().await? {
        writeln!(out, "{}", batch::export(teacher, &pair)).map_err(failed)?;
        count += 1;
    }
    out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
    std::fs::rename(&beside, file).map_err(failed)?;
    Ok(count)
}

/// The judgements that a file of results holds for the pairs that are wanted.
fn collect(
    teacher: &Teacher,
    file: &Path,
    wanted: &HashSet<PairHash>,
    judged: &mut Judged,
) -> Result<Vec<Judgement>> {
    let place = || file.display().to_string();
    let lines = std::fs::File::open(file).map_err(|e| Error::data("cannot be read").source(e).at(place()))?;
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for (i, line) in BufReader::new(lines).lines().enumerate() {
        let at = || format!("{}, line {}", file.display(), i + 1);
        let line = line.map_err(|e| Error::data("cannot be read").source(e).at(at()))?;
        if line.trim().is_empty() {
            continue;
        }
        match batch::collect(teacher, &line).map_err(|e| e.at(at()))? {
            batch::Collected::Judgement(judgement) => {
                let pair = (judgement.question_hash, judgement.content_hash);
                if !wanted.contains(&pair) {
                    judged.not_asked_for += 1;
                } else if !seen.insert(pair) {
                    judged.duplicates += 1;
                } else {
                    found.push(judgement);
                }
            }
            batch::Collected::Failed(why) => judged.fail(why),
        }
    }
    Ok(found)
}

/// The journal lies in the lake where that is a folder of this machine, else in the user's cache, under the lake's name.
fn journal_path(lake: &Lake, teacher: &Teacher, given: Option<&Path>) -> Result<PathBuf> {
    let name = format!("{}.jsonl", teacher.hash());
    if let Some(folder) = given {
        return Ok(folder.join(name));
    }
    let place = lake.place();
    if place.is_local() {
        let folder = place.url.to_file_path().map_err(|()| Error::internal("a file URL without a path"))?;
        return Ok(folder.join("_journals").join(name));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = cache.or_else(home).ok_or_else(|| {
        Error::usage("there is no folder for the journal of a lake that is not on this machine")
            .next("name one in the job file: `journal = \"FOLDER\"`")
    })?;
    Ok(cache.join("memslate/journals").join(hex(&Sha256::digest(place.url.as_str()))).join(name))
}
