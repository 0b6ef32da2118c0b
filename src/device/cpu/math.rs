//! Elementwise functions and sums over rows, written so that the compiler turns them into vector code.
//!
//! Each body is compiled twice: for AVX2 with FMA, chosen at run time, and for the target as it is. Sums run in 16 lanes
//! that are added in a fixed order, so that a row's bits depend on the row alone. Hot loops count indices: `zip` may stay a
//! call where a crate is compiled in parts without link-time optimisation, and then nothing becomes vector code.

#![allow(clippy::needless_range_loop)]

/// Lanes of a sum.
const LANES: usize = 16;
/// Adding and taking away 1.5 * 2^23 rounds a small f32 to a whole number, which then stands in its low bits.
const ROUND: f32 = 12_582_912.0;

/// Whether the target always has a fused multiply-add.
pub const NATIVE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Whether this processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_fma() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
pub fn has_fma() -> bool {
    NATIVE_FMA
}

/// Names the arithmetic of this device; another order of sums or another formula gets another name.
pub fn kernel_plan() -> &'static str {
    if has_fma() || NATIVE_FMA { "cpu-f32-fma-1" } else { "cpu-f32-1" }
}

pub fn instruction_set() -> &'static str {
    match (has_fma(), cfg!(target_arch = "x86_64")) {
        (true, true) => "AVX2 and FMA",
        (true, false) => "FMA",
        (false, _) => "no FMA",
    }
}

#[inline(always)]
pub fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// A function with a body for either kind of processor.
macro_rules! vectorised {
    ($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $body:ident) => {
        $(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fast($($arg: $type),*) $(-> $out)? {
                    $body::<true>($($arg),*)
                }
                if has_fma() {
                    // SAFETY: the processor has the instructions.
                    return unsafe { fast($($arg),*) };
                }
            }
            $body::<NATIVE_FMA>($($arg),*)
        }
    };
}

vectorised! {
    /// `x * Phi(x)`, exact to about 1e-7: GELU by its definition, with the error function.
    pub fn gelu(values: &mut [f32]) = gelu_body
}
vectorised! {
    /// Turns a row of scores into `exp(scale * (score - max))` and returns the sum.
    pub fn exp_row(scores: &mut [f32], scale: f32) -> f32 = exp_row_body
}
vectorised! {
    /// `row = normalised(row) * gain + shift`, by mean and variance over the row.
    pub fn layer_norm(row: &mut [f32], gain: &[f32], shift: &[f32], epsilon: f32) = layer_norm_body
}
vectorised! {
    /// Divides a row by its Euclidean length.
    pub fn to_unit(row: &mut [f32]) = to_unit_body
}

vectorised! {
    /// Turns a row into whole numbers from 0 to `largest` over its own range. A row with a value that is not finite gets a scale
    /// that is not one either. Nothing is fused here: the bits are the same on every processor.
    pub fn quantise(row: &[f32], largest: u8, values: &mut [u8]) -> Quantum = quantise_body
}

/// How a row was quantised: `x` is about `scale * (q - zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantum {
    pub scale: f32,
    pub zero: i32,
}

/// `row += other`.
pub fn add(row: &mut [f32], other: &[f32]) {
    for (x, y) in row.iter_mut().zip(other) {
        *x += y;
    }
}

pub fn scale(row: &mut [f32], factor: f32) {
    for x in row {
        *x *= factor;
    }
}

