//! One thread owns the device; callers put sequences into a bounded queue and wait for their rows.
//!
//! What waits in the queue is sorted by length and packed up to the device's token budget, across callers. Since a row's
//! bits do not depend on its batch, neither do they depend on who else was calling. While a batch is computed the next one
//! is packed and copied ([`line`]), and callers whose rows have come tokenise what they ask for next.

mod line;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use self::line::Line;
use super::{Device, DeviceInfo, Head, Matrix, ModelId};
use crate::error::{Error, Result};
use crate::model::tokenizer::Sequence;
use crate::model::weights::Weights;

/// Calls that may wait before callers have to.
const WAITING_CALLS: usize = 64;
/// Calls are gathered until they have the tokens of this many batches: enough to sort well.
const GATHERED_BATCHES: usize = 4;

/// A device with its queue.
pub struct Batcher {
    device: Arc<dyn Device>,
    calls: SyncSender<Call>,
}

/// What is done so far, batch by batch, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    tokens: AtomicU64,
    computed_again: AtomicU64,
}

impl Progress {
    pub fn add(&self, rows: u64, tokens: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Rows that came out as no finite numbers and were computed once more, elsewhere.
    pub fn computed_again(&self) -> u64 {
        self.computed_again.load(Ordering::Relaxed)
    }

    pub fn add_computed_again(&self, rows: u64) {
        self.computed_again.fetch_add(rows, Ordering::Relaxed);
    }
}

struct Call {
    model: ModelId,
    sequences: Vec<Sequence>,
    progress: Arc<Progress>,
    answer: Sender<Result<Matrix>>,
}

impl Batcher {
    /// Starts the thread that owns the device. It ends when the batcher is dropped.
    pub fn new(device: Arc<dyn Device>) -> Result<Arc<Self>> {
        let (calls, waiting) = sync_channel(WAITING_CALLS);
        let owned = Arc::clone(&device);
        let named = thread::Builder::new().name("device".into());
        named
            .spawn(move || serve(&*owned, &waiting))
            .map_err(|e| Error::internal("cannot start a thread").source(e))?;
        Ok(Arc::new(Batcher { device, calls }))
    }

    pub fn describe(&self) -> DeviceInfo {
        self.device.describe()
    }

    /// The device, for work that needs no queue, such as [`Device::top_k`].
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Puts a model on the device.
    pub fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        self.device.load(weights, head)
    }

    /// One row a sequence, in order. A sequence without a token is not sent; its row is NaN (and has no columns where no
    /// sequence of the call has a row), as is that of one that does not fit into the device's memory. A sequence above the
    /// token budget runs alone.
    pub fn run(&self, model: ModelId, sequences: Vec<Sequence>) -> Result<Matrix> {
        self.run_counted(model, sequences, Arc::default())
    }

    /// As [`Batcher::run`]; each batch that is done is added to `progress`.
    pub fn run_counted(&self, model: ModelId, sequences: Vec<Sequence>, progress: Arc<Progress>) -> Result<Matrix> {
        let gone = || Error::internal("the device's thread has ended");
        let (answer, rows) = channel();
        self.calls.send(Call { model, sequences, progress, answer }).map_err(|_| gone())?;
        rows.recv().map_err(|_| gone())?
    }
}

fn serve(device: &dyn Device, waiting: &Receiver<Call>) {
    let gathered_tokens = device.describe().batch_tokens * GATHERED_BATCHES;
    let mut line = Line::new(device);
    loop {
        // With nothing to do there is time to wait; while batches are under way only what is there already joins them.
        let first = match line.is_empty() {
            true => waiting.recv().ok(),
            false if line.has_planned() => None,
            false => waiting.try_recv().ok(),
        };
        match first {
            Some(call) => line.plan(gather(call, waiting, gathered_tokens)),
            None if line.is_empty() => return,
            None => {}
        }
        line.step();
    }
}

/// A call and those behind it, up to so many tokens.
fn gather(first: Call, waiting: &Receiver<Call>, most_tokens: usize) -> Vec<Call> {
    let mut tokens = first.tokens();
    let mut calls = vec![first];
    while tokens < most_tokens
        && let Ok(call) = waiting.try_recv()
    {
        tokens += call.tokens();
        calls.push(call);
    }
    calls
}

impl Call {
    fn tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.tokens.len()).sum()
    }
}
