//! An explanation of one slate, as a table of text or as data.

use std::fmt;

use chrono::{DateTime, SecondsFormat};
use serde::{Serialize, Serializer};

use super::grid::Grid;
use super::report::number;
use super::walk::Fate;

/// Why one request's slate is what it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    pub tenant_id: String,
    pub store_id: String,
    pub request_id: String,
    pub question: String,
    /// Microseconds since 1970, UTC; written as RFC 3339.
    #[serde(serialize_with = "date")]
    pub reference_at: Option<i64>,
    /// None: the request has no slate.
    pub status: Option<String>,
    pub budget_tokens: Option<i64>,
    pub tokens: Option<i64>,
    /// By rank; those without a rank follow by pool position.
    pub turns: Vec<PooledTurn>,
    /// Evidence that is not in the pool, under no turn id.
    pub missed: Vec<Missed>,
    /// What does not fit together.
    pub notes: Vec<String>,
}

/// A turn of the pool.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PooledTurn {
    pub rank: Option<i64>,
    pub score: Option<f64>,
    pub pool_position: Option<i64>,
    pub rrf_score: Option<f64>,
    pub lists: Vec<ListPlace>,
    /// Each feature by its column's name.
    #[serde(serialize_with = "map")]
    pub features: Vec<(String, Option<f64>)>,
    pub turn_id: String,
    pub turn_ordinal: i64,
    pub session_id: Option<String>,
    #[serde(serialize_with = "date")]
    pub spoken_at: Option<i64>,
    pub content: Option<String>,
    /// What its line costs in the slate, in a session whose header is paid.
    pub line_tokens: Option<i64>,
    /// Its label, or that of evidence with the same text; none: not labelled.
    pub relevance: Option<i64>,
    pub fate: Fate,
}

impl PooledTurn {
    /// A feature's value by its column's name.
    pub fn feature(&self, name: &str) -> Option<f64> {
        self.features.iter().find(|(n, _)| n == name).and_then(|(_, value)| *value)
    }
}

/// What a recall list says of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListPlace {
    pub name: String,
    pub score: Option<f64>,
    /// From 1.
    pub rank: Option<i64>,
}

/// Evidence that recall did not bring.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Missed {
    pub turn_id: String,
    pub relevance: i64,
    pub content: Option<String>,
    pub why: String,
}

/// Characters of a turn's content that a line shows.
const SHOWN_CHARS: usize = 60;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = |t: Option<i64>| t.map_or("-".into(), |t| t.to_string());
        writeln!(f, "request: {} of store {}", self.request_id, self.store_id)?;
        writeln!(f, "question: {}", one_line(&self.question))?;
        writeln!(f, "reference date: {}", self.reference_at.and_then(rfc3339).unwrap_or("-".into()))?;
        writeln!(f, "status: {}", self.status.as_deref().unwrap_or("no slate"))?;
        writeln!(f, "tokens: {} of {}", tokens(self.tokens), tokens(self.budget_tokens))?;
        writeln!(f, "\n{}", self.grid())?;
        if !self.missed.is_empty() {
            let mut missed = Grid::new(["<missed evidence", "label", "<why", "<content"]);
            for m in &self.missed {
                let content = shown(m.content.as_deref());
                missed.row(vec![m.turn_id.clone(), m.relevance.to_string(), m.why.clone(), content]);
            }
            writeln!(f, "{missed}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn grid(&self) -> Grid {
        let mut lists = names(self.turns.iter().flat_map(|t| t.lists.iter().map(|l| l.name.as_str())));
        lists.sort_unstable();
        let mut features = names(self.turns.iter().flat_map(|t| t.features.iter().map(|(name, _)| name.as_str())));
        // The lists' scores and ranks, the position and the tokens have columns of their own.
        let of_list = |f: &str| lists.iter().any(|l| f.strip_prefix(l).is_some_and(|rest| rest.starts_with('_')));
        features.retain(|f| *f != "pool_position" && *f != "length_tokens" && !of_list(f));
        features.retain(|f| self.turns.iter().any(|t| t.feature(f).is_some()));
        let head = ["rank", "score", "pool"].into_iter().map(String::from);
        let head = head.chain(lists.iter().map(|l| format!("<{l}"))).chain(features.iter().map(|f| f.to_string()));
        let tail = ["tokens", "label", "<fate", "<turn", "<content"].into_iter().map(String::from);
        let mut grid = Grid::new(head.chain(tail));
        for turn in &self.turns {
            let whole = |v: Option<i64>| v.map_or("-".into(), |v| v.to_string());
            let mut cells = vec![whole(turn.rank), number(turn.score), whole(turn.pool_position)];
            cells.extend(lists.iter().map(|l| turn.lists.iter().find(|p| p.name == *l).map_or("-".into(), place)));
            cells.extend(features.iter().map(|f| turn.feature(f).map_or("-".into(), plain)));
            cells.extend([whole(turn.line_tokens), whole(turn.relevance)]);
            cells.extend([turn.fate.to_string(), turn.turn_id.clone(), shown(turn.content.as_deref())]);
            grid.row(cells);
        }
        grid
    }
}

/// Names, each once, in the order in which they come first.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// `12.310 (2)`: score and rank in a list.
fn place(place: &ListPlace) -> String {
    format!("{} ({})", number(place.score), place.rank.map_or("-".into(), |r| r.to_string()))
}

/// Whole numbers without decimals.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { number(Some(value)) }
}

fn shown(content: Option<&str>) -> String {
    let line = one_line(content.unwrap_or("-"));
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Without line breaks, and without what would steer a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn rfc3339(micros: i64) -> Option<String> {
    DateTime::from_timestamp_micros(micros).map(|t| t.to_rfc3339_opts(SecondsFormat::Secs, true))
}

fn date<S: Serializer>(micros: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    micros.and_then(rfc3339).serialize(serializer)
}

fn map<S: Serializer>(pairs: &[(String, Option<f64>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_cut_between_characters_and_kept_on_one_line() {
        assert_eq!(shown(Some("a\nb\u{1b}[31m")), "a b [31m");
        let long = "语".repeat(61);
        assert_eq!(shown(Some(&long)), format!("{}…", "语".repeat(60)));
        assert_eq!(shown(Some(&"é".repeat(60))), "é".repeat(60));
        assert_eq!(shown(None), "-");
    }

    #[test]
    fn dates_are_written_in_rfc_3339() {
        // 2023-05-30 23:17:00 UTC is 1,685,488,620 seconds after 1970.
        assert_eq!(rfc3339(1_685_488_620_000_000).as_deref(), Some("2023-05-30T23:17:00Z"));
    }
}
