//! Whole passes as the pipeline makes them: sequences go into the queue, rows come back.

use std::sync::Arc;

use super::super::{Batcher, Device, Head};
use super::report::{Ceilings, Pass};
use super::timed::median_seconds;
use super::work::{self, Batch};
use crate::error::Result;
use crate::model::tokenizer::Sequence;
use crate::model::weights::Weights;

/// Both heads on each set of lengths.
pub fn passes(
    device: &Arc<dyn Device>,
    weights: &Weights,
    lengths: &[(String, Vec<usize>)],
    ceilings: &Ceilings,
    seconds: f64,
) -> Result<Vec<Pass>> {
    let batcher = Batcher::new(Arc::clone(device))?;
    let gpu = !device.describe().computes_f32;
    let mut all = Vec::new();
    for head in [Head::Score, Head::Embed] {
        if head == Head::Score && !has_score_head(weights) {
            continue;
        }
        let model = batcher.load(weights, head)?;
        let first_only = work::first_rows_only(head, weights.pooling, gpu);
        for (name, lengths) in lengths {
            let sequences = sequences(lengths, weights.config.vocab);
            let took = median_seconds(seconds, || batcher.run(model, sequences.clone()).map(drop))?;
            let operations = work::pass(&weights.config, Batch::of(lengths), first_only);
            all.push(Pass::new(head, name, lengths, took, operations, ceilings));
        }
    }
    Ok(all)
}

/// An encoder's file has none.
fn has_score_head(weights: &Weights) -> bool {
    ["classifier.weight", "classifier.out_proj.weight"].iter().any(|name| weights.has(name))
}

/// Token ids that fit the vocabulary, spread over it.
pub fn sequences(lengths: &[usize], vocab: usize) -> Vec<Sequence> {
    let ids = vocab.saturating_sub(5).max(1);
    let token = |i: usize, j: usize| (vocab.min(5) + (i * 7919 + j * 104_729) % ids).min(vocab - 1) as u32;
    let sequence =
        |(i, &n): (usize, &usize)| Sequence { tokens: (0..n).map(|j| token(i, j)).collect(), types: vec![0; n] };
    lengths.iter().enumerate().map(sequence).collect()
}
