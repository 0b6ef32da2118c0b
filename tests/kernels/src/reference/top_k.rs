//! The k items of a query's group with the largest dot products.

/// The index where a group has fewer than k items.
pub const MISSING: u32 = u32::MAX;

/// Index within the group and dot product, best first; ties to the lower index, what is not a number last.
pub fn top_k(query: &[f32], items: &[f32], k: usize) -> Vec<(u32, f64)> {
    let dot = |item: &[f32]| query.iter().zip(item).map(|(q, i)| f64::from(*q) * f64::from(*i)).sum::<f64>();
    let mut hits: Vec<(u32, f64)> = (0..).zip(items.chunks(query.len()).map(dot)).collect();
    hits.sort_by(|(_, a), (_, b)| match (a.is_nan(), b.is_nan()) {
        (false, false) => b.partial_cmp(a).unwrap(),
        (a, b) => a.cmp(&b),
    });
    hits.truncate(k);
    hits.resize(k, (MISSING, f64::NEG_INFINITY));
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let items = [1.0, f32::NAN, 3.0, 1.0, f32::NEG_INFINITY];
        let found = top_k(&[2.0], &items, 6);
        assert_eq!(found.iter().map(|hit| hit.0).collect::<Vec<_>>(), [2, 0, 3, 4, 1, MISSING]);
        assert_eq!(found[..2], [(2, 6.0), (0, 2.0)]);
        assert_eq!(top_k(&[2.0], &items, 2), [(2, 6.0), (0, 2.0)]);
    }
}
