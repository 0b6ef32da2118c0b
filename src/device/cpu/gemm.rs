//! Rows times a matrix that was packed once: `c[r][n] = start[n] + sum over k of a[r][k] * b[k][n]`.
//!
//! The right-hand side lies in panels of 16 columns, so that the inner loop reads it in order; it is packed when a model is
//! loaded, not on each call, which is what a general matrix library has to do. A value is one chain of multiply-adds from
//! `start` over rising k, whatever tile or block it falls into: its bits do not depend on the rows beside it.
//!
//! With AVX2 and FMA a tile is 6 rows by 16 columns: 12 sums in registers, 12 multiply-adds for 8 loads. While the tiles of
//! one panel are computed the next panel is fetched: weights come from the third-level cache or from memory.

use super::fetch::{fetch, part};

/// Columns of a panel.
pub const PANEL: usize = 16;
/// Rows of a tile.
const TILE: usize = 6;
/// Most values of k in one sweep: a panel's part (24 kB) stays in the first-level cache while a tile's rows pass.
const DEPTH: usize = 384;

/// A right-hand side of `depth` by `columns` in panels, and what each column starts from.
#[derive(Debug, Default, Clone)]
pub struct Packed {
    depth: usize,
    columns: usize,
    /// Panel after panel, each `depth` rows of 16; columns past the end are zero.
    panels: Vec<f32>,
    /// One value a column, filled up to whole panels.
    start: Vec<f32>,
}

impl Packed {
    /// A linear layer: weight of (out, in) as PyTorch stores it, bias of (out).
    pub fn linear(weight: &[f32], bias: &[f32], input: usize) -> Self {
        let mut packed = Packed::default();
        packed.pack_rows(weight, input, bias.len(), input);
        packed.start[..bias.len()].copy_from_slice(bias);
        packed
    }

    /// Packs the transpose of `columns` rows of `depth` values, `stride` apart.
    pub fn pack_rows(&mut self, rows: &[f32], stride: usize, columns: usize, depth: usize) {
        self.reset(depth, columns);
        for (panel, n) in self.panels.chunks_exact_mut(depth * PANEL).zip((0..columns).step_by(PANEL)) {
            let (count, rows) = (PANEL.min(columns - n), &rows[n * stride..]);
            for (k, slots) in panel.chunks_exact_mut(PANEL).enumerate() {
                for (i, slot) in slots[..count].iter_mut().enumerate() {
                    *slot = rows[i * stride + k];
                }
            }
        }
    }

    /// From now on a product also writes the zeros that fill the last panel; its result must have room for them.
    pub fn whole_panels(&mut self) {
        self.columns = self.start.len();
    }

    /// Packs `depth` rows of `columns` values, `stride` apart, as they are.
    pub fn pack_columns(&mut self, rows: &[f32], stride: usize, columns: usize, depth: usize) {
        self.reset(depth, columns);
        for (k, row) in rows.chunks(stride).take(depth).enumerate() {
            for (p, part) in row[..columns].chunks(PANEL).enumerate() {
                self.panels[(p * depth + k) * PANEL..][..part.len()].copy_from_slice(part);
            }
        }
    }

    fn reset(&mut self, depth: usize, columns: usize) {
        let panels = columns.div_ceil(PANEL);
        (self.depth, self.columns) = (depth, columns);
        self.panels.clear();
        self.panels.resize(panels * depth * PANEL, 0.0);
        self.start.clear();
        self.start.resize(panels * PANEL, 0.0);
    }

    pub fn columns(&self) -> usize {
        self.columns
    }
}

/// A view of rows: where they begin and how far apart they are.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub values: &'a [f32],
    pub stride: usize,
    pub count: usize,
}

