//! The fill: walk a ranking, add each turn that still fits the budget, go on to the end.

use datafusion::common::{HashMap, HashSet};

use super::cost::{Costs, Heading};
use super::{gap, render};
use crate::system;

/// One turn of a ranking.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Item<'a> {
    pub turn_id: &'a str,
    /// Place in the store, from 0: the order of lines.
    pub turn_ordinal: i32,
    /// Place of its session in the store, from 0: the order of sessions.
    pub session_ordinal: i32,
    /// The session's first date, microseconds, UTC.
    pub session_started_at: Option<i64>,
    pub role: Option<&'a str>,
    pub content: Option<&'a str>,
    /// SHA-256 of content; none: the content itself is compared.
    pub content_hash: Option<&'a [u8]>,
    /// None: a model failed on the turn.
    pub score: Option<f64>,
}

/// What a reader of a slate should know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// No turn was chosen.
    Empty,
    /// A model failed on some turn, which therefore came last; the slate may even be empty for it.
    Degraded,
}

impl Status {
    /// As it stands in the slates table.
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Empty => "empty",
            Status::Degraded => "degraded",
        }
    }
}

/// A filled slate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    pub status: Status,
    /// Indices of the chosen items, best first.
    pub chosen: Vec<usize>,
    /// o200k tokens of `text`.
    pub tokens: i64,
    pub text: String,
}

/// Fills a slate of at most `budget_tokens` from items in rank order, the best first.
///
/// A session's header is paid once, with its first turn. A turn that does not fit is skipped. Of turns with equal
/// content only the first that fits is taken. Turns without text take no part at all.
pub fn fill(items: &[Item], budget_tokens: i64, settings: &system::Slate, costs: &mut Costs) -> Filled {
    let texts = |i: &usize| items[*i].content.is_some_and(|c| !c.trim().is_empty());
    let ranking: Vec<usize> = (0..items.len()).filter(texts).collect();
    let kept = match settings.gap_cut {
        Some(cut) => cut_at_gap(items, &ranking, cut),
        None => ranking.len(),
    };
    let page = Page { items, settings, started: session_dates(items) };
    let candidates = ranking[..kept].iter().map(|&index| Candidate {
        index,
        session: items[index].session_ordinal,
        identity: items[index].content_hash.unwrap_or(items[index].content.unwrap_or_default().as_bytes()),
    });
    let mut line = String::new();
    let (chosen, tokens) = walk(budget_tokens, candidates, |i, first| {
        line.clear();
        page.push_line(i, &mut line);
        costs.tokens(&line) + if first { costs.header(page.heading(i)).tokens } else { 0 }
    });
    let status = match ranking.iter().any(|i| items[*i].score.is_none()) {
        true => Status::Degraded,
        false if chosen.is_empty() => Status::Empty,
        false => Status::Ok,
    };
    Filled { status, tokens, text: page.text(&chosen, costs), chosen }
}

/// A turn of a ranking, as the walk sees it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub index: usize,
    pub session: i32,
    /// Turns of one identity take one slot.
    pub identity: &'a [u8],
}

/// Walks down a ranking and takes each turn that still fits; gives the indices taken and what they cost.
///
/// `cost(index, first)` is what a turn costs, with its session's header where it is the first of its session. A turn
/// that does not fit is skipped, and the walk goes on.
pub fn walk<'a>(
    budget_tokens: i64,
    ranking: impl IntoIterator<Item = Candidate<'a>>,
    mut cost: impl FnMut(usize, bool) -> i64,
) -> (Vec<usize>, i64) {
    let (mut chosen, mut tokens) = (Vec::new(), 0);
    let (mut sessions, mut identities) = (HashSet::new(), HashSet::new());
    for turn in ranking {
        let left = budget_tokens - tokens;
        // Every line costs a token at least.
        if left <= 0 {
            break;
        }
        if identities.contains(turn.identity) {
            continue;
        }
        let cost = cost(turn.index, !sessions.contains(&turn.session));
        if cost <= left {
            tokens += cost;
            sessions.insert(turn.session);
            identities.insert(turn.identity);
            chosen.push(turn.index);
        }
    }
    (chosen, tokens)
}

/// The earliest date that any item gives for its session.
fn session_dates(items: &[Item]) -> HashMap<i32, Option<i64>> {
    let mut dates: HashMap<i32, Option<i64>> = HashMap::new();
    for item in items {
        let date = dates.entry(item.session_ordinal).or_default();
        *date = [*date, item.session_started_at].into_iter().flatten().min();
    }
    dates
}

/// Items to keep, of those with text. Turns without a score come last in a ranking and have no part in its gaps.
fn cut_at_gap(items: &[Item], ranking: &[usize], cut: system::GapCut) -> usize {
    let scores: Vec<f64> = ranking.iter().filter_map(|i| items[*i].score).collect();
    match gap::keep(&scores, cut) {
        all if all == scores.len() => ranking.len(),
        some => some,
    }
}

/// How the items are shown.
struct Page<'a> {
    items: &'a [Item<'a>],
    settings: &'a system::Slate,
    /// By session.
    started: HashMap<i32, Option<i64>>,
}

