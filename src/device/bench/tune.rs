//! Which kernel for matrix products is fastest on the chip at hand: times them all, and proposes a table.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::super::cuda::kernels::{Epilogue, HALF, Linear};
use super::super::cuda::runtime::{Buffer, Runtime};
use super::super::cuda::tiles::{ChipTiles, LayerTile, Table, Tile, available};
use super::timed::median_seconds;
use super::work;
use crate::error::{Context, Result};
use crate::model::weights::ModelConfig;

/// Rows of a batch, from a last one to a full one. One kernel is chosen for all of them, so that a row's bits do not depend
/// on its batch.
const ROWS: [usize; 4] = [512, 4_096, 16_384, 65_536];
/// On the emulation, which is slow.
const FEW_ROWS: [usize; 2] = [16, 64];
/// A kernel replaces the present one where it is faster by more than this share: less is noise.
const LEAST_GAIN: f64 = 0.02;

/// The times, and the table that follows from them.
#[derive(Debug, Clone, Serialize)]
pub struct Tuning {
    pub candidates: Vec<Candidate>,
    /// For `kernels/tiles.toml`: the chip's row.
    pub proposal: String,
    pub changes: bool,
}

/// A kernel on a layer's shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    pub columns: usize,
    pub depth: usize,
    pub tile: String,
    /// For each number of rows.
    pub tflops: Vec<(usize, f64)>,
    /// For all of them.
    pub milliseconds: f64,
}

/// Columns and depth of the model's layers, each once.
fn shapes(config: &ModelConfig) -> BTreeSet<(usize, usize)> {
    let (h, wide) = (config.hidden, config.intermediate);
    [(3 * h, h), (h, h), (wide, h), (h, wide), (2 * h, h)].into()
}

/// Times every kernel that runs on the chip on every shape.
pub fn tune(runtime: &Arc<dyn Runtime>, config: &ModelConfig, seconds: f64) -> Result<Tuning> {
    let rows: &[usize] = if super::is_small(runtime.chip()) { &FEW_ROWS } else { &ROWS };
    let mut candidates = Vec::new();
    for (columns, depth) in shapes(config) {
        // GELU follows the wide layer's product, and stays ours.
        let gelu = (columns, depth) == (config.intermediate, config.hidden);
        for tile in available(&**runtime, depth).filter(|t| !(gelu && t.is_library())) {
            candidates.push(time(runtime, tile, columns, depth, rows, seconds)?);
        }
    }
    let present = ChipTiles::of(runtime.chip());
    let proposed = choose(&candidates, present, runtime.chip().capability);
    let changes = proposed != *present;
    let proposal = toml::to_string(&Table { chip: vec![proposed] }).or_internal("a table of names and numbers")?;
    Ok(Tuning { candidates, proposal, changes })
}

fn time(
    runtime: &Arc<dyn Runtime>,
    tile: Tile,
    columns: usize,
    depth: usize,
    rows: &[usize],
    seconds: f64,
) -> Result<Candidate> {
    let most = rows.iter().max().copied().unwrap_or_default();
    // Small numbers of many bits: 0.0078 and its neighbours.
    let pattern = |values: usize| (0..values).flat_map(|i| [(i * 37 % 251) as u8, 0x3c]).collect::<Vec<u8>>();
    let linear = Linear::with_tile(runtime, &pattern(columns * depth), &vec![0.0; columns], depth, tile)?;
    let a = Buffer::filled(runtime, &pattern(most * depth))?;
    let c = Buffer::new(runtime, most * columns * HALF)?;
    let mut candidate =
        Candidate { columns, depth, tile: tile.name.to_string(), tflops: Vec::new(), milliseconds: 0.0 };
    for &rows in rows {
        let took = median_seconds(seconds / 40.0, || {
            linear.apply(&**runtime, c.view(), a.view(), rows, Epilogue::Bias)?;
            runtime.finish()
        })?;
        let operations = work::product(rows as f64, columns as f64, depth as f64);
        candidate.tflops.push((rows, operations / took / 1e12));
        candidate.milliseconds += took * 1e3;
    }
    Ok(candidate)
}

