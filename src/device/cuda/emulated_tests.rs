//! Whole models on the emulated device: against transformers, against the CPU device, and a row's bits in any company.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::super::bench::timed::Timed;
use super::super::cpu::CpuDevice;
use super::super::{Device, DeviceInfo, Groups, Head, Matrix, ModelId, PackedBatch, TopK};
use super::device::CudaDevice;
use super::emulated::{Emulation, Schedule};
use super::runtime::Runtime;
use super::self_check;
use super::tiles::ChipTiles;
use crate::error::{Class, Result};
use crate::model::registry::Pooling;
use crate::model::weights::{Tensor, Weights, fixture};
use crate::model::{ModelFolder, resolve};

/// The library of `kernels/emulation`, compiled once for its sources.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut files: Vec<PathBuf> = [kernels.clone(), kernels.join("emulation")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| ["cu", "h", "cc"].iter().any(|x| e == *x)))
        .collect();
    files.sort();
    let mut hash = DefaultHasher::new();
    files.iter().for_each(|f| std::fs::read(f).unwrap().hash(&mut hash));
    let library = std::env::temp_dir().join(format!("memslate-emulation-{:016x}.so", hash.finish()));
    if !library.exists() {
        // Another test's process may do the same: each writes a file of its own.
        let fresh = library.with_extension(std::process::id().to_string());
        let source = kernels.join("emulation/launch.cc");
        let done = Command::new("c++")
            .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-x", "c++"])
            .arg(source)
            .arg("-I")
            .arg(&kernels)
            .arg("-o")
            .arg(&fresh)
            .output()
            .expect("a C++ compiler is there: LightGBM needed one");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::rename(fresh, &library).unwrap();
    }
    library
});

pub fn emulation(capability: (u32, u32)) -> Emulation {
    Emulation::new(&LIBRARY, capability).unwrap()
}

fn device(capability: (u32, u32), schedule: Schedule) -> CudaDevice {
    CudaDevice::new("emulated", Arc::new(emulation(capability).scheduled(schedule)))
}

fn weights(name: &str) -> Weights {
    Weights::read(&folder(name)).unwrap()
}

fn folder(name: &str) -> ModelFolder {
    resolve(fixture(name).to_str().unwrap(), Path::new("")).unwrap()
}

#[derive(Deserialize)]
struct Expected {
    rows: Vec<Row>,
    error: Error,
}

#[derive(Deserialize)]
struct Row {
    tokens: Vec<u32>,
    vector: Vec<f32>,
    logit: f32,
}

#[derive(Deserialize)]
struct Error {
    vector: f32,
    logit: f32,
}

fn expected(name: &str) -> Expected {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

fn pack<'a>(rows: impl IntoIterator<Item = &'a Vec<u32>>) -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    for tokens in rows {
        batch.tokens.extend(tokens);
        batch.starts.push(batch.tokens.len());
    }
    batch.types = vec![0; batch.tokens.len()];
    batch
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f32>().sqrt()
}

fn deviation(values: &[f32]) -> f32 {
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / (values.len() - 1) as f32).sqrt()
}

/// The bar is what transformers itself is off by in bf16, half as much again for another order of the same roundings.
#[test]
fn models_agree_with_transformers_as_well_as_bf16_allows() {
    for capability in [(8, 0), (9, 0)] {
        for name in ["xlmr_wide", "bert_wide"] {
            let (device, Expected { rows, error }) = (device(capability, Schedule::default()), expected(name));
            let batch = pack(rows.iter().map(|r| &r.tokens));
            let model = device.load(&weights(name), Head::Embed).unwrap();
            let got = device.forward(model, &batch).unwrap();
            for (row, vector) in rows.iter().zip(got.values.chunks(got.columns)) {
                let off = distance(&row.vector, vector);
                assert!(off <= 1.5 * error.vector, "{name}, {} tokens: {off} above {}", row.tokens.len(), error.vector);
            }
            if name == "bert_wide" {
                continue;
            }
            let model = device.load(&weights(name), Head::Score).unwrap();
            let got = device.forward(model, &batch).unwrap();
            let spread = deviation(&rows.iter().map(|r| r.logit).collect::<Vec<_>>());
            for (row, logit) in rows.iter().zip(&got.values) {
                let off = (row.logit - logit).abs() / spread;
                assert!(off <= 1.5 * error.logit, "{} tokens: {off} above {}", row.tokens.len(), error.logit);
            }
        }
    }
}

