//! What the benches share.

#![allow(dead_code)] // each bench uses its part

pub mod language;
pub mod store;
