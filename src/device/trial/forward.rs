//! A model on sequences of token ids, through the queue as the pipeline sends them, timed.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::super::{Batcher, Head, Matrix, ModelId, open};
use super::file::{Operands, Results};
use crate::error::{Error, Result};
use crate::model::resolve;
use crate::model::tokenizer::Sequence;
use crate::model::weights::Weights;

/// What is run.
#[derive(Debug, Clone)]
pub struct Forward {
    pub device: String,
    /// A folder as Hugging Face lays it out; its tokenizer is not read.
    pub model: PathBuf,
    pub head: Head,
    /// Whole numbers `tokens` (all sequences, end to end) and `lengths`.
    pub input: PathBuf,
    /// Gets `rows`: (sequences, dim) or (sequences, 1) of f32.
    pub output: PathBuf,
    /// How often it is run; the rows are those of the last time.
    pub repeat: usize,
    /// Each sequence goes to the device in a batch of its own.
    pub alone: bool,
}

/// How long it took.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    pub device: String,
    pub detail: String,
    pub kernel_plan: String,
    pub sequences: usize,
    pub tokens: usize,
    /// Of each time, from the queue to the rows.
    pub seconds: Vec<f64>,
    /// The median.
    pub tokens_per_second: f64,
    pub sequences_per_second: f64,
}

pub fn forward(options: &Forward) -> Result<Timing> {
    let folder = resolve(&options.model.display().to_string(), &options.model)?;
    let sequences =
        sequences(&Operands::read(&options.input)?).map_err(|e| e.at(options.input.display().to_string()))?;
    let batcher = Batcher::new(open(&options.device)?)?;
    let model = batcher.load(&Weights::read(&folder)?, options.head)?;
    let (mut seconds, mut rows) = (Vec::new(), None);
    for _ in 0..options.repeat.max(1) {
        let (copy, began) = (sequences.clone(), Instant::now());
        rows = Some(if options.alone { alone(&batcher, model, copy)? } else { batcher.run(model, copy)? });
        seconds.push(began.elapsed().as_secs_f64());
    }
    let rows = rows.ok_or_else(|| Error::internal("nothing was run"))?;
    let mut results = Results::default();
    results.put_floats("rows".into(), &[rows.rows, rows.columns], &rows.values);
    results.write(&options.output)?;
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let (info, tokens) = (batcher.describe(), sequences.iter().map(|s| s.tokens.len()).sum::<usize>());
    Ok(Timing {
        device: info.name,
        detail: info.detail,
        kernel_plan: info.kernel_plan,
        sequences: sequences.len(),
        tokens,
        seconds,
        tokens_per_second: tokens as f64 / median,
        sequences_per_second: sequences.len() as f64 / median,
    })
}

/// One call after another, so that nothing shares a batch.
fn alone(batcher: &Batcher, model: ModelId, sequences: Vec<Sequence>) -> Result<Matrix> {
    let mut all = Matrix::default();
    for sequence in sequences {
        let row = batcher.run(model, vec![sequence])?;
        all.rows += row.rows;
        all.columns = row.columns;
        all.values.extend(row.values);
    }
    Ok(all)
}

fn sequences(operands: &Operands) -> Result<Vec<Sequence>> {
    let (tokens, lengths) = (operands.counts("tokens")?, operands.counts("lengths")?);
    let sum: u64 = lengths.iter().map(|n| u64::from(*n)).sum();
    if sum != tokens.len() as u64 {
        return Err(Error::data(format!("lengths add up to {sum}, and there are {} tokens", tokens.len())));
    }
    let mut rest = &tokens[..];
    let sequence = |n: &u32| {
        let (own, others) = rest.split_at(*n as usize);
        rest = others;
        Sequence { tokens: own.to_vec(), types: vec![0; own.len()] }
    };
    Ok(lengths.iter().map(sequence).collect())
}
