//! One store's turns and requests, held compactly.

use std::collections::BTreeMap;

use crate::text::detect_language_together;

/// See [`Store::language`].
const FEW: usize = 10;

/// A turn as recall sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Place in the store, from 0, in time order.
    pub ordinal: i32,
    pub id: &'a str,
    /// None or blank: kept in order, never recalled.
    pub content: Option<&'a str>,
    /// ISO 639-1 code.
    pub language: Option<&'a str>,
    /// Equal hashes are equal contents; None is equal to nothing.
    pub content_hash: Option<&'a [u8]>,
    /// Unit vector, little-endian f16.
    pub vector: Option<&'a [u8]>,
    /// Microseconds, UTC.
    pub spoken_at: Option<i64>,
}

/// A request as recall sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request<'a> {
    pub id: &'a str,
    pub question: &'a str,
    /// Unit vector, little-endian f16.
    pub vector: Option<&'a [u8]>,
    /// Microseconds, UTC: nothing said after it is recalled.
    pub reference_at: Option<i64>,
}

/// Rows in the order in which they came; [`StoreBuilder::finish`] puts them in order.
#[derive(Debug, Default)]
pub struct StoreBuilder {
    turns: Turns,
    requests: Requests,
}

#[derive(Debug, Default)]
struct Turns {
    ordinals: Vec<i32>,
    spoken_at: Vec<Option<i64>>,
    ids: Texts,
    contents: Texts,
    languages: Texts,
    hashes: Buffer,
    vectors: Buffer,
}

#[derive(Debug, Default)]
struct Requests {
    reference_at: Vec<Option<i64>>,
    ids: Texts,
    questions: Texts,
    vectors: Buffer,
}

impl StoreBuilder {
    pub fn push_turn(&mut self, turn: Turn<'_>) {
        let rows = &mut self.turns;
        rows.ordinals.push(turn.ordinal);
        rows.spoken_at.push(turn.spoken_at);
        rows.ids.push(Some(turn.id));
        rows.contents.push(turn.content);
        rows.languages.push(turn.language);
        rows.hashes.push(turn.content_hash);
        rows.vectors.push(turn.vector);
    }

    pub fn push_request(&mut self, request: Request<'_>) {
        let rows = &mut self.requests;
        rows.reference_at.push(request.reference_at);
        rows.ids.push(Some(request.id));
        rows.questions.push(Some(request.question));
        rows.vectors.push(request.vector);
    }

    /// The turns pushed so far, as they came.
    pub fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        (0..self.turns.ordinals.len()).map(|i| self.turns.get(i))
    }

    /// The requests pushed so far, as they came.
    pub fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        (0..self.requests.reference_at.len()).map(|i| self.requests.get(i))
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        let (turns, requests) = (&self.turns, &self.requests);
        let texts = [&turns.ids, &turns.contents, &turns.languages, &requests.ids, &requests.questions];
        let buffers = [&turns.hashes, &turns.vectors, &requests.vectors];
        size_of::<Self>()
            + turns.ordinals.capacity() * size_of::<i32>()
            + (turns.spoken_at.capacity() + requests.reference_at.capacity()) * size_of::<Option<i64>>()
            + texts.into_iter().map(Texts::size).sum::<usize>()
            + buffers.into_iter().map(Buffer::size).sum::<usize>()
    }

    /// Turns in the order of their ordinals, requests in the order of their ids.
    pub fn finish(self) -> Store {
        let StoreBuilder { turns, requests } = self;
        let mut turn_order: Vec<usize> = (0..turns.ordinals.len()).collect();
        // Ordinals are unique in a store; the id only keeps a faulty one reproducible.
        turn_order.sort_unstable_by_key(|&i| (turns.ordinals[i], turns.ids.get(i), i));
        let mut request_order: Vec<usize> = (0..requests.reference_at.len()).collect();
        request_order.sort_unstable_by_key(|&i| (requests.ids.get(i), requests.reference_at[i], i));
        let recallable =
            turn_order.iter().map(|&i| turns.contents.get(i).is_some_and(|text| !text.trim().is_empty())).collect();
        Store { turns, requests, turn_order, request_order, recallable }
    }
}

/// One store. Turns are counted from 0 in the order of their ordinals, requests in the order of their ids.
#[derive(Debug)]
pub struct Store {
    turns: Turns,
    requests: Requests,
    turn_order: Vec<usize>,
    request_order: Vec<usize>,
    recallable: Vec<bool>,
}

