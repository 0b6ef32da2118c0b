//! Replays the fill of one slate to say why each turn is in it or not.
//!
//! The fill walks the ranking, adds each turn that still fits the budget and skips one that does not. The replay follows
//! the stored slate, so it explains that slate, and says so where a turn's fate is not what the walk would have given it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Result;

/// A turn, with all that its rendering may need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnLine {
    pub turn_id: String,
    pub turn_ordinal: i64,
    pub session_id: String,
    pub session_ordinal: i64,
    /// When the session's first dated turn was said.
    pub session_started_at: Option<i64>,
    pub role: String,
    pub speaker: Option<String>,
    pub content: Option<String>,
    /// Microseconds since 1970, UTC.
    pub spoken_at: Option<i64>,
    /// o200k tokens of content.
    pub tokens: i64,
}

impl TurnLine {
    /// There is nothing in it to read.
    pub fn is_blank(&self) -> bool {
        self.content.as_deref().is_none_or(|c| c.trim().is_empty())
    }
}

/// What became of a turn of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fate {
    InSlate,
    /// It cost more than was left of the budget when it came.
    DidNotFit {
        tokens: i64,
        left: i64,
    },
    /// Another turn with the same text came earlier in the ranking.
    SameText {
        turn_id: String,
    },
    Blank,
    /// The ranking was cut above it.
    BelowCut,
    #[default]
    NotRanked,
    /// The request has no slate.
    NoSlate,
    /// The turns table does not hold it any more.
    NotInStore,
    /// Not what the walk gives: the slate was made from another ranking, other turns or another rendering.
    Unexpected {
        in_slate: bool,
        tokens: i64,
        left: i64,
    },
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::InSlate => f.write_str("in slate"),
            Fate::DidNotFit { tokens, left } => write!(f, "did not fit: {tokens} tokens, {left} left when it came"),
            Fate::SameText { turn_id } => write!(f, "same text as {turn_id}, which came earlier"),
            Fate::Blank => f.write_str("blank"),
            Fate::BelowCut => f.write_str("below the cut"),
            Fate::NotRanked => f.write_str("not ranked"),
            Fate::NoSlate => f.write_str("no slate"),
            Fate::NotInStore => f.write_str("not in the store"),
            Fate::Unexpected { in_slate: true, tokens, left } => {
                write!(f, "in slate, though {tokens} tokens do not fit: {left} left when it came")
            }
            Fate::Unexpected { in_slate: false, tokens, left } => {
                write!(f, "left out, though {tokens} tokens fit: {left} left when it came")
            }
        }
    }
}

impl Serialize for Fate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The stored slate.
pub struct Filled<'a> {
    pub turn_ids: HashSet<&'a str>,
    pub budget_tokens: i64,
}

/// Walks the ranking, best first, and gives each turn's fate. `kept` turns with text, at its head, were left by the
/// cut.
/// `cost(turn, session_first)` is what adding a turn costs in rendered tokens; with its session's header if
/// `session_first`.
pub fn walk<'a>(
    ranking: &[&'a str],
    turns: &'a HashMap<String, TurnLine>,
    filled: &Filled,
    kept: Option<usize>,
    cost: &mut impl FnMut(&TurnLine, bool) -> Result<i64>,
) -> Result<Vec<Fate>> {
    let mut left = filled.budget_tokens;
    let mut sessions: HashSet<&str> = HashSet::new();
    let (mut chosen, mut seen): (HashMap<&str, &str>, HashMap<&str, &str>) = (HashMap::new(), HashMap::new());
    let mut fates = Vec::with_capacity(ranking.len());
    let mut with_text = 0;
    for id in ranking {
        let in_slate = filled.turn_ids.contains(id);
        let Some(turn) = turns.get(*id) else {
            fates.push(Fate::NotInStore);
            continue;
        };
        let text = turn.content.as_deref().unwrap_or_default();
        if !in_slate && turn.is_blank() {
            fates.push(Fate::Blank);
            continue;
        }
        with_text += 1;
        if !in_slate && kept.is_some_and(|k| with_text > k) {
            fates.push(Fate::BelowCut);
            continue;
        }
        let tokens = cost(turn, !sessions.contains(turn.session_id.as_str()))?;
        let same_text = |of: &HashMap<&str, &str>| of.get(text).map(|t| Fate::SameText { turn_id: t.to_string() });
        let fits = tokens <= left;
        fates.push(match (in_slate, fits) {
            (true, true) => Fate::InSlate,
            (true, false) => Fate::Unexpected { in_slate, tokens, left },
            (false, false) => same_text(&chosen).unwrap_or(Fate::DidNotFit { tokens, left }),
            (false, true) => same_text(&seen).unwrap_or(Fate::Unexpected { in_slate, tokens, left }),
        });
        seen.entry(text).or_insert(*id);
        if in_slate {
            left -= tokens;
            sessions.insert(&turn.session_id);
            chosen.entry(text).or_insert(*id);
        }
    }
    Ok(fates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(id: &str, session: &str, content: &str, tokens: i64) -> (String, TurnLine) {
        let content = (!content.is_empty()).then(|| content.to_string());
        let line = TurnLine { turn_id: id.into(), session_id: session.into(), content, tokens, ..TurnLine::default() };
        (id.into(), line)
    }

    /// A line costs its tokens, a session's header 10.
    fn cost(turn: &TurnLine, session_first: bool) -> Result<i64> {
        Ok(turn.tokens + if session_first { 10 } else { 0 })
    }

    fn fates(slate: &[&str], budget_tokens: i64, kept: Option<usize>) -> Vec<String> {
        let turns = HashMap::from([
            turn("a", "s1", "one", 20),
            turn("b", "s1", "two", 30),
            turn("c", "s2", "one", 5),
            turn("d", "s2", "", 0),
            turn("e", "s2", "three", 25),
            turn("f", "s1", "four", 5),
        ]);
        let filled = Filled { turn_ids: slate.iter().copied().collect(), budget_tokens };
        let ranking = ["a", "b", "c", "d", "e", "f", "gone"];
        let fates = walk(&ranking, &turns, &filled, kept, &mut cost).unwrap();
        fates.iter().map(Fate::to_string).collect()
    }

    #[test]
    fn a_header_is_paid_once_and_what_does_not_fit_is_skipped() {
        // a: 20 + 10, 40 left; b: 30, 10 left; c says what a says; d is empty; e: 25 + 10 > 10; f: 5.
        assert_eq!(
            fates(&["a", "b", "f"], 70, None),
            [
                "in slate",
                "in slate",
                "same text as a, which came earlier",
                "blank",
                "did not fit: 35 tokens, 10 left when it came",
                "in slate",
                "not in the store"
            ]
        );
    }

    #[test]
    fn the_cut_comes_before_the_walk_and_counts_turns_with_text() {
        let fates = fates(&["a", "b", "e"], 100, Some(4));
        assert_eq!(fates[2..6], ["same text as a, which came earlier", "blank", "in slate", "below the cut"]);
    }

    #[test]
    fn what_the_walk_does_not_give_is_said() {
        let fates = fates(&["a", "e"], 60, None);
        assert_eq!(fates[1], "left out, though 30 tokens fit: 30 left when it came");
        assert_eq!(fates[4], "in slate, though 35 tokens do not fit: 30 left when it came");
    }

    #[test]
    fn a_budget_of_nothing() {
        let fates = fates(&[], 0, None);
        assert_eq!(fates[0], "did not fit: 30 tokens, 0 left when it came");
        assert_eq!(fates[2], "did not fit: 15 tokens, 0 left when it came");
    }
}
