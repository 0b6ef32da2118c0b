//! One pass over a packed batch: some ten launches a layer, no copy in between.

use std::sync::Arc;

use super::batch::{Indices, Placed};
use super::kernels::{Attention, Blocks, Epilogue, HALF, gather, pool};
use super::model::{Layer, Model, Project, ReadOff};
use super::runtime::{Buffer, Mark, Runtime, View};
use super::slot::Slot;
use crate::error::Result;

/// Memory for the rows of a batch between its launches. Batches use it one after another, as their launches do.
pub struct Workspace {
    pub shape: Shape,
    /// Rows between layers, and rows before a norm: (tokens, hidden) each.
    hidden: Buffer,
    narrow: Buffer,
    /// Queries, keys, values and context side by side, then the feed-forward part.
    wide: Buffer,
}

/// What a workspace is large enough for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub tokens: usize,
    pub hidden: usize,
    pub intermediate: usize,
}

impl Shape {
    /// Values a token in the wide buffer.
    fn wide(self) -> usize {
        self.intermediate.max(4 * self.hidden)
    }

    pub fn covers(self, other: Shape) -> bool {
        self.tokens >= other.tokens && self.hidden >= other.hidden && self.intermediate >= other.intermediate
    }

    pub fn or(self, other: Shape) -> Shape {
        Shape {
            tokens: self.tokens.max(other.tokens),
            hidden: self.hidden.max(other.hidden),
            intermediate: self.intermediate.max(other.intermediate),
        }
    }
}

impl Workspace {
    pub fn new(runtime: &Arc<dyn Runtime>, shape: Shape) -> Result<Self> {
        let rows = |width: usize| Buffer::new(runtime, shape.tokens * width * HALF);
        Ok(Workspace { hidden: rows(shape.hidden)?, narrow: rows(shape.hidden)?, wide: rows(shape.wide())?, shape })
    }
}

/// Rows that are on their way to a slot's pinned memory.
pub struct Started {
    pub done: Mark,
    /// One a sequence.
    pub rows: usize,
    pub columns: usize,
}

/// Puts a batch's copies and launches to the runtime, and waits for none. The batch was checked against the model; the slot
/// is free, and holds it.
pub fn start(
    runtime: &dyn Runtime,
    model: &Model,
    memory: &Workspace,
    slot: &mut Slot,
    indices: &Indices,
) -> Result<Started> {
    let pass = Pass {
        runtime,
        model,
        placed: slot.put(indices)?,
        tokens: indices.tokens,
        sequences: indices.sequences,
        hidden: memory.hidden.view(),
        narrow: memory.narrow.view(),
        wide: memory.wide.view(),
        out: slot.out(),
    };
    pass.run()?;
    let (rows, columns) = (indices.sequences, model.read_off.columns(model.config.hidden));
    Ok(Started { done: slot.fetch(rows * columns)?, rows, columns })
}

struct Pass<'a> {
    runtime: &'a dyn Runtime,
    model: &'a Model,
    placed: Placed,
    tokens: usize,
    sequences: usize,
    hidden: View,
    narrow: View,
    wide: View,
    out: View,
}

