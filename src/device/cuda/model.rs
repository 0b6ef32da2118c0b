//! A model in a device's memory: matrices as bf16, biases and norms as f32.

use std::sync::Arc;

use half::bf16;

use super::super::Head;
use super::kernels::{Embedding, Linear, MOST_HIDDEN, Norm, ScoreHead};
use super::runtime::{Buffer, Runtime};
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::model::registry::{Architecture, Pooling};
use crate::model::weights::{ModelConfig, Weights};

pub struct Model {
    pub config: ModelConfig,
    pub read_off: ReadOff,
    pub embedding: Embedding,
    pub layers: Vec<Layer>,
}

/// What becomes of the last layer's rows.
pub enum ReadOff {
    /// The mean over all rows of a sequence.
    Mean,
    /// The first row.
    First,
    /// The logit of the first row.
    Score(ScoreHead),
}

impl ReadOff {
    /// Values of a sequence's row, for rows of so many between the layers.
    pub fn columns(&self, hidden: usize) -> usize {
        if matches!(self, ReadOff::Score(_)) { 1 } else { hidden }
    }
}

pub struct Layer {
    pub project: Project,
    pub attention_out: Linear,
    pub attention_norm: Norm,
    pub up: Linear,
    pub down: Linear,
    pub norm: Norm,
}

/// How queries, keys and values are made.
pub enum Project {
    /// For all rows at once, side by side.
    All(Linear),
    /// Keys and values for all rows, queries for the first row of each sequence: the last layer, where only that is read.
    First { queries: Linear, keys_values: Linear },
}

impl Model {
    /// Takes the tensors it needs; one that is missing or has another shape is an error that names it.
    pub fn new(runtime: &Arc<dyn Runtime>, weights: &Weights, head: Head) -> Result<Self> {
        let config = weights.config.clone();
        fits(&config, weights)?;
        let put = Put { runtime, weights };
        let h = config.hidden;
        let read_off = match (head, weights.pooling) {
            (Head::Score, _) => ReadOff::Score(put.score_head()?),
            (Head::Embed, Pooling::Mean) => ReadOff::Mean,
            (Head::Embed, Pooling::Cls) => ReadOff::First,
        };
        let first_only = !matches!(read_off, ReadOff::Mean);
        let last = config.layers - 1;
        let layers = (0..config.layers).map(|i| put.layer(i, first_only && i == last)).collect::<Result<_>>()?;
        let embedding = Embedding {
            words: put.matrix("embeddings.word_embeddings.weight", &[config.vocab, h])?,
            positions: put.matrix("embeddings.position_embeddings.weight", &[config.positions, h])?,
            types: put.matrix("embeddings.token_type_embeddings.weight", &[config.types, h])?,
            norm: put.norm("embeddings.LayerNorm")?,
        };
        Ok(Model { config, read_off, embedding, layers })
    }
}

/// Whether the kernels can run such a model.
fn fits(config: &ModelConfig, weights: &Weights) -> Result<()> {
    let (hidden, wide, dim) = (config.hidden, config.intermediate, config.hidden / config.heads);
    let wrong = if weights.precision == Precision::Int8 {
        "precision int8 is the CPU's: a GPU computes in bf16".to_string()
    } else if ![32, 64].contains(&dim) {
        format!("its heads have {dim} values; the GPU's attention takes 32 or 64")
    } else if hidden > MOST_HIDDEN || !hidden.is_multiple_of(32) {
        format!("its rows have {hidden} values; the GPU's kernels take multiples of 32 up to {MOST_HIDDEN}")
    } else if !wide.is_multiple_of(32) {
        format!("its feed-forward part has {wide} values; the GPU's kernels take multiples of 32")
    } else {
        return Ok(());
    };
    Err(Error::device(wrong).at(weights.file.display().to_string()).next("use --device cpu for this model"))
}

/// Puts tensors into a device's memory.
struct Put<'a> {
    runtime: &'a Arc<dyn Runtime>,
    weights: &'a Weights,
}

impl Put<'_> {
    fn matrix(&self, name: &str, shape: &[usize]) -> Result<Buffer> {
        Buffer::filled(self.runtime, &halves(&self.weights.tensor(name, shape)?)).map_err(|e| e.at(name.to_string()))
    }

    fn vector(&self, name: &str, length: usize) -> Result<Buffer> {
        let values = self.weights.tensor(name, &[length])?;
        Buffer::filled(self.runtime, &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>())
    }

    fn norm(&self, name: &str) -> Result<Norm> {
        let h = self.weights.config.hidden;
        Ok(Norm {
            gain: self.vector(&format!("{name}.weight"), h)?,
            shift: self.vector(&format!("{name}.bias"), h)?,
            epsilon: self.weights.config.layer_norm_eps,
        })
    }

    /// Layers of one input, side by side.
    fn linear(&self, names: &[String], output: usize, input: usize) -> Result<Linear> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weight.extend(halves(&self.weights.tensor(&format!("{name}.weight"), &[output, input])?));
            bias.extend_from_slice(&self.weights.tensor(&format!("{name}.bias"), &[output])?);
        }
        Linear::new(self.runtime, &weight, &bias, input)
    }

    fn layer(&self, number: usize, first_only: bool) -> Result<Layer> {
        let ModelConfig { hidden, intermediate, .. } = self.weights.config;
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let own = |part: &str| name(&format!("attention.self.{part}"));
        let project = if first_only {
            Project::First {
                queries: self.linear(&[own("query")], hidden, hidden)?,
                keys_values: self.linear(&[own("key"), own("value")], hidden, hidden)?,
            }
        } else {
            Project::All(self.linear(&["query", "key", "value"].map(own), hidden, hidden)?)
        };
        Ok(Layer {
            project,
            attention_out: self.linear(&[name("attention.output.dense")], hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"))?,
            up: self.linear(&[name("intermediate.dense")], intermediate, hidden)?,
            down: self.linear(&[name("output.dense")], hidden, intermediate)?,
            norm: self.norm(&name("output.LayerNorm"))?,
        })
    }

    fn score_head(&self) -> Result<ScoreHead> {
        let h = self.weights.config.hidden;
        let (dense, projection) = match self.weights.config.architecture {
            Architecture::Bert => ("pooler.dense", "classifier"),
            Architecture::XlmRoberta => ("classifier.dense", "classifier.out_proj"),
        };
        if !self.weights.has(&format!("{projection}.weight")) {
            let what = format!("there is no tensor {projection}.weight: this model gives no score");
            return Err(Error::data(what)
                .at(self.weights.file.display().to_string())
                .next("name a cross-encoder in the job file"));
        }
        Ok(ScoreHead {
            dense_weight: self.matrix(&format!("{dense}.weight"), &[h, h])?,
            dense_bias: self.vector(&format!("{dense}.bias"), h)?,
            projection_weight: self.matrix(&format!("{projection}.weight"), &[1, h])?,
            projection_bias: self.vector(&format!("{projection}.bias"), 1)?,
        })
    }
}

/// As bf16, rounded to nearest, ties to even.
pub fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| bf16::from_f32(*v).to_ne_bytes()).collect()
}
