//! BERT and XLM-RoBERTa on packed rows: one matrix of (all tokens, hidden), no padding.
//!
//! A layer is three steps over rows: queries, keys and values of row blocks; attention of rows of each sequence; and the
//! rest of the layer, block by block, so that the wide part of the feed-forward network never leaves the cache.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::{Head, Matrix, PackedBatch};
use super::attention::{Scratch, Shape, TASK_ROWS, attend};
use super::linear::{Linear, Workspace};
use super::math;
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::model::registry::{Architecture, Pooling};
use crate::model::weights::{ModelConfig, Weights};

/// Rows that one task takes: weights come once for so many rows.
const ROW_BLOCK: usize = 192;

/// Gain and shift of a layer norm.
struct Norm {
    gain: Arc<[f32]>,
    shift: Arc<[f32]>,
    epsilon: f32,
}

struct Layer {
    /// Queries, keys and values side by side.
    qkv: Linear,
    attention_out: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    norm: Norm,
}

/// Dense, tanh, projection, on the first token's vector.
struct Classifier {
    dense: Linear,
    projection: Linear,
}

pub struct Transformer {
    config: ModelConfig,
    pooling: Pooling,
    words: Arc<[f32]>,
    positions: Arc<[f32]>,
    types: Arc<[f32]>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    /// With [`Head::Score`].
    classifier: Option<Classifier>,
}

impl Transformer {
    /// Takes the tensors it needs; one that is missing or has another shape is an error that names it.
    pub fn new(weights: &Weights, head: Head) -> Result<Self> {
        let config = weights.config.clone();
        let h = config.hidden;
        let names: Vec<String> = (0..config.layers).map(|i| format!("encoder.layer.{i}")).collect();
        let layers = names.par_iter().map(|name| layer(weights, name)).collect::<Result<_>>()?;
        let classifier = match head {
            Head::Embed => None,
            Head::Score => Some(classifier(weights)?),
        };
        Ok(Transformer {
            pooling: weights.pooling,
            words: weights.tensor("embeddings.word_embeddings.weight", &[config.vocab, h])?,
            positions: weights.tensor("embeddings.position_embeddings.weight", &[config.positions, h])?,
            types: weights.tensor("embeddings.token_type_embeddings.weight", &[config.types, h])?,
            embedding_norm: norm(weights, "embeddings.LayerNorm")?,
            layers,
            classifier,
            config,
        })
    }

    /// One row a sequence.
    pub fn forward(&self, batch: &PackedBatch) -> Result<Matrix> {
        batch.check(&self.config)?;
        let h = self.config.hidden;
        let mut hidden = self.embed(batch);
        let mut qkv = vec![0.0; hidden.len() * 3];
        let mut context = vec![0.0; hidden.len()];
        for layer in &self.layers {
            project(&layer.qkv, &hidden, &mut qkv);
            self.attention(batch, &qkv, &mut context);
            layer.finish(&mut hidden, &context, h);
        }
        Ok(self.read_off(batch, &hidden))
    }

    /// The sum of word, position and segment vectors, normalised.
    fn embed(&self, batch: &PackedBatch) -> Vec<f32> {
        let h = self.config.hidden;
        let mut place = vec![0; batch.tokens.len()];
        for w in batch.starts.windows(2) {
            for (i, p) in place[w[0]..w[1]].iter_mut().enumerate() {
                *p = self.config.first_position() + i;
            }
        }
        let mut hidden = vec![0.0; batch.tokens.len() * h];
        hidden.par_chunks_mut(h).enumerate().with_min_len(64).for_each(|(i, row)| {
            row.copy_from_slice(&self.words[batch.tokens[i] as usize * h..][..h]);
            math::add(row, &self.types[batch.types[i] as usize * h..][..h]);
            math::add(row, &self.positions[place[i] * h..][..h]);
            self.embedding_norm.apply(row);
        });
        hidden
    }

    /// Splits each sequence into tasks of some rows; each task writes its own rows of `context`.
    fn attention(&self, batch: &PackedBatch, qkv: &[f32], context: &mut [f32]) {
        let h = self.config.hidden;
        let shape = Shape { hidden: h, heads: self.config.heads };
        let mut tasks = Vec::new();
        let mut rest = context;
        for w in batch.starts.windows(2) {
            let (mine, after) = rest.split_at_mut((w[1] - w[0]) * h);
            rest = after;
            let sequence = &qkv[w[0] * 3 * h..w[1] * 3 * h];
            tasks.extend(mine.chunks_mut(TASK_ROWS * h).enumerate().map(|(i, out)| (sequence, i * TASK_ROWS, out)));
        }
        tasks.into_par_iter().for_each_init(Scratch::default, |scratch, (sequence, first, out)| {
            attend(sequence, first, out, shape, scratch);
        });
    }

    fn read_off(&self, batch: &PackedBatch, hidden: &[f32]) -> Matrix {
        let h = self.config.hidden;
        let sequences = batch.starts.len() - 1;
        let mut rows = vec![0.0; sequences * h];
        let by_mean = self.classifier.is_none() && self.pooling == Pooling::Mean;
        for (row, w) in rows.chunks_exact_mut(h).zip(batch.starts.windows(2)) {
            if by_mean {
                hidden[w[0] * h..w[1] * h].chunks_exact(h).for_each(|token| math::add(row, token));
                math::scale(row, 1.0 / (w[1] - w[0]) as f32);
            } else {
                row.copy_from_slice(&hidden[w[0] * h..][..h]);
            }
        }
        match &self.classifier {
            None => {
                rows.chunks_exact_mut(h).for_each(math::to_unit);
                Matrix { rows: sequences, columns: h, values: rows }
            }
            Some(classifier) => Matrix { rows: sequences, columns: 1, values: classifier.logits(&rows, h) },
        }
    }
}