/// 2^x for x from -126 to 127.
#[inline(always)]
fn exp2<const FMA: bool>(x: f32) -> f32 {
    let shifted = x + ROUND;
    let f = x - (shifted - ROUND);
    // Powers of ln 2 over factorials.
    let p = fused::<FMA>(f, 1.525_273_4e-5, 1.540_353e-4);
    let p = fused::<FMA>(p, f, 1.333_355_8e-3);
    let p = fused::<FMA>(p, f, 9.618_129e-3);
    let p = fused::<FMA>(p, f, 5.550_411e-2);
    let p = fused::<FMA>(p, f, 2.402_265e-1);
    let p = fused::<FMA>(p, f, std::f32::consts::LN_2);
    let p = fused::<FMA>(p, f, 1.0);
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// erfc(a) for a >= 0, as 2 to a polynomial that was fitted to log2(erfc) on [0, 4.5], each point weighted by erfc.
#[inline(always)]
fn erfc<const FMA: bool>(a: f32) -> f32 {
    // Not `min`, which would turn a NaN into 4.5.
    let a = if a > 4.5 { 4.5 } else { a };
    let p = fused::<FMA>(a, 1.160_487_7e-5, -1.529_649_7e-4);
    let p = fused::<FMA>(p, a, 8.482_366e-4);
    let p = fused::<FMA>(p, a, -2.274_789_8e-3);
    let p = fused::<FMA>(p, a, 8.480_996e-5);
    let p = fused::<FMA>(p, a, 2.772_447_3e-2);
    let p = fused::<FMA>(p, a, -1.483_079e-1);
    let p = fused::<FMA>(p, a, -9.184_429e-1);
    let p = fused::<FMA>(p, a, -1.627_907_3);
    exp2::<FMA>(p * a)
}

#[inline(always)]
fn gelu_body<const FMA: bool>(values: &mut [f32]) {
    for x in values {
        // Phi(x) is 1 - erfc(x / sqrt 2) / 2 above 0 and erfc(-x / sqrt 2) / 2 below.
        let a = x.abs();
        let tail = 0.5 * a * erfc::<FMA>(a * std::f32::consts::FRAC_1_SQRT_2);
        let positive = if *x > 0.0 { *x } else { 0.0 };
        *x = positive - tail;
    }
}

/// A value in each lane from whole chunks, then the rest in the first lanes.
#[inline(always)]
fn fold(row: &[f32], start: f32, step: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut lanes = [start; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = step(lanes[i], chunk[i]);
        }
    }
    for (i, x) in rest.iter().enumerate() {
        lanes[i] = step(lanes[i], *x);
    }
    lanes
}

/// The lanes in a tree of fixed shape.
#[inline(always)]
fn join(mut lanes: [f32; LANES], step: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = step(lanes[i], lanes[i + half]);
        }
    }
    lanes[0]
}

#[inline(always)]
fn exp_row_body<const FMA: bool>(scores: &mut [f32], scale: f32) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let max = join(fold(scores, f32::NEG_INFINITY, larger), larger);
    let scale = scale * std::f32::consts::LOG2_E;
    for x in scores.iter_mut() {
        let y = (*x - max) * scale;
        // Written so that a NaN stays one.
        *x = exp2::<FMA>(if y < -126.0 { -126.0 } else { y });
    }
    join(fold(scores, 0.0, |a, b| a + b), |a, b| a + b)
}

#[inline(always)]
fn layer_norm_body<const FMA: bool>(row: &mut [f32], gain: &[f32], shift: &[f32], epsilon: f32) {
    let n = row.len() as f32;
    let mean = join(fold(row, 0.0, |a, b| a + b), |a, b| a + b) / n;
    let squares = fold(row, 0.0, |a, x| fused::<FMA>(x - mean, x - mean, a));
    let inverse = 1.0 / (join(squares, |a, b| a + b) / n + epsilon).sqrt();
    let (gain, shift) = (&gain[..row.len()], &shift[..row.len()]);
    for i in 0..row.len() {
        row[i] = fused::<FMA>((row[i] - mean) * inverse, gain[i], shift[i]);
    }
}

#[inline(always)]
fn to_unit_body<const FMA: bool>(row: &mut [f32]) {
    let squares = join(fold(row, 0.0, |a, x| fused::<FMA>(x, x, a)), |a, b| a + b);
    // The smallest length, as in torch.nn.functional.normalize.
    let inverse = 1.0 / squares.sqrt().max(1e-12);
    let inverse = if squares.is_nan() { f32::NAN } else { inverse };
    for x in row {
        *x *= inverse;
    }
}

