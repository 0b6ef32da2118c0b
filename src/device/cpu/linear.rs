//! A linear layer in either precision.

use super::gemm::{Packed, Rows, multiply};
use super::int8::{Quanta, Quantised};
use crate::config::Precision;

pub struct Linear {
    input: usize,
    weights: Weights,
}

enum Weights {
    F32(Packed),
    Int8(Quantised),
}

/// Memory that a thread uses again and again.
pub type Workspace = Quanta;

impl Linear {
    /// Weight of (out, in) as PyTorch stores it, bias of (out).
    pub fn new(weight: &[f32], bias: &[f32], input: usize, precision: Precision) -> Self {
        let weights = match precision {
            Precision::F32 => Weights::F32(Packed::linear(weight, bias, input)),
            Precision::Int8 => Weights::Int8(Quantised::linear(weight, bias, input)),
        };
        Linear { input, weights }
    }

    pub fn input(&self) -> usize {
        self.input
    }

    pub fn columns(&self) -> usize {
        match &self.weights {
            Weights::F32(weights) => weights.columns(),
            Weights::Int8(weights) => weights.columns(),
        }
    }

    /// Writes a row of the layer's output to `out` for each of the `rows`.
    pub fn apply(&self, rows: &[f32], out: &mut [f32], workspace: &mut Workspace) {
        match &self.weights {
            Weights::F32(weights) => {
                let rows = Rows { values: rows, stride: self.input, count: rows.len() / self.input };
                multiply(rows, weights, out, weights.columns());
            }
            Weights::Int8(weights) => weights.apply(rows, out, workspace),
        }
    }
}
