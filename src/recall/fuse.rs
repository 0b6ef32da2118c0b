//! Reciprocal rank fusion: `sum over the lists of weight / (rrf_k + rank)`, rank from 1, added in the lists' order.

use std::collections::HashSet;

use super::lists::Hit;
use super::store::Store;

/// A list to be fused, best first.
#[derive(Debug, Clone, Copy)]
pub struct Ranked<'a> {
    pub weight: f64,
    pub hits: &'a [Hit],
}

/// A turn with its fused score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fused {
    pub turn: usize,
    pub score: f64,
}

/// Every turn that is in a list, the highest score first, of equals the earlier turn. `turn_count` is the store's.
pub fn fuse(lists: &[Ranked<'_>], rrf_k: f64, turn_count: usize) -> Vec<Fused> {
    let mut scores = vec![0.0; turn_count];
    for list in lists {
        for (i, hit) in list.hits.iter().enumerate() {
            scores[hit.turn] += list.weight / (rrf_k + (i + 1) as f64);
        }
    }
    // Weights are above 0: a score of 0 is that of a turn in no list.
    let all = scores.into_iter().enumerate().map(|(turn, score)| Fused { turn, score });
    let mut fused: Vec<Fused> = all.filter(|f| f.score > 0.0).collect();
    fused.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.turn.cmp(&b.turn)));
    fused
}

/// Of turns with equal content, the best placed keeps its slot. A turn without a hash is like no other.
pub fn deduplicate(fused: &mut Vec<Fused>, store: &Store) {
    let mut seen = HashSet::new();
    fused.retain(|f| store.turn(f.turn).content_hash.is_none_or(|hash| seen.insert(hash)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(turns: &[usize]) -> Vec<Hit> {
        turns.iter().map(|&turn| Hit { turn, score: 1.0 }).collect()
    }

    #[test]
    fn sums_of_reciprocals_by_hand() {
        let (a, b) = (list(&[2, 0]), list(&[1, 2]));
        let lists = [Ranked { weight: 1.0, hits: &a }, Ranked { weight: 2.0, hits: &b }];
        // k 1: turn 2 has 1/2 + 2/3, turn 1 has 2/2, turn 0 has 1/3, turn 3 is in no list.
        let fused = fuse(&lists, 1.0, 4);
        let expected = [(2, 1.0 / 2.0 + 2.0 / 3.0), (1, 1.0), (0, 1.0 / 3.0)];
        assert_eq!(fused.iter().map(|f| (f.turn, f.score)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn equal_sums_come_in_the_order_of_the_turns() {
        let (a, b) = (list(&[9, 10]), list(&[10, 9]));
        let lists = [Ranked { weight: 1.0, hits: &a }, Ranked { weight: 1.0, hits: &b }];
        let turns: Vec<_> = fuse(&lists, 60.0, 11).iter().map(|f| f.turn).collect();
        assert_eq!(turns, [9, 10]);
    }

    #[test]
    fn nothing_to_fuse_is_nothing() {
        assert!(fuse(&[], 60.0, 0).is_empty());
        assert!(fuse(&[Ranked { weight: 1.0, hits: &[] }], 60.0, 5).is_empty());
    }
}
