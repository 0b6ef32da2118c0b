//! The seam to an accelerator. Packed rows go in, rows come out; no tensors cross. The only place that knows CUDA.

pub mod bench;
mod checks;
pub mod cpu;
pub mod cuda;
pub mod queue;
pub mod select;
pub mod trial;

pub use queue::{Batcher, Progress};
pub use select::open;

use crate::error::Result;
use crate::model::weights::Weights;

/// What the pipeline asks of an accelerator.
///
/// The bits of a row's result do not depend on the batch that the row was in.
pub trait Device: Send + Sync {
    fn describe(&self) -> DeviceInfo;
    /// Puts a model on the device, to run in the precision that the weights name.
    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId>;
    /// (sequences, dim) for [`Head::Embed`], (sequences, 1) for [`Head::Score`]; row-major f32. A batch that does not fit
    /// into the device's memory is an error of class [`crate::error::Class::OutOfMemory`], and may come again in halves.
    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix>;
    /// Starts a batch, whose rows are asked for later: the next one can be put together and copied in the meantime. What is
    /// said of [`Device::forward`] holds for the rows; either call may bring the error.
    fn submit<'a>(&'a self, model: ModelId, batch: &PackedBatch) -> Result<Box<dyn Pending + 'a>> {
        Ok(Box::new(Computed(self.forward(model, batch)?)))
    }
    /// For each group, the k largest dot products of its queries with its items; ties go to the lower index.
    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK>;
}

/// A batch under way.
pub trait Pending {
    /// Waits for its rows.
    fn rows(self: Box<Self>) -> Result<Matrix>;
}

/// Rows of a device that computes while it is asked.
struct Computed(Matrix);

impl Pending for Computed {
    fn rows(self: Box<Self>) -> Result<Matrix> {
        Ok(self.0)
    }
}

/// A model that a device holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelId(pub usize);

/// What is read off the last layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Head {
    /// A pooled vector of unit length.
    Embed,
    /// One logit.
    Score,
}

/// Sequences end to end, without padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedBatch {
    /// Token ids of all sequences.
    pub tokens: Vec<u32>,
    /// Segment ids, one a token (0 for models without segments).
    pub types: Vec<u32>,
    /// Where each sequence begins, and at last the number of tokens: `sequences + 1` values.
    pub starts: Vec<usize>,
}

/// Rows of f32, one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f32>,
}

/// Which rows of the queries meet which rows of the items: half-open ranges, one pair a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    pub queries: Vec<std::ops::Range<usize>>,
    pub items: Vec<std::ops::Range<usize>>,
}

/// For each query, in order, its best items: index within the group's items and dot product, best first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopK {
    pub hits: Vec<Vec<(u32, f32)>>,
}

/// What a device is, for plans and summaries.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// `cpu` or `cuda:0`.
    pub name: String,
    /// Chip, cores, instruction set.
    pub detail: String,
    /// Names the arithmetic: part of the hash of every model that runs on the device.
    pub kernel_plan: String,
    /// Whether a model of f32 runs in f32; else its rows are rounded, and one may overflow.
    pub computes_f32: bool,
    /// Tokens in a batch that the device takes at once.
    pub batch_tokens: usize,
}
