//! What a recall list is. A new list is a file beside this one, a variant of [`List`] and a line in [`open`].

use super::bm25::Bm25;
use super::dense::Dense;
use super::store::{Request, Store};
use crate::error::Result;
use crate::system::List;

/// A turn's place in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Counted as in [`Store::turn`].
    pub turn: usize,
    /// Finite; higher is better.
    pub score: f64,
}

/// Ranks one store's turns for one request after another.
pub trait Retriever {
    /// The turns of the list, best first, of equals the earlier turn first: only turns that are `eligible`, which
    /// has a value for each turn of the store.
    fn rank(&mut self, request: &Request<'_>, eligible: &[bool]) -> Result<Vec<Hit>>;
}

/// Makes a list ready for a store.
pub fn open<'a>(list: &List, store: &'a Store) -> Result<Box<dyn Retriever + 'a>> {
    Ok(match *list {
        List::Bm25 { k1, b, stem, tokens, .. } => Box::new(Bm25::new(store, k1, b, stem, tokens)),
        List::Dense { .. } => Box::new(Dense::new(store)?),
    })
}

/// Orders hits: the highest score first, of equals the earlier turn.
pub(super) fn best_first(mut hits: Vec<Hit>) -> Vec<Hit> {
    hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.turn.cmp(&b.turn)));
    hits
}