/// Writes the product of `a` and `b` to the rows of `c`, `c_stride` apart.
pub fn multiply(a: Rows, b: &Packed, c: &mut [f32], c_stride: usize) {
    if a.count == 0 || b.columns == 0 {
        return;
    }
    assert!(b.depth > 0 && a.values.len() >= (a.count - 1) * a.stride + b.depth, "left-hand side is too short");
    assert!(c_stride >= b.columns && c.len() >= (a.count - 1) * c_stride + b.columns, "result is too short");
    let step = b.depth.div_ceil(b.depth.div_ceil(DEPTH));
    for k in (0..b.depth).step_by(step) {
        let depth = step.min(b.depth - k);
        for p in 0..b.columns.div_ceil(PANEL) {
            let panel = &b.panels[(p * b.depth + k) * PANEL..][..depth * PANEL];
            let columns = PANEL.min(b.columns - p * PANEL);
            let start = (k == 0).then(|| &b.start[p * PANEL..][..PANEL]);
            let next = part(&b.panels, ((p + 1) * b.depth + k) * PANEL, depth * PANEL);
            for r in (0..a.count).step_by(TILE) {
                let rows = TILE.min(a.count - r);
                fetch(next, r, r + rows, a.count);
                let left = &a.values[r * a.stride + k..];
                let right = &mut c[r * c_stride + p * PANEL..];
                if columns == PANEL {
                    tile(rows, depth, left, a.stride, panel, start, right, c_stride);
                } else {
                    // A panel that the result cuts: computed whole beside it.
                    let mut whole = [0.0; TILE * PANEL];
                    for i in 0..rows {
                        whole[i * PANEL..][..columns].copy_from_slice(&right[i * c_stride..][..columns]);
                    }
                    tile(rows, depth, left, a.stride, panel, start, &mut whole, PANEL);
                    for i in 0..rows {
                        right[i * c_stride..][..columns].copy_from_slice(&whole[i * PANEL..][..columns]);
                    }
                }
            }
        }
    }
}

/// One tile: `rows` rows by 16 columns over `depth` values of k. Sums go on from `start`, or from `c` where it is `None`.
#[allow(clippy::too_many_arguments)]
#[inline]
fn tile(
    rows: usize,
    depth: usize,
    a: &[f32],
    a_stride: usize,
    b: &[f32],
    start: Option<&[f32]>,
    c: &mut [f32],
    c_stride: usize,
) {
    assert!(rows >= 1 && a.len() >= (rows - 1) * a_stride + depth && b.len() >= depth * PANEL);
    assert!(c.len() >= (rows - 1) * c_stride + PANEL && start.is_none_or(|s| s.len() >= PANEL));
    #[cfg(target_arch = "x86_64")]
    if super::math::has_fma() {
        let (from, from_stride) = start.map_or((c.as_ptr(), c_stride), |s| (s.as_ptr(), 0));
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: the processor has the instructions, and the lengths were checked above.
        unsafe {
            match rows {
                1 => avx2::tile::<1>(depth, a, a_stride, b, from, from_stride, c, c_stride),
                2 => avx2::tile::<2>(depth, a, a_stride, b, from, from_stride, c, c_stride),
                3 => avx2::tile::<3>(depth, a, a_stride, b, from, from_stride, c, c_stride),
                4 => avx2::tile::<4>(depth, a, a_stride, b, from, from_stride, c, c_stride),
                5 => avx2::tile::<5>(depth, a, a_stride, b, from, from_stride, c, c_stride),
                _ => avx2::tile::<6>(depth, a, a_stride, b, from, from_stride, c, c_stride),
            }
        }
        return;
    }
    portable(rows, depth, a, a_stride, b, start, c, c_stride);
}

