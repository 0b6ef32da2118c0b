//! Okapi BM25 over one store.
//!
//! With N turns that have text, df of them holding a term, tf its count in a turn of len tokens:
//! `idf = ln(1 + (N - df + 0.5) / (df + 0.5))`, and a turn's score is the sum over the question's tokens, each as often
//! as it occurs, of `idf * tf / (tf + k1 * (1 - b + b * len / avglen))`, in f64. N, df and avglen are of the whole
//! store, whatever a request's reference date: one index serves all requests, and an idf is a matter of the language.

use super::lists::{Hit, Retriever};
use super::order::best_first;
use super::store::Store;
use super::terms::Terms;
use crate::error::Result;
use crate::system::Tokens;
use crate::text::Tokenizer;

/// The inverted index of a store.
pub struct Bm25<'a> {
    store: &'a Store,
    tokenizer: Tokenizer,
    terms: Terms,
    postings: Postings,
    /// Working space: a score for each turn, all 0 between requests.
    scores: Vec<f64>,
}

impl<'a> Bm25<'a> {
    pub fn new(store: &'a Store, k1: f64, b: f64, stem: bool, tokens: Tokens) -> Self {
        let mut tokenizer = Tokenizer::new(tokens, stem, store.language());
        let mut terms = Terms::default();
        let (mut words, mut ends, mut texts) = (Vec::new(), Vec::with_capacity(store.turn_count()), 0usize);
        for turn in 0..store.turn_count() {
            if let Some(content) = store.turn(turn).content.filter(|_| store.is_recallable(turn)) {
                terms.append(&mut tokenizer, content, &mut words);
                texts += 1;
            }
            ends.push(words.len());
        }
        terms.close();
        let mut postings = Postings::count(&words, &ends, terms.len());
        let length = |turn: usize| ends[turn] - if turn == 0 { 0 } else { ends[turn - 1] };
        let (n, average) = (texts as f64, words.len() as f64 / texts as f64);
        for term in 0..terms.len() {
            let range = postings.range(term);
            let df = range.len() as f64;
            let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
            for at in range {
                let (turn, tf) = (postings.turns[at] as usize, postings.weights[at]);
                postings.weights[at] = idf * tf / (tf + k1 * (1.0 - b + b * length(turn) as f64 / average));
            }
        }
        Bm25 { store, tokenizer, terms, postings, scores: vec![0.0; store.turn_count()] }
    }
}

impl Bm25<'_> {
    /// The best `depth` of the eligible turns for a question. Only turns with a score above 0: those that hold a token
    /// of the question.
    pub fn best(&mut self, question: &str, eligible: &[bool], depth: usize) -> Vec<Hit> {
        let Bm25 { tokenizer, terms, postings, scores, .. } = self;
        tokenizer.tokens(question, &mut |token| {
            let Some(term) = terms.of_stem(token) else { return };
            let range = postings.range(term as usize);
            for (&turn, weight) in postings.turns[range.clone()].iter().zip(&postings.weights[range]) {
                scores[turn as usize] += weight;
            }
        });
        // Without a branch: whether a turn holds a word of the question is anyone's guess.
        let mut hits = vec![Hit::default(); scores.len()];
        let mut count = 0;
        for (turn, (score, &eligible)) in scores.iter_mut().zip(eligible).enumerate() {
            let score = std::mem::take(score);
            hits[count] = Hit { turn, score };
            count += usize::from(eligible & (score > 0.0));
        }
        hits.truncate(count);
        best_first(hits.into_iter(), |_| true, depth)
    }
}

impl Retriever for Bm25<'_> {
    fn rank(&mut self, request: usize, eligible: &[bool], depth: usize) -> Result<Vec<Hit>> {
        Ok(self.best(self.store.request(request).question, eligible, depth))
    }
}

/// For each term, the turns that hold it, in order, and what it adds to their scores; terms end to end.
struct Postings {
    starts: Vec<usize>,
    turns: Vec<u32>,
    weights: Vec<f64>,
}

