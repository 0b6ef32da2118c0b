//! (question, turn) pairs to logits.

use std::sync::Arc;

use super::loaded::{Loaded, hash_of};
use crate::device::{Batcher, Head, Progress};
use crate::error::Result;
use crate::model::ModelFolder;

/// A pair's score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// A logit, not a probability; `None` where a text is blank or the model's value is not finite.
    pub logit: Option<f32>,
    /// The turn was cut to fit (and the question only where it alone takes more than half of the model's tokens).
    pub truncated: bool,
}

/// A cross-encoder on a device.
pub struct CrossEncoder {
    loaded: Loaded,
}

impl CrossEncoder {
    /// Reads the folder and puts the model on the batcher's device.
    pub fn load(folder: &ModelFolder, batcher: &Arc<Batcher>) -> Result<Arc<CrossEncoder>> {
        Ok(Arc::new(CrossEncoder { loaded: Loaded::new(folder, batcher, Head::Score)? }))
    }

    /// The hash that the model has on a device with this kernel plan; the weights are hashed, not loaded.
    pub fn hash_of(folder: &ModelFolder, kernel_plan: &str) -> Result<String> {
        hash_of(folder, Head::Score, kernel_plan)
    }

    /// Tokens that the model reads at most, with the special ones.
    pub fn max_tokens(&self) -> usize {
        self.loaded.tokenizer.max_tokens()
    }

    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// Names the cross-encoder in the lake: see [`crate::model::hash::model_hash`].
    pub fn hash(&self) -> &str {
        &self.loaded.hash
    }

    /// Rows and tokens done since the model was loaded.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.loaded.progress)
    }

    /// Operations for pairs of these lengths in tokens.
    pub fn flops(&self, tokens_per_pair: &[usize]) -> f64 {
        self.loaded.config.flops(tokens_per_pair)
    }

    /// One result a (question, turn) pair, in order. Each distinct text is tokenised once.
    pub fn score(&self, pairs: &[(Option<&str>, Option<&str>)]) -> Result<Vec<Scored>> {
        let tokenized = self.loaded.tokenizer.pairs(pairs)?;
        let logit = |row: Option<Vec<f32>>| row.map(|r| r[0]).filter(|x| x.is_finite());
        let rows = self.loaded.run(&tokenized)?;
        Ok(rows.into_iter().zip(&tokenized).map(|(r, t)| Scored { logit: logit(r), truncated: t.truncated }).collect())
    }
}
