//! Measuring slates: completeness with intervals, paired comparison of two systems, and why a turn is in a slate or not.
//!
//! Pure functions over Arrow record batches, whose columns are found by name (as `schema` declares them).
//!
//! A question's evidence is **complete** in a set of turns if each piece of it is there, under its own turn id or under
//! another one of the same store with the same content. Over the questions that have evidence:
//!
//! - `r_pool`: share of questions whose evidence is complete in the pool;
//! - `r_rank`: of these, share whose evidence is complete in the slate;
//! - `slate`: share whose evidence is complete in the slate, `r_pool * r_rank`.
//!
//! kappa is the number of sessions that a question's evidence spans. Intervals are 95% percentile bootstrap intervals
//! over questions.

mod bootstrap;
mod columns;
mod compare;
mod completeness;
#[cfg(test)]
mod completeness_tests;
mod explain;
#[cfg(test)]
mod explain_tests;
mod explanation;
mod grid;
mod outcomes;
mod read;
mod report;
#[cfg(test)]
mod testing;
mod walk;

pub use bootstrap::{Bootstrap, Interval};
pub use compare::{Comparison, ComparisonRow, Difference, PARITY_MARGIN, compare};
pub use completeness::{ClassReport, KAPPA_CLASSES, Report, SplitReport, completeness};
pub use explain::{Inputs, explain};
pub use explanation::{Explanation, ListPlace, Missed, PooledTurn};
pub use outcomes::{Outcome, Statuses, Tables, Warnings};
pub use read::{Reader, RequestKey, Shown};
pub use walk::{Fate, TurnLine};
