//! Completeness of pools and slates, by split and by the number of sessions that the evidence spans.

use std::collections::BTreeSet;

use serde::Serialize;

use super::bootstrap::{Bootstrap, Interval};
use super::outcomes::{Outcome, Question, SlateSums, Statuses, Tables, Warnings, questions};
use super::report::rounded_option;
use crate::error::Result;

/// A measurement of one system. `Display` is a table, serde gives the same as data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Each split that is there, in order of its name, then `all`.
    pub splits: Vec<SplitReport>,
    pub warnings: Warnings,
    /// One for each question with evidence, in the order of requests: what paired comparisons draw from.
    #[serde(skip)]
    pub outcomes: Vec<Outcome>,
}

/// The requests of one split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitReport {
    pub split: String,
    pub requests: usize,
    /// Questions that no turn answers: they stay out of completeness.
    pub without_evidence: usize,
    /// Questions with evidence that have no slate row: they count as incomplete.
    pub missing_slates: usize,
    pub slates: usize,
    /// Of all slates; none where there is no slate.
    #[serde(serialize_with = "rounded_option")]
    pub mean_tokens: Option<f64>,
    /// Tokens of all slates, divided by their budgets; none where the budgets add up to 0.
    #[serde(serialize_with = "rounded_option")]
    pub budget_share: Option<f64>,
    pub statuses: Statuses,
    pub classes: Vec<ClassReport>,
}

/// The questions of one split and one class of kappa. Shares of nothing are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassReport {
    pub kappa: &'static str,
    /// Questions with evidence.
    pub n: u64,
    /// Of these, with complete pools.
    pub n_pool: u64,
    /// Of these, with complete slates.
    pub n_slate: u64,
    pub r_pool: Option<Interval>,
    /// Over the questions whose pool is complete.
    pub r_rank: Option<Interval>,
    pub slate: Option<Interval>,
}

/// Classes of kappa: name, least and greatest number of sessions.
pub const KAPPA_CLASSES: [(&str, usize, usize); 5] =
    [("all", 1, usize::MAX), ("1", 1, 1), ("2", 2, 2), ("3+", 3, usize::MAX), ("2+", 2, usize::MAX)];

/// The name under which all splits are taken together.
pub const ALL: &str = "all";

/// Measures one system's pools and slates against the labels. Rows may come in any order.
///
/// Fails on a missing column, on a null where the schema allows none, and on two slates of one request.
pub fn completeness(tables: &Tables, bootstrap: Bootstrap) -> Result<Report> {
    let (questions, mut warnings) = questions(tables)?;
    let outcomes: Vec<Outcome> = questions.iter().filter_map(Question::outcome).collect();
    warnings.complete_outside_pool = outcomes.iter().filter(|o| o.in_slate && !o.in_pool).count();
    let names: BTreeSet<&str> = questions.iter().filter_map(|q| q.split.as_deref()).collect();
    let mut splits: Vec<_> = names.iter().map(|s| split_report(s, Some(s), &questions, &outcomes, bootstrap)).collect();
    splits.push(split_report(ALL, None, &questions, &outcomes, bootstrap));
    Ok(Report { splits, warnings, outcomes })
}

fn split_report(
    name: &str,
    only: Option<&str>,
    questions: &[Question],
    outcomes: &[Outcome],
    bootstrap: Bootstrap,
) -> SplitReport {
    let belongs = |split: &Option<String>| only.is_none() || split.as_deref() == only;
    let outcomes: Vec<&Outcome> = outcomes.iter().filter(|o| belongs(&o.split)).collect();
    let (mut requests, mut missing_slates, mut sums) = (0, 0, SlateSums::default());
    for question in questions.iter().filter(|q| belongs(&q.split)) {
        requests += 1;
        match &question.slate {
            Some(slate) => {
                sums.slates += 1;
                sums.tokens += slate.tokens;
                sums.budget_tokens += slate.budget_tokens;
                sums.statuses.add(&slate.statuses);
            }
            None => missing_slates += usize::from(question.has_evidence()),
        }
    }
    SplitReport {
        split: name.to_string(),
        requests,
        without_evidence: requests - outcomes.len(),
        missing_slates,
        slates: sums.slates,
        mean_tokens: ratio(sums.tokens as f64, sums.slates as f64),
        budget_share: ratio(sums.tokens as f64, sums.budget_tokens as f64),
        statuses: sums.statuses,
        classes: KAPPA_CLASSES.iter().map(|class| class_report(class, &outcomes, bootstrap)).collect(),
    }
}

fn class_report(class: &(&'static str, usize, usize), outcomes: &[&Outcome], bootstrap: Bootstrap) -> ClassReport {
    let (kappa, least, most) = *class;
    let mut counts = [0; 4];
    for outcome in outcomes.iter().filter(|o| (least..=most).contains(&o.kappa)) {
        counts[usize::from(outcome.in_pool) + 2 * usize::from(outcome.in_slate)] += 1;
    }
    let [r_pool, r_rank, slate] = bootstrap.intervals(&counts, shares);
    let [n, n_pool, _, n_slate] = totals(&counts);
    ClassReport { kappa, n, n_pool, n_slate, r_pool, r_rank, slate }
}

/// From counts by `in_pool + 2 in_slate`: questions, complete pools, both complete, complete slates.
fn totals(counts: &[u64]) -> [u64; 4] {
    [counts.iter().sum(), counts[1] + counts[3], counts[3], counts[2] + counts[3]]
}

/// `r_pool`, `r_rank` and `slate` from counts by `in_pool + 2 in_slate`.
pub fn shares(counts: &[u64]) -> [Option<f64>; 3] {
    let [n, pool, both, slate] = totals(counts).map(|c| c as f64);
    [ratio(pool, n), ratio(both, pool), ratio(slate, n)]
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
