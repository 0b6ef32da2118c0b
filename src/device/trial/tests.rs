//! Every operation of a trial against loops in f64, on the emulation; a whole model against the CPU device.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use half::bf16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use super::super::cuda::emulated_tests::emulation;
use super::super::cuda::runtime::Runtime;
use super::super::{Device, Head, PackedBatch, cpu::CpuDevice};
use super::file::{Operands, Results};
use super::forward::Forward;
use super::kernels::on;
use crate::error::{Class, Result};
use crate::model::resolve;
use crate::model::weights::{Weights, fixture};

/// Cases and operands that a file is made of; values are multiples of 1/32 below 2, which bf16 holds.
#[derive(Default)]
struct Cases {
    settings: Vec<Value>,
    operands: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

type Rows = Vec<Vec<f64>>;

fn number(i: usize, seed: usize) -> f64 {
    let mixed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed >> 40) % 128) as f64 / 32.0 - 2.0
}

impl Cases {
    fn case(&mut self, settings: Value) {
        self.settings.push(settings);
    }

    /// An operand of the last case.
    fn put(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        let place = self.settings.len() - 1;
        self.operands.push((format!("{place}.{name}"), dtype, shape.to_vec(), bytes));
    }

    fn halves(&mut self, name: &str, rows: usize, columns: usize) -> Rows {
        let seed = self.operands.len();
        let values: Rows = (0..rows).map(|r| (0..columns).map(|c| number(r * columns + c, seed)).collect()).collect();
        let bytes = values.iter().flatten().flat_map(|v| bf16::from_f64(*v).to_le_bytes()).collect();
        self.put(name, Dtype::BF16, &[rows, columns], bytes);
        values
    }

    fn floats(&mut self, name: &str, shape: &[usize]) -> Vec<f64> {
        let seed = self.operands.len();
        let values: Vec<f64> = (0..shape.iter().product()).map(|i| number(i, seed)).collect();
        self.put(name, Dtype::F32, shape, values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect());
        values
    }

