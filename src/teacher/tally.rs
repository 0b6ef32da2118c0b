//! What became of the pairs of a run, counted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::judgement::{Judgement, Usage, Verdict};

/// Reasons of failures that are told apart: servers put numbers into their messages, so there may be as many as pairs.
const REASONS: usize = 32;
const OTHERS: &str = "other reasons";

/// Counts of one run, or of one collection of results.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Tally {
    /// Pairs put to the teacher: graded, set aside and failed.
    #[serde(skip)]
    pub asked: u64,
    pub graded: u64,
    /// By reason: answered, but not with a grade. Not asked again.
    pub set_aside: BTreeMap<String, u64>,
    /// By reason: not answered. Asked again by the next run.
    pub failed: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub usage: Usage,
    /// Of the answers by their usage, and of lost attempts at the most that each can have cost.
    pub cost: f64,
    pub attempts: u64,
    /// Attempts whose answer did not come whole, but which the server may have computed and may charge.
    pub lost: u64,
    /// Answers whose usage is estimated, as the server gave none.
    pub estimated: u64,
    /// Pairs are left that were not asked, or not again, because the limit of costs was near.
    pub stopped_by_cost: bool,
}

impl Tally {
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Pairs that were answered, with a grade or not.
    pub fn answered(&self) -> u64 {
        self.graded + self.set_aside.values().sum::<u64>()
    }

    /// Adds what a further part of the pairs came to.
    pub fn add(&mut self, other: Tally) {
        self.asked += other.asked;
        self.graded += other.graded;
        self.usage += other.usage;
        self.cost += other.cost;
        self.attempts += other.attempts;
        self.lost += other.lost;
        self.estimated += other.estimated;
        self.stopped_by_cost |= other.stopped_by_cost;
        for (into, from) in [(&mut self.set_aside, other.set_aside), (&mut self.failed, other.failed)] {
            for (reason, n) in from {
                *into.entry(reason).or_default() += n;
            }
        }
    }

    pub(super) fn judged(&mut self, judgement: &Judgement, estimated: bool) {
        self.asked += 1;
        match &judgement.verdict {
            Verdict::Grade(_) => self.graded += 1,
            Verdict::SetAside(reason) => count(&mut self.set_aside, reason),
        }
        self.usage += judgement.usage;
        self.estimated += u64::from(estimated);
    }

    pub(super) fn failed(&mut self, reason: &str) {
        self.asked += 1;
        count(&mut self.failed, reason);
    }
}

fn count(reasons: &mut BTreeMap<String, u64>, reason: &str) {
    let reason = if reasons.len() < REASONS || reasons.contains_key(reason) { reason } else { OTHERS };
    *reasons.entry(reason.to_string()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_counted_once() {
        let mut tally = Tally::default();
        let usage = Usage { prompt_tokens: 10, completion_tokens: 1 };
        let judgement = |verdict| Judgement {
            key: [0; 32],
            question_hash: [0; 32],
            content_hash: [0; 32],
            verdict,
            answer: String::new(),
            usage,
        };
        tally.judged(&judgement(Verdict::Grade(0.0)), false);
        tally.judged(&judgement(Verdict::SetAside("empty answer".into())), true);
        (0..100).for_each(|i| tally.failed(&format!("status 400: {i} tokens")));
        assert_eq!((tally.asked, tally.graded, tally.answered(), tally.failures()), (102, 1, 2, 100));
        assert_eq!((tally.failed.len(), tally.failed["other reasons"]), (33, 68));
        assert_eq!((tally.usage.prompt_tokens, tally.estimated), (20, 1));
    }
}
