//! Recall: for each request, the pool of its store's turns that later stages look at.
//!
//! One store at a time: its turns are ranked by each of the system's lists ([`lists`]), the lists are fused by
//! reciprocal ranks ([`fuse`]), and the best make the pool ([`pool`]). [`sql`] is the same as an SQL aggregate.
//!
//! What is never recalled: a turn of another store, a turn said after the request's reference date, a turn without
//! text. A turn without a known time, and a request without a date, are not held back by time.
//!
//! Every order ends in the turn's ordinal; equal inputs give equal bits, in whatever order the rows came.

pub mod bm25;
pub mod dense;
pub mod fuse;
pub mod lists;
mod order;
mod output;
pub mod pool;
mod products;
pub mod sql;
pub mod store;
mod terms;

pub use pool::{Pooled, pool};
pub use sql::{aggregate, functions};
pub use store::{Request, Store, StoreBuilder, Turn};
