//! Two systems on the same questions: paired bootstrap and parity.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::Serialize;

use super::bootstrap::{Bootstrap, Interval};
use super::completeness::{ALL, KAPPA_CLASSES, Report, shares};
use super::grid::Grid;
use super::outcomes::Outcome;
use super::report::interval;
use crate::error::{Error, Result};

/// By how much a system may be worse and still count as not inferior: 3 points.
pub const PARITY_MARGIN: f64 = 0.03;

/// The second system minus the first, over the questions that both have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub rows: Vec<ComparisonRow>,
    /// Questions with evidence that only one of the two has: left out.
    pub unpaired: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonRow {
    pub split: String,
    pub kappa: &'static str,
    pub n: u64,
    pub r_pool: Option<Interval>,
    pub r_rank: Option<Interval>,
    pub slate: Option<Difference>,
}

/// A difference of slate completeness, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    #[serde(flatten)]
    pub interval: Interval,
    /// The interval does not hold 0.
    pub significant: bool,
    /// The interval lies above minus the margin.
    pub non_inferior: bool,
    /// Not inferior, and no significant difference.
    pub parity: bool,
}

impl Difference {
    pub fn new(interval: Interval, margin: f64) -> Self {
        let significant = interval.low > 0.0 || interval.high < 0.0;
        let non_inferior = interval.low > -margin;
        Difference { interval, significant, non_inferior, parity: non_inferior && !significant }
    }
}

/// Compares `second` with `first`. Fails where the two disagree on a question's kappa or split: they were measured
/// against different labels.
pub fn compare(first: &Report, second: &Report, margin: f64, bootstrap: Bootstrap) -> Result<Comparison> {
    let by_key: HashMap<_, &Outcome> = second.outcomes.iter().map(|o| (key(o), o)).collect();
    let mut pairs = Vec::new();
    for a in &first.outcomes {
        let Some(b) = by_key.get(&key(a)) else { continue };
        if (a.kappa, &a.split) != (b.kappa, &b.split) {
            return Err(Error::data(format!(
                "request {:?} of store {:?} has other labels in the second report than in the first",
                a.request_id, a.store_id
            ))
            .next("measure both systems against the same labels"));
        }
        pairs.push((a, *b));
    }
    let unpaired = first.outcomes.len() + second.outcomes.len() - 2 * pairs.len();
    let names: BTreeSet<&str> = pairs.iter().filter_map(|(a, _)| a.split.as_deref()).collect();
    let splits = names.into_iter().map(|s| (s, Some(s))).chain([(ALL, None)]);
    let mut rows = Vec::new();
    for (split, only) in splits {
        for (kappa, least, most) in KAPPA_CLASSES {
            let mut counts = [0; 16];
            for (a, b) in &pairs {
                if (least..=most).contains(&a.kappa) && (only.is_none() || a.split.as_deref() == only) {
                    counts[cell(a) + 4 * cell(b)] += 1;
                }
            }
            let [r_pool, r_rank, slate] = bootstrap.intervals(&counts, differences);
            let slate = slate.map(|i| Difference::new(i, margin));
            rows.push(ComparisonRow { split: split.into(), kappa, n: counts.iter().sum(), r_pool, r_rank, slate });
        }
    }
    Ok(Comparison { rows, unpaired })
}

fn key(o: &Outcome) -> (&str, &str, &str) {
    (&o.tenant_id, &o.store_id, &o.request_id)
}

fn cell(o: &Outcome) -> usize {
    usize::from(o.in_pool) + 2 * usize::from(o.in_slate)
}

