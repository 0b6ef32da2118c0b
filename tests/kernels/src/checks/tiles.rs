//! How each GEMM is launched, as its header states it.

use crate::emulation::Shape;
use crate::reference::Epilogue;

/// A variant of the GEMM.
#[derive(Debug, Clone, Copy)]
pub struct Tile {
    pub epilogue: Epilogue,
    pub rows: usize,
    pub columns: usize,
    /// What `depth` must be a multiple of.
    pub depth_step: usize,
    threads: u32,
    shared_bytes: usize,
    /// Loads by TMA, multiplies by wgmma, and takes its tiles from a grid of any size.
    pub hopper: bool,
}

/// Rows, columns, threads, bytes of shared memory.
const GEMM: &[(usize, usize, u32, usize)] = &[(128, 128, 128, 49_152), (128, 256, 256, 98_304), (64, 64, 128, 65_536)];
const GEMM90: &[(usize, usize, u32, usize)] = &[(128, 128, 384, 197_728), (128, 256, 384, 197_696)];

impl Tile {
    /// From a name such as `gemm90_gelu_128x256`.
    pub fn of(kernel: &str) -> Result<Self, String> {
        let parts: Vec<&str> = kernel.split('_').collect();
        let [family, epilogue, size] = parts[..] else {
            return Err(format!("{kernel} is not family_epilogue_tile"));
        };
        let epilogue = match epilogue {
            "bias" => Epilogue::Bias,
            "gelu" => Epilogue::Gelu,
            "residual" => Epilogue::Residual,
            _ => return Err(format!("{kernel}: no such epilogue")),
        };
        let (table, hopper) = match family {
            "gemm" => (GEMM, false),
            "gemm90" => (GEMM90, true),
            _ => return Err(format!("{kernel}: no such family")),
        };
        let found = table.iter().find(|(rows, columns, ..)| size == format!("{rows}x{columns}"));
        let &(rows, columns, threads, shared_bytes) =
            found.ok_or_else(|| format!("{kernel}: the checks do not know how this tile is launched"))?;
        Ok(Tile { epilogue, rows, columns, depth_step: if hopper { 64 } else { 32 }, threads, shared_bytes, hopper })
    }

    /// Tiles of a product of this size.
    pub fn count(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.rows) * columns.div_ceil(self.columns)
    }

    pub fn shape(&self, blocks: usize) -> Shape {
        Shape { grid: [blocks as u32, 1], block: self.threads, shared_bytes: self.shared_bytes }
    }
}
