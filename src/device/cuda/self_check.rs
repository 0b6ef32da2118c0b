//! Whether a GPU computes what it should: a small model of random weights, beside the CPU.
//!
//! It runs when a GPU is opened, in some milliseconds. A driver, a chip or compiled code that does not do what our tests on the
//! emulation show would give vectors that look like vectors: nothing later would tell.

use super::super::cpu::CpuDevice;
use super::super::{Device, Head, PackedBatch};
use super::kernels::MOST_HIDDEN;
use crate::error::{Error, Result};
use crate::model::registry::{Architecture, Pooling};
use crate::model::weights::{ModelConfig, Weights};

/// Two layers in bf16 are off by 0.01 to 0.02 of a vector's length (what PyTorch's own are).
const MOST_OFF: f32 = 0.05;
/// On both sides of the tiles' edges; the last is long for attention on every chip that makes the difference.
const LENGTHS: [usize; 6] = [1, 7, 64, 65, 130, 300];

/// The model has heads of so many values; with `head` and `pooling` every kernel of a forward pass runs.
pub fn model(dim: usize, pooling: Pooling) -> Weights {
    let config = ModelConfig {
        architecture: Architecture::XlmRoberta,
        vocab: 50,
        hidden: MOST_HIDDEN / 4,
        layers: 2,
        heads: MOST_HIDDEN / 4 / dim,
        intermediate: MOST_HIDDEN / 2,
        positions: 302,
        types: 1,
        layer_norm_eps: 1e-5,
        pad_token_id: 1,
    };
    Weights::random(&config, pooling, dim as u64)
}

fn batch() -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    for length in LENGTHS {
        batch.tokens.extend((0..length).map(|i| (2 + (i * 31 + length) % 48) as u32));
        batch.starts.push(batch.tokens.len());
    }
    batch.types = vec![0; batch.tokens.len()];
    batch
}

/// An error where the device's rows are not those of the CPU, within what bf16 allows.
pub fn check(device: &dyn Device) -> Result<()> {
    let batch = batch();
    let cases = [(64, Pooling::Cls, Head::Embed), (32, Pooling::Mean, Head::Embed), (64, Pooling::Cls, Head::Score)];
    for (dim, pooling, head) in cases {
        let weights = model(dim, pooling);
        let right = run(&CpuDevice::new(""), &weights, head, &batch)?;
        let got = run(device, &weights, head, &batch)?;
        // Logits are compared all at once: one alone may be near 0.
        let width = if head == Head::Score { right.len() } else { right.len() / LENGTHS.len() };
        for (right, got) in right.chunks(width).zip(got.chunks(width)) {
            let length = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
            let off = length(&mut right.iter().zip(got).map(|(a, b)| a - b)) / length(&mut right.iter().copied());
            if off.is_nan() || off > MOST_OFF {
                let what = format!("{} computes something else than the CPU (off by {off})", device.describe().detail);
                return Err(Error::device(what).next("use --device cpu, and tell us of this GPU and its driver"));
            }
        }
    }
    Ok(())
}

fn run(device: &dyn Device, weights: &Weights, head: Head, batch: &PackedBatch) -> Result<Vec<f32>> {
    let model = device.load(weights, head)?;
    Ok(device.forward(model, batch)?.values)
}
