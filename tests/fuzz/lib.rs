//! The targets' functions, and how JSON is changed so that it stays JSON.

pub mod json;
pub mod targets;
