//! The first layer's input: LayerNorm of the sum of a word's, a place's and a segment's row.

use super::Norm;
use half::bf16;

pub struct Embedding<'a> {
    pub words: &'a [bf16],
    pub positions: &'a [bf16],
    pub types: &'a [bf16],
    pub norm: Norm<'a>,
}

pub fn embed(tables: &Embedding, tokens: &[u32], segments: &[u32], places: &[u32]) -> Vec<f64> {
    let hidden = tables.norm.gain.len();
    let at = |table: &[bf16], row: u32, i: usize| table[row as usize * hidden + i].to_f64();
    let row = |r: usize| {
        let sum =
            |i| at(tables.words, tokens[r], i) + at(tables.positions, places[r], i) + at(tables.types, segments[r], i);
        tables.norm.row(&(0..hidden).map(sum).collect::<Vec<f64>>())
    };
    (0..tokens.len()).flat_map(row).collect()
}
