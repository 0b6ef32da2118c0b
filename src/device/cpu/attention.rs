//! Attention of some rows of one sequence to the whole sequence.

use super::gemm::{Packed, Rows, multiply};
use super::math;

/// Scores that one task holds at once (1 MB), where that allows for at least [`MIN_ROWS`] rows.
const SCORES: usize = 1 << 18;
/// Fewer rows would spend more on packing keys and values than on the products.
const MIN_ROWS: usize = 96;

/// Memory that a thread uses again and again.
#[derive(Default)]
pub struct Scratch {
    keys: Packed,
    values: Packed,
    scores: Vec<f32>,
}

/// How the width of a row is divided.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub hidden: usize,
    pub heads: usize,
}

/// Rows of a sequence of `tokens` that one task takes.
pub fn rows_of_a_task(tokens: usize) -> usize {
    (SCORES / tokens.max(1)).max(MIN_ROWS)
}

/// `qkv` holds the sequence's queries, keys and values side by side (`tokens` rows of `3 * hidden`). Row `i` of `out`
/// becomes the attention of the sequence's row `first + i`.
pub fn attend(qkv: &[f32], first: usize, out: &mut [f32], shape: Shape, scratch: &mut Scratch) {
    let Shape { hidden, heads } = shape;
    let (width, dim) = (3 * hidden, hidden / heads);
    let (tokens, rows) = (qkv.len() / width, out.len() / hidden);
    let scale = 1.0 / (dim as f32).sqrt();
    scratch.scores.resize(rows * tokens, 0.0);
    for head in 0..heads {
        let at = head * dim;
        scratch.keys.pack_rows(&qkv[hidden + at..], width, tokens, dim);
        scratch.values.pack_columns(&qkv[2 * hidden + at..], width, dim, tokens);
        let queries = Rows { values: &qkv[first * width + at..], stride: width, count: rows };
        multiply(queries, &scratch.keys, &mut scratch.scores, tokens);
        let mut sums = vec![0.0; rows];
        for (row, sum) in scratch.scores.chunks_exact_mut(tokens).zip(&mut sums) {
            *sum = math::exp_row(row, scale);
        }
        let weights = Rows { values: &scratch.scores, stride: tokens, count: rows };
        multiply(weights, &scratch.values, &mut out[at..], hidden);
        for (row, sum) in out.chunks_exact_mut(hidden).zip(&sums) {
            math::scale(&mut row[at..at + dim], 1.0 / sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// softmax(q k / sqrt(d)) v by its definition, in f64.
    fn reference(qkv: &[f32], tokens: usize, shape: Shape) -> Vec<f64> {
        let (h, d) = (shape.hidden, shape.hidden / shape.heads);
        let at = |row: usize, part: usize, column: usize| qkv[row * 3 * h + part * h + column] as f64;
        let mut out = vec![0.0; tokens * h];
        for head in 0..shape.heads {
            for i in 0..tokens {
                let dot = |j: usize| (0..d).map(|c| at(i, 0, head * d + c) * at(j, 1, head * d + c)).sum::<f64>();
                let scores: Vec<f64> = (0..tokens).map(|j| (dot(j) / (d as f64).sqrt()).exp()).collect();
                let sum: f64 = scores.iter().sum();
                for c in 0..d {
                    let value: f64 = (0..tokens).map(|j| scores[j] * at(j, 2, head * d + c)).sum();
                    out[i * h + head * d + c] = value / sum;
                }
            }
        }
        out
    }

    /// 8,000 tokens: their square would be 64 million scores a head.
    #[test]
    fn memory_grows_with_a_sequence_and_not_with_its_square() {
        let shape = Shape { hidden: 8, heads: 1 };
        for tokens in [1, 511, 8000] {
            let rows = rows_of_a_task(tokens).min(tokens);
            let mut scratch = Scratch::default();
            attend(&vec![0.5; tokens * 24], 0, &mut vec![0.0; rows * 8], shape, &mut scratch);
            assert!(scratch.scores.capacity() <= SCORES.max(MIN_ROWS * tokens), "{tokens}");
        }
        const { assert!(MIN_ROWS * 8000 * size_of::<f32>() <= 4 << 20) };
    }

    #[test]
    fn it_is_softmax_attention_whichever_rows_are_asked_for() {
        let shape = Shape { hidden: 24, heads: 3 };
        for tokens in [1, 5, 16, 33] {
            let qkv: Vec<f32> = (0..tokens * 72).map(|i| ((i * 7919 % 1013) as f32 / 506.0 - 1.0) * 2.0).collect();
            let expected = reference(&qkv, tokens, shape);
            let mut whole = vec![0.0; tokens * 24];
            attend(&qkv, 0, &mut whole, shape, &mut Scratch::default());
            for (x, e) in whole.iter().zip(&expected) {
                assert!((*x as f64 - e).abs() < 1e-5, "{x} {e}");
            }
            let mut last = vec![0.0; 24];
            attend(&qkv, tokens - 1, &mut last, shape, &mut Scratch::default());
            assert_eq!(last, whole[(tokens - 1) * 24..]);
        }
    }
}
