//! The CPU as a device: packed rows, no padding. In f32 the reference for every other device; in int8 ([`int8`]) the linear
//! layers of the encoder are quantised and all else stays f32.
//!
//! Each output value is one chain of multiply-adds in the order of its inputs ([`gemm`]), each row's sums have a fixed
//! order ([`math`]), and attention sees only its own sequence ([`attention`]). So a row's bits depend neither on the batch
//! around it nor on the number of threads.

mod attention;
mod fetch;
mod gemm;
pub mod halves;
mod int8;
mod int8_kernels;
mod linear;
mod math;
#[cfg(test)]
mod math_candle;
mod top_k;
mod transformer;

use std::sync::{Arc, RwLock};

use super::{Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, TopK};
use crate::error::{Error, Result};
use crate::model::weights::Weights;
use transformer::Transformer;

/// Tokens in a batch: some hundred kilobytes of activations a token's layer, and blocks enough for many cores.
const BATCH_TOKENS: usize = 8192;

/// All cores of this machine, through rayon's pool.
pub struct CpuDevice {
    models: RwLock<Vec<Arc<Transformer>>>,
    /// Why the CPU was chosen, for the description.
    note: String,
}

impl CpuDevice {
    /// `note` joins the description: why this device was chosen, or empty.
    pub fn new(note: impl Into<String>) -> Self {
        CpuDevice { models: RwLock::default(), note: note.into() }
    }

    fn model(&self, id: ModelId) -> Result<Arc<Transformer>> {
        let models = self.models.read().expect("no holder panics");
        models.get(id.0).cloned().ok_or_else(|| Error::internal(format!("the CPU holds no model {}", id.0)))
    }
}

/// A product of two square matrices of f32 on all cores, to be repeated: what this device does at best.
pub fn large_product(side: usize) -> impl FnMut() {
    use rayon::prelude::*;
    /// Rows of one task.
    const ROWS: usize = 192;
    let values: Vec<f32> = (0..side * side).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    let weight = gemm::Packed::linear(&values, &vec![0.0; side], side);
    let mut out = vec![0.0; side * side];
    move || {
        out.par_chunks_mut(ROWS * side).zip(values.par_chunks(ROWS * side)).for_each(|(out, rows)| {
            let rows = gemm::Rows { values: rows, stride: side, count: rows.len() / side };
            gemm::multiply(rows, &weight, out, side);
        });
    }
}

impl Device for CpuDevice {
    fn describe(&self) -> DeviceInfo {
        let (chip, threads) = (chip(), rayon::current_num_threads());
        let mut detail = format!("{chip}, {threads} threads, {}", math::instruction_set());
        if !self.note.is_empty() {
            detail = format!("{detail}; {}", self.note);
        }
        DeviceInfo {
            name: "cpu".into(),
            detail,
            kernel_plan: math::kernel_plan().into(),
            computes_f32: true,
            batch_tokens: BATCH_TOKENS,
        }
    }

    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        let model = Arc::new(Transformer::new(weights, head)?);
        let mut models = self.models.write().expect("no holder panics");
        models.push(model);
        Ok(ModelId(models.len() - 1))
    }

    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        self.model(model)?.forward(batch)
    }

    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        top_k::top_k(queries, items, groups, k)
    }
}

/// The processor's name as Linux gives it.
fn chip() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
}

#[cfg(test)]
mod tests;
