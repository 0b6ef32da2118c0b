//! Asks for all pairs of a stream, many at once, and keeps what comes.
//!
//! A pair is taken from the stream when there is room for its request, so what is held is bounded by the requests under
//! way, however long the stream is and however slow the server.

use std::pin::pin;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};

use super::budget::Budget;
use super::client::{Asked, Client, Outcome};
use super::definition::Subject;
use super::journal::Journal;
use super::judgement::{Judgement, Pair};
use super::prompt::Messages;
use super::tally::Tally;
use crate::error::{Error, Result};

/// If as many pairs fail and none was answered, the run ends. As many in a row end it too, or three for each request that
/// may be under way, if that is more.
const FIRST: u64 = 16;

/// What bounds a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// In the unit of the prices. No request starts if it could bring the cost above it.
    pub limit_cost: Option<f64>,
    /// The teacher has answered in an earlier run: a server that then refuses what is left is not taken for a wrong one.
    pub answered_before: bool,
}

/// Asks for all pairs of a stream with bounded concurrency; every verdict goes to the journal as it comes, then to `each`.
///
/// Pairs are answered in any order. A pair that fails is counted and not journaled. An error ends the run: what is in
/// the journal stays, and what is under way is given up, except that after an error of the stream it is waited for.
pub async fn ask_all(
    client: &Client,
    pairs: impl Stream<Item = Result<Pair>>,
    journal: &mut Journal,
    limits: &Limits,
    each: impl FnMut(Judgement) -> Result<()>,
) -> Result<Tally> {
    if limits.limit_cost.is_some() && !client.teacher().has_prices() {
        return Err(Error::usage("costs are limited, but nothing has a price")
            .next("give teacher.prompt_price and teacher.completion_price, of a million tokens"));
    }
    let budget = Budget::new(limits.limit_cost)?;
    let concurrency = client.teacher().settings().concurrency;
    let known = limits.answered_before;
    let mut run = Run { client, journal, each, known, tally: Tally::default(), row: 0 };
    let mut pairs = pin!(pairs);
    let mut under_way = FuturesUnordered::new();
    let (mut open, mut broken) = (true, None);
    loop {
        let room = open && under_way.len() < concurrency;
        tokio::select! {
            biased;
            Some((asking, asked)) = under_way.next(), if !under_way.is_empty() => {
                open &= run.take(&asking, asked)?;
            }
            pair = pairs.next(), if room => match pair {
                Some(Ok(pair)) => {
                    let asking = Asking::new(client, pair);
                    if budget.reserve(client.teacher().most_cost(&asking.messages)) {
                        under_way.push(asking.ask(client, &budget));
                    } else {
                        run.tally.stopped_by_cost = true;
                        open = false;
                    }
                }
                Some(Err(e)) => {
                    broken = Some(e);
                    open = false;
                }
                None => open = false,
            },
            else => break,
        }
    }
    run.journal.settle().await?;
    match broken {
        Some(e) => Err(e),
        None => run.end(),
    }
}

/// A pair under way.
struct Asking {
    subject: Subject,
    messages: Messages,
}

impl Asking {
    fn new(client: &Client, pair: Pair) -> Asking {
        let messages = client.teacher().render(&pair.question, &pair.content);
        let key = client.teacher().key(&messages);
        let subject = Subject { key, question_hash: pair.question_hash, content_hash: pair.content_hash };
        Asking { subject, messages }
    }

    async fn ask(self, client: &Client, budget: &Budget) -> (Asking, Asked) {
        let asked = client.ask_within(&self.messages, budget).await;
        (self, asked)
    }
}

struct Run<'a, F> {
    client: &'a Client,
    journal: &'a mut Journal,
    each: F,
    /// The teacher has answered before.
    known: bool,
    tally: Tally,
    /// Failures since the last answer.
    row: u64,
}

impl<F: FnMut(Judgement) -> Result<()>> Run<'_, F> {
    /// Counts and keeps what became of a pair. Whether more may be asked.
    fn take(&mut self, asking: &Asking, asked: Asked) -> Result<bool> {
        self.tally.attempts += u64::from(asked.attempts);
        self.tally.lost += u64::from(asked.lost);
        self.tally.cost += asked.cost;
        match asked.outcome {
            Outcome::Answered { answer, usage, estimated } => {
                let judgement = self.client.teacher().judge(&asking.subject, &answer, usage)?;
                self.journal.append(&judgement)?;
                self.tally.judged(&judgement, estimated);
                self.row = 0;
                (self.each)(judgement)?;
                Ok(true)
            }
            Outcome::Failed(why) => {
                self.tally.failed(&why);
                self.row += 1;
                self.go_on(&why)?;
                Ok(true)
            }
            Outcome::TooDear(why) => {
                self.tally.failed(&why);
                self.tally.stopped_by_cost = true;
                Ok(false)
            }
        }
    }

    /// A server that answers nothing is not asked for the rest.
    fn go_on(&self, why: &str) -> Result<()> {
        let in_a_row = FIRST.max(3 * self.client.teacher().settings().concurrency as u64);
        if !self.known && self.tally.answered() == 0 && self.tally.failures() >= FIRST {
            return Err(self.hopeless(&format!("the first {FIRST} pairs all failed"), why));
        }
        if self.row >= in_a_row {
            return Err(self.hopeless(&format!("{in_a_row} pairs in a row failed"), why));
        }
        Ok(())
    }

    fn hopeless(&self, what: &str, why: &str) -> Error {
        let url = self.client.teacher().settings().shown_url();
        Error::transient(format!("{what}; the last: {why}")).at(format!("the teacher at {url}")).next(format!(
            "{} pairs were answered before, which are kept; run again when the cause is gone",
            self.tally.answered()
        ))
    }

    fn end(self) -> Result<Tally> {
        let failed = self.tally.failures();
        if !self.known && failed > 0 && self.tally.answered() == 0 && !self.tally.stopped_by_cost {
            let why = self.tally.failed.keys().next().cloned().unwrap_or_default();
            return Err(self.hopeless(&format!("all pairs failed, {failed} of {failed}"), &why));
        }
        Ok(self.tally)
    }
}