impl Store {
    pub fn turn_count(&self) -> usize {
        self.turn_order.len()
    }

    pub fn turn(&self, turn: usize) -> Turn<'_> {
        self.turns.get(self.turn_order[turn])
    }

    pub fn request_count(&self) -> usize {
        self.request_order.len()
    }

    pub fn request(&self, request: usize) -> Request<'_> {
        self.requests.get(self.request_order[request])
    }

    /// A turn's vector alone.
    pub(super) fn vector(&self, turn: usize) -> Option<&[u8]> {
        self.turns.vectors.get(self.turn_order[turn])
    }

    /// A turn's content hash alone.
    pub(super) fn content_hash(&self, turn: usize) -> Option<&[u8]> {
        self.turns.hashes.get(self.turn_order[turn])
    }

    /// The turn has text.
    pub fn is_recallable(&self, turn: usize) -> bool {
        self.recallable[turn]
    }

    /// For each turn, whether a request with this reference date may recall it.
    pub fn eligible(&self, reference_at: Option<i64>) -> Vec<bool> {
        let after = |turn: usize| match (self.turns.spoken_at[self.turn_order[turn]], reference_at) {
            (Some(spoken), Some(reference)) => spoken > reference,
            _ => false,
        };
        (0..self.turn_count()).map(|turn| self.recallable[turn] && !after(turn)).collect()
    }

    /// The language of most turns that have one; of equals, the first in the alphabet.
    ///
    /// Where fewer than one turn of text in [`FEW`] has one, it is that of the turns' text together: the turns are
    /// too short to show theirs alone, and what a few of them seem to be is chance.
    pub fn language(&self) -> Option<&str> {
        let mut counts = BTreeMap::new();
        for language in (0..self.turn_count()).filter_map(|turn| self.turns.languages.get(self.turn_order[turn])) {
            *counts.entry(language).or_insert(0usize) += 1;
        }
        let texts = || (0..self.turn_count()).filter(|&t| self.recallable[t]).filter_map(|t| self.turn(t).content);
        let few = counts.values().sum::<usize>() * FEW < texts().count();
        let most = counts.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0))).map(|(language, _)| language);
        if few { detect_language_together(texts()).or(most) } else { most }
    }
}

impl Turns {
    fn get(&self, i: usize) -> Turn<'_> {
        Turn {
            ordinal: self.ordinals[i],
            id: self.ids.get(i).unwrap_or_default(),
            content: self.contents.get(i),
            language: self.languages.get(i),
            content_hash: self.hashes.get(i),
            vector: self.vectors.get(i),
            spoken_at: self.spoken_at[i],
        }
    }
}

impl Requests {
    fn get(&self, i: usize) -> Request<'_> {
        Request {
            id: self.ids.get(i).unwrap_or_default(),
            question: self.questions.get(i).unwrap_or_default(),
            vector: self.vectors.get(i),
            reference_at: self.reference_at[i],
        }
    }
}

/// Values end to end, some of them null.
#[derive(Debug, Default)]
struct EndToEnd<T> {
    values: T,
    /// Where each ends, and whether it is there.
    ends: Vec<(usize, bool)>,
}

/// Byte strings.
type Buffer = EndToEnd<Vec<u8>>;
/// Texts: kept as such, so that none is checked again when it is read.
type Texts = EndToEnd<String>;

impl<T> EndToEnd<T> {
    /// Where the value stands, if it is there.
    fn range(&self, i: usize) -> Option<std::ops::Range<usize>> {
        let start = if i == 0 { 0 } else { self.ends[i - 1].0 };
        let (end, present) = self.ends[i];
        present.then_some(start..end)
    }

    fn ends_size(&self) -> usize {
        self.ends.capacity() * size_of::<(usize, bool)>()
    }
}

impl Buffer {
    fn push(&mut self, value: Option<&[u8]>) {
        self.values.extend_from_slice(value.unwrap_or_default());
        self.ends.push((self.values.len(), value.is_some()));
    }

    fn get(&self, i: usize) -> Option<&[u8]> {
        self.range(i).map(|range| &self.values[range])
    }

    fn size(&self) -> usize {
        self.values.capacity() + self.ends_size()
    }
}

impl Texts {
    fn push(&mut self, value: Option<&str>) {
        self.values.push_str(value.unwrap_or_default());
        self.ends.push((self.values.len(), value.is_some()));
    }