/// What a GPU is asked when it is opened.
#[test]
fn the_check_at_the_start_passes_and_finds_a_device_that_is_wrong() {
    for capability in [(8, 0), (9, 0)] {
        self_check::check(&device(capability, Schedule::default())).unwrap();
    }
    for wrong in [f32::NAN, 1.1] {
        let device = Wrong { right: device((8, 0), Schedule::default()), factor: wrong };
        let e = self_check::check(&device).unwrap_err();
        assert!(e.class == Class::Device && e.to_string().contains("--device cpu"), "{e}");
    }
}

/// A device whose last row is off.
struct Wrong {
    right: CudaDevice,
    factor: f32,
}

impl Device for Wrong {
    fn describe(&self) -> DeviceInfo {
        self.right.describe()
    }
    fn load(&self, weights: &Weights, head: Head) -> Result<ModelId> {
        self.right.load(weights, head)
    }
    fn forward(&self, model: ModelId, batch: &PackedBatch) -> Result<Matrix> {
        let mut rows = self.right.forward(model, batch)?;
        let last = rows.values.len() - rows.columns;
        rows.values[last..].iter_mut().for_each(|x| *x *= self.factor);
        Ok(rows)
    }
    fn top_k(&self, queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
        self.right.top_k(queries, items, groups, k)
    }
}

/// Seeded sequences of 1 to 64 tokens.
fn sequences(count: usize, vocab: u32) -> Vec<Vec<u32>> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    (0..count).map(|_| (0..1 + next() % 64).map(|_| 4 + next() % (vocab - 4)).collect()).collect()
}

#[test]
fn a_pair_has_the_same_bits_alone_among_two_hundred_and_in_any_order() {
    for capability in [(8, 0), (9, 0)] {
        let device = device(capability, Schedule::default());
        let weights = weights("xlmr_wide");
        let model = device.load(&weights, Head::Score).unwrap();
        let sequences = sequences(200, weights.config.vocab as u32);
        let all = device.forward(model, &pack(&sequences)).unwrap().values;
        let backwards = device.forward(model, &pack(sequences.iter().rev())).unwrap().values;
        assert!(all.iter().eq(backwards.iter().rev()));
        let mut shuffled: Vec<usize> = (0..200).map(|i| i * 77 % 200).collect();
        shuffled.truncate(120);
        let mixed = device.forward(model, &pack(shuffled.iter().map(|&i| &sequences[i]))).unwrap().values;
        assert!(shuffled.iter().zip(&mixed).all(|(&i, x)| all[i] == *x));
        for i in [0, 3, 57, 199] {
            let alone = device.forward(model, &pack([&sequences[i]])).unwrap().values;
            assert_eq!(alone, all[i..=i]);
        }
    }
}

#[test]
fn neither_the_order_of_warps_nor_late_copies_change_a_bit() {
    let weights = weights("xlmr_wide");
    let batch = pack(&sequences(9, weights.config.vocab as u32));
    for capability in [(8, 0), (9, 0)] {
        let run = |seed, late| {
            let device = device(capability, Schedule { seed, late });
            let model = device.load(&weights, Head::Embed).unwrap();
            device.forward(model, &batch).unwrap().values
        };
        let calm = run(0, false);
        assert!([(1, false), (2, true), (3, true)].iter().all(|(seed, late)| run(*seed, *late) == calm));
    }
}

