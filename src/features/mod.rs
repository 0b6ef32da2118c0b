//! Features of a (request, turn) pair: the formulas that SQL has no word for. Which features there are, and from
//! what they are made, stands in the job's SELECT.

mod cosine;
pub mod sql;

use datafusion::logical_expr::ScalarUDF;

/// The SQL functions of this stage.
pub fn functions() -> Vec<ScalarUDF> {
    vec![sql::context_cosine(), sql::role_code(), sql::age_days(), sql::sigmoid()]
}