    fn get(&self, i: usize) -> Option<&str> {
        self.range(i).map(|range| &self.values[range])
    }

    fn size(&self) -> usize {
        self.values.capacity() + self.ends_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(ordinal: i32, id: &str) -> Turn<'_> {
        Turn { ordinal, id, content: Some("x"), ..Default::default() }
    }

    #[test]
    fn rows_are_ordered_by_ordinal_and_by_request_id() {
        let mut rows = StoreBuilder::default();
        [turn(9, "D2:1"), turn(20, "D10:1"), turn(3, "D1:1")].into_iter().for_each(|t| rows.push_turn(t));
        ["q2", "q1"].into_iter().for_each(|id| rows.push_request(Request { id, ..Default::default() }));
        let store = rows.finish();
        let ids: Vec<_> = (0..3).map(|t| store.turn(t).id).collect();
        assert_eq!(ids, ["D1:1", "D2:1", "D10:1"]);
        assert_eq!((store.request(0).id, store.request(1).id), ("q1", "q2"));
    }

    #[test]
    fn the_language_is_the_most_frequent_then_the_first() {
        let language = |languages: &[Option<&str>]| {
            let mut rows = StoreBuilder::default();
            for &language in languages {
                rows.push_turn(Turn { language, ..turn(0, "a") });
            }
            rows.finish().language().map(str::to_string)
        };
        assert_eq!(language(&[]), None);
        assert_eq!(language(&[None, None, Some("fr")]).as_deref(), Some("fr"));
        assert_eq!(language(&[Some("fr"), Some("de"), Some("fr"), Some("de")]).as_deref(), Some("de"));
        assert_eq!(language(&[Some("fr"), Some("de"), Some("fr")]).as_deref(), Some("fr"));
    }

    #[test]
    fn a_store_of_short_turns_has_the_language_of_their_text() {
        let lines = ["ok", "running late", "no worries", "where are you?", "at the station", "see you there", "thanks"];
        let language = |told: &[Option<&str>], content: &dyn Fn(usize) -> Option<&'static str>| {
            let mut rows = StoreBuilder::default();
            for (i, &language) in told.iter().enumerate() {
                rows.push_turn(Turn { language, content: content(i), ..turn(i as i32, "a") });
            }
            rows.finish().language().map(str::to_string)
        };
        let short = |i: usize| Some(lines[i % lines.len()]);
        assert_eq!(language(&[None; 35], &short).as_deref(), Some("en"));
        // One turn in 35 is no majority; where the text says nothing, it is all there is.
        let one = [&[Some("af")][..], &[None; 34]].concat();
        assert_eq!(language(&one, &short).as_deref(), Some("en"));
        assert_eq!(language(&one, &|_| Some("ok")).as_deref(), Some("af"));
        // What is told of a tenth of the turns stands.
        let tenth = [&[Some("nl"); 4][..], &[None; 31]].concat();
        assert_eq!(language(&tenth, &short).as_deref(), Some("nl"));
        // Turns without text have no say.
        let blank = |i: usize| if i == 0 { Some("x") } else { None };
        assert_eq!(language(&one, &blank).as_deref(), Some("af"));
    }

    #[test]
    fn blank_and_later_turns_are_not_eligible() {
        let mut rows = StoreBuilder::default();
        let at = |ordinal, content, spoken_at| Turn { ordinal, id: "t", content, spoken_at, ..Default::default() };
        rows.push_turn(at(0, Some("a"), Some(10)));
        rows.push_turn(at(1, Some(" \u{3000}\n"), Some(10)));
        rows.push_turn(at(2, None, Some(10)));
        rows.push_turn(at(3, Some("a"), Some(11)));
        rows.push_turn(at(4, Some("a"), None));
        let store = rows.finish();
        assert_eq!(store.eligible(Some(10)), [true, false, false, false, true]);
        assert_eq!(store.eligible(None), [true, false, false, true, true]);
    }

    #[test]
    fn the_size_is_that_of_the_rows() {
        let mut rows = StoreBuilder::default();
        let (content, vector) = ("x".repeat(1_000), vec![0u8; 768]);
        for ordinal in 0..100 {
            rows.push_turn(Turn { content: Some(&content), vector: Some(&vector), ..turn(ordinal, "t") });
        }
        let least = 100 * (1_000 + 768);
        assert!((least..3 * least).contains(&rows.size()), "{}", rows.size());
    }
}
