//! What a job of grading came to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::fold::Known;
use super::pairs::PairHash;
use crate::teacher::batch::Collected;
use crate::teacher::{Tally, Teacher};

/// Pairs as they go by.
#[derive(Debug, Default)]
pub struct Counts {
    pairs: AtomicU64,
    graded: AtomicU64,
    set_aside: AtomicU64,
}

impl Counts {
    /// Counts a pair; whether it has no answer yet.
    pub fn is_new(&self, known: &Known, pair: &PairHash) -> bool {
        self.pairs.fetch_add(1, Ordering::Relaxed);
        if known.graded.contains(pair) {
            self.graded.fetch_add(1, Ordering::Relaxed);
        } else if known.set_aside.contains_key(pair) {
            self.set_aside.fetch_add(1, Ordering::Relaxed);
        }
        !known.holds(pair)
    }

    /// Pairs; of these graded, and set aside.
    pub fn read(&self) -> (u64, u64, u64) {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (of(&self.pairs), of(&self.graded), of(&self.set_aside))
    }
}

/// The outcome of `memslate judge`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Judged {
    pub teacher: String,
    pub teacher_hash: String,
    /// Sampled requests.
    pub requests: usize,
    /// Pairs that the job came to; where it stopped early, there are more.
    pub pairs: u64,
    /// Of these, answered before: graded, and set aside.
    pub graded_before: u64,
    pub set_aside_before: u64,
    /// Answers of an earlier run that were in the journal only.
    pub from_journal: usize,
    #[serde(flatten)]
    pub tally: Tally,
    /// Requests written by `--export`.
    pub exported: Option<u64>,
    /// Lines of `--collect` for pairs that are answered, or not of the sample; and second answers to one pair.
    pub not_asked_for: u64,
    pub duplicates: u64,
    /// Lines of `--collect` that are no result, and the numbers of the first.
    pub torn: u64,
    pub torn_lines: Vec<u64>,
}

impl Judged {
    pub fn new(teacher: &Teacher, requests: usize, from_journal: usize) -> Self {
        Judged {
            teacher: teacher.name(),
            teacher_hash: teacher.hash().to_string(),
            requests,
            from_journal,
            ..Judged::default()
        }
    }

    /// Adds what a file of results came to.
    pub fn collected(&mut self, of: Collected) {
        (self.not_asked_for, self.duplicates, self.torn) = (of.unknown, of.duplicates, of.torn);
        self.torn_lines = of.torn_lines;
        self.tally = of.tally;
    }

    /// Takes over how many pairs went by.
    pub fn close(&mut self, counts: &Counts) {
        (self.pairs, self.graded_before, self.set_aside_before) = counts.read();
    }

    /// Every pair that was come to is graded.
    pub fn is_clean(&self) -> bool {
        self.tally.set_aside.is_empty() && self.tally.failed.is_empty() && self.torn == 0
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "teacher {}, {}", self.teacher, self.teacher_hash)?;
        writeln!(
            f,
            "{} requests, {} pairs: graded before {}, set aside before {}",
            self.requests, self.pairs, self.graded_before, self.set_aside_before
        )?;
        if self.from_journal > 0 {
            writeln!(f, "{} answers came from the journal of a run that broke off", self.from_journal)?;
        }
        if let Some(exported) = self.exported {
            return write!(f, "{exported} requests written");
        }
        let Tally { graded, set_aside, failed, usage, cost, attempts, .. } = &self.tally;
        let sum = |of: &BTreeMap<String, u64>| of.values().sum::<u64>();
        writeln!(f, "graded {graded}, set aside {}, failed {}", sum(set_aside), sum(failed))?;
        for (what, of) in [("set aside", set_aside), ("failed", failed)] {
            for (reason, n) in of {
                writeln!(f, "  {what}, {n}: {reason}")?;
            }
        }
        for (n, what) in [(self.not_asked_for, "were not asked for"), (self.duplicates, "answer a pair once more")] {
            if n > 0 {
                writeln!(f, "{n} lines {what}")?;
            }
        }
        if self.torn > 0 {
            writeln!(f, "{} lines are no result, such as line {}", self.torn, self.torn_lines.first().unwrap_or(&0))?;
        }
        write!(
            f,
            "{attempts} attempts, {} prompt tokens, {} completion tokens, cost {cost:.4}",
            usage.prompt_tokens, usage.completion_tokens
        )?;
        if self.tally.stopped_by_cost {
            write!(f, "\nstopped: the next request might have passed --limit-cost; run again to go on")?;
        }
        Ok(())
    }
}
