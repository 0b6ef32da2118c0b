//! Cosines of the encoder's vectors: dot products of unit vectors, in f32 ([`products`]).

use super::lists::{Hit, Retriever};
use super::order::best_first;
use super::products::{Rows, products};
use super::store::Store;
use crate::device::cpu::halves::decode;
use crate::error::{Error, Result};

/// Requests whose products are made at once: their vectors stay in the second-level cache.
const REQUESTS: usize = 128;

/// The vectors of a store.
pub struct Dense<'a> {
    store: &'a Store,
    /// Turns that have a vector, in order.
    turns: Vec<usize>,
    /// Their vectors.
    items: Rows,
    block: Block,
}

/// Some of the store's requests, one after another, and their products with all items.
#[derive(Default)]
struct Block {
    /// Requests that have a vector, in order.
    requests: Vec<usize>,
    /// The first request after the block.
    end: usize,
    queries: Rows,
    products: Vec<f32>,
}

impl<'a> Dense<'a> {
    /// Fails where two vectors of the store, turns' or requests', differ in length.
    pub fn new(store: &'a Store) -> Result<Self> {
        let dim = dim(store)?;
        let block = Block { queries: Rows::new(dim), ..Block::default() };
        let mut dense = Dense { store, turns: Vec::new(), items: Rows::new(dim), block };
        for turn in 0..store.turn_count() {
            if let Some(vector) = store.vector(turn) {
                dense.turns.push(turn);
                dense.items.push(|values| decode(vector, values));
            }
        }
        Ok(dense)
    }
}

/// Values in a vector of the store; 0 where it has none.
fn dim(store: &Store) -> Result<usize> {
    let turns = (0..store.turn_count()).filter_map(|turn| Some((Whose::Turn(turn), store.vector(turn)?)));
    let requests = (0..store.request_count()).filter_map(|r| Some((Whose::Request(r), store.request(r).vector?)));
    let mut vectors = turns.chain(requests);
    let Some((first, vector)) = vectors.next() else { return Ok(0) };
    let bytes = vector.len();
    if bytes == 0 || bytes % 2 != 0 {
        return Err(wrong(store, first, &format!("a vector of {bytes} bytes is no row of 16-bit floats")));
    }
    if let Some((whose, other)) = vectors.find(|(_, v)| v.len() != bytes) {
        let first = first.name(store);
        return Err(wrong(store, whose, &format!("its vector has {} bytes, that of {first} has {bytes}", other.len())));
    }
    Ok(bytes / 2)
}

/// Whose vector it is, for messages.
#[derive(Clone, Copy)]
enum Whose {
    Turn(usize),
    Request(usize),
}

impl Whose {
    fn name(self, store: &Store) -> String {
        match self {
            Whose::Turn(turn) => format!("turn {:?}", store.turn(turn).id),
            Whose::Request(request) => format!("request {:?}", store.request(request).id),
        }
    }
}

fn wrong(store: &Store, whose: Whose, what: &str) -> Error {
    Error::data(what).at(whose.name(store)).next("embed the store again with one encoder")
}

impl Block {
    /// Makes the products of the request and of those after it.
    fn begin(&mut self, request: usize, store: &Store, items: &Rows) {
        self.requests.clear();
        self.queries.clear();
        self.end = (request + REQUESTS).min(store.request_count());
        for request in request..self.end {
            if let Some(vector) = store.request(request).vector {
                self.requests.push(request);
                self.queries.push(|values| decode(vector, values));
            }
        }
        products(&self.queries, items, &mut self.products);
    }

    fn holds(&self, request: usize) -> bool {
        self.requests.first().is_some_and(|&first| (first..self.end).contains(&request))
    }
}

