//! What belongs to one batch alone, so that the next one's indices are copied while this one is computed.

use std::sync::Arc;

use super::batch::{Indices, Placed};
use super::kernels::WORD;
use super::runtime::{Buffer, Mark, Pinned, Runtime, View};
use crate::error::Result;

/// Where a batch's indices and results lie, on the device and in pinned memory of the host. A slot serves one batch at a
/// time: from [`Slot::put`] until the mark that [`Slot::fetch`] gave has been waited for.
pub struct Slot {
    size: Size,
    indices: Buffer,
    indices_pinned: Pinned,
    rows: Buffer,
    rows_pinned: Pinned,
}

/// What a slot is large enough for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub index_values: usize,
    /// f32 values of all sequences' rows.
    pub row_values: usize,
}

impl Size {
    fn covers(self, other: Size) -> bool {
        self.index_values >= other.index_values && self.row_values >= other.row_values
    }
}

impl Slot {
    /// Takes a free slot for a batch of this size: `held` where it is large enough, else a larger one in its place.
    pub fn fit(runtime: &Arc<dyn Runtime>, held: Option<Slot>, need: Size) -> Result<Slot> {
        let size = match held {
            Some(slot) if slot.size.covers(need) => return Ok(slot),
            // Half as much again: batches of one kind differ a little in size. The old memory goes here.
            Some(slot) => Size {
                index_values: slot.size.index_values.max(need.index_values + need.index_values / 2),
                row_values: slot.size.row_values.max(need.row_values + need.row_values / 2),
            },
            None => need,
        };
        let (index_bytes, row_bytes) = (size.index_values * WORD, size.row_values * WORD);
        Ok(Slot {
            size,
            indices: Buffer::new(runtime, index_bytes)?,
            indices_pinned: Pinned::new(runtime, index_bytes)?,
            rows: Buffer::new(runtime, row_bytes)?,
            rows_pinned: Pinned::new(runtime, row_bytes)?,
        })
    }

    /// Starts the copy of the indices; gives where they will lie.
    pub fn put(&mut self, indices: &Indices) -> Result<Placed> {
        let bytes = indices.values.len() * WORD;
        indices.write(self.indices_pinned.first(bytes));
        self.indices_pinned.upload(self.indices.view(), bytes)?;
        Ok(indices.placed(self.indices.view()))
    }

    /// Where launches put the rows.
    pub fn out(&self) -> View {
        self.rows.view()
    }

    /// Starts the copy of so many values of the rows, after the launches that make them.
    pub fn fetch(&mut self, values: usize) -> Result<Mark> {
        self.rows_pinned.download(self.rows.view(), values * WORD)
    }

    /// The values that were fetched. Their mark has been waited for.
    pub fn values(&mut self, values: usize) -> Vec<f32> {
        let bytes = self.rows_pinned.first(values * WORD).chunks_exact(WORD);
        bytes.map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}
