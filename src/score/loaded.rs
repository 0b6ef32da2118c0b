//! What an encoder and a cross-encoder have in common: a model on a device, with its tokenizer.

use std::sync::{Arc, Mutex};

use crate::config::Precision;
use crate::device::{Batcher, Head, ModelId, Progress, open};
use crate::error::Result;
use crate::model::hash::model_hash;
use crate::model::{ModelConfig, ModelFolder, Sequence, TextTokenizer, Tokenized, Weights};

pub(super) struct Loaded {
    pub name: String,
    pub hash: String,
    pub config: ModelConfig,
    pub tokenizer: TextTokenizer,
    pub progress: Arc<Progress>,
    batcher: Arc<Batcher>,
    model: ModelId,
    /// Of a model that does not run in f32.
    exact: Option<Exact>,
}

impl Loaded {
    pub fn new(folder: &ModelFolder, batcher: &Arc<Batcher>, head: Head) -> Result<Self> {
        let hash = hash_of(folder, head, &batcher.describe().kernel_plan)?;
        let tokenizer = TextTokenizer::read(&folder.tokenizer, &folder.config, folder.max_tokens)?;
        let model = batcher.load(&Weights::read(folder)?, head)?;
        let rounded = folder.precision != Precision::F32 || !batcher.describe().computes_f32;
        Ok(Loaded {
            name: folder.name.clone(),
            hash,
            config: folder.config.clone(),
            tokenizer,
            progress: Arc::default(),
            batcher: Arc::clone(batcher),
            model,
            exact: rounded.then(|| Exact {
                folder: folder.clone().in_precision(Precision::F32),
                head,
                model: Mutex::default(),
            }),
        })
    }

    /// Runs the sequences that there are and gives each text its row; a text without a sequence gets `None`. A row that is
    /// not finite in 8-bit integers or bf16 is computed again in f32; one that is not finite in f32 stays as it is.
    pub fn run(&self, tokenized: &[Tokenized]) -> Result<Vec<Option<Vec<f32>>>> {
        let sequences: Vec<_> = tokenized.iter().filter_map(|t| t.sequence.clone()).collect();
        self.progress.add((tokenized.len() - sequences.len()) as u64, 0);
        let matrix = self.batcher.run_counted(self.model, sequences, Arc::clone(&self.progress))?;
        let mut values = matrix.values.chunks_exact(matrix.columns.max(1));
        // No rows at all where no sequence fitted into the device.
        let row = |t: &Tokenized| t.sequence.as_ref().and_then(|_| values.next().map(<[f32]>::to_vec));
        let mut rows: Vec<Option<Vec<f32>>> = tokenized.iter().map(row).collect();
        if let Some(exact) = &self.exact {
            let broken = |i: &usize| tokenized[*i].sequence.is_some() && !rows[*i].as_ref().is_some_and(|r| finite(r));
            let again: Vec<usize> = (0..rows.len()).filter(broken).collect();
            let sequences = again.iter().filter_map(|&i| tokenized[i].sequence.clone()).collect();
            self.progress.add_computed_again(again.len() as u64);
            for (i, row) in again.into_iter().zip(exact.run(sequences)?) {
                rows[i] = Some(row);
            }
        }
        Ok(rows)
    }
}

pub(super) fn finite(row: &[f32]) -> bool {
    row.iter().all(|x| x.is_finite())
}

/// The same model in f32 on the CPU, read when it is first needed.
struct Exact {
    folder: ModelFolder,
    head: Head,
    model: Mutex<Option<(Arc<Batcher>, ModelId)>>,
}

impl Exact {
    fn run(&self, sequences: Vec<Sequence>) -> Result<Vec<Vec<f32>>> {
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let (batcher, model) = self.loaded()?;
        let matrix = batcher.run(model, sequences)?;
        Ok(matrix.values.chunks_exact(matrix.columns.max(1)).map(<[f32]>::to_vec).collect())
    }

    fn loaded(&self) -> Result<(Arc<Batcher>, ModelId)> {
        let mut held = self.model.lock().expect("no holder panics");
        if let Some((batcher, model)) = &*held {
            return Ok((Arc::clone(batcher), *model));
        }
        let batcher = Batcher::new(open("cpu")?)?;
        let model = batcher.load(&Weights::read(&self.folder)?, self.head)?;
        *held = Some((Arc::clone(&batcher), model));
        Ok((batcher, model))
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
