//! Top-k: groups of different sizes in one launch, ties, what is not a number, and fewer items than k.
//!
//! In f32, sums round, so two items whose products nearly tie may change places. Cases with random items ask that each score
//! is right for its item and for its place; cases with small whole numbers, whose sums are exact, ask for the very indices.

use super::{Case, Device, EXACT, F32_BAR, Worst, starts};
use crate::emulation::{Arguments, Schedule, Shape};
use crate::inputs::Inputs;
use crate::measure::Error;
use crate::memory::Buffer;
use crate::reference::{MISSING, top_k};

/// One launch: items of all groups, and queries, each of which belongs to a group.
struct Search {
    dim: usize,
    k: usize,
    group_sizes: Vec<usize>,
    items: Vec<f32>,
    queries: Vec<f32>,
    group_of: Vec<u32>,
}

impl Search {
    fn new(dim: usize, k: usize, group_sizes: &[usize], queries: usize, value: impl FnMut() -> f32) -> Self {
        let mut value = value;
        let mut values = |count: usize| (0..count * dim).map(|_| value()).collect::<Vec<f32>>();
        let items = values(group_sizes.iter().sum());
        let queries_of = values(queries);
        // Backwards, so that no query's number is its group's.
        let group_of = (0..queries).map(|q| ((queries - 1 - q) % group_sizes.len()) as u32).collect();
        Search { dim, k, group_sizes: group_sizes.to_vec(), items, queries: queries_of, group_of }
    }

    fn items_of(&self, query: usize) -> &[f32] {
        let starts = starts(&self.group_sizes);
        let group = self.group_of[query] as usize;
        &self.items[starts[group] as usize * self.dim..starts[group + 1] as usize * self.dim]
    }
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("top_k/groups", F32_BAR, |device| {
            let mut worst = Worst::default();
            let sizes = device.sizes(&[3, 65, 1, 7, 300, 700, 1025], 3);
            for &dim in device.sizes(&[33, 1, 8, 384], 2) {
                for &k in device.sizes(&[7, 1, 65, 128], 2) {
                    let mut inputs = Inputs::seeded((dim * 1000 + k) as u64);
                    let search = Search::new(dim, k, sizes, sizes.len() + 2, || inputs.normal() as f32);
                    run(device, &search, Schedule::default(), &mut worst, near);
                }
            }
            worst
        }),
        Case::new("top_k/largest_k", F32_BAR, |device| {
            let mut inputs = Inputs::seeded(3);
            let sizes = device.sizes(&[20, 2100, 1024, 1023], 1);
            let search = Search::new(4, 1024, sizes, sizes.len(), || inputs.normal() as f32);
            let mut worst = Worst::default();
            run(device, &search, Schedule::default(), &mut worst, near);
            worst
        }),
        Case::new("top_k/ties", EXACT, |device| {
            let mut worst = Worst::default();
            for &k in device.sizes(&[10, 1, 100, 300], 2) {
                let mut inputs = Inputs::seeded(k as u64);
                let sizes = device.sizes(&[40, 300, 513, 64], 1);
                let search = Search::new(3, k, sizes, sizes.len() + 1, || inputs.below(3) as f32 - 1.0);
                run(device, &search, Schedule::default(), &mut worst, same);
            }
            worst
        }),
        Case::new("top_k/few_items", EXACT, |device| {
            let mut inputs = Inputs::seeded(8);
            let search = Search::new(5, 9, &[2, 0, 1, 9, 8], 10, || inputs.below(9) as f32 - 4.0);
            let mut worst = Worst::default();
            run(device, &search, Schedule::default(), &mut worst, same);
            worst
        }),
        Case::new("top_k/not_a_number", EXACT, |device| {
            let mut worst = Worst::default();
            for odd in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for k in [3, 70] {
                    let mut inputs = Inputs::seeded(k as u64);
                    let value = || if inputs.below(4) == 0 { odd } else { inputs.below(7) as f32 - 3.0 };
                    let mut search = Search::new(2, k, &[60, 5], 4, value);
                    // All scores of this query are NaN.
                    search.queries[..2].fill(f32::NAN);
                    run(device, &search, Schedule::default(), &mut worst, same);
                }
            }
            worst
        }),
        Case::new("top_k/schedules", EXACT, |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                let mut inputs = Inputs::seeded(17);
                let search = Search::new(3, 20, &[50, 270], 3, || inputs.below(5) as f32 - 2.0);
                run(device, &search, schedule, &mut worst, same);
            }
            worst
        }),
    ]
}

