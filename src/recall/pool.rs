//! The pools of one store's requests.

use super::fuse::{self, Fused, Fusion};
use super::lists::{self, Hit, Retriever};
use super::store::Store;
use crate::error::{Error, Result};
use crate::system::{List, Recall};

/// A turn of a request's pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// Counted as in [`Store::request`].
    pub request: usize,
    /// Counted as in [`Store::turn`].
    pub turn: usize,
    /// Rank in the fused order, from 1.
    pub pool_position: i32,
    pub rrf_score: f64,
    /// What the lists that hold the turn say of it, in the system's order.
    pub places: Vec<Place>,
}

/// A turn's place in one list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Counted as in [`Recall::lists`].
    pub list: usize,
    pub score: f64,
    /// From 1.
    pub rank: i32,
}

/// The pool of each request, requests in the order of their ids, turns in the fused order.
///
/// A list is cut at `depth` before it is fused (and what was cut off counts as not in the list). Only turns of some
/// list are in a pool, so that one can be smaller than `pool_size`, and empty.
pub fn pool(store: &Store, recall: &Recall) -> Result<Vec<Pooled>> {
    if store.request_count() == 0 {
        return Ok(Vec::new());
    }
    if i32::try_from(store.turn_count()).is_err() {
        return Err(Error::data(format!("a store of {} turns is more than ranks can count", store.turn_count())));
    }
    let mut open = Vec::new();
    for list in &recall.lists {
        open.push(lists::open(list, store)?);
    }
    let fusion = Fusion::new(recall.lists.iter().map(List::weight), recall.rrf_k, store.turn_count());
    let mut pools = Pools { store, recall, open, fusion };
    let (mut pooled, mut eligible, mut date) = (Vec::new(), Vec::new(), None);
    for request in 0..store.request_count() {
        let row = store.request(request);
        // Most requests of a store have one reference date.
        if date != Some(row.reference_at) {
            (date, eligible) = (Some(row.reference_at), store.eligible(row.reference_at));
        }
        pools.one(request, &eligible, &mut pooled).map_err(|e| e.at(format!("request {:?}", row.id)))?;
    }
    Ok(pooled)
}

/// A store with its lists open.
struct Pools<'a> {
    store: &'a Store,
    recall: &'a Recall,
    open: Vec<Box<dyn Retriever + 'a>>,
    fusion: Fusion,
}

impl Pools<'_> {
    /// Appends the pool of one request.
    fn one(&mut self, request: usize, eligible: &[bool], pooled: &mut Vec<Pooled>) -> Result<()> {
        let depth = unless_zero(self.recall.depth);
        let ranked = self.open.iter_mut().map(|retriever| retriever.rank(request, eligible, depth));
        let hits = ranked.collect::<Result<Vec<Vec<Hit>>>>()?;
        let fusion = &mut self.fusion;
        for (i, fused) in best(fusion, &hits, self.recall, self.store).iter().enumerate() {
            let place = |list: usize| {
                let rank = fusion.rank(list, fused.turn);
                let hit = hits[list].get(rank.checked_sub(1)?)?;
                Some(Place { list, score: hit.score, rank: rank as i32 })
            };
            pooled.push(Pooled {
                request,
                turn: fused.turn,
                pool_position: i as i32 + 1,
                rrf_score: fused.score,
                places: (0..hits.len()).filter_map(place).collect(),
            });
        }
        Ok(())
    }
}

/// The fused order, without copies of a turn where the system wants none, as far as the pool goes.
fn best(fusion: &mut Fusion, hits: &[Vec<Hit>], recall: &Recall, store: &Store) -> Vec<Fused> {
    let size = unless_zero(recall.pool_size);
    let mut wanted = size;
    loop {
        let mut fused = fusion.best(hits, wanted);
        let found = fused.len();
        if recall.deduplicate {
            fuse::deduplicate(&mut fused, store);
        }
        // Fewer turns than were wanted are all that there are.
        if fused.len() >= size || found < wanted {
            fused.truncate(size);
            return fused;
        }
        wanted *= 2;
    }
}