fn random_tokens(lengths: &[usize]) -> Vec<Vec<u32>> {
    lengths.iter().map(|n| (0..*n).map(|i| (2 + (i * 31 + n) % 48) as u32).collect()).collect()
}

/// On 9.0 the long sequences of a batch have a kernel of their own, by their own length.
#[test]
fn a_batch_of_long_and_short_sequences_gives_each_the_bits_that_it_has_alone() {
    let weights = self_check::model(64, Pooling::Mean);
    let from = ChipTiles::of(emulation((9, 0)).chip()).long_from(64);
    let sequences = random_tokens(&[from, 7, from - 1, 300, 64]);
    for (seed, late) in [(0, false), (3, true)] {
        let device = device((9, 0), Schedule { seed, late });
        let model = device.load(&weights, Head::Embed).unwrap();
        let all = device.forward(model, &pack(&sequences)).unwrap();
        let backwards = device.forward(model, &pack(sequences.iter().rev())).unwrap();
        let row = |m: &Matrix, i: usize| m.values[i * m.columns..(i + 1) * m.columns].to_vec();
        for (i, sequence) in sequences.iter().enumerate() {
            let alone = device.forward(model, &pack([sequence])).unwrap();
            assert!(
                row(&all, i) == alone.values && row(&backwards, 4 - i) == alone.values,
                "{} tokens",
                sequence.len()
            );
        }
    }
}

#[test]
fn each_kernel_for_attention_is_launched_where_a_batch_has_its_kind() {
    let modules = |capability, dim, lengths: &[usize]| {
        let timed = Arc::new(Timed::new(Arc::new(emulation(capability)), 1));
        let device = CudaDevice::new("emulated", timed.clone());
        let model = device.load(&self_check::model(dim, Pooling::Mean), Head::Embed).unwrap();
        timed.take();
        device.forward(model, &pack(&random_tokens(lengths))).unwrap();
        let mut modules: Vec<&str> = timed.take().iter().map(|t| t.module).collect();
        modules.retain(|m| m.starts_with("attention"));
        modules
    };
    let (short, long) = ("attention", "attention_sm90");
    // Two layers.
    assert_eq!(modules((9, 0), 64, &[300, 7]), [short, long, short, long]);
    assert_eq!(modules((9, 0), 64, &[300]), [long; 2]);
    assert_eq!(modules((9, 0), 64, &[65, 7]), [short; 2]);
    assert_eq!(modules((9, 0), 32, &[300, 7]), [short; 2]);
    assert_eq!(modules((8, 0), 64, &[300, 7]), [short; 2]);
}

/// With late copies and launches nothing happens before it is waited for: what a batch left too early in its slot, or read
/// from the next one's, would show.
#[test]
fn batches_that_are_under_way_at_once_do_not_touch_each_other() {
    let weights = weights("xlmr_wide");
    let sequences = sequences(40, weights.config.vocab as u32);
    let batches: Vec<PackedBatch> = sequences.chunks(8).map(pack).collect();
    for (capability, late) in [((8, 0), false), ((8, 0), true), ((9, 0), true)] {
        let device = device(capability, Schedule { seed: 5, late });
        for head in [Head::Embed, Head::Score] {
            let model = device.load(&weights, head).unwrap();
            let alone: Vec<Matrix> = batches.iter().map(|b| device.forward(model, b).unwrap()).collect();
            let under_way: Vec<_> = batches.iter().map(|b| device.submit(model, b).unwrap()).collect();
            let got: Vec<Matrix> = under_way.into_iter().map(|b| b.rows().unwrap()).collect();
            assert_eq!(got, alone);
            // A batch that nobody asks for, in the middle of others.
            let first = device.submit(model, &batches[0]).unwrap();
            drop(device.submit(model, &batches[1]).unwrap());
            let third = device.submit(model, &batches[2]).unwrap();
            assert_eq!((third.rows().unwrap(), first.rows().unwrap()), (alone[2].clone(), alone[0].clone()));
        }
    }
}

