//! Grades of a teacher: a sample of pools is put to a large language model, and what it says is kept in the lake.
//!
//! [`job`] is the job file, [`sample`] the rule that chooses requests, [`pairs`] what is asked of them. [`judge`] asks, or reads
//! answers from a file; each answer goes into a journal as it comes, and [`fold`] puts the journal into the table of judgements.
//! [`plan`] says what asking would cost. How a teacher is asked, and how its answers are read, is [`crate::teacher`]'s.
//!
//! **Nothing is paid for twice**: a pair that the table or the journal holds is not asked again, whichever store, system or
//! run it came from, and whatever its answer was.

mod fold;
mod job;
mod judge;
mod lake;
mod pairs;
mod plan;
mod report;
mod sample;

pub use job::{DistillJob, is_distill_job};
pub use judge::{Answers, judge};
pub use plan::{Bill, plan};
pub use report::Judged;
