//! LightGBM as a learning-to-rank library: datasets with groups, LambdaRank training, models that load and predict.
//!
//! The only place of the crate that calls into LightGBM. A model is a text file that any LightGBM reads, with a card
//! in JSON beside it that says what it was trained on. Nothing here knows SQL, stores or requests: a group is a named
//! run of rows.

mod check;
pub mod dataset;
mod ffi;
pub mod model;
pub mod train;
mod trees;

pub use dataset::{Dataset, Group, Row};
pub use model::{Ranker, card};
pub use train::{Card, Counts, FeatureGain, Kind, Params, Stopped, Trained, train, train_stopping};

#[cfg(test)]
mod tests;