type Compare = fn(&Search, usize, &[u32], &[f32]) -> Error;

fn run(device: &Device, search: &Search, schedule: Schedule, worst: &mut Worst, compare: Compare) {
    let count = search.group_of.len();
    let ends = starts(&search.group_sizes);
    let groups: Vec<u32> = ends.windows(2).flatten().copied().collect();
    let (indices, scores): (Buffer<u32>, Buffer<f32>) =
        (device.output(count * search.k), device.output(count * search.k));
    let (queries, items) = (device.input(&search.queries), device.input(&search.items));
    let (groups, group_of) = (device.input(&groups), device.input(&search.group_of));
    let arguments = Arguments::default()
        .buffer(&indices)
        .buffer(&scores)
        .buffer(&queries)
        .buffer(&items)
        .buffer(&groups)
        .buffer(&group_of)
        .int(search.dim)
        .int(search.k);
    device.launch("top_k", Shape { grid: [count as u32, 1], block: 256, shared_bytes: 0 }, &arguments, schedule);

    let found_scores = scores.values();
    let place = format!("dim {}, k {}, {schedule}", search.dim, search.k);
    worst.add(&scores, &place, |_| 0.0);
    worst.add(&indices, &place, |found| {
        let one = |q: usize| {
            let range = q * search.k..(q + 1) * search.k;
            compare(search, q, &found[range.clone()], &found_scores[range])
        };
        (0..count).map(one).fold(0.0, f64::max)
    });
}

/// The very indices and scores of the reference.
fn same(search: &Search, query: usize, indices: &[u32], scores: &[f32]) -> Error {
    let reference = reference(search, query);
    let equal = |score: f32, right: f64| f64::from(score) == right || (score.is_nan() && right.is_nan());
    let found = indices.iter().zip(scores).zip(&reference);
    let right = found.into_iter().all(|((i, s), (index, score))| i == index && equal(*s, *score));
    if right { 0.0 } else { Error::INFINITY }
}

/// Scores as the reference has them, place by place, each the product of the item that is named, no item twice.
fn near(search: &Search, query: usize, indices: &[u32], scores: &[f32]) -> Error {
    let reference = reference(search, query);
    let all = top_k(query_of(search, query), search.items_of(query), search.items_of(query).len() / search.dim);
    let largest = all.iter().map(|(_, score)| score.abs()).fold(1.0, f64::max);
    let mut seen = std::collections::BTreeSet::new();
    let mut error: Error = 0.0;
    for ((&index, &score), &(right_index, right_score)) in indices.iter().zip(scores).zip(&reference) {
        if right_index == MISSING {
            let right = index == MISSING && score == f32::NEG_INFINITY;
            error = error.max(if right { 0.0 } else { Error::INFINITY });
            continue;
        }
        let Some((_, own)) = all.iter().find(|(i, _)| *i == index) else { return Error::INFINITY };
        let off = (f64::from(score) - right_score).abs().max((f64::from(score) - own).abs()) / largest;
        error = error.max(if seen.insert(index) && off.is_finite() { off } else { Error::INFINITY });
    }
    error
}

fn query_of(search: &Search, query: usize) -> &[f32] {
    &search.queries[query * search.dim..][..search.dim]
}

fn reference(search: &Search, query: usize) -> Vec<(u32, f64)> {
    top_k(query_of(search, query), search.items_of(query), search.k)
}
