//! Recall as SQL: the aggregate `recall(...)` over one store's turns and requests, and `list_score`, `list_rank` over
//! what it says of a turn.
//!
//! An aggregate holds one store at a time only where its input is sorted by store, which a window function forces:
//!
//! ```sql
//! SELECT store_id, unnest(recall(kind, ordinal, id, text, language, content_hash, vector, at, rn, '...')) AS p FROM (
//!   SELECT *, row_number() OVER (PARTITION BY store_id ORDER BY kind, ordinal, id) AS rn FROM (
//!     SELECT store_id, arrow_cast(0, 'Int8') AS kind, ... FROM turns UNION ALL
//!     SELECT store_id, arrow_cast(1, 'Int8') AS kind, ... FROM requests)) GROUP BY store_id
//! ```
//!
//! The result does not depend on the order of the rows, nor on the plan.

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

mod aggregate;
mod places;
mod rows;
#[cfg(test)]
mod tests;

/// `recall(kind, ordinal, id, text, language, content_hash, vector, at, rn, settings)`.
pub fn aggregate() -> AggregateUDF {
    aggregate::udaf()
}

/// `list_score(lists, name)` and `list_rank(lists, name)`.
pub fn functions() -> Vec<ScalarUDF> {
    places::functions()
}