#[test]
fn a_workspace_serves_models_and_batches_of_any_size_in_turn() {
    let device = device((8, 0), Schedule::default());
    let (wide, narrow) = (weights("xlmr_wide"), weights("bert_wide"));
    let (score, embed) = (device.load(&wide, Head::Score).unwrap(), device.load(&narrow, Head::Embed).unwrap());
    let sequences = sequences(12, 60);
    let alone: Vec<f32> = device.forward(score, &pack(&sequences[..1])).unwrap().values;
    let vectors = device.forward(embed, &pack(&sequences)).unwrap();
    assert_eq!((vectors.rows, vectors.columns), (12, 96));
    // What an earlier, larger batch left in memory is not read.
    assert_eq!(device.forward(score, &pack(&sequences[..1])).unwrap().values, alone);
}

#[test]
fn what_the_kernels_cannot_run_is_refused_by_name() {
    let device = device((8, 0), Schedule::default());
    let refused = |weights: &Weights, parts: &[&str]| {
        let e = device.load(weights, Head::Embed).unwrap_err();
        assert!(parts.iter().all(|p| e.to_string().contains(p)), "{e}");
    };
    refused(&weights("bert_encoder"), &["heads have 8 values", "32 or 64", "--device cpu", "model.safetensors"]);
    let mut wide = weights("xlmr_wide");
    wide.precision = crate::config::Precision::Int8;
    refused(&wide, &["int8", "bf16"]);
    let mut odd = weights("xlmr_wide");
    odd.set(
        "encoder.layer.1.output.dense.weight",
        Tensor { shape: vec![256, 128], values: vec![0.0; 256 * 128].into() },
    );
    refused(&odd, &["encoder.layer.1.output.dense.weight", "[256, 128]", "[128, 256]"]);
    let model = device.load(&weights("xlmr_wide"), Head::Embed).unwrap();
    let long = vec![5; 65];
    let unknown = vec![100_000];
    for (row, part) in [(&long, "64 positions"), (&unknown, "vocabulary")] {
        let e = device.forward(model, &pack([row])).unwrap_err();
        assert!(e.class == Class::Data && e.to_string().contains(part), "{e}");
    }
}

#[test]
fn too_little_memory_is_an_error_of_its_own_and_a_smaller_batch_still_runs() {
    let tight = |bytes| CudaDevice::new("emulated", Arc::new(emulation((8, 0)).limited(bytes)));
    let weights = weights("xlmr_wide");
    let e = tight(100_000).load(&weights, Head::Score).unwrap_err();
    assert!(e.class == Class::OutOfMemory && e.to_string().contains("emulated"), "{e}");
    // The model takes 0.6 MB, a token 2.3 kB.
    let device = tight(1_000_000);
    let model = device.load(&weights, Head::Score).unwrap();
    let sequences = sequences(40, 60);
    assert_eq!(device.forward(model, &pack(&sequences)).unwrap_err().class, Class::OutOfMemory);
    assert!(device.forward(model, &pack(&sequences[..3])).unwrap().values[0].is_finite());
}

#[test]
fn the_best_of_each_group_are_those_of_the_cpu() {
    let number = |i: usize| ((i * 7919 % 1013) as f32 / 64.0).floor() - 8.0;
    let matrix = |rows: usize, seed: usize| Matrix {
        rows,
        columns: 24,
        values: (0..rows * 24).map(|i| number(i + seed)).collect(),
    };
    // Whole numbers: sums are exact in any order, and many are equal.
    let (queries, items) = (matrix(9, 1), matrix(300, 5));
    let groups = Groups { queries: vec![0..4, 4..4, 2..9], items: vec![0..130, 7..9, 100..300] };
    for k in [0, 1, 5, 64, 250] {
        let ours = device((8, 0), Schedule::default()).top_k(&queries, &items, &groups, k).unwrap();
        assert_eq!(ours, CpuDevice::new("").top_k(&queries, &items, &groups, k).unwrap(), "{k}");
    }
}
