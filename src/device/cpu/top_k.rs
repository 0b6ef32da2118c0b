//! The k largest dot products of each query with the items of its group.

use rayon::prelude::*;

use super::super::{Groups, Matrix, TopK};
use super::gemm::{Packed, Rows, multiply};
use crate::error::Result;

/// Items that are packed at once.
const ITEM_BLOCK: usize = 1024;
/// Queries that meet a packed block at once.
const QUERY_BLOCK: usize = 96;

/// A dot product is one chain of multiply-adds over the vector, so it does not depend on the other rows. A product that is
/// not a number is no hit.
pub fn top_k(queries: &Matrix, items: &Matrix, groups: &Groups, k: usize) -> Result<TopK> {
    groups.check(queries, items)?;
    let pairs: Vec<_> = groups.queries.iter().cloned().zip(groups.items.iter().cloned()).collect();
    let hits: Vec<Vec<Vec<(u32, f32)>>> =
        pairs.into_par_iter().map(|(q, i)| group(rows(queries, q), rows(items, i), queries.columns, k)).collect();
    Ok(TopK { hits: hits.into_iter().flatten().collect() })
}

fn rows(matrix: &Matrix, range: std::ops::Range<usize>) -> &[f32] {
    &matrix.values[range.start * matrix.columns..range.end * matrix.columns]
}

/// For each query its hits, best first.
fn group(queries: &[f32], items: &[f32], dim: usize, k: usize) -> Vec<Vec<(u32, f32)>> {
    if dim == 0 {
        return Vec::new();
    }
    let mut hits = vec![Vec::new(); queries.len() / dim];
    let mut packed = Packed::default();
    let mut products = Vec::new();
    for (b, block) in items.chunks(ITEM_BLOCK * dim).enumerate() {
        let count = block.len() / dim;
        packed.pack_rows(block, dim, count, dim);
        for (queries, hits) in queries.chunks(QUERY_BLOCK * dim).zip(hits.chunks_mut(QUERY_BLOCK)) {
            let rows = hits.len();
            products.resize(rows * count, 0.0);
            multiply(Rows { values: queries, stride: dim, count: rows }, &packed, &mut products, count);
            for (row, hits) in products.chunks_exact(count).zip(hits) {
                keep(hits, row, b * ITEM_BLOCK, k);
            }
        }
    }
    hits
}

/// Merges a block's products into the k best so far.
fn keep(hits: &mut Vec<(u32, f32)>, products: &[f32], first: usize, k: usize) {
    // Adding 0 makes -0 the same as 0.
    let fresh = products.iter().enumerate().filter(|(_, x)| !x.is_nan()).map(|(i, x)| ((first + i) as u32, x + 0.0));
    // A later item must be strictly better than the worst of k hits.
    let floor = if hits.len() == k { hits.last().map(|h| h.1) } else { None };
    hits.extend(fresh.filter(|(_, x)| floor.is_none_or(|f| *x > f)));
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if hits.len() > k && k > 0 {
        hits.select_nth_unstable_by(k - 1, order);
    }
    hits.truncate(k);
    hits.sort_unstable_by(order);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    fn matrix(columns: usize, values: Vec<f32>) -> Matrix {
        Matrix { rows: values.len() / columns, columns, values }
    }

    /// One group of all queries and all items.
    fn one(queries: usize, items: usize) -> Groups {
        Groups { queries: std::iter::once(0..queries).collect(), items: std::iter::once(0..items).collect() }
    }

    #[test]
    fn hits_are_the_largest_products_and_ties_go_to_the_lower_index() {
        // Products with (1, 0) are the first coordinates.
        let items = matrix(2, vec![1.0, 9.0, 3.0, 0.0, 3.0, 5.0, 2.0, 2.0, -1.0, 0.0]);
        let queries = matrix(2, vec![1.0, 0.0, 0.0, 1.0]);
        let groups = one(2, 5);
        let top = top_k(&queries, &items, &groups, 3).unwrap();
        assert_eq!(top.hits[0], [(1, 3.0), (2, 3.0), (3, 2.0)]);
        assert_eq!(top.hits[1], [(0, 9.0), (2, 5.0), (3, 2.0)]);
    }

    #[test]
    fn groups_see_their_own_items_and_count_from_their_first() {
        let items = matrix(1, (0..10).map(|i| i as f32).collect());
        let queries = matrix(1, vec![1.0, -1.0, 1.0]);
        let groups = Groups { queries: vec![0..1, 1..3, 3..3], items: vec![0..4, 4..10, 0..10] };
        let top = top_k(&queries, &items, &groups, 2).unwrap();
        assert_eq!(top.hits, [vec![(3, 3.0), (2, 2.0)], vec![(0, -4.0), (1, -5.0)], vec![(5, 9.0), (4, 8.0)]]);
    }

    #[test]
    fn it_agrees_with_a_full_sort_over_many_blocks() {
        let dim = 5;
        // Whole numbers: products are exact, and many are equal.
        let number = |i: usize| ((i * 7919 + i / 13) % 7) as f32 - 3.0;
        let items = matrix(dim, (0..2500 * dim).map(number).collect());
        let queries = matrix(dim, (0..130 * dim).map(|i| number(i * 3 + 1)).collect());
        let groups = one(130, 2500);
        for k in [0, 1, 128, 2500, 9999] {
            let top = top_k(&queries, &items, &groups, k).unwrap();
            for (q, hits) in top.hits.iter().enumerate() {
                let dot =
                    |i: usize| (0..dim).map(|d| queries.values[q * dim + d] * items.values[i * dim + d]).sum::<f32>();
                let mut all: Vec<(u32, f32)> = (0..2500).map(|i| (i as u32, dot(i))).collect();
                all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap()); // a stable sort keeps the lower index first
                all.truncate(k);
                assert_eq!(*hits, all, "k {k}, query {q}");
            }
        }
    }

    #[test]
    fn a_product_that_is_not_a_number_is_no_hit() {
        let items = matrix(1, vec![1.0, f32::NAN, 2.0, 0.0, -0.0]);
        let groups = one(1, 5);
        let top = top_k(&matrix(1, vec![1.0]), &items, &groups, 5).unwrap();
        assert_eq!(top.hits[0], [(2, 2.0), (0, 1.0), (3, 0.0), (4, 0.0)]);
    }

    #[test]
    fn vectors_of_two_models_are_refused() {
        let groups = one(1, 1);
        let e = top_k(&matrix(2, vec![0.0; 2]), &matrix(3, vec![0.0; 3]), &groups, 1).unwrap_err();
        assert_eq!(e.class, Class::Data);
        let e = top_k(&matrix(2, vec![0.0; 2]), &matrix(2, vec![0.0; 2]), &one(1, 2), 1);
        assert_eq!(e.unwrap_err().class, Class::Internal);
    }
}
