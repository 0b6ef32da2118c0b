//! The matrix product with what follows it in the same kernel.

use half::bf16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    Bias,
    Gelu,
    Residual,
}

/// `a` is (rows, depth), `w` is (columns, depth): both row-major.
pub struct Product<'a> {
    pub a: &'a [bf16],
    pub w: &'a [bf16],
    pub bias: &'a [f32],
    /// (rows, columns), for [`Epilogue::Residual`].
    pub residual: &'a [bf16],
    pub depth: usize,
}

pub fn gemm(product: &Product, epilogue: Epilogue) -> Vec<f64> {
    let (depth, columns) = (product.depth, product.bias.len());
    let widened = |values: &[bf16]| values.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
    let (a, w) = (widened(product.a), widened(product.w));
    let one = |i: usize| {
        let (row, column) = (i / columns, i % columns);
        let pairs = a[row * depth..][..depth].iter().zip(&w[column * depth..][..depth]);
        let sum = pairs.map(|(x, y)| x * y).sum::<f64>() + f64::from(product.bias[column]);
        match epilogue {
            Epilogue::Bias => sum,
            Epilogue::Gelu => gelu(sum),
            Epilogue::Residual => sum + product.residual[i].to_f64(),
        }
    };
    (0..a.len() / depth * columns).map(one).collect()
}

/// x times the normal distribution function, by erf and not by its tanh approximation. `erfc` keeps the digits of the left
/// tail, where 1 + erf would cancel.
fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_the_exact_one() {
        // Abramowitz and Stegun, table 26.1: P(1) and P(3).
        assert!((gelu(1.0) - 0.841_344_746_068_543).abs() < 1e-15);
        assert!((gelu(-3.0) + 3.0 * (1.0 - 0.998_650_101_968_370)).abs() < 1e-14);
        // The tanh form is off by a twentieth here, so a check that looks at such values can tell them apart.
        let tanh =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh());
        assert!((tanh(-2.7) / gelu(-2.7) - 1.0).abs() > 0.05);
    }

    #[test]
    fn by_hand() {
        let bf16s = |values: &[f64]| values.iter().map(|v| bf16::from_f64(*v)).collect::<Vec<_>>();
        let (a, w, residual) = (bf16s(&[1.0, 2.0]), bf16s(&[3.0, 4.0, -1.0, 0.0]), bf16s(&[100.0, 200.0]));
        let product = Product { a: &a, w: &w, bias: &[0.5, 1.0], residual: &residual, depth: 2 };
        assert_eq!(gemm(&product, Epilogue::Bias), [11.5, 0.0]);
        assert_eq!(gemm(&product, Epilogue::Residual), [111.5, 200.0]);
        assert_eq!(gemm(&product, Epilogue::Gelu), [11.5, 0.0]);
    }
}
