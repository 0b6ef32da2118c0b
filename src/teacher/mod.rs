//! A teacher: a large language model that grades how much a turn helps to answer a question.
//!
//! ```text
//! pairs -> messages (prompt, fence) -> request (ask) -> answer -> verdict (grade, expected) -> journal -> the caller
//! ```
//!
//! A teacher is reached through the chat completions that vLLM, SGLang, llama.cpp and the hosted services all serve, either
//! online ([`ask_all`]) or by files of requests and of results ([`batch`]). Nothing here knows lakes, SQL or shards: pairs come
//! as a stream, judgements go to a closure.
//!
//! What holds:
//!
//! - **No answer is made up.** What cannot be read as a grade is set aside with its reason, and never becomes a 0.
//! - **What was paid is kept.** A judgement is in the [`Journal`] before the caller sees it, so a run that dies asks for
//!   little again: what no fsync had reached, a second or 64 answers at most, where the machine died and not just the run.
//! - **Nothing is spent beyond the limit.** A request starts only if the most that it can cost still fits.
//! - **A pair is data.** See [`fence`] for what is done so that a turn cannot speak to the teacher, and what is not.

pub mod answer;
pub mod batch;
pub mod budget;
pub mod client;
mod definition;
pub mod expected;
pub mod fence;
pub mod grade;
pub mod journal;
pub mod judgement;
pub mod prompt;
mod retry;
pub mod run;
pub mod settings;
pub mod tally;

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod testing;

pub use answer::Answer;
pub use budget::Budget;
pub use client::{Asked, Client, Outcome};
pub use definition::{Subject, Teacher};
pub use journal::Journal;
pub use judgement::{Judgement, Pair, Usage, Verdict};
pub use prompt::{Messages, Prompt};
pub use run::{Limits, ask_all};
pub use settings::{Mode, Settings};
pub use tally::Tally;
