//! A device whose models are drawn from a seed: a sequence's vector depends on its tokens alone, and costs next to nothing.

use memslate::device::cpu::CpuDevice;
use memslate::device::{Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, TopK};
use memslate::error::{Error, Result};
use memslate::model::weights::Weights;

/// Stands where an encoder's forward passes would be; the rest of the path is the real one.
pub struct Seeded {
    dim: usize,
    cpu: CpuDevice,
}

impl Seeded {
    pub fn new(dim: usize) -> Self {
        Seeded { dim, cpu: CpuDevice::new("") }
    }
}

impl Device for Seeded {
    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            name: "seeded".into(),
            detail: format!("unit vectors of {} from a seed", self.dim),
            kernel_plan: format!("seeded-{}", self.dim),
            ..self.cpu.describe()
        }
    }

    fn load(&self, _: &Weights, head: Head) -> Result<ModelId> {
        match head {
            Head::Embed => Ok(ModelId(0)),
            Head::Score => Err(Error::usage("the seeded device has no cross-encoder")),
        }
    }

    fn forward(&self, _: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        let mut values = Vec::with_capacity((batch.starts.len() - 1) * self.dim);
        for ends in batch.starts.windows(2) {
            unit_vector(&batch.tokens[ends[0]..ends[1]], self.dim, &mut values);
        }
        Ok(Matrix { rows: batch.starts.len() - 1, columns: self.dim, values })
    }

    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        self.cpu.top_k(queries, items, groups, k)
    }
}

/// Appends a vector of length 1 whose direction is settled by the tokens.
fn unit_vector(tokens: &[u32], dim: usize, values: &mut Vec<f32>) {
    let mut state =
        tokens.iter().fold(0x9e37_79b9_7f4a_7c15u64, |h, t| (h ^ u64::from(*t)).wrapping_mul(0x100_0000_01b3));
    let start = values.len();
    for _ in 0..dim {
        // The sum of four uniform numbers: near enough to normal for a direction without a favourite axis.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        let sum: u64 = (0..4).map(|part| (x >> (16 * part)) & 0xffff).sum();
        values.push(sum as f32 - 131_070.0);
    }
    let length = values[start..].iter().map(|v| v * v).sum::<f32>().sqrt();
    values[start..].iter_mut().for_each(|v| *v /= length);
}
