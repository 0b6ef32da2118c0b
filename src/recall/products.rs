//! Dot products of many rows with many others, in f32, on one core.
//!
//! A product's bits depend on its two rows alone: lane `i` of eight is one chain of fused multiply-adds over the values
//! at `i`, `i + 8`, ..., and then neighbours are added: `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))`. So it is the same wherever its rows stand, beside whatever
//! others, on any machine. Both sides are read as they lie: nothing is packed, which would cost more than it gives for
//! the few requests of one store.

/// Multiply-adds that go on side by side. Part of the result's definition.
const LANES: usize = 8;
/// Items and queries of a tile: 12 sums in registers, 12 multiply-adds for 7 loads.
const ITEMS: usize = 4;
const QUERIES: usize = 3;

/// Rows of one length, end to end, each filled up with zeros to whole lanes (which adds nothing to a sum).
#[derive(Debug, Default)]
pub(super) struct Rows {
    stride: usize,
    values: Vec<f32>,
}

impl Rows {
    pub fn new(dim: usize) -> Self {
        Rows { stride: dim.next_multiple_of(LANES), values: Vec::new() }
    }

    /// Adds the row that `append` appends: `dim` values.
    pub fn push(&mut self, append: impl FnOnce(&mut Vec<f32>)) {
        let end = self.values.len() + self.stride;
        append(&mut self.values);
        debug_assert!(self.values.len() <= end && end - self.values.len() < LANES);
        self.values.resize(end, 0.0);
    }

    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.stride).unwrap_or(0)
    }

    pub fn clear(&mut self) {
        self.values.clear();
    }
}

/// For each query, its products with all items: `out[query * items + item]`.
pub(super) fn products(queries: &Rows, items: &Rows, out: &mut Vec<f32>) {
    assert_eq!(queries.stride, items.stride, "rows of different lengths");
    out.clear();
    out.resize(queries.len() * items.len(), 0.0);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the instructions, and `out` has a place for every pair.
        unsafe { avx2::products(&queries.values, &items.values, queries.stride, out) };
        return;
    }
    portable(&queries.values, &items.values, queries.stride, out);
}

