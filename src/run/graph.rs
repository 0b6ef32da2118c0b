//! Which table is made from which: read off the SELECTs themselves.

use std::collections::BTreeMap;

use datafusion::prelude::SessionContext;

use super::ORDER;
use crate::config::Job;
use crate::engine;
use crate::error::{Error, Result};

/// The tables of a run that ends with `last`.
pub fn until(last: &str) -> impl Iterator<Item = &'static str> {
    let end = ORDER.iter().position(|t| *t == last).map_or(ORDER.len(), |at| at + 1);
    ORDER[..end].iter().copied()
}

/// Rows of these belong to a text, not to a store.
pub fn by_content(table: &str) -> bool {
    matches!(table, "embeddings" | "scores" | "judgements")
}

/// All that a SELECT may read, in the order in which it is there: a run's tables, and a teacher's grades, which a run does
/// not make.
pub fn readable() -> impl Iterator<Item = &'static str> {
    ORDER.iter().flat_map(|table| if *table == "features" { vec!["judgements", table] } else { vec![*table] })
}

/// Rows of these come from the inputs.
pub fn from_input(table: &str) -> bool {
    matches!(table, "turns" | "requests" | "labels")
}

/// For each table, the tables of the lake that its SELECT reads. A SELECT may read only what is made before it.
pub fn reads(context: &SessionContext, job: &Job, last: &str) -> Result<BTreeMap<&'static str, Vec<&'static str>>> {
    let mut all = BTreeMap::new();
    for (at, table) in until(last).enumerate() {
        let Some(select) = job.sql.get(table) else {
            return Err(Error::usage(format!("[sql] names no SELECT for the table {table}"))
                .at(job.file.display().to_string())
                .next(format!("add `{table} = \"{table}.sql\"` under [sql]")));
        };
        let place = select.file.display().to_string();
        let mut reads = Vec::new();
        for name in engine::refers_to(context, &select.text).map_err(|e| e.at(&place))? {
            if let Some(input) = name.strip_prefix("input.") {
                check_input(job, table, input).map_err(|e| e.at(&place))?;
                continue;
            }
            // Grades are of the pools that an earlier run made.
            if name == "judgements" && ORDER[..at].contains(&"pools") {
                reads.push("judgements");
                continue;
            }
            match ORDER.iter().position(|t| *t == name) {
                Some(_) if name == "labels" => {
                    return Err(Error::usage(format!("{table} reads labels, which a run must not know")).at(place));
                }
                Some(there) if !from_input(table) && (there < at || (there == at && by_content(table))) => {
                    reads.push(ORDER[there]);
                }
                Some(_) => {
                    return Err(
                        Error::usage(format!("{table} cannot be made from {name}, which is made after it")).at(place)
                    );
                }
                None => {
                    return Err(Error::usage(format!("there is no table {name:?}")).at(place).next(format!(
                        "tables of the lake: {}; inputs are input.NAME",
                        readable().collect::<Vec<_>>().join(", ")
                    )));
                }
            }
        }
        all.insert(table, reads);
    }
    Ok(all)
}

fn check_input(job: &Job, table: &str, input: &str) -> Result<()> {
    if !from_input(table) {
        return Err(Error::usage(format!("{table} reads input.{input}: only turns, requests and labels read inputs")));
    }
    if job.inputs.contains_key(input) {
        return Ok(());
    }
    let known: Vec<_> = job.inputs.keys().map(|k| format!("input.{k}")).collect();
    Err(Error::usage(format!("there is no input {input:?}")).next(format!("[inputs] names: {}", known.join(", "))))
}
