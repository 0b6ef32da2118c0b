//! Okapi BM25 over one store.
//!
//! With N turns that have text, df of them holding a term, tf its count in a turn of len tokens:
//! `idf = ln(1 + (N - df + 0.5) / (df + 0.5))`, and a turn's score is the sum over the question's tokens, each as often
//! as it occurs, of `idf * tf / (tf + k1 * (1 - b + b * len / avglen))`, in f64. N, df and avglen are of the whole
//! store, whatever a request's reference date: one index serves all requests, and an idf is a matter of the language.

use std::collections::HashMap;

use super::lists::{Hit, Retriever, best_first};
use super::store::{Request, Store};
use crate::error::Result;
use crate::system::Tokens;
use crate::text::Tokenizer;

/// The inverted index of a store.
pub struct Bm25 {
    tokenizer: Tokenizer,
    terms: Terms,
    /// For each term, the turns that hold it, in order, and what it adds to their scores.
    postings: Vec<Vec<(u32, f64)>>,
    /// Working space: a score for each turn, all 0 between requests.
    scores: Vec<f64>,
}

impl Bm25 {
    pub fn new(store: &Store, k1: f64, b: f64, stem: bool, tokens: Tokens) -> Self {
        let mut tokenizer = Tokenizer::new(tokens, stem, store.language());
        let mut terms = Terms::default();
        let mut postings: Vec<Vec<(u32, f64)>> = Vec::new();
        let mut lengths = vec![0usize; store.turn_count()];
        let mut words = Vec::new();
        for (turn, length) in lengths.iter_mut().enumerate() {
            let Some(content) = store.turn(turn).content.filter(|_| store.is_recallable(turn)) else { continue };
            terms.ids(&mut tokenizer, content, &mut words);
            *length = words.len();
            postings.resize_with(terms.count, Vec::new);
            for &term in &words {
                // Turns come in order: a term's latest posting is this turn's, or an earlier turn's.
                match postings[term as usize].last_mut() {
                    Some((last, tf)) if *last as usize == turn => *tf += 1.0,
                    _ => postings[term as usize].push((turn as u32, 1.0)),
                }
            }
        }
        let texts = (0..store.turn_count()).filter(|&turn| store.is_recallable(turn)).count() as f64;
        let average = lengths.iter().sum::<usize>() as f64 / texts;
        for holders in &mut postings {
            let df = holders.len() as f64;
            let idf = (1.0 + (texts - df + 0.5) / (df + 0.5)).ln();
            for (turn, weight) in holders {
                let tf = *weight;
                let length = lengths[*turn as usize] as f64;
                *weight = idf * tf / (tf + k1 * (1.0 - b + b * length / average));
            }
        }
        Bm25 { tokenizer, terms, postings, scores: vec![0.0; store.turn_count()] }
    }
}

impl Retriever for Bm25 {
    /// Only turns with a score above 0: those that hold a token of the question.
    fn rank(&mut self, request: &Request<'_>, eligible: &[bool]) -> Result<Vec<Hit>> {
        let mut touched = Vec::new();
        let Bm25 { tokenizer, terms, postings, scores } = self;
        tokenizer.tokens(request.question, &mut |token| {
            let Some(&term) = terms.by_stem.get(token) else { return };
            for &(turn, weight) in &postings[term as usize] {
                let score = &mut scores[turn as usize];
                if *score == 0.0 {
                    touched.push(turn as usize);
                }
                *score += weight;
            }
        });
        let hits = touched.iter().map(|&turn| Hit { turn, score: std::mem::take(&mut scores[turn]) });
        Ok(best_first(hits.filter(|hit| eligible[hit.turn] && hit.score > 0.0).collect()))
    }
}

/// Numbers for terms. A word seen before is not stemmed again.
#[derive(Default)]
struct Terms {
    by_word: HashMap<Box<str>, u32>,
    by_stem: HashMap<Box<str>, u32>,
    count: usize,
}

impl Terms {
    /// Puts the term of each token of the text, in order, into `ids`.
    fn ids(&mut self, tokenizer: &mut Tokenizer, text: &str, ids: &mut Vec<u32>) {
        ids.clear();
        tokenizer.words(text, &mut |word, stems| {
            let term = self.by_word.get(word).copied().unwrap_or_else(|| self.add(word, &stems.of(word)));
            ids.push(term);
        });
    }

    fn add(&mut self, word: &str, stem: &str) -> u32 {
        let term = match self.by_stem.get(stem) {
            Some(&term) => term,
            None => {
                let term = u32::try_from(self.count).expect("a store has fewer than 2^32 words");
                self.count += 1;
                self.by_stem.insert(stem.into(), term);
                term
            }
        };
        self.by_word.insert(word.into(), term);
        term
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
        let request = Request { question, ..Default::default() };
        Bm25::new(store, k1, b, false, Tokens::Unicode).rank(&request, &store.eligible(None)).unwrap()
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
        let request = Request { question: "Haus", ..Default::default() };
        let hits = |stem| {
            let mut index = Bm25::new(&store, 0.9, 0.4, stem, Tokens::Unicode);
            index.rank(&request, &store.eligible(None)).unwrap().len()
        };
        assert_eq!((hits(true), hits(false)), (1, 0));
    }

    #[test]
    fn a_large_store_is_indexed_at_once() {
        // As many turns and words as a store of 500 sessions has: 4,900 turns of 250 words.
        let mut seed = 1u64;
        let mut word = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Most words are of the few hundred frequent ones, as in a language.
            let u = (seed >> 40) as f64 / (1u64 << 24) as f64;
            format!("word{}ing", (30_000f64.powf(u)) as usize)
        };
        let texts: Vec<String> = (0..4_900).map(|_| (0..250).map(|_| word()).collect::<Vec<_>>().join(" ")).collect();
        let store = store(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let start = std::time::Instant::now();
        let index = Bm25::new(&store, 0.9, 0.4, true, Tokens::Unicode);
        let took = start.elapsed();
        eprintln!("4,900 turns of 250 words, {} terms: {took:?}", index.terms.count);
        assert!(took.as_secs() < 5, "{took:?}");
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