/// The definition.
fn portable(queries: &[f32], items: &[f32], stride: usize, out: &mut [f32]) {
    let pairs = queries.chunks_exact(stride).flat_map(|q| items.chunks_exact(stride).map(move |i| (q, i)));
    for ((query, item), out) in pairs.zip(out) {
        let mut lanes = [0f32; LANES];
        for (a, b) in item.as_chunks::<LANES>().0.iter().zip(query.as_chunks::<LANES>().0) {
            lanes = std::array::from_fn(|i| a[i].mul_add(b[i], lanes[i]));
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        *out = ((a + b) + (c + d)) + ((e + f) + (g + h));
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{ITEMS, LANES, QUERIES};

    /// # Safety
    /// AVX2 and FMA are there; `out` has a place for each pair of rows, and `stride` is in whole lanes.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn products(queries: &[f32], items: &[f32], stride: usize, out: &mut [f32]) {
        let (n, m) = (items.len() / stride, queries.len() / stride);
        let whole = n - n % ITEMS;
        // A tile's items stay in the first-level cache while all queries pass.
        for i in (0..whole).step_by(ITEMS) {
            // SAFETY: rows `i` to `i + ITEMS` are there.
            unsafe { against::<ITEMS>(queries, items.as_ptr().add(i * stride), stride, m, out.as_mut_ptr().add(i), n) };
        }
        for i in whole..n {
            // SAFETY: row `i` is there.
            unsafe { against::<1>(queries, items.as_ptr().add(i * stride), stride, m, out.as_mut_ptr().add(i), n) };
        }
    }

    /// I items with all queries.
    ///
    /// # Safety
    /// As above; `items` has I rows, `out` I values for each query, `out_stride` apart.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn against<const I: usize>(
        queries: &[f32],
        items: *const f32,
        stride: usize,
        count: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        let whole = count - count % QUERIES;
        for q in (0..whole).step_by(QUERIES) {
            // SAFETY: rows `q` to `q + QUERIES` are there.
            unsafe {
                let (rows, out) = (queries.as_ptr().add(q * stride), out.add(q * out_stride));
                tile::<I, QUERIES>(items, rows, stride, out, out_stride);
            }
        }
        for q in whole..count {
            // SAFETY: row `q` is there.
            unsafe {
                tile::<I, 1>(items, queries.as_ptr().add(q * stride), stride, out.add(q * out_stride), out_stride)
            };
        }
    }

    /// # Safety
    /// As above; `items` has I rows, 1 or [`ITEMS`], and `queries` Q.
    #[target_feature(enable = "avx2,fma")]
    #[allow(clippy::needless_range_loop)]
    unsafe fn tile<const I: usize, const Q: usize>(
        items: *const f32,
        queries: *const f32,
        stride: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            // By index: an iterator is not inlined into a function of other instructions.
            let mut sums = [[_mm256_setzero_ps(); Q]; I];
            let mut k = 0;
            while k < stride {
                let mut right = [_mm256_setzero_ps(); Q];
                for q in 0..Q {
                    right[q] = _mm256_loadu_ps(queries.add(q * stride + k));
                }
                for i in 0..I {
                    let left = _mm256_loadu_ps(items.add(i * stride + k));
                    for q in 0..Q {
                        sums[i][q] = _mm256_fmadd_ps(left, right[q], sums[i][q]);
                    }
                }
                k += LANES;
            }
            for q in 0..Q {
                let out = out.add(q * out_stride);
                let sum = |i: usize| if i < I { sums[i][q] } else { _mm256_setzero_ps() };
                // Neighbours of four items at once.
                let pairs = (_mm256_hadd_ps(sum(0), sum(1)), _mm256_hadd_ps(sum(2), sum(3)));
                let fours = _mm256_hadd_ps(pairs.0, pairs.1);
                let totals = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
                match I {
                    ITEMS => _mm_storeu_ps(out, totals),
                    _ => *out = _mm_cvtss_f32(totals),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(dim: usize, count: usize, value: impl Fn(usize) -> f32) -> Rows {
        let mut rows = Rows::new(dim);
        for row in 0..count {
            rows.push(|values| values.extend((0..dim).map(|i| value(row * dim + i))));
        }
        rows
    }

    fn all(queries: &Rows, items: &Rows) -> Vec<f32> {
        let mut out = vec![f32::NAN; 3];
        products(queries, items, &mut out);
        out
    }

    #[test]
    fn products_of_whole_numbers_are_exact_at_every_size() {
        // Sums are far below 2^24, so that no order of additions rounds.
        let value = |i: usize| ((i * 7919 + i / 13) % 17) as f32 - 8.0;
        for (dim, queries, items) in [(1, 1, 1), (8, 3, 4), (7, 2, 5), (37, 4, 9), (384, 5, 6), (1030, 7, 3), (5, 0, 4)]
        {
            let (q, i) = (rows(dim, queries, |n| value(n + 5)), rows(dim, items, value));
            let expected = (0..queries).flat_map(|a| (0..items).map(move |b| (a, b))).map(|(a, b)| {
                (0..dim).map(|k| value(a * dim + k + 5) as i64 * value(b * dim + k) as i64).sum::<i64>() as f32
            });
            assert_eq!(all(&q, &i), expected.collect::<Vec<_>>(), "{dim} {queries} {items}");
        }
    }

    #[test]
    fn a_product_is_the_same_in_every_tile_and_by_the_definition() {
        let value = |i: usize| ((i * 7919 + i / 13) % 1009) as f32 * 0.00137 - 0.6;
        for dim in [1, 37, 384, 1024] {
            let (queries, items) = (rows(dim, 11, |n| value(n + 77)), rows(dim, 23, value));
            let together = all(&queries, &items);
            let mut defined = vec![0.0; together.len()];
            portable(&queries.values, &items.values, queries.stride, &mut defined);
            assert_eq!(together, defined, "{dim}");
            for (q, products) in together.chunks(23).enumerate() {
                let alone = rows(dim, 1, |n| value(q * dim + n + 77));
                for (i, product) in products.iter().enumerate() {
                    assert_eq!(all(&alone, &rows(dim, 1, |n| value(i * dim + n))), [*product], "{dim} {q} {i}");
                }
            }
        }
    }
}
