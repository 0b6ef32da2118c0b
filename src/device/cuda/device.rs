//! A GPU, or its emulation, behind the seam of all devices.

use std::sync::{Arc, Mutex, RwLock};

use super::super::{Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, Pending, TopK};
use super::batch::Indices;
use super::forward::{Shape, Started, Workspace, start};
use super::images;
use super::model::Model;
use super::runtime::Runtime;
use super::slot::{Size, Slot};
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
    /// Grows to the largest batch that there was. Its lock also keeps a batch's launches together.
    workspace: Mutex<Option<Workspace>>,
    /// Those that no batch uses.
    slots: Mutex<Vec<Slot>>,
}

/// A batch whose launches have been put to the GPU.
struct UnderWay<'a> {
    device: &'a CudaDevice,
    /// Both are taken when the rows have arrived.
    batch: Option<(Slot, Started)>,
}

impl UnderWay<'_> {
    fn take(&mut self) -> Result<Matrix> {
        let (mut slot, Started { done, rows, columns }) = self.batch.take().expect("rows are taken once");
        self.device.runtime.wait(done).map_err(|e| e.at(self.device.place()))?;
        let values = slot.values(rows * columns);
        self.device.slots.lock().expect("no holder panics").push(slot);
        Ok(Matrix { rows, columns, values })
    }
}

impl Pending for UnderWay<'_> {
    fn rows(mut self: Box<Self>) -> Result<Matrix> {
        self.take()
    }
}

impl Drop for UnderWay<'_> {
    /// A slot is given back when its batch is done, also where nobody asked for the rows; an error is then nobody's.
    fn drop(&mut self) {
        if self.batch.is_some() {
            let _ = self.take();
        }
    }
}

impl CudaDevice {
    /// `name` is what the command line calls it.
    pub fn new(name: impl Into<String>, runtime: Arc<dyn Runtime>) -> Self {
        CudaDevice {
            name: name.into(),
            runtime,
            models: RwLock::default(),
            workspace: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    fn place(&self) -> String {
        format!("device {}", self.name)
    }

    fn slot(&self, need: Size) -> Result<Slot> {
        let held = self.slots.lock().expect("no holder panics").pop();
        Slot::fit(&self.runtime, held, need)
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
        let table = ChipTiles::of(chip);
        // Another version of the library may choose another algorithm.
        let library = table.names_library().then(|| self.runtime.library()).flatten();
        let library = library.map_or_else(String::new, |version| format!("-lt{version}"));
        let budget = BUDGETS.iter().find(|(least, _)| gib >= *least).expect("the last takes all");
        DeviceInfo {
            name: self.name.clone(),
            detail: format!("{}, {gib} GiB, compute capability {major}.{minor}", chip.name),
            kernel_plan: format!(
                "cuda-bf16-1-sm_{major}{minor}-{}{}{library}",
                table.plan(),
                images::origin(chip.capability)
            ),
            computes_f32: false,
            batch_tokens: budget.1,
        }
    }

    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        let model = Model::new(&self.runtime, weights, head).map_err(|e| e.at(self.place()))?;
        let mut models = self.models.write().expect("no holder panics");
        models.push(Arc::new(model));
        Ok(ModelId(models.len() - 1))
    }

    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        self.submit(model, batch)?.rows()
    }

    fn submit<'a>(&'a self, model: ModelId, batch: &PackedBatch) -> Result<Box<dyn Pending + 'a>> {
        let model = self.model(model)?;
        let config = &model.config;
        batch.check(config)?;
        let long_from = ChipTiles::of(self.runtime.chip()).long_from(config.hidden / config.heads);
        let indices = Indices::new(batch, config, long_from);
        let need = Shape { tokens: indices.tokens, hidden: config.hidden, intermediate: config.intermediate };
        let size = Size {
            index_values: indices.values.len(),
            row_values: indices.sequences * model.read_off.columns(config.hidden),
        };
        let begin = || -> Result<UnderWay<'a>> {
            let mut held = self.workspace.lock().expect("no holder panics");
            if !held.as_ref().is_some_and(|w| w.shape.covers(need)) {
                let shape = held.as_ref().map_or(need, |w| w.shape.or(need));
                // The old memory goes first, when the batches that use it are done: both may not fit.
                *held = None;
                *held = Some(Workspace::new(&self.runtime, shape)?);
            }
            let memory = held.as_ref().expect("it was made above");
            let mut slot = self.slot(size)?;
            let started = start(&*self.runtime, &model, memory, &mut slot, &indices)?;
            Ok(UnderWay { device: self, batch: Some((slot, started)) })
        };
        Ok(Box::new(begin().map_err(|e| e.at(self.place()))?))
    }

    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        top_k::top_k(&self.runtime, queries, items, groups, k)
    }
}
