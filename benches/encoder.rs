//! MiniLM on one core, f32 and int8, on unpadded batches of 32, 128, 256 and mixed tokens a text.
//!
//! `make bench` runs it beside `peers/encoder.py` (PyTorch and ONNX Runtime), on the same tokens, and prints the ratios. The
//! model must be there: `memslate models fetch minilm`.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use criterion::Throughput;
use memslate::config::Precision;
use memslate::device::{Head, PackedBatch, open};
use memslate::model::{Weights, default_models_dir, resolve};

#[path = "support/cpu_time.rs"]
mod cpu_time;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The same rule as in `peers/encoder.py`.
fn shapes() -> [(&'static str, Vec<usize>); 4] {
    let mixed = (0..16).map(|i| 8 + i * 37 % 249).collect();
    [("32", vec![32; 64]), ("128", vec![128; 16]), ("256", vec![256; 8]), ("mixed", mixed)]
}

fn batch(lengths: &[usize]) -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    let mut state = 12345u64;
    for length in lengths {
        for _ in 0..*length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            batch.tokens.push(1000 + ((state >> 33) % 28_000) as u32);
        }
        batch.starts.push(batch.tokens.len());
    }
    batch.types = vec![0; batch.tokens.len()];
    batch
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = cpu_time::criterion(10, 5);
    let device = open("cpu")?;
    let folder = resolve("minilm", Path::new(&default_models_dir()))?;
    let mut group = criterion.benchmark_group("encoder");
    for (name, precision) in [("f32", Precision::F32), ("int8", Precision::Int8)] {
        let model = device.load(&Weights::read(&folder.clone().in_precision(precision))?, Head::Embed)?;
        for (shape, lengths) in shapes() {
            let batch = batch(&lengths);
            group.throughput(Throughput::Elements(batch.tokens.len() as u64));
            group.bench_function(format!("{name}_{shape}"), |b| b.iter(|| black_box(device.forward(model, &batch))));
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
