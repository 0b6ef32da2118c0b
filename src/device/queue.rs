//! One thread owns the device; callers put sequences into a bounded queue and wait for their rows.
//!
//! What waits in the queue is sorted by length and packed up to the device's token budget, across callers. Since a row's
//! bits do not depend on its batch, neither do they depend on who else was calling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::{Device, DeviceInfo, Head, Matrix, ModelId, PackedBatch};
use crate::error::{Class, Error, Result};
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
    let budget = device.describe().batch_tokens;
    while let Ok(first) = waiting.recv() {
        let mut tokens = first.tokens();
        let mut calls = vec![first];
        while tokens < budget * GATHERED_BATCHES
            && let Ok(call) = waiting.try_recv()
        {
            tokens += call.tokens();
            calls.push(call);
        }
        while let Some(model) = calls.first().map(|c| c.model) {
            let (group, rest) = calls.into_iter().partition(|c| c.model == model);
            answer(device, budget, group);
            calls = rest;
        }
    }
}

/// Runs the calls together; if that fails, each by itself, so that only the call at fault gets the error.
fn answer(device: &dyn Device, budget: usize, calls: Vec<Call>) {
    let results: Vec<Result<Matrix>> = match run(device, budget, &calls) {
        Ok(matrices) => matrices.into_iter().map(Ok).collect(),
        Err(e) if calls.len() == 1 => vec![Err(e)],
        Err(_) => calls.chunks(1).map(|c| run(device, budget, c).map(|mut m| m.remove(0))).collect(),
    };
    for (call, result) in calls.into_iter().zip(results) {
        // A caller that went away needs no answer.
        let _ = call.answer.send(result);
    }
}

/// A sequence and where its row belongs.
struct Item<'a> {
    call: usize,
    row: usize,
    sequence: &'a Sequence,
}

/// For each call, all of one model, a matrix with a row for each of its sequences.
fn run(device: &dyn Device, budget: usize, calls: &[Call]) -> Result<Vec<Matrix>> {
    let mut items: Vec<Item> = Vec::new();
    for (call, Call { sequences, .. }) in calls.iter().enumerate() {
        let filled = sequences.iter().enumerate().filter(|(_, s)| !s.tokens.is_empty());
        items.extend(filled.map(|(row, sequence)| Item { call, row, sequence }));
    }
    items.sort_by_key(|i| i.sequence.tokens.len());
    let mut matrices: Vec<Matrix> =
        calls.iter().map(|c| Matrix { rows: c.sequences.len(), ..Matrix::default() }).collect();
    let mut rest = &items[..];
    let mut budget = budget;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest, budget));
        let rows = match device.forward(calls[0].model, &pack(now)) {
            // Again with half of it, and no more than that from here on.
            Err(e) if e.class == Class::OutOfMemory && now.len() > 1 => {
                budget = now.iter().map(|i| i.sequence.tokens.len()).sum::<usize>() / 2;
                continue;
            }
            // A sequence that does not fit alone has no row; the others go on.
            Err(e) if e.class == Class::OutOfMemory => {
                calls[now[0].call].progress.add(1, 0);
                rest = later;
                continue;
            }
            rows => rows?,
        };
        rest = later;
        if rows.rows != now.len() || rows.values.len() != rows.rows * rows.columns {
            return Err(Error::internal(format!("the device gave {} rows for {} sequences", rows.rows, now.len())));
        }
        for (item, values) in now.iter().zip(rows.values.chunks_exact(rows.columns.max(1))) {
            put(&mut matrices[item.call], item.row, values);
            calls[item.call].progress.add(1, item.sequence.tokens.len() as u64);
        }
    }
    Ok(matrices)
}

/// How many of the first items fit into a batch: at least one.
fn fitting(items: &[Item], budget: usize) -> usize {
    let mut tokens = 0;
    let fits = items.iter().take_while(|i| {
        tokens += i.sequence.tokens.len();
        tokens <= budget
    });
    fits.count().max(1)
}

