//! Asks a teacher for the grades of a sample, or writes the questions to a file and reads the answers from one.

use std::collections::HashSet;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

use super::fold::{Known, fold};
use super::job::DistillJob;
use super::lake::Source;
use super::pairs::pairs;
use super::report::{Counts, Judged};
use super::sample::sample;
use crate::config::cache_folder;
use crate::error::{Error, Result};
use crate::lake::Lake;
use crate::system::hex;
use crate::teacher::batch::{self, Collected, Seen};
use crate::teacher::{Client, Journal, Judgement, Limits, Pair, Teacher, ask_all};

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
    let (mut journal, kept) = open_journal(&journal_path(&source.lake, &teacher, job.journal.as_deref())?)?;
    let mut known = Known::of(&source.lake, teacher.hash()).await?;
    // What an earlier run was told and did not live to put into the table.
    fold(&source.lake, &teacher, &kept).await?;
    kept.iter().for_each(|j| known.add(j));
    let answered_before = !known.graded.is_empty();
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
            let asked = Asked {
                lake: &source.lake,
                teacher: &teacher,
                client: &client,
                limit_cost: *limit_cost,
                answered_before,
            };
            asked.all(left, &mut journal, &mut judged).await?;
        }
        Answers::Export(file) => judged.exported = Some(export(&teacher, left, file).await?),
        Answers::Collect(file) => {
            let key = |pair: Pair| teacher.key(&teacher.render(&pair.question, &pair.content));
            let wanted: HashSet<[u8; 32]> = left.map_ok(key).try_collect().await?;
            let (found, collected) = collect(&teacher, file, &wanted)?;
            for judgement in &found {
                journal.append(judgement)?;
            }
            journal.settle().await?;
            fold(&source.lake, &teacher, &found).await?;
            judged.collected(collected);
        }
    }
    judged.close(&counts);
    journal.remove()?;
    Ok(judged)
}

fn open_journal(path: &Path) -> Result<(Journal, Vec<Judgement>)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| {
            Error::data("the journal's folder cannot be made").source(e).at(folder.display().to_string())
        })?;
    }
    Journal::open(path)
}

/// A teacher at work on a lake.
struct Asked<'a> {
    lake: &'a Lake,
    teacher: &'a Teacher,
    client: &'a Client,
    limit_cost: Option<f64>,
    answered_before: bool,
}

impl Asked<'_> {
    /// Asks for all pairs, a part at a time; each part is in the table before the next is begun.
    async fn all(
        &self,
        pairs: impl Stream<Item = Result<Pair>> + Unpin,
        journal: &mut Journal,
        judged: &mut Judged,
    ) -> Result<()> {
        let mut pairs = pairs.peekable();
        while std::pin::Pin::new(&mut pairs).peek().await.is_some() && !judged.tally.stopped_by_cost {
            let limits = Limits {
                limit_cost: self.limit_cost.map(|limit| (limit - judged.tally.cost).max(0.0)),
                answered_before: self.answered_before || judged.tally.graded > 0,
            };
            let mut fresh: Vec<Judgement> = Vec::new();
            let part = (&mut pairs).take(FOLD_ANSWERS);
            let keep = |judgement| {
                fresh.push(judgement);
                Ok(())
            };
            let asked = ask_all(self.client, part, journal, &limits, keep).await;
            // What was answered before a server failed is paid for.
            fold(self.lake, self.teacher, &fresh).await?;
            judged.tally.add(asked?);
        }
        Ok(())
    }
}

/// Writes the questions that have no answer yet; gives their number. The file is whole or not there.
async fn export(teacher: &Teacher, mut pairs: impl Stream<Item = Result<Pair>> + Unpin, file: &Path) -> Result<u64> {
    let place = || file.display().to_string();
    let failed = |e: std::io::Error| Error::data("cannot be written").source(e).at(place());
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    let mut out = BufWriter::new(std::fs::File::create(&beside).map_err(failed)?);
    let mut count = 0;
    while let Some(pair) = pairs.try_next().await? {
        let messages = teacher.render(&pair.question, &pair.content);
        out.write_all(batch::line(teacher, &pair, &messages).as_bytes()).map_err(failed)?;
        count += 1;
    }
    out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
    std::fs::rename(&beside, file).map_err(failed)?;
    Ok(count)
}

/// The judgements that a file of results holds for the keys that are wanted.
fn collect(teacher: &Teacher, file: &Path, wanted: &HashSet<[u8; 32]>) -> Result<(Vec<Judgement>, Collected)> {
    let place = || file.display().to_string();
    let lines = std::fs::File::open(file).map_err(|e| Error::data("cannot be read").source(e).at(place()))?;
    let (mut found, mut seen) = (Vec::new(), Seen::default());
    let keep = |judgement| {
        found.push(judgement);
        Ok(())
    };
    let knows = |key: &[u8; 32]| wanted.contains(key);
    batch::collect(teacher, BufReader::new(lines), &mut seen, knows, keep).map_err(|e| e.at(place()))?;
    Ok((found, seen.end()))
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
    let cache = cache_folder().ok_or_else(|| {
        Error::usage("there is no folder for the journal of a lake that is not on this machine")
            .next("name one in the job file: `journal = \"FOLDER\"`")
    })?;
    Ok(cache.join("memslate/journals").join(hex(&Sha256::digest(place.url.as_str()))).join(name))
}
