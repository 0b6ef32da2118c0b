//! Softmax attention over packed sequences.

use half::bf16;

/// How many heads there are, and how wide each is. Head h is at offset h * dim of a row.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub count: usize,
    pub dim: usize,
}

/// Queries of sequence s are rows `query_starts[s]..query_starts[s + 1]`, keys and values `starts[s]..starts[s + 1]`.
/// Strides are elements between rows.
pub struct Attention<'a> {
    pub q: &'a [bf16],
    pub k: &'a [bf16],
    pub v: &'a [bf16],
    pub q_stride: usize,
    pub kv_stride: usize,
    pub query_starts: &'a [u32],
    pub starts: &'a [u32],
    pub causal: bool,
}

/// (queries, heads * dim).
pub fn attention(inputs: &Attention, heads: Heads) -> Vec<f64> {
    let mut out = Vec::new();
    for s in 0..inputs.starts.len() - 1 {
        let (first_query, first_key) = (inputs.query_starts[s] as usize, inputs.starts[s] as usize);
        let length = inputs.starts[s + 1] as usize - first_key;
        for query in first_query..inputs.query_starts[s + 1] as usize {
            let keys = if inputs.causal { query - first_query + 1 } else { length };
            for head in 0..heads.count {
                out.extend(one_query(inputs, query, first_key, keys.min(length), head * heads.dim, heads.dim));
            }
        }
    }
    out
}

fn one_query(inputs: &Attention, query: usize, first: usize, count: usize, offset: usize, dim: usize) -> Vec<f64> {
    let q = &inputs.q[query * inputs.q_stride + offset..][..dim];
    let row = |x: &'_ [bf16], key: usize, i: usize| x[(first + key) * inputs.kv_stride + offset + i].to_f64();
    let score = |key| (0..dim).map(|i| q[i].to_f64() * row(inputs.k, key, i)).sum::<f64>() / (dim as f64).sqrt();
    let scores: Vec<f64> = (0..count).map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let value = |i| (0..count).map(|key| weights[key] * row(inputs.v, key, i)).sum::<f64>() / total;
    // Without keys there is nothing to weigh: zeros.
    (0..dim).map(|i| if count == 0 { 0.0 } else { value(i) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let bf16s = |values: &[f64]| values.iter().map(|v| bf16::from_f64(*v)).collect::<Vec<_>>();
        let (q, k, v) = (bf16s(&[0.0, 0.0, 1.0]), bf16s(&[5.0, 7.0, 9.0]), bf16s(&[1.0, 2.0, 4.0]));
        let inputs = Attention {
            q: &q,
            k: &k,
            v: &v,
            q_stride: 1,
            kv_stride: 1,
            query_starts: &[0, 2, 3],
            starts: &[0, 2, 3],
            causal: false,
        };
        let heads = Heads { count: 1, dim: 1 };
        // Queries of zero weigh all keys alike; one key has all the weight.
        assert_eq!(attention(&inputs, heads), [1.5, 1.5, 4.0]);
        assert_eq!(attention(&Attention { causal: true, ..inputs }, heads), [1.0, 1.5, 4.0]);
    }

    #[test]
    fn weights_are_exponentials_of_scaled_products() {
        let bf16s = |values: &[f64]| values.iter().map(|v| bf16::from_f64(*v)).collect::<Vec<_>>();
        let (q, k, v) =
            (bf16s(&[2.0; 4]), bf16s(&[[0.25; 4], [0.0; 4]].concat()), bf16s(&[[1.0; 4], [0.0; 4]].concat()));
        let inputs = Attention {
            q: &q,
            k: &k,
            v: &v,
            q_stride: 4,
            kv_stride: 4,
            query_starts: &[0, 1],
            starts: &[0, 2],
            causal: false,
        };
        // The product is 2, divided by sqrt(4): the first key's weight is e / (e + 1).
        let out = attention(&inputs, Heads { count: 1, dim: 4 });
        assert!((out[3] - 1.0f64.exp() / (1.0f64.exp() + 1.0)).abs() < 1e-15);
    }
}
