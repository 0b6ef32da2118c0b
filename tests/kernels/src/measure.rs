//! How far off a result is.
//!
//! The error of an output is the largest over its rows (or sequences) of ||out - reference|| / ||reference||. One norm over
//! all would let a wrong row hide among many right ones.

use half::bf16;

/// What was found wrong, as one number: infinite where a value is missing or not finite.
pub type Error = f64;

pub trait Number: Copy {
    fn f64(self) -> f64;
}
impl Number for bf16 {
    fn f64(self) -> f64 {
        self.to_f64()
    }
}
impl Number for f32 {
    fn f64(self) -> f64 {
        self.into()
    }
}

/// The largest relative error of rows of equal width.
pub fn worst_row<T: Number>(out: &[T], reference: &[f64], width: usize) -> Error {
    assert_eq!(out.len(), reference.len());
    let rows = out.chunks(width).zip(reference.chunks(width));
    rows.map(|(out, reference)| relative(out, reference)).fold(0.0, f64::max)
}

/// The largest difference, relative to the reference where that is above 1.
pub fn worst_value<T: Number>(out: &[T], reference: &[f64]) -> Error {
    assert_eq!(out.len(), reference.len());
    let values = out.iter().zip(reference);
    values.map(|(out, reference)| finite((out.f64() - reference).abs() / reference.abs().max(1.0))).fold(0.0, f64::max)
}

fn relative<T: Number>(out: &[T], reference: &[f64]) -> Error {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut out.iter().zip(reference).map(|(o, r)| o.f64() - r));
    let length = square(&mut reference.iter().copied());
    if difference == 0.0 { 0.0 } else { finite((difference / length).sqrt()) }
}

fn finite(error: f64) -> Error {
    if error.is_finite() { error } else { f64::INFINITY }
}

/// 0 where all are equal, else infinite: for what must be exact.
pub fn exact<T: PartialEq>(out: &[T], reference: &[T]) -> Error {
    if out == reference { 0.0 } else { f64::INFINITY }
}

/// [`exact`] by bits, so that -0 differs from 0.
pub fn same_bits(out: &[bf16], reference: &[bf16]) -> Error {
    let bits = |values: &[bf16]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    exact(&bits(out), &bits(reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_row_among_many_is_the_error() {
        let reference = vec![1.0; 200];
        let mut out = vec![1.0f32; 200];
        (out[6], out[7]) = (1.3, 1.4);
        assert!((worst_row(&out, &reference, 2) - 0.125f64.sqrt()).abs() < 1e-6);
        // The same rows as sequences of two.
        assert!((worst_row(&out, &reference, 4) - 0.0625f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_number_is_infinitely_wrong() {
        assert_eq!(worst_row(&[1.0f32, f32::NAN], &[1.0, 1.0], 2), f64::INFINITY);
        assert_eq!(worst_value(&[f32::INFINITY], &[1.0]), f64::INFINITY);
        assert_eq!(worst_row(&[1.0f32], &[0.0], 1), f64::INFINITY);
    }

    #[test]
    fn zeros_are_right_where_zeros_are_asked_for() {
        assert_eq!(worst_row(&[0.0f32, 0.0], &[0.0, 0.0], 2), 0.0);
    }
}
