//! A GPU, or its emulation, behind the seam of all devices.

use std::sync::{Arc, Mutex, RwLock};

use super::super::{Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, TopK};
use super::forward::{Shape, Workspace, forward};
use super::model::Model;
use super::runtime::Runtime;
use super::tiles::ChipTiles;
use super::top_k;
use crate::error::{Error, Result};
use crate::model::weights::Weights;

/// Tokens of a batch by the chip's memory in GiB: enough to fill its multiprocessors, and a small part of the memory.
const BUDGETS: [(u64, usize); 4] = [(64, 65_536), (32, 32_768), (12, 16_384), (0, 4_096)];

pub struct CudaDevice {
    name: String,
    runtime: Arc<dyn Runtime>,
    models: RwLock<Vec<Arc<Model>>>,
    /// Grows to the largest batch that there was.
    workspace: Mutex<Option<Workspace>>,
}

impl CudaDevice {
    /// `name` is what the command line calls it.
    pub fn new(name: impl Into<String>, runtime: Arc<dyn Runtime>) -> Self {
        CudaDevice { name: name.into(), runtime, models: RwLock::default(), workspace: Mutex::default() }
    }

    fn model(&self, id: ModelId) -> Result<Arc<Model>> {
        let models = self.models.read().expect("no holder panics");
        models.get(id.0).cloned().ok_or_else(|| Error::internal(format!("{} holds no model {}", self.name, id.0)))
    }
}

impl Device for CudaDevice {
    fn describe(&self) -> DeviceInfo {
        let chip = self.runtime.chip();
        let (major, minor) = chip.capability;
        let gib = chip.memory_bytes >> 30;
        let budget = BUDGETS.iter().find(|(least, _)| gib >= *least).expect("the last takes all");
        DeviceInfo {
            name: self.name.clone(),
            detail: format!("{}, {gib} GiB, compute capability {major}.{minor}", chip.name),
            kernel_plan: format!("cuda-bf16-1-sm_{major}{minor}-{}", ChipTiles::of(chip).plan()),
            computes_f32: false,
            batch_tokens: budget.1,
        }
    }

    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        let place = || format!("device {}", self.name);
        let model = Model::new(&self.runtime, weights, head).map_err(|e| e.at(place()))?;
        let mut models = self.models.write().expect("no holder panics");
        models.push(Arc::new(model));
        Ok(ModelId(models.len() - 1))
    }

    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        let model = self.model(model)?;
        batch.check(&model.config)?;
        let config = &model.config;
        let need = Shape { tokens: batch.tokens.len(), hidden: config.hidden, intermediate: config.intermediate };
        let mut held = self.workspace.lock().expect("no holder panics");
        if !held.as_ref().is_some_and(|w| w.shape.covers(need)) {
            let shape = held.as_ref().map_or(need, |w| w.shape.or(need));
            // The old memory goes first: both may not fit.
            *held = None;
            *held = Some(Workspace::new(&self.runtime, shape)?);
        }
        let memory = held.as_ref().expect("it was made above");
        forward(&*self.runtime, &model, memory, batch).map_err(|e| e.at(format!("device {}", self.name)))
    }

    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        top_k::top_k(&self.runtime, queries, items, groups, k)
    }
}
