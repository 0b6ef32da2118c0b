//! The cross-encoder's head: a dense layer with tanh, and a projection to one logit.

use half::bf16;

pub struct ScoreHead<'a> {
    pub dense_weight: &'a [bf16],
    pub dense_bias: &'a [f32],
    pub projection_weight: &'a [bf16],
    pub projection_bias: f32,
}

pub fn score_head(rows: &[bf16], head: &ScoreHead) -> Vec<f64> {
    let hidden = head.dense_bias.len();
    let unit = |row: &[bf16], i: usize| {
        let weights = &head.dense_weight[i * hidden..][..hidden];
        let dot: f64 = row.iter().zip(weights).map(|(x, w)| x.to_f64() * w.to_f64()).sum();
        (dot + f64::from(head.dense_bias[i])).tanh()
    };
    let logit = |row: &[bf16]| {
        let dot: f64 = (0..hidden).map(|i| head.projection_weight[i].to_f64() * unit(row, i)).sum();
        dot + f64::from(head.projection_bias)
    };
    rows.chunks(hidden).map(logit).collect()
}