/// Differences of `r_pool`, `r_rank` and `slate` from counts by `first + 4 second`.
fn differences(counts: &[u64]) -> [Option<f64>; 3] {
    let (mut first, mut second) = ([0; 4], [0; 4]);
    for (i, count) in counts.iter().enumerate() {
        first[i % 4] += count;
        second[i / 4] += count;
    }
    let (first, second) = (shares(&first), shares(&second));
    std::array::from_fn(|i| Some(second[i]? - first[i]?))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::new(["<split", "<kappa", "n", "<r_pool", "<r_rank", "<slate", "<verdict"]);
        for row in &self.rows {
            let verdict = match &row.slate {
                None => "-",
                Some(d) if d.parity => "parity",
                Some(d) if d.significant && d.interval.value > 0.0 => "better",
                Some(d) if d.significant => "worse",
                Some(_) => "not decided",
            };
            grid.row(vec![
                row.split.clone(),
                row.kappa.into(),
                row.n.to_string(),
                interval(&row.r_pool),
                interval(&row.r_rank),
                interval(&row.slate.map(|d| d.interval)),
                verdict.into(),
            ]);
        }
        write!(f, "{grid}")?;
        if self.unpaired > 0 {
            write!(f, "\nwarning: {} questions are in one report only and were left out", self.unpaired)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Warnings;

    /// Questions with complete pools; `complete` says of each whether its slate is complete.
    fn report(complete: impl IntoIterator<Item = bool>) -> Report {
        let outcome = |(i, in_slate): (usize, bool)| Outcome {
            tenant_id: String::new(),
            store_id: "s".into(),
            request_id: format!("r{i}"),
            split: Some("test".into()),
            kappa: 1,
            in_pool: true,
            in_slate,
        };
        let outcomes = complete.into_iter().enumerate().map(outcome).collect();
        Report { splits: Vec::new(), warnings: Warnings::default(), outcomes }
    }

    fn all(a: &Report, b: &Report) -> ComparisonRow {
        let comparison = compare(a, b, PARITY_MARGIN, Bootstrap::default()).unwrap();
        comparison.rows.into_iter().find(|r| r.split == "all" && r.kappa == "all").unwrap()
    }

    #[test]
    fn equal_outcomes_are_at_parity() {
        let a = report((0..50).map(|i| i % 3 == 0));
        let d = all(&a, &a).slate.unwrap();
        assert_eq!((d.interval.value, d.interval.low, d.interval.high), (0.0, 0.0, 0.0));
        assert!(d.parity && d.non_inferior && !d.significant);
    }

    #[test]
    fn pairing_narrows_the_interval() {
        // 1,000 questions, 600 and 620 complete; the second has all that the first has. Each difference is 0 or 1 with
        // p = 0.02: the standard error is sqrt(0.02 * 0.98 / 1000) = 0.00443. Unpaired it would be 0.0218.
        let (a, b) = (report((0..1000).map(|i| i < 600)), report((0..1000).map(|i| i < 620)));
        let row = all(&a, &b);
        let d = row.slate.unwrap();
        assert_eq!(row.n, 1000);
        assert!((d.interval.value - 0.02).abs() < 1e-12);
        assert!((d.interval.low - (0.02 - 1.96 * 0.00443)).abs() < 0.002, "{d:?}");
        assert!((d.interval.high - (0.02 + 1.96 * 0.00443)).abs() < 0.002, "{d:?}");
        assert!(d.significant && d.non_inferior && !d.parity);
        assert!(all(&b, &a).slate.unwrap().significant);
    }

    #[test]
    fn parity_needs_both_conditions() {
        let difference = |low, high| Difference::new(Interval { value: (low + high) / 2.0, low, high }, PARITY_MARGIN);
        assert!(difference(-0.02, 0.01).parity);
        assert!(!difference(-0.04, 0.01).parity && !difference(-0.04, 0.01).significant);
        assert!(!difference(-0.02, -0.01).parity && difference(-0.02, -0.01).non_inferior);
        assert!(!difference(0.01, 0.02).parity);
    }

    #[test]
    fn questions_of_one_report_only_are_left_out() {
        let (a, b) = (report([true, false, true]), report([true, true]));
        let comparison = compare(&a, &b, PARITY_MARGIN, Bootstrap::default()).unwrap();
        assert_eq!(comparison.unpaired, 1);
        assert!(comparison.rows.iter().filter(|r| r.kappa == "all").all(|r| r.n == 2));
        assert!(comparison.to_string().contains("1 questions are in one report only"));
        let none = compare(&report([]), &report([]), PARITY_MARGIN, Bootstrap::default()).unwrap();
        assert!(none.rows.iter().all(|r| r.slate.is_none() && r.n == 0));
    }

    #[test]
    fn other_labels_are_refused() {
        let (a, mut b) = (report([true]), report([true]));
        b.outcomes[0].kappa = 2;
        assert!(compare(&a, &b, PARITY_MARGIN, Bootstrap::default()).unwrap_err().to_string().contains("other labels"));
    }
}
