//! A model of random weights: for timing a device without a model, and for asking whether a device computes what it should.

use std::collections::HashMap;
use std::path::PathBuf;

use super::registry::{Architecture, Pooling};
use super::weights::{ModelConfig, Tensor, Weights};
use crate::config::Precision;

impl Weights {
    /// Seeded weights of this shape, with the tensors of a cross-encoder. Matrices are scaled to their width, so that what
    /// goes through them neither dies nor explodes, and attention is neither even nor one-hot.
    pub fn random(config: &ModelConfig, pooling: Pooling, seed: u64) -> Weights {
        let mut made = Made { tensors: HashMap::new(), state: seed };
        let (h, wide) = (config.hidden, config.intermediate);
        for (name, rows) in [("word", config.vocab), ("position", config.positions), ("token_type", config.types)] {
            made.tensor(format!("embeddings.{name}_embeddings.weight"), &[rows, h], 0.5, 0.0);
        }
        made.norm("embeddings.LayerNorm", h);
        for layer in 0..config.layers {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["query", "key", "value"] {
                made.linear(&name(&format!("attention.self.{part}")), h, h);
            }
            made.linear(&name("attention.output.dense"), h, h);
            made.norm(&name("attention.output.LayerNorm"), h);
            made.linear(&name("intermediate.dense"), wide, h);
            made.linear(&name("output.dense"), h, wide);
            made.norm(&name("output.LayerNorm"), h);
        }
        let (dense, projection) = match config.architecture {
            Architecture::Bert => ("pooler.dense", "classifier"),
            Architecture::XlmRoberta => ("classifier.dense", "classifier.out_proj"),
        };
        made.linear(dense, h, h);
        made.linear(projection, 1, h);
        Weights::of(config.clone(), pooling, Precision::F32, PathBuf::from("random weights"), made.tensors)
    }
}

struct Made {
    tensors: HashMap<String, Tensor>,
    state: u64,
}

impl Made {
    /// Even over a range whose standard deviation is 1.
    fn next(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.state >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * 3f32.sqrt()
    }

    fn tensor(&mut self, name: String, shape: &[usize], spread: f32, middle: f32) {
        let values = (0..shape.iter().product::<usize>()).map(|_| middle + spread * self.next()).collect();
        self.tensors.insert(name, Tensor { shape: shape.to_vec(), values });
    }

    fn linear(&mut self, name: &str, output: usize, input: usize) {
        self.tensor(format!("{name}.weight"), &[output, input], 2.0 / (input as f32).sqrt(), 0.0);
        self.tensor(format!("{name}.bias"), &[output], 0.1, 0.0);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.tensor(format!("{name}.weight"), &[width], 0.2, 1.0);
        self.tensor(format!("{name}.bias"), &[width], 0.1, 0.0);
    }
}
