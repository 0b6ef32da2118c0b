//! Linear layers in 8-bit integers: rows are quantised as they come, weights once, and sums of products are exact.
//!
//! A row `x` becomes `scale * (q - zero)` with q in 0..=127 over the range of that row; an output channel's weights become
//! `scale * w` with w in -127..=127. With these ranges two products fit into 16 bits (2 * 127 * 127 = 32,258), so that the
//! multiply-add of AVX2 does not saturate, and nothing is rounded until the sum is whole. So every kernel ([`super::int8_kernels`]) gives the same sums, and what turns a sum into f32 is one
//! multiplication and one addition, never fused: the bits depend neither on the processor nor on the batch.

use super::fetch::{fetch, part};
use super::int8_kernels::{self, Kernel, Tile};
use super::math::{self, Quantum};

/// Columns of a panel.
pub const PANEL: usize = 16;
/// Values of k that stand together for one column, as the dot-product instructions read them.
pub const GROUP: usize = 4;
/// Rows between which a part of the next panel is fetched: whole tiles of every kernel.
const STEP: usize = 24;
/// The largest value of a quantised row.
const ROW_MAX: u8 = 127;
/// The largest weight.
const WEIGHT_MAX: f32 = 127.0;

/// A linear layer's weights, quantised.
#[derive(Debug, Clone)]
pub struct Quantised {
    /// Values of k, filled up to whole groups.
    depth: usize,
    input: usize,
    columns: usize,
    /// Panel after panel; in each, group after group, 16 columns of 4 values.
    panels: Vec<i8>,
    /// By column, filled up to whole panels: the sum of the weights, their scale, the bias.
    sums: Vec<i32>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

/// Quantised rows: memory that is used again and again.
#[derive(Debug, Default)]
pub struct Quanta {
    values: Vec<u8>,
    rows: Vec<Quantum>,
}

impl Quantised {
    /// Weight of (out, in) as PyTorch stores it, bias of (out). Each output channel has a scale of its own.
    pub fn linear(weight: &[f32], bias: &[f32], input: usize) -> Self {
        let columns = bias.len();
        let (depth, padded) = (input.next_multiple_of(GROUP), columns.next_multiple_of(PANEL));
        let mut layer = Quantised {
            depth,
            input,
            columns,
            panels: vec![0; depth * padded],
            sums: vec![0; padded],
            scales: vec![0.0; padded],
            bias: vec![0.0; padded],
        };
        layer.bias[..columns].copy_from_slice(bias);
        for (n, row) in weight.chunks_exact(input).enumerate() {
            let scale = channel_scale(row);
            layer.scales[n] = scale;
            let panel = &mut layer.panels[n / PANEL * depth * PANEL..][..depth * PANEL];
            for (k, x) in row.iter().enumerate() {
                let q = quantised(*x, scale);
                layer.sums[n] += i32::from(q);
                panel[k / GROUP * PANEL * GROUP + n % PANEL * GROUP + k % GROUP] = q;
            }
        }
        layer
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Writes `rows` times the layer, plus bias, to `out`; `rows` stand one after another.
    pub fn apply(&self, rows: &[f32], out: &mut [f32], quanta: &mut Quanta) {
        self.apply_with(int8_kernels::best(), rows, out, quanta);
    }

    fn apply_with(&self, kernel: Kernel, rows: &[f32], out: &mut [f32], quanta: &mut Quanta) {
        quanta.fill(rows, self);
        let count = quanta.rows.len();
        assert!(out.len() >= count * self.columns, "result is too short");
        for p in 0..self.columns.div_ceil(PANEL) {
            let at = p * PANEL;
            let tile = Tile {
                depth: self.depth,
                panel: &self.panels[at * self.depth..][..PANEL * self.depth],
                sums: &self.sums[at..][..PANEL],
                scales: &self.scales[at..][..PANEL],
                bias: &self.bias[at..][..PANEL],
            };
            let columns = PANEL.min(self.columns - at);
            if columns == PANEL {
                let next = part(&self.panels, (at + PANEL) * self.depth, PANEL * self.depth);
                for first in (0..count).step_by(STEP) {
                    let last = count.min(first + STEP);
                    fetch(next, first, last, count);
                    let values = &quanta.values[first * self.depth..last * self.depth];
                    let out = &mut out[first * self.columns + at..];
                    tile.sweep(kernel, values, &quanta.rows[first..last], out, self.columns);
                }
                continue;
            }
            // A panel that the result cuts: computed whole beside it, row by row.
            for (row, quantum) in quanta.rows.iter().enumerate() {
                let mut whole = [0.0; PANEL];
                let values = &quanta.values[row * self.depth..][..self.depth];
                tile.sweep(kernel, values, std::slice::from_ref(quantum), &mut whole, PANEL);
                out[row * self.columns + at..][..columns].copy_from_slice(&whole[..columns]);
            }
        }
    }
}

impl Quanta {
    fn fill(&mut self, rows: &[f32], layer: &Quantised) {
        let Quantised { input, depth, .. } = *layer;
        let count = rows.len() / input;
        // What lies past a row's input meets weights of zero.
        self.values.resize(count * depth, 0);
        self.rows.clear();
        for (row, values) in rows.chunks_exact(input).zip(self.values.chunks_exact_mut(depth)) {
            self.rows.push(math::quantise(row, ROW_MAX, &mut values[..input]));
        }
    }
}

/// The scale with the least squared error among some that let the largest weights be cut off a little.
fn channel_scale(row: &[f32]) -> f32 {
    let largest = row.iter().fold(0.0, |m: f32, x| if x.abs() > m { x.abs() } else { m });
    if row.iter().any(|x| !x.is_finite()) {
        return f32::NAN;
    }
    let error = |scale: f32| row.iter().map(|x| (x - scale * f32::from(quantised(*x, scale))).powi(2)).sum::<f32>();
    let candidates = (0..=CUTS).map(|i| largest / WEIGHT_MAX * (1.0 - i as f32 * CUT_STEP));
    let best = candidates.map(|s| (error(s), s)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(0.0, |(_, scale)| scale)
}

/// How far the largest weights may be cut off: seven steps of 4%.
const CUTS: usize = 7;
const CUT_STEP: f32 = 0.04;

fn quantised(x: f32, scale: f32) -> i8 {
    if scale > 0.0 { (x / scale).round().clamp(-WEIGHT_MAX, WEIGHT_MAX) as i8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        };
        (0..n).map(|i| next() * if i % 29 == 0 { 5.0 } else { 1.0 }).collect()
    }

    #[test]
    fn every_kernel_of_this_processor_gives_the_same_bits() {
        for (m, n, k) in [(1, 1, 1), (4, 16, 8), (5, 17, 30), (13, 48, 384), (9, 33, 1537)] {
            let layer = Quantised::linear(&numbers(n * k, 1), &numbers(n, 2), k);
            let rows = numbers(m * k, 3);
            let run = |kernel| {
                let mut out = vec![f32::NAN; m * n];
                layer.apply_with(kernel, &rows, &mut out, &mut Quanta::default());
                out
            };
            let right = run(Kernel::Portable);
            for kernel in [Kernel::Avx2, Kernel::Vnni256, Kernel::Vnni512].into_iter().filter(|k| int8_kernels::has(*k))
            {
                assert_eq!(run(kernel), right, "{kernel:?}: {m} {n} {k}");
            }
        }
    }

    /// The largest values meet everywhere: the case in which a sum of 16 bits would saturate.
    #[test]
    fn nothing_saturates() {
        let k = 64;
        let weight: Vec<f32> = [vec![1.0; k], vec![-1.0; k]].concat();
        let layer = Quantised::linear(&weight, &[0.0, 0.5], k);
        let mut out = [0.0; 2];
        layer.apply(&vec![2.0; k], &mut out, &mut Quanta::default());
        assert!((out[0] - 128.0).abs() < 1e-3 && (out[1] + 127.5).abs() < 1e-3, "{out:?}");
    }

    /// Half a step of a row, times the weights it meets, and half a step of a weight, times the row: no error is larger.
    #[test]
    fn the_error_is_within_the_steps() {
        let (n, k) = (20, 100);
        let (weight, row) = (numbers(n * k, 7), numbers(k, 8));
        let layer = Quantised::linear(&weight, &vec![0.0; n], k);
        let mut out = vec![0.0; n];
        layer.apply(&row, &mut out, &mut Quanta::default());
        let range = row.iter().fold(0f32, |m, x| m.max(*x)) - row.iter().fold(0f32, |m, x| m.min(*x));
        for (weight, y) in weight.chunks(k).zip(&out) {
            let exact: f64 = row.iter().zip(weight).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            let largest = weight.iter().fold(0f32, |m, w| m.max(w.abs()));
            // A weight is also off by what may be cut from the largest.
            let of_weight = largest * CUTS as f32 * CUT_STEP + largest / WEIGHT_MAX;
            let bound = weight.iter().map(|w| w.abs() + of_weight).sum::<f32>() * range / f32::from(ROW_MAX - 1)
                + row.iter().map(|x| x.abs()).sum::<f32>() * of_weight;
            assert!((exact - f64::from(*y)).abs() <= f64::from(bound), "{exact} {y} {bound}");
            // And far less as a rule.
            assert!((exact - f64::from(*y)).abs() <= 0.3, "{exact} {y}");
        }
    }

    #[test]
    fn a_broken_number_breaks_its_row_only() {
        let layer = Quantised::linear(&numbers(6, 1), &[1.0, 2.0], 3);
        let mut out = [0.0; 8];
        let rows = [1.0, f32::NAN, 0.0, 1.0, 2.0, 3.0, f32::INFINITY, 0.0, 1.0, 0.0, 0.0, 0.0];
        layer.apply(&rows, &mut out, &mut Quanta::default());
        assert_eq!(out.map(f32::is_finite), [false, false, true, true, false, false, true, true]);
        assert_eq!(out[6..], [1.0, 2.0]);
    }
}
