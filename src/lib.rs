//! memslate chooses, in bulk, the past conversation turns that an LLM agent should see.
//!
//! A **store** is one history: turns in sessions. A **request** is a question with a reference date. For each request the
//! pipeline picks a **slate**: turns that fit a budget of rendered tokens. It is a batch pipeline of SQL jobs; no LLM is
//! called to select.
//!
//! # One way through
//!
//! ```text
//! inputs -> turns, requests, labels -> embeddings -> pools -> scores -> features -> rankings -> slates
//! ```
//!
//! Data moves left to right and never back. Each arrow is one SELECT of `jobs/` that reads tables by name and writes one
//! table. Stages never call each other in Rust.
//!
//! # Three layers
//!
//! *SQL says what*: a data engineer who wants another feature, filter or input layout edits a SELECT. *TOML says which*: a
//! job names inputs, models and a [`system`], which is one choice for each axis of the design space. *Rust says how*: the
//! functions that the SELECTs call, the device, the runs.
//!
//! # The modules, in the order of the flow
//!
//! - base: [`error`], [`schema`] (every table and column, once), [`config`] (job files), [`system`];
//! - [`text`]: words for BM25, languages, o200k counts, dates; [`model`]: what a model is, where it comes from, its weights
//!   and tokenizer; [`lake`]: Delta tables, the only place that knows them;
//! - [`device`]: the seam to an accelerator, packed rows in, rows out; [`ranker`]: LightGBM, the only FFI user; [`teacher`]: a
//!   large language model that grades turns, asked over HTTP, the only place that spends money;
//! - stages, pure Arrow in and out, each with its SQL functions: [`import`], [`recall`], [`score`], [`features`], [`rank`],
//!   [`slate`];
//! - [`engine`]: a DataFusion session, the one list of functions, the lake's files as tables;
//! - [`run`]: job files to runs: what is done already, what is carried over, what is computed;
//! - [`distill`]: the teacher's job: a sample of pools, graded once, kept in the lake;
//! - [`evaluate`]: completeness, intervals, explanations; [`publish`]: the place of the cache.
//!
//! A module imports what stands before it, and a stage never imports another stage; a test reads the source and says so.
//!
//! # What holds
//!
//! - **A unit is done when its output is committed together with its fingerprint.** A unit is one table's part of one
//!   shard of stores. Its file is laid down first, where no reader sees it, and one atomic commit makes it the table's
//!   content and records the fingerprint: SELECT, parameters, models, and the fingerprints of the stores that it read. So a
//!   run may die anywhere, and two runs may run at once.
//! - **A store's rows depend on nothing but its store.** Rows carry their store's fingerprint; in a shard that changed, the
//!   rows of stores that did not change are carried over.
//! - **Vectors and logits are addressed by content**, with the hash of the model that made them: a text is embedded once.
//! - **The clock is never read** by a computation. Ages are days before the request's reference date.
//! - **Every order ends in the turn's ordinal**, and a score that is no finite number is NULL: the same inputs give the same
//!   bytes, in whatever order rows come and however many threads run.
//! - **Failure is not emptiness.** Every request has a slate row, and its status says whether it is `ok`, `empty`,
//!   `unknown_store` or `degraded`.
//! - **No expensive function under a filter**, and recall sees one store at a time: what the engine's plans must look like
//!   for this is held by tests.

pub mod cli;
pub mod config;
pub mod error;
pub mod schema;
pub mod system;

pub mod lake;
pub mod model;
pub mod text;

pub mod device;
pub mod ranker;
pub mod teacher;

pub mod features;
pub mod import;
pub mod rank;
pub mod recall;
pub mod score;
pub mod slate;

pub mod engine;

pub mod distill;
pub mod run;

pub mod evaluate;
pub mod publish;
