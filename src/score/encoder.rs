//! Texts to unit vectors.

use std::str::FromStr;
use std::sync::Arc;

use half::f16;

use super::loaded::{Loaded, finite, hash_of};
use crate::device::{Batcher, Head, Progress};
use crate::error::{Error, Result};
use crate::model::ModelFolder;

/// What a text is embedded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A question.
    Query,
    /// A turn.
    Passage,
}

impl FromStr for Purpose {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "query" => Ok(Purpose::Query),
            "passage" => Ok(Purpose::Passage),
            other => {
                Err(Error::usage(format!("embed knows no purpose {other:?}")).next("purposes: 'query', 'passage'"))
            }
        }
    }
}

/// A text's vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// Of unit length; empty where the text is null, blank or without a token; `None` where the model gave a value that
    /// is not finite.
    pub vector: Option<Vec<f32>>,
    /// The text was longer than the model reads.
    pub truncated: bool,
}

/// An encoder on a device.
pub struct Encoder {
    loaded: Loaded,
}

impl Encoder {
    /// Reads the folder and puts the model on the batcher's device.
    pub fn load(folder: &ModelFolder, batcher: &Arc<Batcher>) -> Result<Arc<Encoder>> {
        Ok(Arc::new(Encoder { loaded: Loaded::new(folder, batcher, Head::Embed)? }))
    }

    /// The hash that the model has on a device with this kernel plan; the weights are hashed, not loaded.
    pub fn hash_of(folder: &ModelFolder, kernel_plan: &str) -> Result<String> {
        hash_of(folder, Head::Embed, kernel_plan)
    }

    /// Tokens that the model reads at most, with the special ones.
    pub fn max_tokens(&self) -> usize {
        self.loaded.tokenizer.max_tokens()
    }

    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// Names the encoder in the lake: see [`crate::model::hash::model_hash`].
    pub fn hash(&self) -> &str {
        &self.loaded.hash
    }

    /// Length of a vector.
    pub fn dim(&self) -> usize {
        self.loaded.config.hidden
    }

    /// Rows and tokens done since the encoder was loaded.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.loaded.progress)
    }

    /// Operations for texts of these lengths in tokens.
    pub fn flops(&self, tokens_per_text: &[usize]) -> f64 {
        self.loaded.config.flops(tokens_per_text)
    }

    /// One result a text, in order. The known models embed both purposes alike.
    pub fn embed(&self, texts: &[Option<&str>], _purpose: Purpose) -> Result<Vec<Embedded>> {
        let tokenized = self.loaded.tokenizer.singles(texts)?;
        let vector = |row: Option<Vec<f32>>| Some(row.unwrap_or_default()).filter(|v| finite(v));
        let rows = self.loaded.run(&tokenized)?;
        Ok(rows
            .into_iter()
            .zip(&tokenized)
            .map(|(r, t)| Embedded { vector: vector(r), truncated: t.truncated })
            .collect())
    }
}

/// Little-endian f16, two bytes a dimension: how vectors stand in the lake.
pub fn vector_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()
}
