//! Cosines of the encoder's vectors: dot products of unit vectors, in f32.
//!
//! A product's bits depend on its two vectors alone: additions are made in one fixed order, whatever the store, the
//! request's place in it, or the machine.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::lists::{Hit, Retriever, best_first};
use super::store::{Request, Store};
use crate::error::{Error, Result};

/// Additions that go on side by side: enough for the widest vector unit, and part of the result's definition.
const LANES: usize = 16;

/// The vectors of a store's turns, as f32.
pub struct Dense {
    /// Values in a vector; 0 where the store has none.
    dim: usize,
    /// Turns that have a vector, in order.
    turns: Vec<usize>,
    /// Their vectors, one after another.
    values: Vec<f32>,
    /// Working space: the question's vector.
    question: Vec<f32>,
}

impl Dense {
    /// Fails where two vectors of the store, turns' or requests', differ in length.
    pub fn new(store: &Store) -> Result<Self> {
        let turns = (0..store.turn_count()).map(|t| store.turn(t)).map(|t| (("turn", t.id), t.vector));
        let requests = (0..store.request_count()).map(|r| store.request(r)).map(|r| (("request", r.id), r.vector));
        let mut vectors = turns.chain(requests).filter_map(|(whose, vector)| Some((whose, vector?)));
        let Some((first, vector)) = vectors.next() else {
            return Ok(Dense { dim: 0, turns: Vec::new(), values: Vec::new(), question: Vec::new() });
        };
        let bytes = vector.len();
        if bytes == 0 || bytes % 2 != 0 {
            return Err(wrong(first, &format!("a vector of {bytes} bytes is no row of 16-bit floats")));
        }
        if let Some((whose, other)) = vectors.find(|(_, v)| v.len() != bytes) {
            let what = format!("its vector has {} bytes, that of {} {:?} has {bytes}", other.len(), first.0, first.1);
            return Err(wrong(whose, &what));
        }
        let mut dense = Dense { dim: bytes / 2, turns: Vec::new(), values: Vec::new(), question: Vec::new() };
        for turn in 0..store.turn_count() {
            if let Some(vector) = store.turn(turn).vector {
                dense.turns.push(turn);
                decode(vector, &mut dense.values);
            }
        }
        Ok(dense)
    }
}

fn wrong(whose: (&str, &str), what: &str) -> Error {
    Error::data(what).at(format!("{} {:?}", whose.0, whose.1)).next("embed the store again with one encoder")
}

/// Appends the values of little-endian 16-bit floats.
fn decode(bytes: &[u8], values: &mut Vec<f32>) {
    let halves: Vec<f16> = bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect();
    let start = values.len();
    values.resize(start + halves.len(), 0.0);
    halves.convert_to_f32_slice(&mut values[start..]);
}

/// The dot product: lane `i` adds the products at `i`, `i + 16`, ...; then the lanes are halved.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += a[i] * b[i];
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += a * b;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

impl Retriever for Dense {
    /// Every eligible turn that has a vector. A product that is no number (a vector with a NaN) has no place.
    fn rank(&mut self, request: &Request<'_>, eligible: &[bool]) -> Result<Vec<Hit>> {
        let Some(vector) = request.vector else { return Ok(Vec::new()) };
        if self.turns.is_empty() {
            return Ok(Vec::new());
        }
        self.question.clear();
        decode(vector, &mut self.question);
        let hits = self.turns.iter().zip(self.values.chunks_exact(self.dim));
        let hits = hits
            .filter(|(turn, _)| eligible[**turn])
            .map(|(&turn, values)| Hit { turn, score: f64::from(dot(&self.question, values)) });
        Ok(best_first(hits.filter(|hit| hit.score.is_finite()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::store::{StoreBuilder, Turn};
    use proptest::prelude::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
    }

    fn store(vectors: &[Option<Vec<u8>>]) -> Store {
        let mut rows = StoreBuilder::default();
        for (ordinal, vector) in vectors.iter().enumerate() {
            let id = format!("t{ordinal}");
            let turn = Turn { ordinal: ordinal as i32, id: &id, content: Some("x"), ..Default::default() };
            rows.push_turn(Turn { vector: vector.as_deref(), ..turn });
        }
        rows.finish()
    }

    fn rank(store: &Store, question: &[f32]) -> Vec<Hit> {
        let vector = bytes(question);
        let request = Request { vector: Some(&vector), ..Default::default() };
        Dense::new(store).unwrap().rank(&request, &store.eligible(None)).unwrap()
    }

    #[test]
    fn products_by_hand() {
        // All values are exact in f16, so the products are exact too.
        let store = store(&[Some(bytes(&[0.5, 0.25])), None, Some(bytes(&[1.0, 0.0])), Some(bytes(&[0.5, 0.25]))]);
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
        assert!(rank(&store(&[None, None]), &[1.0]).is_empty());
        let with = store(&[Some(bytes(&[1.0])), Some(bytes(&[f32::NAN]))]);
        assert_eq!(rank(&with, &[1.0]).len(), 1);
        let none = Request::default();
        assert!(Dense::new(&with).unwrap().rank(&none, &[true, true]).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn a_product_is_near_the_exact_one_and_knows_no_batch(
            vectors in prop::collection::vec(prop::collection::vec(-1.0..1.0f32, 37), 1..20),
        ) {
            let all: Vec<_> = vectors.iter().map(|v| Some(bytes(v))).collect();
            let together = rank(&store(&all), &vectors[0]);
            for hit in together {
                let alone = rank(&store(&all[hit.turn..=hit.turn]), &vectors[0]);
                prop_assert_eq!(alone[0].score.to_bits(), hit.score.to_bits());
                let f = |v: &f32| f64::from(f16::from_f32(*v).to_f32());
                let exact: f64 = vectors[0].iter().zip(&vectors[hit.turn]).map(|(a, b)| f(a) * f(b)).sum();
                prop_assert!((exact - hit.score).abs() < 1e-5);
            }
        }
    }
}
