//! Models and devices of the tests.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::device::cpu::CpuDevice;
use crate::device::{Batcher, Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, TopK, open};
use crate::error::Result;
use crate::model::weights::{Tensor, fixture, write_safetensors};
use crate::model::{ModelFolder, Weights, resolve};

pub fn folder(name: &str) -> ModelFolder {
    resolve(fixture(name).to_str().unwrap(), Path::new("")).unwrap()
}

pub fn batcher() -> Arc<Batcher> {
    Batcher::new(open("cpu").unwrap()).unwrap()
}

/// The smallest cross-encoder with a table of 8,194 positions, in a folder of its own.
pub fn long_scorer() -> (tempfile::TempDir, ModelFolder) {
    let (dir, from) = (tempfile::tempdir().unwrap(), fixture("xlmr_types"));
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let long = config.replace("\"max_position_embeddings\": 66", "\"max_position_embeddings\": 8194");
    assert_ne!(config, long);
    std::fs::copy(from.join("f32.safetensors"), dir.path().join("model.safetensors")).unwrap();
    for (file, text) in
        [("config.json", long), ("tokenizer.json", std::fs::read_to_string(from.join("tokenizer.json")).unwrap())]
    {
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    let folder = resolve(dir.path().to_str().unwrap(), Path::new("")).unwrap();
    let mut weights = Weights::read(&folder).unwrap();
    let name = "embeddings.position_embeddings.weight";
    let short = weights.tensors()[name].values.clone();
    // Rows that come again after 66 are told apart by a factor.
    let values = (0..8194 * 16).map(|i| short[i % short.len()] * (1.0 - i as f32 / 400_000.0)).collect();
    weights.set(name, Tensor { shape: vec![8194, 16], values });
    write_safetensors(&dir.path().join("model.safetensors"), weights.tensors().iter());
    (dir, folder)
}

/// The CPU with other limits and faults, which remembers the lengths of its batches.
pub struct Odd {
    cpu: CpuDevice,
    pub batch_tokens: usize,
    /// Sequences with this token come out as NaN.
    pub poison: Option<u32>,
    pub batches: Mutex<Vec<Vec<usize>>>,
}

impl Odd {
    pub fn new(batch_tokens: usize, poison: Option<u32>) -> Arc<Odd> {
        Arc::new(Odd { cpu: CpuDevice::new(""), batch_tokens, poison, batches: Mutex::default() })
    }
}

impl Device for Odd {
    fn describe(&self) -> DeviceInfo {
        DeviceInfo { batch_tokens: self.batch_tokens, ..self.cpu.describe() }
    }
    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        self.cpu.load(weights, head)
    }
    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        let places = batch.starts.windows(2);
        self.batches.lock().unwrap().push(places.clone().map(|w| w[1] - w[0]).collect());
        let mut rows = self.cpu.forward(model, batch)?;
        for (row, w) in rows.values.chunks_exact_mut(rows.columns).zip(places) {
            if self.poison.is_some_and(|poison| batch.tokens[w[0]..w[1]].contains(&poison)) {
                row[0] = f32::NAN;
            }
        }
        Ok(rows)
    }
    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        self.cpu.top_k(queries, items, groups, k)
    }
}
