//! Slate construction: walk a request's ranking and add each turn that still fits the budget of rendered tokens.
//!
//! Pure Rust over one request's ranked turns; [`sql`] brings it into a query.

mod cost;
pub mod fill;
pub mod gap;
pub mod render;
pub mod sql;

pub use cost::Costs;
pub use fill::{Candidate, Filled, Item, Status, fill, walk};

use datafusion::logical_expr::ScalarUDF;

/// The SQL functions of this stage.
pub fn functions() -> Vec<ScalarUDF> {
    vec![sql::fill_slate()]
}