fn pack(items: &[Item]) -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    for item in items {
        batch.tokens.extend_from_slice(&item.sequence.tokens);
        batch.types.extend_from_slice(&item.sequence.types);
        batch.starts.push(batch.tokens.len());
    }
    batch
}

fn put(matrix: &mut Matrix, row: usize, values: &[f32]) {
    if matrix.columns == 0 {
        matrix.columns = values.len();
        matrix.values = vec![f32::NAN; matrix.rows * values.len()];
    }
    matrix.values[row * values.len()..][..values.len()].copy_from_slice(values);
}

impl Call {
    fn tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::device::{Groups, TopK};

    /// Gives (sum of tokens, number of tokens, segment of the last) for each sequence and remembers the batches.
    struct Sums {
        batches: Mutex<Vec<Vec<usize>>>,
        /// A batch above this does not fit into the device.
        memory_tokens: usize,
    }

    impl Default for Sums {
        fn default() -> Self {
            Sums { batches: Mutex::default(), memory_tokens: usize::MAX }
        }
    }

    const BUDGET: usize = 10;
    /// A token that makes the batch fail.
    const POISON: u32 = u32::MAX;

    impl Device for Sums {
        fn describe(&self) -> DeviceInfo {
            DeviceInfo {
                name: "sums".into(),
                detail: String::new(),
                kernel_plan: "sums".into(),
                computes_f32: true,
                batch_tokens: BUDGET,
            }
        }
        fn load(&self, _: &Weights, _: Head) -> Result<ModelId> {
            Ok(ModelId(0))
        }
        fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
            let lengths: Vec<usize> = batch.starts.windows(2).map(|w| w[1] - w[0]).collect();
            assert!(!lengths.contains(&0), "an empty sequence was sent");
            self.batches.lock().unwrap().push(lengths);
            if batch.tokens.len() > self.memory_tokens {
                return Err(Error::out_of_memory(format!("{} tokens", batch.tokens.len())));
            }
            if batch.tokens.contains(&POISON) {
                return Err(Error::data("poison"));
            }
            let row = |w: &[usize]| {
                let sum = batch.tokens[w[0]..w[1]].iter().sum::<u32>() as f32;
                [sum, (w[1] - w[0]) as f32, batch.types[w[1] - 1] as f32 + model.0 as f32]
            };
            let values: Vec<f32> = batch.starts.windows(2).flat_map(row).collect();
            Ok(Matrix { rows: values.len() / 3, columns: 3, values })
        }
        fn top_k(&self, _: &Matrix, _: &Matrix, _: &Groups, _: usize) -> Result<TopK> {
            Err(Error::internal("not here"))
        }
    }

    fn sequence(first: u32, length: usize) -> Sequence {
        Sequence { tokens: (0..length as u32).map(|i| first + i).collect(), types: vec![1; length] }
    }

    #[test]
    fn every_row_comes_back_to_its_place_and_no_batch_is_above_the_budget() {
        let device = Arc::new(Sums::default());
        let batcher = Batcher::new(device.clone()).unwrap();
        let lengths = [3, 1, 9, 4, 4, 2, 7, 10, 1];
        let sequences = lengths.iter().enumerate().map(|(i, &n)| sequence(i as u32 * 10, n)).collect();
        let rows = batcher.run(ModelId(2), sequences).unwrap();
        assert_eq!((rows.rows, rows.columns), (9, 3));
        for (i, &n) in lengths.iter().enumerate() {
            let sum = (0..n).map(|j| i * 10 + j).sum::<usize>();
            assert_eq!(rows.values[i * 3..][..3], [sum as f32, n as f32, 3.0]);
        }
        let batches = device.batches.lock().unwrap();
        assert!(batches.iter().all(|b| b.iter().sum::<usize>() <= BUDGET), "{batches:?}");
        assert!(batches.concat().is_sorted());
    }

    #[test]
    fn a_sequence_above_the_budget_runs_alone() {
        let device = Arc::new(Sums::default());
        let batcher = Batcher::new(device.clone()).unwrap();
        let rows = batcher.run(ModelId(0), vec![sequence(1, 2), sequence(1, 5000), sequence(1, 3)]).unwrap();
        assert_eq!([rows.values[1], rows.values[4], rows.values[7]], [2.0, 5000.0, 3.0]);
        assert_eq!(*device.batches.lock().unwrap(), [vec![2, 3], vec![5000]]);
    }

    #[test]
    fn a_batch_that_does_not_fit_comes_again_in_halves_and_each_row_finds_its_place() {
        let device = Arc::new(Sums { memory_tokens: 4, ..Sums::default() });
        let batcher = Batcher::new(device.clone()).unwrap();
        let lengths = [3usize, 1, 5, 2, 1, 4, 2, 1];
        let sequences = lengths.iter().enumerate().map(|(i, &n)| sequence(i as u32 * 10, n)).collect();
        let rows = batcher.run(ModelId(0), sequences).unwrap();
        for (i, &n) in lengths.iter().enumerate() {
            let row = &rows.values[i * 3..][..3];
            if n > 4 {
                assert!(row.iter().all(|x| x.is_nan()), "{n} tokens fit nowhere: {row:?}");
                continue;
            }
            let sum = (0..n).map(|j| i * 10 + j).sum::<usize>();
            assert_eq!(row, [sum as f32, n as f32, 1.0]);
        }
        // Tried once too large, then halved: 1 + 1 + 1 + 2 + 2 + 3 = 10 tokens become at most 5, then at most 2.
        let batches = device.batches.lock().unwrap();
        let sizes: Vec<usize> = batches.iter().map(|b| b.iter().sum()).collect();
        assert_eq!(sizes[..3], [10, 5, 2], "{batches:?}");
        drop(batches);
        // Where nothing fits there are no columns, and no error either.
        let rows = batcher.run(ModelId(0), vec![sequence(1, 9), sequence(1, 7)]).unwrap();
        assert_eq!((rows.rows, rows.values.len()), (2, 0));
    }

    #[test]
    fn empty_sequences_are_never_sent_and_are_marked() {
        let device = Arc::new(Sums::default());
        let batcher = Batcher::new(device.clone()).unwrap();
        let rows = batcher.run(ModelId(0), vec![Sequence::default(), sequence(5, 1), Sequence::default()]).unwrap();
        assert!(rows.values[0].is_nan() && rows.values[3] == 5.0 && rows.values[6].is_nan());
        let rows = batcher.run(ModelId(0), vec![Sequence::default(); 2]).unwrap();
        assert_eq!((rows.rows, rows.values.len()), (2, 0));
        assert_eq!(batcher.run(ModelId(0), Vec::new()).unwrap().rows, 0);
        assert_eq!(device.batches.lock().unwrap().len(), 1);
    }

    #[test]
    fn callers_at_once_get_their_own_rows_and_only_the_one_at_fault_gets_the_error() {
        let batcher = Batcher::new(Arc::new(Sums::default())).unwrap();
        thread::scope(|scope| {
            for caller in 0..16u32 {
                let batcher = &batcher;
                scope.spawn(move || {
                    for round in 0..20u32 {
                        if caller == 7 {
                            let e = batcher.run(ModelId(0), vec![sequence(1, 1), sequence(POISON, 1)]).unwrap_err();
                            assert_eq!(e.class, Class::Data);
                            continue;
                        }
                        let sequences = (1..6).map(|n| sequence(caller * 10 + round, n)).collect();
                        let rows = batcher.run(ModelId(caller as usize % 3), sequences).unwrap();
                        for n in 1..6u32 {
                            let sum = (0..n).map(|i| caller * 10 + round + i).sum::<u32>() as f32;
                            let row = &rows.values[(n as usize - 1) * 3..][..3];
                            assert_eq!(row, [sum, n as f32, 1.0 + (caller % 3) as f32]);
                        }
                    }
                });
            }
        });
    }
}