impl Classifier {
    fn logits(&self, rows: &[f32], h: usize) -> Vec<f32> {
        let mut inner = vec![0.0; rows.len()];
        project(&self.dense, rows, &mut inner);
        inner.par_iter_mut().with_min_len(4096).for_each(|x| *x = x.tanh());
        let mut logits = vec![0.0; rows.len() / h];
        project(&self.projection, &inner, &mut logits);
        logits
    }
}

impl Norm {
    fn apply(&self, row: &mut [f32]) {
        math::layer_norm(row, &self.gain, &self.shift, self.epsilon);
    }
}

impl Layer {
    /// Everything after attention: output, residual, norm, feed-forward, residual, norm.
    fn finish(&self, hidden: &mut [f32], context: &[f32], h: usize) {
        let wide = self.up.columns();
        let blocks = hidden.par_chunks_mut(ROW_BLOCK * h).zip(context.par_chunks(ROW_BLOCK * h));
        let memory = || (vec![0.0; ROW_BLOCK * h], vec![0.0; ROW_BLOCK * wide], Workspace::default());
        blocks.for_each_init(memory, |(narrow, inner, workspace), (hidden, context)| {
            let inner = &mut inner[..hidden.len() / h * wide];
            self.attention_out.apply(context, narrow, workspace);
            residual(hidden, narrow, h, &self.attention_norm);
            self.up.apply(hidden, inner, workspace);
            math::gelu(inner);
            self.down.apply(inner, narrow, workspace);
            residual(hidden, narrow, h, &self.norm);
        });
    }
}

/// `hidden = norm(hidden + update)`, row by row.
fn residual(hidden: &mut [f32], update: &[f32], h: usize, norm: &Norm) {
    for (row, update) in hidden.chunks_exact_mut(h).zip(update.chunks_exact(h)) {
        math::add(row, update);
        norm.apply(row);
    }
}

/// A linear layer over all rows, block by block.
fn project(layer: &Linear, rows: &[f32], out: &mut [f32]) {
    let blocks = out.par_chunks_mut(ROW_BLOCK * layer.columns()).zip(rows.par_chunks(ROW_BLOCK * layer.input()));
    blocks.for_each_init(Workspace::default, |workspace, (out, rows)| layer.apply(rows, out, workspace));
}

fn norm(weights: &Weights, name: &str) -> Result<Norm> {
    let h = weights.config.hidden;
    Ok(Norm {
        gain: weights.tensor(&format!("{name}.weight"), &[h])?,
        shift: weights.tensor(&format!("{name}.bias"), &[h])?,
        epsilon: weights.config.layer_norm_eps,
    })
}

fn linear(weights: &Weights, name: &str, output: usize, input: usize, precision: Precision) -> Result<Linear> {
    let weight = weights.tensor(&format!("{name}.weight"), &[output, input])?;
    let bias = weights.tensor(&format!("{name}.bias"), &[output])?;
    Ok(Linear::new(&weight, &bias, input, precision))
}

fn layer(weights: &Weights, name: &str) -> Result<Layer> {
    let (h, wide, precision) = (weights.config.hidden, weights.config.intermediate, weights.precision);
    let (mut weight, mut bias) = (Vec::with_capacity(3 * h * h), Vec::with_capacity(3 * h));
    for part in ["query", "key", "value"] {
        weight.extend_from_slice(&weights.tensor(&format!("{name}.attention.self.{part}.weight"), &[h, h])?);
        bias.extend_from_slice(&weights.tensor(&format!("{name}.attention.self.{part}.bias"), &[h])?);
    }
    let linear = |part: &str, output, input| linear(weights, &format!("{name}.{part}"), output, input, precision);
    Ok(Layer {
        qkv: Linear::new(&weight, &bias, h, precision),
        attention_out: linear("attention.output.dense", h, h)?,
        attention_norm: norm(weights, &format!("{name}.attention.output.LayerNorm"))?,
        up: linear("intermediate.dense", wide, h)?,
        down: linear("output.dense", h, wide)?,
        norm: norm(weights, &format!("{name}.output.LayerNorm"))?,
    })
}

/// In f32 always: it is one row a sequence.
fn classifier(weights: &Weights) -> Result<Classifier> {
    let h = weights.config.hidden;
    let (dense, projection) = match weights.config.architecture {
        Architecture::Bert => ("pooler.dense", "classifier"),
        Architecture::XlmRoberta => ("classifier.dense", "classifier.out_proj"),
    };
    if !weights.has(&format!("{projection}.weight")) {
        let what = format!("there is no tensor {projection}.weight: this model gives no score");
        return Err(Error::data(what)
            .at(weights.file.display().to_string())
            .next("name a cross-encoder in the job file"));
    }
    let linear = |name, output| linear(weights, name, output, h, Precision::F32);
    Ok(Classifier { dense: linear(dense, h)?, projection: linear(projection, 1)? })
}