    fn counts(&mut self, name: &str, values: &[i64]) {
        self.put(name, Dtype::I64, &[values.len()], values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }

    fn write(&self, path: &Path) {
        let views = self
            .operands
            .iter()
            .map(|(name, dtype, shape, bytes)| (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        let header = HashMap::from([("cases".to_string(), Value::from(self.settings.clone()).to_string())]);
        safetensors::serialize_to_file(views, Some(header), path).unwrap();
    }

    fn run(&self, capability: (u32, u32)) -> Result<Operands> {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        self.write(&input);
        let runtime: Arc<dyn Runtime> = Arc::new(emulation(capability));
        assert_eq!(on(&runtime, &input, &output)?, self.settings.len());
        Operands::read(&output)
    }
}

/// The largest relative distance of a row.
fn error(got: &Operands, name: &str, expected: &Rows) -> f64 {
    let operand = got.get(name).unwrap();
    let values: Vec<f64> = match operand.dtype {
        Dtype::BF16 => operand.bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
        _ => got.floats(name).unwrap().into_iter().map(f64::from).collect(),
    };
    assert_eq!(values.len(), expected.iter().map(Vec::len).sum::<usize>());
    let mut rest = &values[..];
    let row = |expected: &Vec<f64>| {
        let (own, others) = rest.split_at(expected.len());
        rest = others;
        let length = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
        length(&mut own.iter().zip(expected).map(|(a, b)| a - b)) / length(&mut expected.iter().copied()).max(1e-9)
    };
    // NaN is an error of its own: the maximum would pass over it.
    expected.iter().map(row).fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { a.max(b) })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Its power series, which converges fast where it is used.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    (2.0 / std::f64::consts::PI.sqrt() * sum).clamp(-1.0, 1.0)
}

fn normed(row: &[f64], gain: &[f64], shift: &[f64], epsilon: f64) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
    let normal = |v: &f64| (v - mean) / (variance + epsilon).sqrt();
    row.iter().zip(gain.iter().zip(shift)).map(|(v, (g, s))| normal(v) * g + s).collect()
}

#[test]
fn products_are_those_of_f64_by_every_kernel_of_the_chip() {
    let mut cases = Cases::default();
    let mut expected = Vec::new();
    for epilogue in ["bias", "gelu", "residual"] {
        cases.case(json!({"op": "gemm", "epilogue": epilogue}));
        let (a, w) = (cases.halves("a", 65, 64), cases.halves("w", 72, 64));
        let bias = cases.floats("bias", &[72]);
        let residual = (epilogue == "residual").then(|| cases.halves("residual", 65, 72));
        let value = |r: usize, c: usize| {
            let x = dot(&a[r], &w[c]) + bias[c];
            match epilogue {
                // The error function is 1 there, but for less than 1e-11.
                "gelu" if x.abs() > 7.0 => x.max(0.0),
                "gelu" => x * 0.5 * (1.0 + erf(x / 2f64.sqrt())),
                _ => x + residual.as_ref().map_or(0.0, |rows| rows[r][c]),
            }
        };
        expected.push((0..65).map(|r| (0..72).map(|c| value(r, c)).collect()).collect::<Rows>());
    }
    for (capability, tiles) in [((8, 0), 3), ((9, 0), 5)] {
        let got = cases.run(capability).unwrap();
        let names: Vec<String> = got.names().filter(|n| n.starts_with("1.out.")).collect();
        assert_eq!(names.len(), tiles, "{names:?}");
        for (place, rows) in expected.iter().enumerate() {
            for name in &names {
                let off = error(&got, &name.replacen('1', &place.to_string(), 1), rows);
                assert!(off <= 4e-3, "{name} of case {place}: {off}");
            }
        }
    }
}

#[test]
fn operations_row_by_row_are_those_of_f64() {
    let (mut cases, mut expected) = (Cases::default(), Vec::new());
    cases.case(json!({"op": "layer_norm", "epsilon": 1e-5}));
    let (x, gain, shift) = (cases.halves("x", 9, 96), cases.floats("gain", &[96]), cases.floats("shift", &[96]));
    expected.push(x.iter().map(|row| normed(row, &gain, &shift, 1e-5)).collect::<Rows>());

    cases.case(json!({"op": "embed", "epsilon": 1e-12}));
    let [words, positions, types] =
        [("words", 11), ("positions", 8), ("types", 2)].map(|(n, rows)| cases.halves(n, rows, 64));
    let (gain, shift) = (cases.floats("gain", &[64]), cases.floats("shift", &[64]));
    let (ids, segments, places) = ([10, 0, 3, 3, 7], [0, 1, 1, 0, 1], [2, 7, 0, 2, 3]);
    for (name, values) in [("ids", ids), ("segments", segments), ("places", places)] {
        cases.counts(name, &values);
    }
    let sum = |i: usize, c: usize| {
        words[ids[i] as usize][c] + positions[places[i] as usize][c] + types[segments[i] as usize][c]
    };
    let row = |i: usize| normed(&(0..64).map(|c| sum(i, c)).collect::<Vec<_>>(), &gain, &shift, 1e-12);
    expected.push((0..5).map(row).collect());

    cases.case(json!({"op": "gather"}));
    let x = cases.halves("x", 6, 64);
    cases.counts("rows", &[5, 0, 0, 2]);
    expected.push([5, 0, 0, 2].map(|i: usize| x[i].clone()).to_vec());

    for mean in [false, true] {
        cases.case(json!({"op": "pool", "mean": mean}));
        let x = cases.halves("x", 10, 64);
        cases.counts("starts", &[0, 3, 4, 10]);
        let row = |range: std::ops::Range<usize>| {
            let used = if mean { range } else { range.start..range.start + 1 };
            let sums: Vec<f64> = (0..64).map(|c| used.clone().map(|r| x[r][c]).sum::<f64>()).collect();
            let length = dot(&sums, &sums).sqrt();
            sums.iter().map(|v| v / length).collect::<Vec<_>>()
        };
        expected.push([0..3, 3..4, 4..10].map(row).to_vec());
    }
    let got = cases.run((8, 0)).unwrap();
    for (place, rows) in expected.iter().enumerate() {
        let off = error(&got, &format!("{place}.out"), rows);
        assert!(off <= if place == 2 { 0.0 } else { 4e-3 }, "case {place}: {off}");
    }
}

#[test]
fn attention_is_that_of_f64_sequence_by_sequence() {
    for (heads, dim) in [(2, 64), (3, 32)] {
        let mut cases = Cases::default();
        // The last is long on 9.0.
        let lengths = [1, 65, 7, 130, 257];
        cases.case(json!({"op": "attention", "heads": heads, "lengths": lengths}));
        let hidden = heads * dim;
        let qkv = cases.halves("qkv", lengths.iter().sum(), 3 * hidden);
        let mut expected: Rows = Vec::new();
        let mut first = 0;
        for length in lengths {
            for query in first..first + length {
                let mut row = Vec::new();
                for head in 0..heads {
                    let part = |t: usize, i: usize| &qkv[t][i * hidden + head * dim..][..dim];
                    let score = |key: usize| (dot(part(query, 0), part(key, 1)) / (dim as f64).sqrt()).exp();
                    let weights: Vec<f64> = (first..first + length).map(score).collect();
                    let sum: f64 = weights.iter().sum();
                    let value = |d: usize| (0..length).map(|k| weights[k] * part(first + k, 2)[d]).sum::<f64>() / sum;
                    row.extend((0..dim).map(value));
                }
                expected.push(row);
            }
            first += length;
        }
        for capability in [(8, 0), (9, 0)] {
            let off = error(&cases.run(capability).unwrap(), "0.out", &expected);
            assert!(off <= 6e-3, "{heads} heads of {dim} on {capability:?}: {off}");
        }
    }
}

#[test]
fn logits_and_the_best_of_groups_are_those_of_f64() {
    let mut cases = Cases::default();
    cases.case(json!({"op": "score_head"}));
    let (x, dense) = (cases.halves("x", 17, 64), cases.halves("dense_weight", 64, 64));
    let bias = cases.floats("dense_bias", &[64]);
    let (projection, last) = (cases.halves("projection_weight", 1, 64), cases.floats("projection_bias", &[1]));
    let logit = |row: &Vec<f64>| {
        let inner: Vec<f64> = dense.iter().zip(&bias).map(|(w, b)| (dot(row, w) + b).tanh()).collect();
        vec![dot(&inner, &projection[0]) + last[0]]
    };
    let logits: Rows = x.iter().map(logit).collect();

    cases.case(json!({"op": "top_k", "k": 3, "groups": [[0, 2, 0, 40], [1, 3, 38, 40]]}));
    let (queries, items) = (cases.floats("queries", &[3, 24]), cases.floats("items", &[40, 24]));
    let got = cases.run((8, 0)).unwrap();
    let scale = logits.iter().flatten().fold(0.0f64, |a, b| a.max(b.abs()));
    for (row, value) in logits.iter().zip(got.floats("0.out").unwrap()) {
        // tanh is taken of values that were rounded to bf16 nowhere: f32 sums.
        assert!((row[0] - f64::from(value)).abs() <= 4e-3 * scale, "{} {value}", row[0]);
    }
    let (scores, indices) = (got.floats("1.out").unwrap(), got.counts("1.indices").unwrap());
    let mut place = 0;
    for (from_queries, from_items) in [(0..2, 0..40), (1..3, 38..40)] {
        for q in from_queries {
            let own = |i: usize| dot(&queries[q * 24..][..24], &items[i * 24..][..24]);
            let mut best: Vec<(u32, f64)> =
                from_items.clone().map(|i| ((i - from_items.start) as u32, own(i))).collect();
            best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            for i in 0..3 {
                match best.get(i) {
                    Some((index, score)) => {
                        assert_eq!((indices[place], f64::from(scores[place])), (*index, *score));
                    }
                    None => assert!(indices[place] == u32::MAX && scores[place].is_nan()),
                }
                place += 1;
            }
        }
    }
}

#[test]
fn what_a_file_lacks_is_named() {
    let run = |settings: Value, fill: &dyn Fn(&mut Cases)| {
        let mut cases = Cases::default();
        cases.case(settings);
        fill(&mut cases);
        cases.run((8, 0)).err().unwrap().to_string()
    };
    assert!(run(json!({"op": "solve"}), &|_| {}).contains("there is no such operation"));
    let e = run(json!({"op": "gather"}), &|c| drop(c.floats("x", &[2, 64])));
    assert!(e.contains("0.x") && e.contains("a matrix of bf16") && e.contains("case 0, gather"), "{e}");
    let e = run(json!({"op": "gather"}), &|c| drop(c.halves("x", 2, 64)));
    assert!(e.contains("there is no tensor 0.rows"), "{e}");
    let e = run(json!({"op": "gather"}), &|c| {
        c.halves("x", 2, 64);
        c.counts("rows", &[2]);
    });
    assert!(e.contains("rows holds 2, which is not below 2"), "{e}");
    let e = run(json!({"op": "attention", "heads": 1, "lengths": [3]}), &|c| drop(c.halves("qkv", 2, 192)));
    assert!(e.contains("[3]"), "{e}");
}

/// The weights of a fixture, and a file of its sequences.
fn put(path: &Path, tokens: &[u32], lengths: &[u32]) {
    let mut results = Results::default();
    for (name, values) in [("tokens", tokens), ("lengths", lengths)] {
        results.put(name.into(), Dtype::U32, &[values.len()], values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }
    results.write(path).unwrap();
}

#[test]
fn a_model_gives_the_rows_that_its_device_gives() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let (tokens, lengths): (Vec<u32>, [u32; 3]) = ((5..25).collect(), [7, 12, 1]);
    put(&input, &tokens, &lengths);
    for (head, columns) in [(Head::Embed, 128), (Head::Score, 1)] {
        let options = Forward {
            device: "cpu".into(),
            model: fixture("xlmr_wide"),
            head,
            input: input.clone(),
            output: output.clone(),
            repeat: 3,
            alone: false,
        };
        let timing = super::forward(&options).unwrap();
        assert_eq!((timing.sequences, timing.tokens, timing.seconds.len()), (3, 20, 3));
        let device = CpuDevice::new("");
        let weights = Weights::read(&resolve(fixture("xlmr_wide").to_str().unwrap(), Path::new("")).unwrap()).unwrap();
        let model = device.load(&weights, head).unwrap();
        let batch = PackedBatch { tokens: tokens.clone(), types: vec![0; 20], starts: vec![0, 7, 19, 20] };
        let expected = device.forward(model, &batch).unwrap();
        let got = Operands::read(&output).unwrap();
        assert_eq!(got.get("rows").unwrap().shape, [3, columns]);
        assert_eq!(got.floats("rows").unwrap(), expected.values);
        super::forward(&Forward { alone: true, ..options }).unwrap();
        let alone = Operands::read(&output).unwrap();
        assert_eq!(alone.get("rows").unwrap().shape, [3, columns]);
        assert_eq!(alone.floats("rows").unwrap(), expected.values);
    }
    put(&input, &tokens, &[7, 12]);
    let options = Forward {
        device: "cpu".into(),
        model: fixture("xlmr_wide"),
        head: Head::Embed,
        input: input.clone(),
        output,
        repeat: 1,
        alone: false,
    };
    let e = super::forward(&options).unwrap_err();
    assert!(e.class == Class::Data && e.to_string().contains("lengths add up to 19, and there are 20 tokens"), "{e}");
}
