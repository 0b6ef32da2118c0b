//! Adaptive-k: cut a ranking where its scores fall the most.

use crate::system::GapCut;

/// How many items of a ranking to keep, the best first.
///
/// The scores are sorted down and searched for the most negative difference between neighbours, outside a head and a
/// tail that are fractions of the differences (rounded down; a tail of 0 leaves none out). All up to that gap are
/// kept, and `extra` more. Where no difference is left to search, as with fewer than two scores, all are kept.
pub fn keep(scores: &[f64], cut: GapCut) -> usize {
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let gaps = sorted.len().saturating_sub(1);
    let part = |fraction: f64| (fraction * gaps as f64) as usize;
    let searched = part(cut.head)..gaps.saturating_sub(part(cut.tail));
    let fall = |i: &usize| sorted[i + 1] - sorted[*i];
    // Of equal gaps, the first.
    match searched.min_by(|a, b| fall(a).total_cmp(&fall(b))) {
        Some(gap) => (gap + 1 + cut.extra).min(sorted.len()),
        None => sorted.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(head: f64, tail: f64, extra: usize) -> GapCut {
        GapCut { head, tail, extra }
    }

    #[test]
    fn cuts_after_the_largest_gap_and_keeps_some_more() {
        // Gaps: .1 .1 .4 .1 .1: the largest after the third score.
        let scores = [0.9, 0.8, 0.7, 0.3, 0.2, 0.1];
        assert_eq!(keep(&scores, cut(0.0, 0.1, 0)), 3);
        assert_eq!(keep(&scores, cut(0.0, 0.1, 2)), 5);
        assert_eq!(keep(&scores, cut(0.0, 0.1, 5)), 6);
        assert_eq!(keep(&[0.1, 0.3, 0.9, 0.2, 0.7, 0.8], cut(0.0, 0.1, 0)), 3, "in any order");
    }

    #[test]
    fn head_and_tail_are_not_searched() {
        // 11 scores, 10 gaps of 1, but for the first (6) and the last (9).
        let scores = [25.0, 19.0, 18.0, 17.0, 16.0, 15.0, 14.0, 13.0, 12.0, 11.0, 2.0];
        assert_eq!(keep(&scores, cut(0.0, 0.0, 0)), 10, "a tail of 0 items leaves none out");
        assert_eq!(keep(&scores, cut(0.0, 0.1, 0)), 1, "one gap of ten is the tail");
        assert_eq!(keep(&scores, cut(0.1, 0.1, 0)), 2, "of the equal gaps that are left, the first");
    }

    #[test]
    fn short_rankings_are_kept() {
        for n in 0..2 {
            assert_eq!(keep(&vec![0.5; n], cut(0.0, 0.1, 0)), n);
        }
        assert_eq!(keep(&[0.9, 0.1], cut(0.0, 0.1, 0)), 1);
        assert_eq!(keep(&[0.9, 0.1], GapCut::default()), 2);
        assert_eq!(keep(&[0.9, 0.5, 0.1], cut(0.5, 0.5, 0)), 3, "nothing is left to search");
        assert_eq!(keep(&[0.9, 0.5, 0.1], cut(0.9, 0.9, 0)), 3);
    }
}
