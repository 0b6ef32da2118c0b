//! Training from a lake: its features, with labels of its own, of a file, or of a teacher.
//!
//! [`rows`] reads them, [`agreement`] compares a teacher with the gold labels, [`train`] holds stores out and trains.

mod agreement;
mod rows;
mod train;

pub use train::{Learnt, Lessons, train_from, train_params};
