//! What the kernels need to know of a packed batch, as one array of u32 that is copied at once.

use std::ops::Range;

use super::super::PackedBatch;
use super::kernels::{Blocks, query_blocks};
use super::runtime::View;
use crate::model::weights::ModelConfig;

/// The array, and where in it each part lies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Indices {
    pub values: Vec<u32>,
    pub tokens: usize,
    pub sequences: usize,
    ids: Range<usize>,
    segments: Range<usize>,
    places: Range<usize>,
    starts: Range<usize>,
    firsts: Range<usize>,
    short: Range<usize>,
    long: Range<usize>,
    first_blocks: Range<usize>,
}

/// The parts in a device's memory.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    /// Token ids, segment ids and rows of the position table: one a token.
    pub ids: View,
    pub segments: View,
    pub places: View,
    /// Where each sequence begins, and the end: one more than there are sequences.
    pub starts: View,
    /// 0, 1, 2, ...: where each sequence begins where only its first row is kept.
    pub firsts: View,
    /// Blocks of attention: of short sequences, and of long ones.
    pub short: Blocks,
    pub long: Blocks,
    /// For one query a sequence: all are short, as a long one's block would be nearly empty.
    pub first_blocks: Blocks,
}

impl Indices {
    /// Sequences of `long_from` tokens and more are long.
    pub fn new(batch: &PackedBatch, config: &ModelConfig, long_from: usize) -> Self {
        let sequences = batch.starts.len() - 1;
        let mut all = Indices { tokens: batch.tokens.len(), sequences, ..Indices::default() };
        all.ids = all.push(batch.tokens.iter().copied());
        all.segments = all.push(batch.types.iter().copied());
        let lengths = || batch.starts.windows(2).map(|w| w[1] - w[0]);
        all.places = all.push(lengths().flat_map(|n| (0..n).map(|i| (config.first_position() + i) as u32)));
        all.starts = all.push(batch.starts.iter().map(|s| *s as u32));
        all.firsts = all.push(0..=sequences as u32);
        let [short, long] = query_blocks(lengths(), long_from);
        all.short = all.push(short.into_iter());
        all.long = all.push(long.into_iter());
        all.first_blocks = all.push((0..sequences as u32).flat_map(|s| [s, 0]));
        all
    }

    fn push(&mut self, values: impl Iterator<Item = u32>) -> Range<usize> {
        let from = self.values.len();
        self.values.extend(values);
        from..self.values.len()
    }

    /// Writes the array as the device reads it: 4 bytes a value.
    pub fn write(&self, to: &mut [u8]) {
        for (place, value) in to.chunks_exact_mut(4).zip(&self.values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
    }

    /// The parts of an array that lies at `memory`.
    pub fn placed(&self, memory: View) -> Placed {
        let part = |range: &Range<usize>| memory.part(range.start * 4, range.len() * 4);
        let blocks = |range: &Range<usize>| Blocks { list: part(range), count: range.len() / 2 };
        Placed {
            ids: part(&self.ids),
            segments: part(&self.segments),
            places: part(&self.places),
            starts: part(&self.starts),
            firsts: part(&self.firsts),
            short: blocks(&self.short),
            long: blocks(&self.long),
            first_blocks: blocks(&self.first_blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::registry::Architecture;

    fn config() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::XlmRoberta,
            vocab: 10,
            hidden: 64,
            layers: 1,
            heads: 1,
            intermediate: 64,
            positions: 200,
            types: 1,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
        }
    }

    #[test]
    fn places_begin_anew_and_blocks_cover_every_query_once() {
        let starts = vec![0, 1, 66, 130];
        let batch = PackedBatch { tokens: vec![3; 130], types: vec![0; 130], starts };
        let indices = Indices::new(&batch, &config(), usize::MAX);
        let part = |r: &Range<usize>| indices.values[r.clone()].to_vec();
        // The filler is 1: the first place is 2.
        assert_eq!(part(&indices.places)[..4], [2, 2, 3, 4]);
        assert_eq!(part(&indices.places)[66..68], [2, 3]);
        assert_eq!((part(&indices.short), part(&indices.long)), (vec![0, 0, 1, 0, 1, 64, 2, 0], vec![]));
        assert_eq!(part(&indices.firsts), [0, 1, 2, 3]);
        assert_eq!(part(&indices.first_blocks), [0, 0, 1, 0, 2, 0]);
    }

    #[test]
    fn long_sequences_have_blocks_of_128_queries_and_a_list_of_their_own() {
        let starts = vec![0, 128, 257, 384, 512];
        let batch = PackedBatch { tokens: vec![3; 512], types: vec![0; 512], starts };
        let indices = Indices::new(&batch, &config(), 128);
        let part = |r: &Range<usize>| indices.values[r.clone()].to_vec();
        assert_eq!(part(&indices.short), [2, 0, 2, 64]);
        assert_eq!(part(&indices.long), [0, 0, 1, 0, 1, 128, 3, 0]);
        let placed = indices.placed(View { address: 256, bytes: indices.values.len() * 4 });
        assert_eq!((placed.short.count, placed.long.count, placed.first_blocks.count), (2, 4, 4));
    }
}
