//! LayerNorm of a row: (x - mean) / sqrt(variance + epsilon) * gain + shift, with the variance over n, not n - 1.

use half::bf16;

pub struct Norm<'a> {
    pub gain: &'a [f32],
    pub shift: &'a [f32],
    pub epsilon: f32,
}

/// Of `x + bias + residual`, each of which may be absent but `x`.
pub fn layer_norm(x: &[bf16], bias: Option<&[f32]>, residual: Option<&[bf16]>, norm: &Norm) -> Vec<f64> {
    let hidden = norm.gain.len();
    let sum = |i: usize| {
        x[i].to_f64() + bias.map_or(0.0, |b| f64::from(b[i % hidden])) + residual.map_or(0.0, |r| r[i].to_f64())
    };
    let sums: Vec<f64> = (0..x.len()).map(sum).collect();
    sums.chunks(hidden).flat_map(|row| norm.row(row)).collect()
}

impl Norm<'_> {
    pub fn row(&self, row: &[f64]) -> Vec<f64> {
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        let scale = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
        let one = |i: usize| (row[i] - mean) * scale * f64::from(self.gain[i]) + f64::from(self.shift[i]);
        (0..row.len()).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let x = [2.0, 4.0].map(bf16::from_f64);
        let residual = [-1.0, 1.0].map(bf16::from_f64);
        let norm = Norm { gain: &[1.0, 2.0], shift: &[0.5, 0.0], epsilon: 0.0 };
        // x is -1, 1 from its mean 3; with bias (0, 4) and residual it is (1, 9), which is -4, 4 from its mean 5.
        assert_eq!(layer_norm(&x, None, None, &norm), [-0.5, 2.0]);
        assert_eq!(layer_norm(&x, Some(&[0.0, 4.0]), Some(&residual), &norm), [-0.5, 2.0]);
        let norm = Norm { epsilon: 3.0, ..norm };
        assert_eq!(layer_norm(&x, None, None, &norm), [0.0, 1.0]);
    }
}
