//! What takes longer than a change can wait for. Not part of `cargo test`: `make test-long` runs it.

mod corpus;
mod edits;
mod int8;
#[path = "../pipeline/killing.rs"]
mod killing;
mod kills;
// Not all of it is needed here.
#[allow(dead_code)]
#[path = "../pipeline/support.rs"]
mod support;
