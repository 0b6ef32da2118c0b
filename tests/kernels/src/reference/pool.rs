//! A sequence's vector: the mean of its rows or its first row, divided by its Euclidean length. Zeros for an empty one.

use half::bf16;

pub fn pool(x: &[bf16], starts: &[u32], hidden: usize, mean: bool) -> Vec<f64> {
    let sequence = |s: usize| {
        let (first, end) = (starts[s] as usize, starts[s + 1] as usize);
        let end = if mean { end } else { end.min(first + 1) };
        let count = (end - first).max(1) as f64;
        let column = |i: usize| (first..end).map(|row| x[row * hidden + i].to_f64()).sum::<f64>() / count;
        let vector: Vec<f64> = (0..hidden).map(column).collect();
        let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-12);
        vector.into_iter().map(move |v| v / length)
    };
    (0..starts.len() - 1).flat_map(sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let x = [3.0, 0.0, 3.0, 8.0, 0.0, 0.0].map(bf16::from_f64);
        // The mean of the first two rows is (3, 4), of length 5; a row of zeros has no direction.
        assert_eq!(pool(&x, &[0, 2, 3], 2, true), [0.6, 0.8, 0.0, 0.0]);
        assert_eq!(pool(&x, &[0, 2, 3], 2, false), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(pool(&x, &[0, 0, 2], 2, false), [0.0, 0.0, 1.0, 0.0]);
    }
}