/// The same sums on a processor without these instructions.
#[allow(clippy::too_many_arguments)]
fn portable(
    rows: usize,
    depth: usize,
    a: &[f32],
    a_stride: usize,
    b: &[f32],
    start: Option<&[f32]>,
    c: &mut [f32],
    c_stride: usize,
) {
    for r in 0..rows {
        let c = &mut c[r * c_stride..][..PANEL];
        let mut sums = [0.0; PANEL];
        sums.copy_from_slice(start.unwrap_or(c));
        for (x, b) in a[r * a_stride..][..depth].iter().zip(b.chunks_exact(PANEL)) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = super::math::fused::<{ super::math::NATIVE_FMA }>(*x, *b, *sum);
            }
        }
        c.copy_from_slice(&sums);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::PANEL;

    /// # Safety
    /// AVX2 and FMA are there; `a` has R rows of `depth`, `b` depth rows of 16, `from` and `c` R rows of 16.
    #[allow(clippy::too_many_arguments)]
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn tile<const R: usize>(
        depth: usize,
        a: *const f32,
        a_stride: usize,
        b: *const f32,
        from: *const f32,
        from_stride: usize,
        c: *mut f32,
        c_stride: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); 2]; R];
            for (r, sum) in sums.iter_mut().enumerate() {
                sum[0] = _mm256_loadu_ps(from.add(r * from_stride));
                sum[1] = _mm256_loadu_ps(from.add(r * from_stride + 8));
            }
            let mut step = |k: usize| {
                let b0 = _mm256_loadu_ps(b.add(k * PANEL));
                let b1 = _mm256_loadu_ps(b.add(k * PANEL + 8));
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_broadcast_ss(&*a.add(r * a_stride + k));
                    sum[0] = _mm256_fmadd_ps(x, b0, sum[0]);
                    sum[1] = _mm256_fmadd_ps(x, b1, sum[1]);
                }
            };
            // Four steps a round: counting and addressing would otherwise cost a tenth.
            for k in (0..depth / 4 * 4).step_by(4) {
                step(k);
                step(k + 1);
                step(k + 2);
                step(k + 3);
            }
            for k in depth / 4 * 4..depth {
                step(k);
            }
            for (r, sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(c.add(r * c_stride), sum[0]);
                _mm256_storeu_ps(c.add(r * c_stride + 8), sum[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers: every product and sum is exact in f32, so the right value is known to the last bit.
    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((x >> 33) % 17) as f32 - 8.0
            })
            .collect()
    }

    #[test]
    fn products_of_whole_numbers_are_exact_at_every_size() {
        for (m, n, k) in [(1, 1, 1), (6, 16, 256), (7, 17, 257), (13, 33, 600), (97, 5, 31), (5, 48, 1030)] {
            let (w, bias, a) = (numbers(n * k, 1), numbers(n, 2), numbers(m * k, 3));
            let packed = Packed::linear(&w, &bias, k);
            let mut c = vec![f32::NAN; m * n];
            multiply(Rows { values: &a, stride: k, count: m }, &packed, &mut c, n);
            for r in 0..m {
                for j in 0..n {
                    let sum: i64 = (0..k).map(|i| a[r * k + i] as i64 * w[j * k + i] as i64).sum();
                    assert_eq!(c[r * n + j], (sum + bias[j] as i64) as f32, "{m} {n} {k}: {r} {j}");
                }
            }
        }
    }

    #[test]
    fn both_packings_and_strides_agree() {
        let (depth, columns, stride) = (19, 21, 30);
        let source = numbers(depth * stride, 5);
        let transposed: Vec<f32> =
            (0..columns).flat_map(|n| (0..depth).map(move |k| (n, k))).map(|(n, k)| source[k * stride + n]).collect();
        let (mut one, mut two) = (Packed::default(), Packed::default());
        one.pack_columns(&source, stride, columns, depth);
        two.pack_rows(&transposed, depth, columns, depth);
        assert_eq!(one.panels, two.panels);
    }

    #[test]
    fn a_row_is_the_same_wherever_it_stands() {
        let (n, k) = (40, 700);
        let scale = |v: Vec<f32>| v.iter().map(|x| x * 0.3137).collect::<Vec<_>>();
        let (w, bias, a) = (scale(numbers(n * k, 7)), scale(numbers(n, 8)), scale(numbers(50 * k, 9)));
        let packed = Packed::linear(&w, &bias, k);
        let mut all = vec![0.0; 50 * n];
        multiply(Rows { values: &a, stride: k, count: 50 }, &packed, &mut all, n);
        for r in 0..50 {
            let mut one = vec![0.0; n];
            multiply(Rows { values: &a[r * k..], stride: k, count: 1 }, &packed, &mut one, n);
            assert_eq!(one, all[r * n..][..n]);
        }
    }
}