impl Page<'_> {
    /// Of the item's session.
    fn heading(&self, i: usize) -> Heading {
        let ordinal = self.items[i].session_ordinal;
        let started_at = self.started.get(&ordinal).copied().flatten();
        Heading { ordinal, started_at, zone_minutes: self.settings.zone_minutes }
    }

    fn push_line(&self, i: usize, text: &mut String) {
        let item = &self.items[i];
        render::push_line(text, self.settings.rendering, item.role, item.content.unwrap_or_default());
    }

    /// Sessions in date order, the lines of each in the order in which they were said.
    fn text(&self, chosen: &[usize], costs: &mut Costs) -> String {
        let mut order = chosen.to_vec();
        order.sort_unstable_by_key(|&i| (self.items[i].session_ordinal, self.items[i].turn_ordinal, i));
        let (mut text, mut session) = (String::new(), None);
        for i in order {
            let heading = self.heading(i);
            if session.replace(heading.ordinal) != Some(heading.ordinal) {
                text.push_str(&costs.header(heading).text);
            }
            self.push_line(i, &mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{GapCut, Rendering};
    use crate::text::count_tokens;
    use proptest::prelude::*;

    fn item<'a>(turn_id: &'a str, session_ordinal: i32, turn_ordinal: i32, content: &'a str) -> Item<'a> {
        Item {
            turn_id,
            turn_ordinal,
            session_ordinal,
            role: Some("user"),
            content: Some(content),
            score: Some(0.5),
            ..Item::default()
        }
    }

    fn run(items: &[Item], budget: i64) -> Filled {
        fill(items, budget, &system::Slate::default(), &mut Costs::default())
    }

    fn ids<'a>(items: &[Item<'a>], slate: &Filled) -> Vec<&'a str> {
        slate.chosen.iter().map(|i| items[*i].turn_id).collect()
    }

    #[test]
    fn sessions_by_date_lines_as_they_were_said_ids_best_first() {
        let day = 86_400_000_000;
        let mut items = [
            item("D10:1", 9, 40, "the cat is called Momo"),
            item("D2:2", 1, 7, "I moved to Lyon"),
            item("D10:2", 9, 41, "she is two"),
            item("D2:1", 1, 6, "hello"),
        ];
        items.iter_mut().for_each(|i| i.session_started_at = Some(day * i64::from(i.session_ordinal)));
        items[3].session_started_at = Some(day - 60_000_000);
        let slate = run(&items, 2_700);
        assert_eq!(ids(&items, &slate), ["D10:1", "D2:2", "D10:2", "D2:1"]);
        assert_eq!(
            slate.text,
            "### Session 2 (1970-01-01 23:59)\nuser: hello\nuser: I moved to Lyon\n\
             ### Session 10 (1970-01-10 00:00)\nuser: the cat is called Momo\nuser: she is two\n"
        );
        assert_eq!(slate.tokens, count_tokens(&slate.text) as i64);
        assert_eq!(slate.status, Status::Ok);
    }

    #[test]
    fn headers_are_of_the_settings_zone() {
        // 2024-03-09T15:30Z: past midnight nine hours further east.
        let at = Some((19_791 * 86_400 + 15 * 3_600 + 30 * 60) * 1_000_000);
        let items = [Item { session_started_at: at, ..item("a", 0, 0, "hi") }];
        let settings = system::Slate { zone_minutes: 540, ..system::Slate::default() };
        let slate = fill(&items, 2_700, &settings, &mut Costs::default());
        assert_eq!(slate.text, "### Session 1 (2024-03-10 00:30)\nuser: hi\n");
        assert_eq!(slate.tokens, count_tokens(&slate.text) as i64);
    }

    #[test]
    fn what_does_not_fit_is_skipped_and_the_fill_goes_on() {
        let long = "word ".repeat(50_000);
        let items = [item("long", 0, 0, &long), item("a", 0, 1, "short one"), item("b", 1, 2, "short two")];
        let slate = run(&items, 2_700);
        assert_eq!(ids(&items, &slate), ["a", "b"]);
        assert_eq!(slate.text, "### Session 1\nuser: short one\n### Session 2\nuser: short two\n");
        assert_eq!(ids(&items, &run(&items, 1_000_000)), ["long", "a", "b"]);
        for budget in [i64::MIN, -1, 0, 1] {
            let slate = run(&items, budget);
            assert_eq!((slate.status, slate.tokens, slate.text.as_str()), (Status::Empty, 0, ""), "{budget}");
        }
    }

    #[test]
    fn the_budget_is_met_to_the_token_and_a_header_is_paid_once() {
        let items = [item("a", 0, 0, "one"), item("b", 0, 1, "two"), item("c", 1, 2, "three")];
        let whole = run(&items, 1_000);
        let cost = |text: &str| count_tokens(text) as i64;
        let first = cost("### Session 1\n") + cost("user: one\n");
        assert_eq!(whole.tokens, first + cost("user: two\n") + cost("### Session 2\n") + cost("user: three\n"));
        assert_eq!(run(&items, whole.tokens).chosen, [0, 1, 2]);
        assert_eq!(run(&items, whole.tokens - 1).chosen, [0, 1]);
        assert_eq!(run(&items, first).chosen, [0]);
        assert!(run(&items, first - 1).chosen.is_empty());
    }

    #[test]
    fn equal_texts_take_one_slot() {
        let hash = [7u8; 32];
        let mut items: Vec<Item> = (0..40).map(|i| item("same", 0, i, "I like tea")).collect();
        items.iter_mut().skip(1).for_each(|i| i.content_hash = Some(&hash));
        items[0].content_hash = Some(&hash);
        items.push(item("other", 0, 40, "I like coffee"));
        items.push(item("again", 1, 41, "I like coffee"));
        let slate = run(&items, 2_700);
        assert_eq!(slate.chosen, [0, 40]);
        assert_eq!(slate.text, "### Session 1\nuser: I like tea\nuser: I like coffee\n");
    }

    #[test]
    fn a_duplicate_that_did_not_fit_does_not_block_the_next() {
        // The first "tea" would open a session, which the budget no longer allows; the second stands in an open one.
        let items = [item("a", 0, 0, "coffee"), item("far", 5, 9, "tea"), item("near", 0, 1, "tea")];
        let budget = run(&[items[0], items[2]], 1_000).tokens;
        assert_eq!(ids(&items, &run(&items, budget)), ["a", "near"]);
    }

    #[test]
    fn turns_without_text_take_no_part() {
        let mut items =
            [item("blank", 0, 0, " \n\t"), item("none", 0, 1, ""), item("a", 0, 2, "text"), item("tool", 1, 3, "")];
        items[1].content = None;
        // No model was asked about them, so no score is missing.
        items.iter_mut().filter(|i| i.turn_id != "a").for_each(|i| i.score = None);
        let slate = run(&items, 2_700);
        assert_eq!((ids(&items, &slate), slate.status), (vec!["a"], Status::Ok));
        assert_eq!(run(&items[..2], 2_700).status, Status::Empty);
    }

    #[test]
    fn a_missing_score_is_said_even_where_nothing_is_chosen() {
        let mut items = [item("a", 0, 0, "one"), item("b", 0, 1, "two")];
        items[1].score = None;
        assert_eq!(run(&items, 2_700).status, Status::Degraded);
        assert_eq!(run(&items, 2_700).chosen, [0, 1]);
        assert_eq!(run(&items, 0).status, Status::Degraded, "a failure never looks like emptiness");
        assert_eq!(run(&[], 2_700).status, Status::Empty);
    }

    #[test]
    fn the_gap_cuts_before_the_fill() {
        let texts: Vec<String> = (0..8).map(|i| format!("turn {i}")).collect();
        let mut items: Vec<Item> = texts.iter().enumerate().map(|(i, t)| item("t", 0, i as i32, t)).collect();
        for (item, score) in items.iter_mut().zip([0.9, 0.88, 0.5, 0.49, 0.48, 0.47, 0.46]) {
            item.score = Some(score);
        }
        items[7].score = None;
        let settings =
            |extra| system::Slate { gap_cut: Some(GapCut { head: 0.0, tail: 0.1, extra }), ..system::Slate::default() };
        let chosen = |extra| fill(&items, 2_700, &settings(extra), &mut Costs::default()).chosen;
        assert_eq!(chosen(0), [0, 1]);
        assert_eq!(chosen(3), [0, 1, 2, 3, 4]);
        assert_eq!(chosen(5), [0, 1, 2, 3, 4, 5, 6, 7], "nothing is cut");
    }

    proptest! {
        #[test]
        fn any_budget_is_kept_and_filled(
            budget in -5i64..400,
            turns in proptest::collection::vec((0i32..4, "[a-z/ \n]{0,40}", any::<bool>()), 0..30),
            dated in any::<bool>(),
        ) {
            let items: Vec<Item> = turns.iter().enumerate().map(|(i, t)| item("t", t.0, i as i32, &t.1)).collect();
            let rendering = if dated { Rendering::Dated } else { Rendering::Sessions };
            let settings = system::Slate { rendering, ..system::Slate::default() };
            let slate = fill(&items, budget, &settings, &mut Costs::default());
            prop_assert_eq!(slate.tokens, count_tokens(&slate.text) as i64);
            prop_assert!(slate.tokens <= budget.max(0));
            // The chosen are in rank order, whatever the budget: the budget never reorders.
            prop_assert!(slate.chosen.is_sorted());
            // Nothing that was left out would still fit.
            let open: HashSet<i32> = slate.chosen.iter().map(|i| items[*i].session_ordinal).collect();
            let taken: HashSet<&str> = slate.chosen.iter().filter_map(|i| items[*i].content).collect();
            for item in items.iter().filter(|i| !i.content.unwrap().trim().is_empty()) {
                if taken.contains(item.content.unwrap()) { continue; }
                let header = if open.contains(&item.session_ordinal) { 0 } else {
                    count_tokens(&render::header(item.session_ordinal, None, 0))
                };
                let line = count_tokens(&render::line(rendering, item.role, item.content.unwrap()));
                prop_assert!(slate.tokens + (header + line) as i64 > budget);
            }
        }
    }
}
