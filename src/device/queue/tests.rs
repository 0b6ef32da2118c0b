//! A device that adds tokens up, in place of one that computes: whose rows come back, in which batches.

use std::sync::Mutex;

use super::*;
use crate::device::{Groups, PackedBatch, Pending, TopK};
use crate::error::Class;

/// Gives (sum of tokens, number of tokens, segment of the last) for each sequence and remembers the batches.
struct Sums {
    batches: Mutex<Vec<Vec<usize>>>,
    /// A batch above this does not fit into the device.
    memory_tokens: usize,
    /// Batches are computed when their rows are asked for, and errors come then.
    late: bool,
    /// What happened, in order: batches started (true) and waited for.
    steps: Mutex<Vec<bool>>,
}

impl Default for Sums {
    fn default() -> Self {
        Sums { batches: Mutex::default(), memory_tokens: usize::MAX, late: false, steps: Mutex::default() }
    }
}

/// A batch of a device that is late.
struct Later<'a> {
    device: &'a Sums,
    model: ModelId,
    batch: PackedBatch,
}

impl Pending for Later<'_> {
    fn rows(self: Box<Self>) -> Result<Matrix> {
        self.device.steps.lock().unwrap().push(false);
        self.device.forward(self.model, &self.batch)
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
    fn submit<'a>(&'a self, model: ModelId, batch: &PackedBatch) -> Result<Box<dyn Pending + 'a>> {
        self.steps.lock().unwrap().push(true);
        if self.late {
            return Ok(Box::new(Later { device: self, model, batch: batch.clone() }));
        }
        Ok(Box::new(crate::device::Computed(self.forward(model, batch)?)))
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

/// The device always has a batch to go on with while the rows of another are put in place.
#[test]
fn the_next_batch_is_started_before_one_is_waited_for() {
    let device = Arc::new(Sums { late: true, ..Sums::default() });
    let batcher = Batcher::new(device.clone()).unwrap();
    batcher.run(ModelId(0), vec![sequence(1, 6); 5]).unwrap();
    let (start, wait) = (true, false);
    let steps = [start, start, wait, start, wait, start, wait, start, wait, wait];
    assert_eq!(*device.steps.lock().unwrap(), steps);
}

#[test]
fn an_error_that_comes_with_the_rows_ends_as_one_that_comes_at_once() {
    let device = Arc::new(Sums { late: true, memory_tokens: 4, ..Sums::default() });
    let batcher = Batcher::new(device).unwrap();
    let lengths = [3usize, 1, 5, 2, 1, 4, 2, 1, 1, 1, 3];
    let rows = batcher.run(ModelId(0), lengths.iter().map(|&n| sequence(1, n)).collect()).unwrap();
    for (n, row) in lengths.iter().zip(rows.values.chunks(3)) {
        assert!(if *n > 4 { row[1].is_nan() } else { row[1] == *n as f32 }, "{n}: {row:?}");
    }
    let e = batcher.run(ModelId(0), vec![sequence(1, 4), sequence(POISON, 1), sequence(1, 4)]).unwrap_err();
    assert_eq!(e.class, Class::Data);
    assert_eq!(batcher.run(ModelId(0), vec![sequence(1, 4)]).unwrap().values[0], 10.0);
}
