//! What a pass does, counted: operations (a multiplication and an addition are two) and bytes.

use super::super::Head;
use crate::model::registry::Pooling;
use crate::model::weights::ModelConfig;

/// A batch, as far as work depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batch {
    pub tokens: f64,
    pub sequences: f64,
    /// Pairs of query and key: the sum of the squares of the lengths.
    pub pairs: f64,
}

impl Batch {
    pub fn of(lengths: &[usize]) -> Self {
        let sum = |f: fn(f64) -> f64| lengths.iter().map(|&n| f(n as f64)).sum();
        Batch { tokens: sum(|n| n), sequences: lengths.len() as f64, pairs: sum(|n| n * n) }
    }
}

/// Whether a device leaves out what the result does not depend on.
pub fn first_rows_only(head: Head, pooling: Pooling, gpu: bool) -> bool {
    gpu && (head == Head::Score || pooling == Pooling::Cls)
}

/// Operations of a matrix product.
pub fn product(rows: f64, columns: f64, depth: f64) -> f64 {
    2.0 * rows * columns * depth
}

/// Operations of attention, all heads: scores, and their products with the values.
pub fn attention(pairs: f64, hidden: f64) -> f64 {
    4.0 * pairs * hidden
}

/// Operations of a whole pass: matrix products and attention.
pub fn pass(config: &ModelConfig, batch: Batch, first_only: bool) -> f64 {
    let (h, wide) = (config.hidden as f64, config.intermediate as f64);
    let layer = |rows: f64, queries: f64| {
        product(batch.tokens, 2.0 * h, h)
            + product(rows, h, h) * 2.0
            + product(rows, wide, h) * 2.0
            + attention(queries, h)
    };
    let whole = config.layers - usize::from(first_only);
    let last = if first_only { layer(batch.sequences, batch.tokens) } else { 0.0 };
    whole as f64 * layer(batch.tokens, batch.pairs) + last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::bench::Shape;

    #[test]
    fn whole_passes_are_those_of_the_configuration() {
        let config = "xlmr-large".parse::<Shape>().unwrap().config;
        let lengths = [300, 7, 64];
        assert_eq!(pass(&config, Batch::of(&lengths), false), config.flops(&lengths));
    }

    /// By hand: 128 pairs of 300 tokens save, in the last of 24 layers, 6 h² + 4 h f operations a token and attention but for
    /// one query, and do them for 128 rows.
    #[test]
    fn the_last_layer_counts_first_rows_only() {
        let config = "xlmr-large".parse::<Shape>().unwrap().config;
        let batch = Batch::of(&[300; 128]);
        let (tokens, h, wide) = (38_400.0, 1024.0, 4096.0);
        let saved = (tokens - 128.0) * (4.0 * h * h + 4.0 * h * wide) + 4.0 * h * (300.0 - 1.0) * tokens;
        assert_eq!(pass(&config, batch, true), config.flops(&[300; 128]) - saved);
        assert!(first_rows_only(Head::Score, Pooling::Mean, true) && first_rows_only(Head::Embed, Pooling::Cls, true));
        assert!(
            !first_rows_only(Head::Embed, Pooling::Mean, true) && !first_rows_only(Head::Score, Pooling::Cls, false)
        );
    }
}
