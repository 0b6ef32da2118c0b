//! Ranking: one score for each turn of a pool, from its features. Larger is better; the order itself, with its ties,
//! is SQL's.

pub mod sql;

pub use sql::{Scorer, rank_score};