/// In settings, 0 stands for all.
fn unless_zero(n: usize) -> usize {
    if n == 0 { usize::MAX } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::store::{Request, StoreBuilder, Turn};
    use crate::system::Tokens;
    use half::f16;

    /// The lists of a default system.
    const BM25: usize = 0;
    const DENSE: usize = 1;

    fn vector(values: [f32; 2]) -> Vec<u8> {
        values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
    }

    fn names(store: &Store, pooled: &[Pooled]) -> Vec<String> {
        pooled.iter().map(|p| store.turn(p.turn).id.to_string()).collect()
    }

    fn turn<'a>(ordinal: i32, id: &'a str, content: &'a str) -> Turn<'a> {
        Turn { ordinal, id, content: Some(content), ..Default::default() }
    }

    #[test]
    fn both_lists_are_fused_and_told() {
        let (near, far, question) = (vector([1.0, 0.0]), vector([0.0, 1.0]), vector([1.0, 0.5]));
        let mut rows = StoreBuilder::default();
        rows.push_turn(Turn { vector: Some(&far), ..turn(0, "a", "a cat") });
        rows.push_turn(Turn { vector: Some(&near), ..turn(1, "b", "a dog") });
        rows.push_request(Request { id: "q", question: "dog", vector: Some(&question), reference_at: None });
        let pooled = pool(&rows.finish(), &Recall::default()).unwrap();
        // b: first in both lists. a: second in the dense list only.
        assert_eq!(pooled.len(), 2);
        assert_eq!((pooled[0].turn, pooled[0].pool_position, pooled[0].rrf_score), (1, 1, 1.0 / 61.0 + 1.0 / 61.0));
        assert_eq!((pooled[1].turn, pooled[1].pool_position, pooled[1].rrf_score), (0, 2, 1.0 / 62.0));
        let places: Vec<_> = pooled[0].places.iter().map(|p| (p.list, p.rank)).collect();
        assert_eq!(places, [(BM25, 1), (DENSE, 1)]);
        assert_eq!(pooled[1].places, [Place { list: DENSE, score: 0.5, rank: 2 }]);
        // idf ln(1 + 1.5/1.5), all lengths equal: ln 2 / 1.9.
        assert!((pooled[0].places[0].score - 2f64.ln() / 1.9).abs() < 1e-15);
    }

    #[test]
    fn two_lists_of_a_kind_each_have_their_say() {
        let mut rows = StoreBuilder::default();
        rows.push_turn(Turn { language: Some("en"), ..turn(0, "a", "dogs dogs") });
        rows.push_turn(Turn { language: Some("en"), ..turn(1, "b", "dog") });
        rows.push_request(Request { id: "q", question: "dog", ..Default::default() });
        let store = rows.finish();
        let stems = |name: &str, stem| List::Bm25 {
            name: Some(name.into()),
            weight: 1.0,
            k1: 1.0,
            b: 0.0,
            stem,
            tokens: Tokens::Unicode,
        };
        let recall = Recall { lists: vec![stems("stems", true), stems("words", false)], ..Recall::default() };
        let pooled = pool(&store, &recall).unwrap();
        // As stems a has the word twice and comes first; as words only b has it. b: 1/62 + 1/61, a: 1/61.
        let places = |p: &Pooled| -> Vec<_> { p.places.iter().map(|p| (p.list, p.rank)).collect() };
        assert_eq!(names(&store, &pooled), ["b", "a"]);
        assert_eq!((places(&pooled[0]), places(&pooled[1])), (vec![(0, 2), (1, 1)], vec![(0, 1)]));
        assert_eq!(pooled[0].rrf_score, 1.0 / 62.0 + 1.0 / 61.0);
        // idf as stems ln(1 + 0.5/2.5), as words ln(1 + 1.5/1.5); tf / (tf + 1).
        let near = |place: &Place, score: f64| (place.score - score).abs() < 1e-15;
        assert!(near(&pooled[0].places[0], 1.2f64.ln() / 2.0) && near(&pooled[0].places[1], 2f64.ln() / 2.0));
        assert!(near(&pooled[1].places[0], 1.2f64.ln() * 2.0 / 3.0));
    }

    #[test]
    fn a_question_of_signs_still_has_the_dense_list() {
        let (near, far) = (vector([1.0, 0.0]), vector([0.0, 1.0]));
        let mut rows = StoreBuilder::default();
        rows.push_turn(Turn { vector: Some(&far), ..turn(0, "a", "what! 😀") });
        rows.push_turn(Turn { vector: Some(&near), ..turn(1, "b", "cat") });
        rows.push_request(Request { id: "q", question: "!!! 😀", vector: Some(&near), reference_at: None });
        let store = rows.finish();
        let pooled = pool(&store, &Recall::default()).unwrap();
        assert_eq!(names(&store, &pooled), ["b", "a"]);
        assert!(pooled.iter().all(|p| p.places.iter().all(|place| place.list == DENSE)));
    }

    #[test]
    fn copies_of_a_turn_take_one_slot() {
        let mut rows = StoreBuilder::default();
        let ids: Vec<String> = (0..42).map(|i| format!("t{i}")).collect();
        for (i, id) in ids.iter().enumerate() {
            let (content, hash) = if i < 40 { ("cats are nice", b"same") } else { ("my cats", b"last") };
            rows.push_turn(Turn { content_hash: Some(hash), ..turn(i as i32, id, content) });
        }
        rows.push_request(Request { id: "q", question: "nice cats", ..Default::default() });
        let store = rows.finish();
        let pooled = pool(&store, &Recall::default()).unwrap();
        assert_eq!(names(&store, &pooled), ["t0", "t40"]);
        assert_eq!(pooled[1].pool_position, 2);
        let whole = Recall { deduplicate: false, ..Recall::default() };
        assert_eq!(pool(&store, &whole).unwrap().len(), 42);
    }

    #[test]
    fn turns_without_a_hash_are_no_copies() {
        let mut rows = StoreBuilder::default();
        rows.push_turn(turn(0, "a", "cat"));
        rows.push_turn(turn(1, "b", "cat"));
        rows.push_request(Request { id: "q", question: "cat", ..Default::default() });
        assert_eq!(pool(&rows.finish(), &Recall::default()).unwrap().len(), 2);
    }

    #[test]
    fn small_stores_have_small_pools() {
        for n in [0usize, 1, 2, 29] {
            let mut rows = StoreBuilder::default();
            let v = vector([1.0, 0.0]);
            let ids: Vec<String> = (0..n).map(|i| format!("t{i}")).collect();
            for (i, id) in ids.iter().enumerate() {
                rows.push_turn(Turn { vector: Some(&v), ..turn(i as i32, id, "a cat") });
            }
            rows.push_request(Request { id: "q", question: "cat", vector: Some(&v), reference_at: None });
            let pooled = pool(&rows.finish(), &Recall::default()).unwrap();
            let positions: Vec<_> = pooled.iter().map(|p| p.pool_position).collect();
            assert_eq!(positions, (1..=n as i32).collect::<Vec<_>>());
        }
        // No requests, no pools.
        let mut rows = StoreBuilder::default();
        rows.push_turn(turn(0, "a", "cat"));
        assert!(pool(&rows.finish(), &Recall::default()).unwrap().is_empty());
    }

    #[test]
    fn later_and_blank_turns_are_never_recalled() {
        let v = vector([1.0, 0.0]);
        let mut rows = StoreBuilder::default();
        let cat = |ordinal, id, content, spoken_at| Turn {
            ordinal,
            id,
            content,
            spoken_at,
            vector: Some(&v),
            ..Default::default()
        };
        rows.push_turn(cat(0, "before", Some("cat"), Some(1)));
        rows.push_turn(cat(1, "blank", Some(" \n"), Some(1)));
        rows.push_turn(cat(2, "null", None, Some(1)));
        rows.push_turn(cat(3, "now", Some("cat"), Some(5)));
        rows.push_turn(cat(4, "after", Some("cat"), Some(6)));
        rows.push_turn(cat(5, "undated", Some("cat"), None));
        let request = |id, reference_at| Request { id, question: "cat", vector: Some(&v), reference_at };
        rows.push_request(request("dated", Some(5)));
        rows.push_request(request("undated", None));
        let store = rows.finish();
        let pooled = pool(&store, &Recall::default()).unwrap();
        let (dated, undated): (Vec<_>, Vec<_>) = pooled.into_iter().partition(|p| p.request == 0);
        assert_eq!(names(&store, &dated), ["before", "now", "undated"]);
        assert_eq!(names(&store, &undated), ["before", "now", "after", "undated"]);
    }

    #[test]
    fn ties_go_by_ordinal_not_by_the_id_as_text() {
        let mut rows = StoreBuilder::default();
        // As text, D10:1 comes before D2:1. Rows come in no order.
        for (ordinal, id) in [(2, "D10:1"), (0, "D1:1"), (1, "D2:1")] {
            rows.push_turn(turn(ordinal, id, "a cat"));
        }
        rows.push_request(Request { id: "q", question: "cat", ..Default::default() });
        let store = rows.finish();
        assert_eq!(names(&store, &pool(&store, &Recall::default()).unwrap()), ["D1:1", "D2:1", "D10:1"]);
    }

    #[test]
    fn pool_size_and_depth_cut() {
        let mut rows = StoreBuilder::default();
        let ids: Vec<String> = (0..10).map(|i| format!("t{i}")).collect();
        for (i, id) in ids.iter().enumerate() {
            rows.push_turn(turn(i as i32, id, "cat"));
        }
        rows.push_request(Request { id: "q", question: "cat", ..Default::default() });
        let store = rows.finish();
        let size = |pool_size, depth| {
            pool(&store, &Recall { pool_size, depth, deduplicate: false, ..Recall::default() }).unwrap().len()
        };
        assert_eq!((size(0, 0), size(3, 0), size(0, 4), size(128, 0)), (10, 3, 4, 10));
    }
}
