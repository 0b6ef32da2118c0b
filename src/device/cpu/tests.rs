//! The CPU device against transformers, and against itself in other batches.

use std::path::Path;

use serde::Deserialize;

use super::*;
use crate::config::Precision;
use crate::error::Class;
use crate::model::folder::resolve;
use crate::model::weights::{Tensor, fixture};

/// A row of a fixture's `expected.json`.
#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    types: Vec<u32>,
    output: Vec<f32>,
}

const MODELS: [(&str, Head); 4] = [
    ("bert_encoder", Head::Embed),
    ("bert_scorer", Head::Score),
    ("xlmr_encoder", Head::Embed),
    ("xlmr_scorer", Head::Score),
];

fn weights(name: &str) -> Weights {
    Weights::read(&resolve(fixture(name).to_str().unwrap(), Path::new("")).unwrap()).unwrap()
}

fn in_precision(name: &str, precision: Precision) -> Weights {
    let folder = resolve(fixture(name).to_str().unwrap(), Path::new("")).unwrap();
    Weights::read(&folder.in_precision(precision)).unwrap()
}

fn expected(name: &str) -> Vec<Expected> {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

fn pack<'a>(rows: impl IntoIterator<Item = &'a Expected>) -> PackedBatch {
    let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    for row in rows {
        batch.tokens.extend(&row.tokens);
        batch.types.extend(&row.types);
        batch.starts.push(batch.tokens.len());
    }
    batch
}

/// Largest difference of two rows.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| if (x - y).is_nan() { f32::INFINITY } else { (x - y).abs() }).fold(0.0, f32::max)
}

#[test]
fn outputs_are_those_of_transformers() {
    for (name, head) in MODELS {
        let device = CpuDevice::new("");
        let model = device.load(&weights(name), head).unwrap();
        let rows = expected(name);
        let out = device.forward(model, &pack(&rows)).unwrap();
        assert_eq!(out.rows, rows.len());
        for (row, got) in rows.iter().zip(out.values.chunks(out.columns)) {
            let off = distance(&row.output, got);
            assert!(off <= 1e-5, "{name}, {} tokens: off by {off:e}", row.tokens.len());
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others_in_any_order() {
    for ((name, head), precision) in MODELS.iter().flat_map(|m| [(*m, Precision::F32), (*m, Precision::Int8)]) {
        let device = CpuDevice::new("");
        let model = device.load(&in_precision(name, precision), head).unwrap();
        let rows = expected(name);
        let alone: Vec<Vec<f32>> = rows.iter().map(|r| device.forward(model, &pack([r])).unwrap().values).collect();
        // Many copies, in an order that puts each next to others each time.
        let order: Vec<usize> = (0..400).map(|i| (i * i + i / 3) % rows.len()).collect();
        let many = device.forward(model, &pack(order.iter().map(|&i| &rows[i]))).unwrap();
        for (i, got) in order.iter().zip(many.values.chunks(many.columns)) {
            assert_eq!(alone[*i], got, "{name}");
        }
        let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let same = one_thread.install(|| device.forward(model, &pack(order.iter().map(|&i| &rows[i]))).unwrap());
        assert_eq!(same, many);
    }
}

#[test]
fn nothing_reads_past_the_last_position() {
    for name in ["bert_encoder", "xlmr_encoder"] {
        let device = CpuDevice::new("");
        let model = device.load(&weights(name), Head::Embed).unwrap();
        let of = |n: usize| PackedBatch { tokens: vec![5; n], types: vec![0; n], starts: vec![0, n] };
        assert_eq!(device.forward(model, &of(64)).unwrap().rows, 1);
        let e = device.forward(model, &of(65)).unwrap_err();
        assert!(e.class == Class::Data && e.to_string().contains("65") && e.to_string().contains("64"), "{e}");
    }
}

#[test]
fn ids_outside_the_tables_are_errors() {
    let device = CpuDevice::new("");
    let model = device.load(&weights("bert_encoder"), Head::Embed).unwrap();
    let one = |token, segment| PackedBatch { tokens: vec![token], types: vec![segment], starts: vec![0, 1] };
    assert!(device.forward(model, &one(100_000, 0)).unwrap_err().to_string().contains("vocabulary"));
    assert!(device.forward(model, &one(5, 2)).unwrap_err().to_string().contains("segment"));
    let torn = PackedBatch { tokens: vec![5, 6], types: vec![0, 0], starts: vec![0, 0, 2] };
    assert_eq!(device.forward(model, &torn).unwrap_err().class, Class::Internal);
    assert_eq!(device.forward(ModelId(7), &one(5, 0)).unwrap_err().class, Class::Internal);
    let nothing = PackedBatch { starts: vec![0], ..PackedBatch::default() };
    assert_eq!(device.forward(model, &nothing).unwrap().rows, 0);
}

#[test]
fn a_model_without_its_tensors_is_refused_by_name() {
    let device = CpuDevice::new("");
    let e = device.load(&weights("bert_encoder"), Head::Score).unwrap_err().to_string();
    assert!(e.contains("model.safetensors") && e.contains("classifier.weight"), "{e}");
    let mut cut = weights("bert_encoder");
    let name = "encoder.layer.1.attention.self.key.bias";
    cut.set(name, Tensor { shape: vec![31], values: vec![0.0; 31].into() });
    let e = device.load(&cut, Head::Embed).unwrap_err().to_string();
    assert!(e.contains(name) && e.contains("[31]") && e.contains("[32]"), "{e}");
}

#[test]
fn a_broken_number_comes_out_as_one_and_stays_in_its_row() {
    let device = CpuDevice::new("");
    let mut broken = weights("bert_encoder");
    let words = broken.tensors()["embeddings.word_embeddings.weight"].clone();
    let mut values = words.values.to_vec();
    values[7 * 32 + 3] = f32::NAN;
    broken.set("embeddings.word_embeddings.weight", Tensor { values: values.into(), ..words });
    let model = device.load(&broken, Head::Embed).unwrap();
    let batch = PackedBatch { tokens: vec![5, 6, 5, 7, 8], types: vec![0; 5], starts: vec![0, 2, 4, 5] };
    let out = device.forward(model, &batch).unwrap();
    let finite: Vec<bool> = out.values.chunks(32).map(|r| r.iter().all(|x| x.is_finite())).collect();
    assert_eq!(finite, [true, false, true]);
}

/// The fixtures' weights are drawn wide, so that errors grow through their layers; trained models come closer.
#[test]
fn in_int8_vectors_point_where_they_do_in_f32() {
    for name in ["bert_encoder", "xlmr_encoder"] {
        let device = CpuDevice::new("");
        let model = device.load(&in_precision(name, Precision::Int8), Head::Embed).unwrap();
        let rows = expected(name);
        let out = device.forward(model, &pack(&rows)).unwrap();
        for (row, got) in rows.iter().zip(out.values.chunks(out.columns)) {
            let cosine: f32 = row.output.iter().zip(got).map(|(x, y)| x * y).sum();
            assert!(cosine >= 0.99, "{name}, {} tokens: cosine {cosine}", row.tokens.len());
        }
    }
}