/// For each shape the fastest, over all numbers of rows together: a batch's time is in its full ones. Shapes keep what they have
/// where nothing is faster by more than noise; the chip's default stays.
fn choose(candidates: &[Candidate], present: &ChipTiles, capability: (u32, u32)) -> ChipTiles {
    let mut chosen = ChipTiles { capability, layer: Vec::new(), ..present.clone() };
    let shapes: BTreeSet<(usize, usize)> = candidates.iter().map(|c| (c.columns, c.depth)).collect();
    for (columns, depth) in shapes {
        let own = || candidates.iter().filter(|c| (c.columns, c.depth) == (columns, depth));
        let now = present.tile(columns, depth).name;
        let time = own().find(|c| c.tile == now).map_or(f64::INFINITY, |c| c.milliseconds);
        let best = own().min_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let tile = match best {
            Some(best) if best.milliseconds < time * (1.0 - LEAST_GAIN) => best.tile.as_str(),
            _ => now,
        };
        if tile != chosen.tile {
            chosen.layer.push(LayerTile { columns, depth, tile: tile.to_string() });
        }
    }
    // Shapes of other models keep their kernels.
    let others =
        present.layer.iter().filter(|l| !candidates.iter().any(|c| (c.columns, c.depth) == (l.columns, l.depth)));
    chosen.layer.extend(others.cloned());
    chosen
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>7} {:>6} {:<14} {:>9}   TFLOP/s by rows", "columns", "depth", "tile", "ms")?;
        for c in &self.candidates {
            let rates: Vec<_> = c.tflops.iter().map(|(rows, t)| format!("{rows}: {t:.3}")).collect();
            writeln!(
                f,
                "{:>7} {:>6} {:<14} {:>9.3}   {}",
                c.columns,
                c.depth,
                c.tile,
                c.milliseconds,
                rates.join(", ")
            )?;
        }
        match self.changes {
            true => write!(
                f,
                "\nFor kernels/tiles.toml (other kernels make other bits, and so other hashes of models):\n\n{}",
                self.proposal
            ),
            false => write!(f, "\nThe present table is the best by more than {:.0}%\n", LEAST_GAIN * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(shape: (usize, usize), tile: &str, milliseconds: f64) -> Candidate {
        Candidate { columns: shape.0, depth: shape.1, tile: tile.into(), tflops: Vec::new(), milliseconds }
    }

    #[test]
    fn a_shape_gets_the_fastest_kernel_unless_the_gain_is_noise() {
        let other = LayerTile { columns: 8, depth: 96, tile: "mma 64x64".into() };
        let present = ChipTiles {
            capability: (9, 0),
            tile: "wgmma 128x256".into(),
            attention_long_tokens: Some(300),
            layer: vec![other.clone()],
        };
        let candidates = [
            candidate((1024, 1024), "wgmma 128x256", 10.0),
            candidate((1024, 1024), "wgmma 128x128", 9.0),
            candidate((3072, 1024), "wgmma 128x256", 10.0),
            candidate((3072, 1024), "wgmma 128x128", 9.9),
            candidate((4096, 1024), "mma 128x128", 11.0),
            candidate((4096, 1024), "wgmma 128x256", 10.0),
        ];
        let chosen = choose(&candidates, &present, (9, 0));
        let own = LayerTile { columns: 1024, depth: 1024, tile: "wgmma 128x128".into() };
        assert_eq!((chosen.tile.as_str(), chosen.attention_long_tokens), ("wgmma 128x256", Some(300)));
        assert_eq!(chosen.layer, [own, other]);
    }

    #[test]
    fn a_proposal_is_a_row_of_the_table() {
        let layer = vec![LayerTile { columns: 1024, depth: 4096, tile: "mma 64x64".into() }];
        let row = ChipTiles { capability: (8, 9), tile: "mma 128x128".into(), attention_long_tokens: None, layer };
        let text = toml::to_string(&Table { chip: vec![row.clone()] }).unwrap();
        assert_eq!(toml::from_str::<Table>(&text).unwrap().chip, [row]);
    }
}
