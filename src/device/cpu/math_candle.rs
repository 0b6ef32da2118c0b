//! The arithmetic of the CPU device against another implementation: candle's.

use candle_core::{D, Device, Tensor};
use candle_nn::ops;

use super::math;

/// Seeded values of both signs, some large.
fn values(n: usize) -> Vec<f32> {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 24) as f32
    };
    (0..n).map(|i| (next() - 0.5) * if i % 7 == 0 { 20.0 } else { 4.0 }).collect()
}

fn difference(ours: &[f32], theirs: &Tensor) -> f32 {
    let theirs: Vec<f32> = theirs.flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn gelu_is_the_exact_one() {
    for n in [1, 7, 8, 31, 1536] {
        let mut ours = values(n);
        let theirs = Tensor::from_slice(&ours, n, &Device::Cpu).unwrap().gelu_erf().unwrap();
        math::gelu(&mut ours);
        assert!(difference(&ours, &theirs) < 2e-6, "{n}");
    }
}

#[test]
fn layer_norm_is_candles() {
    for n in [8, 32, 384, 1024] {
        let (mut ours, gain, shift) = (values(n), values(n), values(n));
        let tensor = |v: &[f32]| Tensor::from_slice(v, (1, v.len()), &Device::Cpu).unwrap();
        let row = |v: &[f32]| Tensor::from_slice(v, v.len(), &Device::Cpu).unwrap();
        let theirs = ops::layer_norm(&tensor(&ours), &row(&gain), &row(&shift), 1e-12).unwrap();
        math::layer_norm(&mut ours, &gain, &shift, 1e-12);
        assert!(difference(&ours, &theirs) < 2e-4, "{n}");
    }
}

#[test]
fn a_softmax_of_exp_row_is_candles() {
    for n in [1, 5, 64, 257] {
        let mut ours = values(n);
        let theirs = Tensor::from_slice(&ours, (1, n), &Device::Cpu).unwrap();
        let theirs = ops::softmax(&(theirs * 0.125).unwrap(), D::Minus1).unwrap();
        let sum = math::exp_row(&mut ours, 0.125);
        math::scale(&mut ours, 1.0 / sum);
        assert!(difference(&ours, &theirs) < 2e-6, "{n}");
    }
}
