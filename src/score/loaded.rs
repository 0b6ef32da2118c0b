//! What an encoder and a cross-encoder have in common: a model on a device, with its tokenizer.

use std::sync::Arc;

use crate::device::{Batcher, Head, ModelId, Progress};
use crate::error::Result;
use crate::model::hash::model_hash;
use crate::model::{ModelConfig, ModelFolder, TextTokenizer, Tokenized, Weights};

pub(super) struct Loaded {
    pub name: String,
    pub hash: String,
    pub config: ModelConfig,
    pub tokenizer: TextTokenizer,
    pub progress: Arc<Progress>,
    batcher: Arc<Batcher>,
    model: ModelId,
}

impl Loaded {
    pub fn new(folder: &ModelFolder, batcher: &Arc<Batcher>, head: Head) -> Result<Self> {
        let hash = hash_of(folder, head, &batcher.describe().kernel_plan)?;
        let tokenizer = TextTokenizer::read(&folder.tokenizer, &folder.config, folder.max_tokens)?;
        let model = batcher.load(&Weights::read(folder)?, head)?;
        Ok(Loaded {
            name: folder.name.clone(),
            hash,
            config: folder.config.clone(),
            tokenizer,
            progress: Arc::default(),
            batcher: Arc::clone(batcher),
            model,
        })
    }

    /// Runs the sequences that there are and gives each text its row; a text without a sequence gets `None`.
    pub fn run(&self, tokenized: &[Tokenized]) -> Result<Vec<Option<Vec<f32>>>> {
        let sequences: Vec<_> = tokenized.iter().filter_map(|t| t.sequence.clone()).collect();
        self.progress.add((tokenized.len() - sequences.len()) as u64, 0);
        let matrix = self.batcher.run_counted(self.model, sequences, Arc::clone(&self.progress))?;
        let mut rows = matrix.values.chunks_exact(matrix.columns.max(1));
        // No rows at all where no sequence fitted into the device.
        let row = |t: &Tokenized| t.sequence.as_ref().and_then(|_| rows.next().map(<[f32]>::to_vec));
        Ok(tokenized.iter().map(row).collect())
    }
}

/// The hash of a folder's model on a device with this kernel plan.
pub(super) fn hash_of(folder: &ModelFolder, head: Head, kernel_plan: &str) -> Result<String> {
    let head = match head {
        Head::Embed => "embed",
        Head::Score => "score",
    };
    model_hash(folder, head, kernel_plan)
}
