//! Attention of some rows of one sequence to the whole sequence.

use super::gemm::{PANEL, Packed, Rows, multiply};
use super::math;

/// Scores held at once (64 kB, where that allows for [`MIN_ROWS`] rows): they are written, read and written again.
const SCORES: usize = 1 << 14;
/// Two tiles of the product.
const MIN_ROWS: usize = 12;
/// Rows of a sequence that one task takes: fewer would spend more on packing keys and values.
pub const TASK_ROWS: usize = 512;

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

/// `qkv` holds the sequence's queries, keys and values side by side (`tokens` rows of `3 * hidden`). Row `i` of `out`
/// becomes the attention of the sequence's row `first + i`.
pub fn attend(qkv: &[f32], first: usize, out: &mut [f32], shape: Shape, scratch: &mut Scratch) {
    let Shape { hidden, heads } = shape;
    let (width, dim) = (3 * hidden, hidden / heads);
    let tokens = qkv.len() / width;
    let padded = tokens.next_multiple_of(PANEL);
    let rows = (SCORES / padded / MIN_ROWS).max(1) * MIN_ROWS;
    let scale = 1.0 / (dim as f32).sqrt();
    scratch.scores.resize(rows * padded, 0.0);
    for head in 0..heads {
        let at = head * dim;
        scratch.keys.pack_rows(&qkv[hidden + at..], width, tokens, dim);
        scratch.keys.whole_panels();
        scratch.values.pack_columns(&qkv[2 * hidden + at..], width, dim, tokens);
        for (i, out) in out.chunks_mut(rows * hidden).enumerate() {
            let count = out.len() / hidden;
            let queries = Rows { values: &qkv[(first + i * rows) * width + at..], stride: width, count };
            multiply(queries, &scratch.keys, &mut scratch.scores, padded);
            let mut sums = [0.0; SCORES / PANEL];
            for (row, sum) in scratch.scores.chunks_exact_mut(padded).zip(&mut sums[..count]) {
                *sum = math::exp_row(&mut row[..tokens], scale);
            }
            let weights = Rows { values: &scratch.scores, stride: padded, count };
            multiply(weights, &scratch.values, &mut out[at..], hidden);
            for (row, sum) in out.chunks_exact_mut(hidden).zip(&sums) {
                math::scale(&mut row[at..at + dim], 1.0 / sum);
            }
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
            let rows = TASK_ROWS.min(tokens);
            let mut scratch = Scratch::default();
            attend(&vec![0.5; tokens * 24], 0, &mut vec![0.0; rows * 8], shape, &mut scratch);
            assert!(scratch.scores.capacity() <= SCORES.max(MIN_ROWS * tokens), "{tokens}");
        }
        const { assert!(MIN_ROWS * 8000 * size_of::<f32>() <= 4 << 20) };
    }

    #[test]
    fn it_is_softmax_attention_whichever_rows_are_asked_for() {
        let shape = Shape { hidden: 24, heads: 3 };
        for tokens in [1, 5, 16, 33, 400] {
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