impl Retriever for Dense<'_> {
    /// Every eligible turn that has a vector. A product that is no number (a vector with a NaN) has no place.
    fn rank(&mut self, request: usize, eligible: &[bool], depth: usize) -> Result<Vec<Hit>> {
        if self.turns.is_empty() || self.store.request(request).vector.is_none() {
            return Ok(Vec::new());
        }
        if !self.block.holds(request) {
            self.block.begin(request, self.store, &self.items);
        }
        let row = self.block.requests.binary_search(&request).expect("it has a vector");
        let products = &self.block.products[row * self.turns.len()..][..self.turns.len()];
        let hits = self.turns.iter().zip(products).map(|(&turn, &product)| Hit { turn, score: f64::from(product) });
        Ok(best_first(hits, |hit| eligible[hit.turn] && hit.score.is_finite(), depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::store::{Request, StoreBuilder, Turn};
    use half::f16;
    use proptest::prelude::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
    }

    fn store(vectors: &[Option<Vec<u8>>]) -> Store {
        rows(vectors).finish()
    }

    fn rows(vectors: &[Option<Vec<u8>>]) -> StoreBuilder {
        let mut rows = StoreBuilder::default();
        for (ordinal, vector) in vectors.iter().enumerate() {
            let id = format!("t{ordinal}");
            let turn = Turn { ordinal: ordinal as i32, id: &id, content: Some("x"), ..Default::default() };
            rows.push_turn(Turn { vector: vector.as_deref(), ..turn });
        }
        rows
    }

    fn rank(vectors: &[Option<Vec<u8>>], question: &[f32]) -> Vec<Hit> {
        let mut rows = rows(vectors);
        rows.push_request(Request { vector: Some(&bytes(question)), ..Default::default() });
        let store = rows.finish();
        Dense::new(&store).unwrap().rank(0, &store.eligible(None), usize::MAX).unwrap()
    }

    #[test]
    fn products_by_hand() {
        // All values are exact in f16, so the products are exact too.
        let store = [Some(bytes(&[0.5, 0.25])), None, Some(bytes(&[1.0, 0.0])), Some(bytes(&[0.5, 0.25]))];
        let hits: Vec<_> = rank(&store, &[0.5, 1.0]).iter().map(|h| (h.turn, h.score)).collect();
        assert_eq!(hits, [(0, 0.5), (2, 0.5), (3, 0.5)]);
        let hits: Vec<_> = rank(&store, &[-1.0, 1.0]).iter().map(|h| (h.turn, h.score)).collect();
        assert_eq!(hits, [(0, -0.25), (3, -0.25), (2, -1.0)]);
    }

    #[test]
    fn a_vector_of_another_length_is_named() {
        let e = Dense::new(&store(&[Some(bytes(&[0.0; 4])), None, Some(bytes(&[0.0; 3]))])).err().unwrap().to_string();
        assert!(e.contains("turn \"t2\"") && e.contains("6 bytes") && e.contains("8"), "{e}");
        let e = Dense::new(&store(&[Some(vec![1, 2, 3])])).err().unwrap().to_string();
        assert!(e.contains("turn \"t0\"") && e.contains("3 bytes"), "{e}");
        assert!(Dense::new(&store(&[Some(vec![])])).is_err());
    }

    #[test]
    fn no_vector_no_place() {
        assert!(rank(&[None, None], &[1.0]).is_empty());
        let with = [Some(bytes(&[1.0])), Some(bytes(&[f32::NAN]))];
        assert_eq!(rank(&with, &[1.0]).len(), 1);
        let mut rows = rows(&with);
        rows.push_request(Request::default());
        let store = rows.finish();
        assert!(Dense::new(&store).unwrap().rank(0, &[true, true], usize::MAX).unwrap().is_empty());
    }

    #[test]
    fn requests_of_every_block_have_their_own_products() {
        // Request r has a vector where r is no multiple of 3; its product with turn t is r * t, exact in f16 and f32.
        let turns: Vec<_> = (0..5).map(|t| Some(bytes(&[t as f32]))).collect();
        let mut rows = rows(&turns);
        for r in 0..3 * REQUESTS {
            let vector = bytes(&[r as f32]);
            let vector = (r % 3 != 0).then_some(vector.as_slice());
            rows.push_request(Request { id: &format!("{r:04}"), vector, ..Default::default() });
        }
        let store = rows.finish();
        let mut dense = Dense::new(&store).unwrap();
        // Forwards, then in no order.
        for r in (0..3 * REQUESTS).chain([250, 2, 251, 0, 128, 301, 1]) {
            let hits = dense.rank(r, &store.eligible(None), 2).unwrap();
            let expected = if r % 3 == 0 { vec![] } else { vec![(4, 4.0 * r as f64), (3, 3.0 * r as f64)] };
            assert_eq!(hits.iter().map(|h| (h.turn, h.score)).collect::<Vec<_>>(), expected, "{r}");
        }
    }

    proptest! {
        #[test]
        fn a_product_is_near_the_exact_one_and_knows_no_batch(
            vectors in prop::collection::vec(prop::collection::vec(-1.0..1.0f32, 37), 1..20),
        ) {
            let all: Vec<_> = vectors.iter().map(|v| Some(bytes(v))).collect();
            let together = rank(&all, &vectors[0]);
            for hit in together {
                let alone = rank(&all[hit.turn..=hit.turn], &vectors[0]);
                prop_assert_eq!(alone[0].score.to_bits(), hit.score.to_bits());
                let f = |v: &f32| f64::from(f16::from_f32(*v).to_f32());
                let exact: f64 = vectors[0].iter().zip(&vectors[hit.turn]).map(|(a, b)| f(a) * f(b)).sum();
                prop_assert!((exact - hit.score).abs() < 1e-5);
            }
        }
    }
}
