//! The way of many callers' sequences through a device: planned in batches, some batches under way, rows put in place.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::super::{Device, Matrix, ModelId, PackedBatch, Pending};
use super::{Call, Progress};
use crate::error::{Class, Error, Result};
use crate::model::tokenizer::Sequence;

/// Batches that a device has at once: one computes, the next is copied.
const UNDER_WAY: usize = 2;

pub struct Line<'a> {
    device: &'a dyn Device,
    /// Tokens of a batch.
    budget: usize,
    /// Less than the budget once a batch of what is planned did not fit.
    limit: usize,
    planned: VecDeque<Batch>,
    under_way: VecDeque<(Batch, Box<dyn Pending + 'a>)>,
    calls: HashMap<u64, Open>,
    next_call: u64,
}

/// Sequences of one model, short ones first.
struct Batch {
    model: ModelId,
    items: Vec<Item>,
}

/// A sequence and where its row belongs.
struct Item {
    call: u64,
    row: usize,
    sequence: Sequence,
}

/// A call whose rows have not all come.
struct Open {
    answer: Sender<Result<Matrix>>,
    progress: Arc<Progress>,
    matrix: Matrix,
    missing: usize,
}

impl<'a> Line<'a> {
    pub fn new(device: &'a dyn Device) -> Self {
        let budget = device.describe().batch_tokens;
        Line {
            device,
            budget,
            limit: budget,
            planned: VecDeque::new(),
            under_way: VecDeque::new(),
            calls: HashMap::new(),
            next_call: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.planned.is_empty() && self.under_way.is_empty()
    }

    pub fn has_planned(&self) -> bool {
        !self.planned.is_empty()
    }

    /// Sorts the calls' sequences, by model in the order of the calls, and cuts them into batches. All of them are sent
    /// before anything that comes later is planned: nothing waits for ever.
    pub fn plan(&mut self, calls: Vec<Call>) {
        let mut models: Vec<Batch> = Vec::new();
        for call in calls {
            let id = self.next_call;
            self.next_call += 1;
            let matrix = Matrix { rows: call.sequences.len(), ..Matrix::default() };
            let filled = call.sequences.into_iter().enumerate().filter(|(_, s)| !s.tokens.is_empty());
            let items: Vec<Item> = filled.map(|(row, sequence)| Item { call: id, row, sequence }).collect();
            let open = Open { answer: call.answer, progress: call.progress, matrix, missing: items.len() };
            if items.is_empty() {
                open.answer();
                continue;
            }
            self.calls.insert(id, open);
            match models.iter_mut().find(|batch| batch.model == call.model) {
                Some(batch) => batch.items.extend(items),
                None => models.push(Batch { model: call.model, items }),
            }
        }
        self.limit = self.budget;
        for Batch { model, mut items } in models {
            items.sort_by_key(|item| item.sequence.tokens.len());
            while !items.is_empty() {
                let later = items.split_off(fitting(&items, self.budget));
                self.planned.push_back(Batch { model, items });
                items = later;
            }
        }
    }

    /// Starts the next batch, or waits for the oldest one where there is no next or enough are under way.
    pub fn step(&mut self) {
        if self.under_way.len() < UNDER_WAY
            && let Some(batch) = self.planned.pop_front()
        {
            self.start(batch);
        } else if let Some((batch, rows)) = self.under_way.pop_front() {
            match rows.rows() {
                Ok(rows) => self.put(batch, &rows),
                Err(e) => self.failed(batch, e),
            }
        }
    }

    fn start(&mut self, mut batch: Batch) {
        // Calls that have failed need no more rows.
        batch.items.retain(|item| self.calls.contains_key(&item.call));
        if batch.items.is_empty() {
            return;
        }
        if batch.tokens() > self.limit && batch.items.len() > 1 {
            let items = batch.items.split_off(fitting(&batch.items, self.limit));
            if !items.is_empty() {
                self.planned.push_front(Batch { model: batch.model, items });
            }
        }
        match self.device.submit(batch.model, &batch.packed()) {
            Ok(rows) => self.under_way.push_back((batch, rows)),
            Err(e) => self.failed(batch, e),
        }
    }

    fn put(&mut self, batch: Batch, rows: &Matrix) {
        if rows.rows != batch.items.len() || rows.values.len() != rows.rows * rows.columns {
            let what = format!("the device gave {} rows for {} sequences", rows.rows, batch.items.len());
            return self.failed(batch, Error::internal(what));
        }
        for (item, values) in batch.items.iter().zip(rows.values.chunks_exact(rows.columns.max(1))) {
            self.done(item, Some(values));
        }
    }

    /// A batch that does not fit comes again in halves; any other error is of those calls alone whose sequences bring it.
    fn failed(&mut self, batch: Batch, error: Error) {
        let out_of_memory = error.class == Class::OutOfMemory;
        if out_of_memory && batch.items.len() > 1 {
            self.limit = batch.tokens() / 2;
            return self.planned.push_front(batch);
        }
        if out_of_memory {
            // Fits nowhere: it has no row; the others go on.
            return batch.items.iter().for_each(|item| self.done(item, None));
        }
        let mut calls: Vec<u64> = batch.items.iter().map(|item| item.call).collect();
        calls.sort_unstable();
        calls.dedup();
        if let [call] = calls[..] {
            if let Some(open) = self.calls.remove(&call) {
                // A caller that went away needs no answer.
                let _ = open.answer.send(Err(error));
            }
            return;
        }
        let mut items = batch.items;
        for call in calls.into_iter().rev() {
            let (own, others) = items.into_iter().partition(|item| item.call == call);
            items = others;
            self.planned.push_front(Batch { model: batch.model, items: own });
        }
    }

    /// The row of a sequence has come, or will not.
    fn done(&mut self, item: &Item, values: Option<&[f32]>) {
        let Some(open) = self.calls.get_mut(&item.call) else { return };
        if let Some(values) = values {
            put(&mut open.matrix, item.row, values);
        }
        open.progress.add(1, values.map_or(0, |_| item.sequence.tokens.len() as u64));
        open.missing -= 1;
        if open.missing == 0
            && let Some(open) = self.calls.remove(&item.call)
        {
            open.answer();
        }
    }
}

impl Open {
    fn answer(self) {
        // A caller that went away needs no answer.
        let _ = self.answer.send(Ok(self.matrix));
    }
}

impl Batch {
    fn tokens(&self) -> usize {
        self.items.iter().map(|item| item.sequence.tokens.len()).sum()
    }

    fn packed(&self) -> PackedBatch {
        let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
        for item in &self.items {
            batch.tokens.extend_from_slice(&item.sequence.tokens);
            batch.types.extend_from_slice(&item.sequence.types);
            batch.starts.push(batch.tokens.len());
        }
        batch
    }
}

/// How many of the first items fit into a batch: at least one.
fn fitting(items: &[Item], budget: usize) -> usize {
    let mut tokens = 0;
    let fits = items.iter().take_while(|item| {
        tokens += item.sequence.tokens.len();
        tokens <= budget
    });
    fits.count().max(1)
}

fn put(matrix: &mut Matrix, row: usize, values: &[f32]) {
    if matrix.columns == 0 {
        matrix.columns = values.len();
        matrix.values = vec![f32::NAN; matrix.rows * values.len()];
    }
    matrix.values[row * values.len()..][..values.len()].copy_from_slice(values);
}
