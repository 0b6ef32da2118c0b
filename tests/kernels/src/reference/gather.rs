//! Rows of a matrix, by number.

use half::bf16;

pub fn gather(x: &[bf16], rows: &[u32], hidden: usize) -> Vec<bf16> {
    rows.iter().flat_map(|&row| &x[row as usize * hidden..][..hidden]).copied().collect()
}
