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
}

/// `without_value`: the rows that have none, as [`Gap::shards`] counts them.
pub async fn count(run: &Prepared, gap: &Gap, snapshot: &Snapshot, without_value: u64) -> Result<Losses> {
    let context = run.session()?;
    engine::register_snapshot(&context, &run.lake, snapshot, &[], "own_rows")?;
    let sql = format!("SELECT count(*) FROM own_rows WHERE {} AND truncated", gap.own);
    Ok(Losses { truncated: engine::count(&context, &sql, &run.parameters).await?, without_value })
}

impl Losses {
    /// A line about a table, or none where nothing was lost.
    pub fn line(&self, table: &str) -> Option<String> {
        (*self != Losses::default()).then(|| format!("{table}: {self}"))
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = |n: u64| if n == 1 { "1 row".to_string() } else { format!("{n} rows") };
        if self.truncated > 0 {
            write!(f, "{} cut to what the model reads", rows(self.truncated))?;
        }
        if self.truncated > 0 && self.without_value > 0 {
            f.write_str(", ")?;
        }
        if self.without_value > 0 {
            write!(f, "{} without a value, to be tried again", rows(self.without_value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_is_told() {
        let line = |truncated, without_value| Losses { truncated, without_value }.line("scores");
        assert_eq!(line(0, 0), None);
        assert_eq!(line(1, 0).as_deref(), Some("scores: 1 row cut to what the model reads"));
        assert_eq!(line(0, 2).as_deref(), Some("scores: 2 rows without a value, to be tried again"));
        assert!(line(3, 1).is_some_and(|l| l.contains("reads, 1 row without")));
    }
}
