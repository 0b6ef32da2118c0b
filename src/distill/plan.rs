//! What grading a sample would cost, before anything is spent. No server is asked.

use std::fmt;
use std::sync::Arc;

use futures::TryStreamExt;
use serde::Serialize;

use super::fold::Known;
use super::job::DistillJob;
use super::lake::Source;
use super::pairs::pairs;
use super::report::Counts;
use super::sample::sample;
use crate::error::Result;
use crate::teacher::{Settings, Usage};
use crate::text::count_tokens;

/// Tokens that a chat template adds to two messages, about.
const TEMPLATE_TOKENS: u64 = 16;

/// The bill.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Bill {
    pub job: String,
    pub teacher: String,
    pub teacher_hash: String,
    pub requests: usize,
    pub pairs: u64,
    pub graded: u64,
    pub set_aside: u64,
    pub to_ask: u64,
    /// About: in o200k tokens, of which a teacher's own tokenizer makes some more or less.
    pub prompt_tokens: u64,
    /// At most.
    pub completion_tokens: u64,
    /// At the job's prices.
    pub cost: f64,
}

/// Counts what a job would ask. Reads the lake, writes nothing. Answers that are in the journal of a run that broke off are
/// counted when the job itself has put them into the table.
pub async fn plan(job: DistillJob) -> Result<Bill> {
    let source = Arc::new(Source::open(&job).await?);
    let (teacher, known) = (&job.teacher, Known::of(&source.lake, job.teacher.hash()).await?);
    let sampled = sample(&source, &job.sample).await?;
    let counts = Counts::default();
    let mut bill = Bill {
        job: job.name.clone(),
        teacher: teacher.name(),
        teacher_hash: teacher.hash().to_string(),
        requests: sampled.requests.num_rows(),
        ..Bill::default()
    };
    let Settings { max_tokens, .. } = teacher.settings();
    let mut all = pairs(Arc::clone(&source), &sampled, job.sample.pool_size);
    while let Some(pair) = all.try_next().await? {
        if !counts.is_new(&known, &(pair.question_hash, pair.content_hash)) {
            continue;
        }
        let messages = teacher.render(&pair.question, &pair.content);
        let prompt = (count_tokens(&messages.system) + count_tokens(&messages.user)) as u64 + TEMPLATE_TOKENS;
        bill.to_ask += 1;
        bill.prompt_tokens += prompt;
        bill.completion_tokens += u64::from(*max_tokens);
    }
    (bill.pairs, bill.graded, bill.set_aside) = counts.read();
    bill.cost = teacher.cost(Usage { prompt_tokens: bill.prompt_tokens, completion_tokens: bill.completion_tokens });
    Ok(bill)
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "job {}, teacher {}, {}", self.job, self.teacher, self.teacher_hash)?;
        writeln!(
            f,
            "{} requests, {} pairs: graded {}, set aside {}",
            self.requests, self.pairs, self.graded, self.set_aside
        )?;
        write!(
            f,
            "to ask: {} pairs, about {} prompt tokens (o200k), at most {} completion tokens, cost about {:.4}",
            self.to_ask, self.prompt_tokens, self.completion_tokens, self.cost
        )
    }
}
