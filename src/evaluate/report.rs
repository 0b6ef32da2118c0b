//! How a report is shown: an aligned table of text, or data with three decimals. What is not defined is `-`, or null.

use std::fmt;

use serde::Serializer;

use super::bootstrap::Interval;
use super::completeness::Report;
use super::grid::Grid;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shares = Grid::new(["<split", "<kappa", "n", "<r_pool", "<r_rank", "<slate"]);
        for split in &self.splits {
            for class in &split.classes {
                shares.row(vec![
                    split.split.clone(),
                    class.kappa.into(),
                    class.n.to_string(),
                    interval(&class.r_pool),
                    interval(&class.r_rank),
                    interval(&class.slate),
                ]);
            }
        }
        writeln!(f, "{shares}")?;
        let mut slates = Grid::new([
            "<split",
            "requests",
            "without_evidence",
            "missing_slates",
            "slates",
            "mean_tokens",
            "budget_share",
            "ok",
            "empty",
            "unknown_store",
            "degraded",
        ]);
        for split in &self.splits {
            let statuses = &split.statuses;
            let counts = [split.requests, split.without_evidence, split.missing_slates, split.slates];
            let mut cells = vec![split.split.clone()];
            cells.extend(counts.map(|c| c.to_string()));
            cells.extend([number(split.mean_tokens), number(split.budget_share)]);
            cells.extend(
                [statuses.ok, statuses.empty, statuses.unknown_store, statuses.degraded].map(|c| c.to_string()),
            );
            slates.row(cells);
        }
        write!(f, "{slates}")?;
        let w = &self.warnings;
        for (count, says) in [
            (w.labels_without_turn, "labels name a turn that is not in its store and were dropped"),
            (w.labels_without_request, "labels name a request that is not there and were dropped"),
            (w.slates_without_request, "slates name a request that is not there and were dropped"),
            (
                w.complete_outside_pool,
                "questions are complete in the slate but not in the pool: these are of different runs, and slate is \
                 not r_pool x r_rank",
            ),
        ] {
            if count > 0 {
                write!(f, "\nwarning: {count} {says}")?;
            }
        }
        Ok(())
    }
}

/// `0.812 [0.790, 0.834]`.
pub fn interval(interval: &Option<Interval>) -> String {
    match interval {
        Some(i) => format!("{:.3} [{:.3}, {:.3}]", round(i.value), round(i.low), round(i.high)),
        None => "-".into(),
    }
}

/// Three decimals, or `-`.
pub fn number(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or("-".into(), |v| format!("{:.3}", round(v)))
}

/// To three decimals; no negative zero.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0 + 0.0
}

/// Writes a number with three decimals.
pub fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(round(*value))
}

/// Writes a number with three decimals; nothing and what is not finite become null.
pub fn rounded_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(v) if v.is_finite() => serializer.serialize_some(&round(*v)),
        _ => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_decimals() {
        assert_eq!(number(Some(0.8125)), "0.813");
        assert_eq!(number(Some(-0.0001)), "0.000");
        assert_eq!(number(Some(f64::NAN)), "-");
        assert_eq!(number(None), "-");
        let i = Interval { value: 0.81249, low: 0.79, high: 0.834 };
        assert_eq!(interval(&Some(i)), "0.812 [0.790, 0.834]");
        assert_eq!(serde_json::to_string(&i).unwrap(), r#"{"value":0.812,"low":0.79,"high":0.834}"#);
    }
}
