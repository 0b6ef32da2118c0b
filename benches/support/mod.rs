//! What the benches share.

#![allow(dead_code)] // each bench uses its part

pub mod cpu_time;
pub mod data;
pub mod language;
pub mod path;
pub mod store;
