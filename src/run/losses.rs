//! What the models did not do whole, counted from the committed rows.

use std::fmt;

use serde::Serialize;

use super::gaps::Gap;
use super::prepare::Prepared;
use crate::engine;
use crate::error::Result;
use crate::lake::Snapshot;

/// Rows of a table that belong to the run's model, whichever run made them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// The text was longer than the model reads.
    pub truncated: u64,
    /// The model gave no finite number; the next run tries again.
    pub without_value: u64,
    /// Of this run: rows that were no finite numbers as the device rounds, and were computed again in f32 on the CPU.
    pub computed_again_in_f32: u64,
}

/// `without_value`: the rows that have none, as [`Gap::shards`] counts them.
pub async fn count(run: &Prepared, gap: &Gap, snapshot: &Snapshot, without_value: u64) -> Result<Losses> {
    let context = run.session()?;
    engine::register_snapshot(&context, &run.lake, snapshot, &[], "own_rows")?;
    let sql = format!("SELECT count(*) FROM own_rows WHERE {} AND truncated", gap.own);
    let truncated = engine::count(&context, &sql, &run.parameters).await?;
    Ok(Losses { truncated, without_value, computed_again_in_f32: computed_again(run, gap.table) })
}

fn computed_again(run: &Prepared, table: &str) -> u64 {
    let models = run.functions.models();
    let progress = match table {
        "embeddings" => models.encoder.as_ref().map(|m| m.progress()),
        _ => models.cross_encoder.as_ref().map(|m| m.progress()),
    };
    progress.map_or(0, |p| p.computed_again())
}

impl Losses {
    /// A line about a table, or none where nothing was lost.
    pub fn line(&self, table: &str) -> Option<String> {
        (*self != Losses::default()).then(|| format!("{table}: {self}"))
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.truncated, "cut to what the model reads"),
            (self.without_value, "without a value, to be tried again"),
            (self.computed_again_in_f32, "computed again in f32 on the CPU"),
        ];
        let told = parts.iter().filter(|(n, _)| *n > 0);
        let told = told.map(|(n, what)| format!("{n} {} {what}", if *n == 1 { "row" } else { "rows" }));
        f.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_is_told() {
        let line = |truncated, without_value, computed_again_in_f32| {
            Losses { truncated, without_value, computed_again_in_f32 }.line("scores")
        };
        assert_eq!(line(0, 0, 0), None);
        assert_eq!(line(1, 0, 0).as_deref(), Some("scores: 1 row cut to what the model reads"));
        assert_eq!(line(0, 2, 0).as_deref(), Some("scores: 2 rows without a value, to be tried again"));
        assert_eq!(line(0, 0, 1).as_deref(), Some("scores: 1 row computed again in f32 on the CPU"));
        assert!(
            line(3, 1, 2).is_some_and(|l| l.contains("reads, 1 row without") && l.contains("again, 2 rows computed"))
        );
    }
}
