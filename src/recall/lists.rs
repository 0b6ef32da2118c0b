//! What a recall list is. A new list is a file beside this one, a variant of [`List`] and a line in [`open`].

use super::bm25::Bm25;
use super::dense::Dense;
use super::store::Store;
use crate::error::Result;
use crate::system::List;

/// A turn's place in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hit {
    /// Counted as in [`Store::turn`].
    pub turn: usize,
    /// Finite; higher is better.
    pub score: f64,
}

/// Ranks one store's turns for one of its requests after another.
pub trait Retriever {
    /// The best `depth` turns of the list, best first, of equals the earlier turn first: only turns that are
    /// `eligible`, which has a value for each turn of the store. `request` counts as in [`Store::request`].
    fn rank(&mut self, request: usize, eligible: &[bool], depth: usize) -> Result<Vec<Hit>>;
}

/// Makes a list ready for a store.
pub fn open<'a>(list: &List, store: &'a Store) -> Result<Box<dyn Retriever + 'a>> {
    Ok(match *list {
        List::Bm25 { k1, b, stem, tokens, .. } => Box::new(Bm25::new(store, k1, b, stem, tokens)),
        List::Dense { .. } => Box::new(Dense::new(store)?),
    })
}