#[inline(always)]
fn quantise_body<const FMA: bool>(row: &[f32], largest: u8, values: &mut [u8]) -> Quantum {
    let (smaller, larger) = (|a: f32, b: f32| if b < a { b } else { a }, |a: f32, b: f32| if b > a { b } else { a });
    let (least, most) = (join(fold(row, 0.0, smaller), smaller), join(fold(row, 0.0, larger), larger));
    // Zero for finite values, NaN for others.
    let odd = join(fold(row, 0.0, |a, x| a + x * 0.0), |a, b| a + b);
    // A step less than there are, so that both ends of the range may be rounded outwards.
    let scale = (most - least) / f32::from(largest - 1) + odd;
    if !(scale > 0.0 && scale.is_finite()) {
        values.fill(0);
        return Quantum { scale: if scale == 0.0 { 0.0 } else { f32::NAN }, zero: 0 };
    }
    let inverse = 1.0 / scale;
    let zero = (ROUND - least * inverse) - ROUND;
    let values = &mut values[..row.len()];
    for i in 0..row.len() {
        let whole = (row[i] * inverse + ROUND) - ROUND;
        // The whole number stands in the low bits.
        values[i] = (whole + zero + ROUND).to_bits() as u8;
    }
    Quantum { scale, zero: zero as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// erf in f64 by its Maclaurin series, exact to 1e-13 for |x| < 3; beyond, erfc by its continued fraction.
    fn erfc_f64(x: f64) -> f64 {
        if x < 3.0 {
            let (mut term, mut sum, mut n) = (x, x, 0.0);
            while term.abs() > 1e-18 {
                n += 1.0;
                term *= -x * x / n;
                sum += term / (2.0 * n + 1.0);
            }
            return 1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI;
        }
        let fraction = (1..60).rev().fold(x, |f, n| x + n as f64 / 2.0 / f);
        (-x * x).exp() / (std::f64::consts::PI.sqrt() * fraction)
    }

    #[test]
    fn the_reference_is_right() {
        // Abramowitz and Stegun, table 7.1: erf(0.5), erf(1), erf(2).
        for (x, erf) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((1.0 - erfc_f64(x) - erf).abs() < 1e-10);
        }
        // The two formulas meet.
        assert!((erfc_f64(2.999_999_9) / erfc_f64(3.0) - 1.0).abs() < 1e-5);
    }

    fn check_erfc<const FMA: bool>() -> f64 {
        let error = |i: i32| (erfc::<FMA>(i as f32 * 1e-4) as f64 - erfc_f64((i as f32 * 1e-4) as f64)).abs();
        (0..100_000).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn the_error_function_is_within_1e_7() {
        let (fused, plain) = (check_erfc::<true>(), check_erfc::<false>());
        assert!(fused < 1e-7 && plain < 1.5e-7, "{fused:e} {plain:e}");
    }

    #[test]
    fn gelu_is_x_times_phi() {
        let mut values: Vec<f32> = (-1200..1200).map(|i| i as f32 * 0.01).collect();
        let inputs = values.clone();
        gelu(&mut values);
        for (x, y) in inputs.iter().zip(&values) {
            let (x, y) = (*x as f64, *y as f64);
            let tail = erfc_f64(x.abs() / std::f64::consts::SQRT_2) / 2.0;
            let expected = x * if x > 0.0 { 1.0 - tail } else { tail };
            assert!((y - expected).abs() < 2e-7 * x.abs().max(1.0), "{x}: {y} {expected}");
        }
        let mut odd = [f32::NAN, f32::INFINITY, 1000.0, -1000.0, 0.0];
        gelu(&mut odd);
        assert!(odd[0].is_nan() && odd[2] == 1000.0 && odd[3].abs() < 1e-6 && odd[4] == 0.0, "{odd:?}");
    }

    #[test]
    fn exponentials_are_right_and_a_nan_is_not_lost() {
        for n in [1, 15, 16, 17, 100] {
            let scores: Vec<f32> = (0..n).map(|i| (i * 37 % 101) as f32 * 0.5 - 20.0).collect();
            let max = scores.iter().copied().fold(f32::MIN, f32::max) as f64;
            let mut row = scores.clone();
            let sum = exp_row(&mut row, 0.25);
            let expected: Vec<f64> = scores.iter().map(|s| ((*s as f64 - max) * 0.25).exp()).collect();
            for (x, e) in row.iter().zip(&expected) {
                assert!((*x as f64 / e - 1.0).abs() < 2e-6, "{x} {e}");
            }
            assert!((sum as f64 / expected.iter().sum::<f64>() - 1.0).abs() < 2e-6);
        }
        assert!(exp_row(&mut [1.0, f32::NAN, 2.0], 1.0).is_nan());
        assert!(exp_row(&mut [1.0, f32::INFINITY], 1.0).is_nan());
        let mut far = [0.0, -1e9];
        assert_eq!(exp_row(&mut far, 1.0), 1.0);
    }

    #[test]
    fn rows_are_normalised() {
        // Mean 2, variance 2/3: (x - 2) / sqrt(2/3) is -1.2247..., 0, 1.2247...
        let mut row = [1.0, 2.0, 3.0];
        layer_norm(&mut row, &[1.0, 1.0, 2.0], &[0.0, 0.5, 0.0], 0.0);
        let root = 1.5f32.sqrt();
        assert!((row[0] + root).abs() < 1e-6 && (row[1] - 0.5).abs() < 1e-6 && (row[2] - 2.0 * root).abs() < 1e-6);
        let mut row = [3.0, 4.0];
        to_unit(&mut row);
        assert!((row[0] - 0.6).abs() < 1e-7 && (row[1] - 0.8).abs() < 1e-7);
        let mut zero = [0.0, 0.0];
        to_unit(&mut zero);
        assert_eq!(zero, [0.0, 0.0]);
    }
}
