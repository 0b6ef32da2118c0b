//! What every device checks before it computes: an index outside its table would be read by a kernel unseen.

use std::ops::Range;

use super::{Groups, Matrix, PackedBatch};
use crate::error::{Error, Result};
use crate::model::weights::ModelConfig;

impl PackedBatch {
    /// Every index is inside its table, and every sequence has a token.
    pub fn check(&self, config: &ModelConfig) -> Result<()> {
        let whole = self.starts.first() == Some(&0) && self.starts.last() == Some(&self.tokens.len());
        if !whole || self.types.len() != self.tokens.len() || !self.starts.is_sorted_by(|a, b| a < b) {
            return Err(Error::internal("a batch's starts do not fit its tokens"));
        }
        let usable = config.usable_positions();
        if let Some(w) = self.starts.windows(2).find(|w| w[1] - w[0] > usable) {
            let what = format!("a text of {} tokens for a model that has {usable} positions", w[1] - w[0]);
            return Err(Error::data(what));
        }
        if let Some(token) = self.tokens.iter().find(|&&t| t as usize >= config.vocab) {
            let what = format!("token {token} is not in the model's vocabulary of {}", config.vocab);
            return Err(Error::data(what).next("tokenizer.json and the weights belong to different models"));
        }
        if self.types.iter().any(|&t| t as usize >= config.types) {
            return Err(Error::data(format!("a segment id is not below {}", config.types)));
        }
        Ok(())
    }
}

impl Groups {
    /// Every range lies within its matrix, and both matrices have vectors of one length.
    pub fn check(&self, queries: &Matrix, items: &Matrix) -> Result<()> {
        if queries.columns != items.columns {
            return Err(Error::data(format!(
                "queries have {} dimensions, items {}: they come from different models",
                queries.columns, items.columns
            )));
        }
        if self.queries.len() != self.items.len() {
            return Err(Error::internal("top_k: as many ranges of queries as of items are needed"));
        }
        let inside = |ranges: &[Range<usize>], rows: usize| ranges.iter().all(|r| r.start <= r.end && r.end <= rows);
        if !inside(&self.queries, queries.rows) || !inside(&self.items, items.rows) {
            return Err(Error::internal("top_k: a group reaches past the last row"));
        }
        Ok(())
    }
}