impl Postings {
    /// From all turns' terms, turn after turn, and where each turn ends. The weights are the counts.
    fn count(words: &[u32], ends: &[usize], terms: usize) -> Self {
        let mut starts = vec![0; terms + 1];
        each_word(words, ends, terms, |term, first, _| starts[term] += usize::from(first));
        let mut total = 0;
        for start in &mut starts {
            total += std::mem::replace(start, total);
        }
        let (mut turns, mut weights) = (vec![0; total], vec![0.0; total]);
        let mut next = starts.clone();
        each_word(words, ends, terms, |term, first, turn| {
            next[term] += usize::from(first);
            turns[next[term] - 1] = turn;
            weights[next[term] - 1] += 1.0;
        });
        Postings { starts, turns, weights }
    }

    fn range(&self, term: usize) -> std::ops::Range<usize> {
        self.starts[term]..self.starts[term + 1]
    }
}

/// Calls `each` with every word's term, whether it is the term's first in its turn, and the turn.
fn each_word(words: &[u32], ends: &[usize], terms: usize, mut each: impl FnMut(usize, bool, u32)) {
    let mut last = vec![u32::MAX; terms];
    let mut start = 0;
    for (turn, &end) in ends.iter().enumerate() {
        let turn = turn as u32;
        for &term in &words[start..end] {
            let term = term as usize;
            each(term, std::mem::replace(&mut last[term], turn) != turn, turn);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::store::{StoreBuilder, Turn};
    use proptest::prelude::*;

    fn store(texts: &[&str]) -> Store {
        let mut rows = StoreBuilder::default();
        for (ordinal, text) in texts.iter().enumerate() {
            rows.push_turn(Turn { ordinal: ordinal as i32, id: "t", content: Some(text), ..Default::default() });
        }
        rows.finish()
    }

    fn rank(store: &Store, question: &str, k1: f64, b: f64) -> Vec<Hit> {
        Bm25::new(store, k1, b, false, Tokens::Unicode).best(question, &store.eligible(None), usize::MAX)
    }

    /// The definition, written down a second time: no index, no shared working space.
    fn by_definition(texts: &[&str], question: &str, k1: f64, b: f64) -> Vec<f64> {
        let cut = |text: &str| {
            let mut all = Vec::new();
            Tokenizer::new(Tokens::Unicode, false, None).tokens(text, &mut |t| all.push(t.to_string()));
            all
        };
        let with_text: Vec<&&str> = texts.iter().filter(|t| !t.trim().is_empty()).collect();
        let n = with_text.len() as f64;
        let average = with_text.iter().map(|t| cut(t).len()).sum::<usize>() as f64 / n;
        let score = |text: &str| {
            let tokens = cut(text);
            let term = |term: &String| {
                let tf = tokens.iter().filter(|t| *t == term).count() as f64;
                let df = with_text.iter().filter(|t| cut(t).contains(term)).count() as f64;
                let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
                if tf == 0.0 { 0.0 } else { idf * tf / (tf + k1 * (1.0 - b + b * tokens.len() as f64 / average)) }
            };
            cut(question).iter().map(term).sum()
        };
        texts.iter().map(|t| score(t)).collect()
    }

    #[test]
    fn scores_by_hand() {
        // N 3, average length 2. "cat": df 2, idf ln(1 + 1.5/2.5) = ln 1.6. k1 1, b 0: tf/(tf+1).
        let store = store(&["cat cat dog", "cat", "dog mouse"]);
        let hits = rank(&store, "cat", 1.0, 0.0);
        let idf = 1.6f64.ln();
        assert_eq!(hits.iter().map(|h| h.turn).collect::<Vec<_>>(), [0, 1]);
        assert!((hits[0].score - idf * 2.0 / 3.0).abs() < 1e-15 && (hits[1].score - idf / 2.0).abs() < 1e-15);
        // b 1: lengths 3 and 1 against 2, so 2/(2+1.5) and 1/(1+0.5): the shorter turn wins.
        let hits = rank(&store, "cat", 1.0, 1.0);
        assert_eq!(hits.iter().map(|h| h.turn).collect::<Vec<_>>(), [1, 0]);
        assert!((hits[0].score - idf / 1.5).abs() < 1e-15 && (hits[1].score - idf * 2.0 / 3.5).abs() < 1e-15);
        // A token asked twice counts twice.
        let twice = rank(&store, "cat cat", 1.0, 1.0);
        assert!((twice[0].score - 2.0 * idf / 1.5).abs() < 1e-15);
    }

    #[test]
    fn a_question_of_chinese_finds_the_sentence_that_holds_it() {
        let store = store(&[
            "我们昨天去了公园",
            "今天玩成语接龙游戏",
            "成语词典很有用",
            "今日は天気がいい",
            "한국어 공부",
            "ไปเที่ยวทะเล",
        ]);
        let first = |question| rank(&store, question, 0.9, 0.4).first().map(|h| h.turn);
        assert_eq!(first("成语接龙"), Some(1));
        assert_eq!(first("天気"), Some(3));
        assert_eq!(first("한국어"), Some(4));
        assert_eq!(first("ทะเล"), Some(5));
    }

    #[test]
    fn a_question_without_tokens_has_an_empty_list() {
        let store = store(&["a cat", "!!! 😀"]);
        for question in ["!!! 😀", "", "   "] {
            assert!(rank(&store, question, 0.9, 0.4).is_empty(), "{question:?}");
        }
    }

    #[test]
    fn equal_scores_come_in_the_order_of_the_turns() {
        let texts: Vec<String> = (0..50).map(|_| "the same words".to_string()).collect();
        let store = store(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let turns: Vec<_> = rank(&store, "same words", 0.9, 0.4).iter().map(|h| h.turn).collect();
        assert_eq!(turns, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn stems_are_of_the_stores_language() {
        let mut rows = StoreBuilder::default();
        for (ordinal, content) in ["Die Häuser sind alt", "Das Wetter ist schön"].into_iter().enumerate() {
            let turn = Turn { ordinal: ordinal as i32, id: "t", content: Some(content), ..Default::default() };
            rows.push_turn(Turn { language: Some("de"), ..turn });
        }
        let store = rows.finish();
        let hits = |stem| {
            let mut index = Bm25::new(&store, 0.9, 0.4, stem, Tokens::Unicode);
            index.best("Haus", &store.eligible(None), usize::MAX).len()
        };
        assert_eq!((hits(true), hits(false)), (1, 0));
    }

    #[test]
    fn a_store_of_very_short_turns_is_stemmed() {
        let texts = ["hi", "running late", "no worries", "where are you?", "at the station", "see you there", "thanks"];
        let store = store(&texts);
        let mut index = Bm25::new(&store, 0.9, 0.4, true, Tokens::Unicode);
        let hits = index.best("who runs?", &store.eligible(None), usize::MAX);
        assert_eq!(hits.iter().map(|h| h.turn).collect::<Vec<_>>(), [1]);
    }

    proptest! {
        #[test]
        fn the_index_is_the_definition(
            texts in prop::collection::vec("([a-e]{1,2} |[。 !]|[あ-う]){0,12}", 0..30),
            question in "([a-e]{1,2} |[あ-う]){0,6}",
            k1 in 0.0..3.0f64,
            b in 0.0..=1.0f64,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let expected = by_definition(&texts, &question, k1, b);
            let store = store(&texts);
            let hits = rank(&store, &question, k1, b);
            prop_assert_eq!(hits.len(), expected.iter().filter(|&&s| s > 0.0).count());
            for hit in &hits {
                prop_assert!((hit.score - expected[hit.turn]).abs() < 1e-12, "{} {}", hit.score, expected[hit.turn]);
            }
            for pair in hits.windows(2) {
                let (a, b) = (pair[0], pair[1]);
                prop_assert!(a.score > b.score || (a.score == b.score && a.turn < b.turn));
            }
        }
    }
}
