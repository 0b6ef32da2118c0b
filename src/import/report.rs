//! What an import found, for people and for a run's summary.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Counts of what was written, dropped and set aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Stores that have a turn.
    pub stores: u64,
    pub sessions: u64,
    pub turns: u64,
    pub requests: u64,
    pub labels: u64,
    pub requests_with_evidence: u64,
    /// Requests whose evidence spans two sessions or more.
    pub requests_across_sessions: u64,
    /// Questions that the format leaves out on purpose: LoCoMo's adversarial ones.
    pub dropped_questions: u64,
    /// Evidence of a benchmark that names no turn of its store.
    pub dropped_evidence: u64,
    /// Rows set aside: table, then kind of reason -> rows.
    pub rejects: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

impl Report {
    /// Rows set aside in all.
    pub fn rejected(&self) -> u64 {
        self.rejects.values().flat_map(BTreeMap::values).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}, {}",
            counted(self.stores, "store"),
            counted(self.sessions, "session"),
            counted(self.turns, "turn")
        )?;
        write!(
            f,
            "\n{}: {} with evidence, {} with evidence in two sessions or more",
            counted(self.requests, "request"),
            self.requests_with_evidence,
            self.requests_across_sessions
        )?;
        if self.dropped_questions > 0 {
            write!(f, "\n{} dropped: adversarial", counted(self.dropped_questions, "question"))?;
        }
        if self.dropped_evidence > 0 {
            write!(f, "\n{} dropped: no such turn", counted(self.dropped_evidence, "piece of evidence"))?;
        }
        if self.rejected() > 0 {
            write!(f, "\n{} set aside, see rejects.parquet", counted(self.rejected(), "row"))?;
        }
        for (table, kinds) in &self.rejects {
            for (kind, rows) in kinds {
                write!(f, "\n  {table}, {kind}: {rows}")?;
            }
        }
        Ok(())
    }
}

fn counted(n: u64, noun: &str) -> String {
    match (n, noun.split_once(' ')) {
        (1, _) => format!("1 {noun}"),
        (_, None) => format!("{n} {noun}s"),
        (_, Some((head, rest))) => format!("{n} {head}s {rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_short_lines() {
        let mut report = Report { stores: 1, sessions: 2, turns: 5, requests: 3, ..Report::default() };
        report.requests_with_evidence = 2;
        report.requests_across_sessions = 1;
        report.dropped_questions = 1;
        report.dropped_evidence = 4;
        report.rejects.entry("turns").or_default().insert("unknown role", 2);
        assert_eq!(
            report.to_string(),
            "1 store, 2 sessions, 5 turns\n\
             3 requests: 2 with evidence, 1 with evidence in two sessions or more\n\
             1 question dropped: adversarial\n\
             4 pieces of evidence dropped: no such turn\n\
             2 rows set aside, see rejects.parquet\n  turns, unknown role: 2"
        );
        assert_eq!(report.rejected(), 2);
    }
}