impl Pass<'_> {
    /// Leaves the result in `out`.
    fn run(&self) -> Result<()> {
        let (h, placed) = (self.model.config.hidden, &self.placed);
        let ids = [placed.ids, placed.segments, placed.places];
        self.model.embedding.apply(self.runtime, self.hidden, ids, self.tokens, h)?;
        for layer in &self.model.layers {
            match &layer.project {
                Project::All(_) => self.whole_layer(layer)?,
                Project::First { .. } => self.first_rows(layer)?,
            }
        }
        match &self.model.read_off {
            ReadOff::Mean => pool(self.runtime, self.out, self.hidden, placed.starts, [self.sequences, h], true),
            ReadOff::First => pool(self.runtime, self.out, self.hidden, placed.firsts, [self.sequences, h], false),
            ReadOff::Score(head) => head.apply(self.runtime, self.out, self.hidden, self.sequences, h),
        }
    }

    /// A part of the wide buffer: all tokens' rows of `width` values, from `columns` values a token on.
    fn part(&self, columns: usize, width: usize) -> View {
        self.wide.part(self.tokens * columns * HALF, self.tokens * width * HALF)
    }

    fn whole_layer(&self, layer: &Layer) -> Result<()> {
        let Project::All(project) = &layer.project else { unreachable!("the caller looked") };
        let (h, placed) = (self.model.config.hidden, &self.placed);
        let (qkv, context) = (self.part(0, 3 * h), self.part(3 * h, h));
        project.apply(self.runtime, qkv, self.hidden, self.tokens, Epilogue::Bias)?;
        let attention = Attention {
            out: context,
            q: qkv,
            k: qkv.from(h * HALF),
            v: qkv.from(2 * h * HALF),
            q_stride: 3 * h,
            kv_stride: 3 * h,
            out_stride: h,
            q_starts: placed.starts,
            starts: placed.starts,
            short: placed.short,
            long: placed.long,
            queries: self.tokens,
            ..self.shape()
        };
        attention.apply(self.runtime)?;
        layer.attention_out.apply(self.runtime, self.narrow, context, self.tokens, Epilogue::Residual(self.hidden))?;
        layer.attention_norm.apply(self.runtime, self.hidden, self.narrow, self.tokens, h)?;
        self.feed_forward(layer, self.tokens)
    }

    /// The last layer where only each sequence's first row is read: keys and values of all rows, everything else of the
    /// first ones. Leaves those rows in `hidden`, one a sequence.
    fn first_rows(&self, layer: &Layer) -> Result<()> {
        let Project::First { queries, keys_values } = &layer.project else { unreachable!("the caller looked") };
        let (h, placed, rows) = (self.model.config.hidden, &self.placed, self.sequences);
        let (kv, q, context) = (self.part(0, 2 * h), self.part(2 * h, h), self.part(3 * h, h));
        keys_values.apply(self.runtime, kv, self.hidden, self.tokens, Epilogue::Bias)?;
        gather(self.runtime, self.narrow, self.hidden, placed.starts, rows, h)?;
        queries.apply(self.runtime, q, self.narrow, rows, Epilogue::Bias)?;
        let attention = Attention {
            out: context,
            q,
            k: kv,
            v: kv.from(h * HALF),
            q_stride: h,
            kv_stride: 2 * h,
            out_stride: h,
            q_starts: placed.firsts,
            starts: placed.starts,
            short: placed.first_blocks,
            queries: rows,
            ..self.shape()
        };
        attention.apply(self.runtime)?;
        // `hidden` has been read for the last time: it takes the sums.
        layer.attention_out.apply(self.runtime, self.hidden, context, rows, Epilogue::Residual(self.narrow))?;
        layer.attention_norm.apply(self.runtime, self.hidden, self.hidden, rows, h)?;
        self.feed_forward(layer, rows)
    }

    /// From `hidden` to `hidden`, for its first rows.
    fn feed_forward(&self, layer: &Layer, rows: usize) -> Result<()> {
        let h = self.model.config.hidden;
        layer.up.apply(self.runtime, self.wide, self.hidden, rows, Epilogue::Gelu)?;
        layer.down.apply(self.runtime, self.narrow, self.wide, rows, Epilogue::Residual(self.hidden))?;
        layer.norm.apply(self.runtime, self.hidden, self.narrow, rows, h)
    }

    /// What both uses of attention share; the rest is filled in by them.
    fn shape(&self) -> Attention {
        let config = &self.model.config;
        Attention {
            out: self.out,
            q: self.wide,
            k: self.wide,
            v: self.wide,
            q_stride: 0,
            kv_stride: 0,
            out_stride: 0,
            q_starts: self.placed.starts,
            starts: self.placed.starts,
            short: self.placed.short,
            long: Blocks { count: 0, ..self.placed.long },
            queries: 0,
            heads: config.heads,
            dim: config.hidden / config.heads,
            keys: self.tokens,
            sequences: self.sequences,
        }
    }
}
