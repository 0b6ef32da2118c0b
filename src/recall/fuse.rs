//! Reciprocal rank fusion: `sum over the lists of weight / (rrf_k + rank)`, rank from 1, added in the lists' order.

use datafusion::common::HashSet;

use super::lists::Hit;
use super::store::Store;

/// A turn with its fused score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fused {
    pub turn: usize,
    pub score: f64,
}

/// Fuses the lists of one request after another.
pub struct Fusion {
    rrf_k: f64,
    lists: Vec<ListState>,
    /// Working space: a score for each turn of the store.
    scores: Vec<f64>,
}

struct ListState {
    weight: f64,
    /// What a turn gains by its rank, as far as was needed.
    gains: Vec<f64>,
    /// Of the last request: each turn's rank, from 1; 0: not in the list.
    ranks: Vec<u32>,
}

impl Fusion {
    /// For lists of these weights, which are above 0, over a store of `turn_count` turns.
    pub fn new(weights: impl IntoIterator<Item = f64>, rrf_k: f64, turn_count: usize) -> Self {
        let list = |weight| ListState { weight, gains: Vec::new(), ranks: vec![0; turn_count] };
        Fusion { rrf_k, lists: weights.into_iter().map(list).collect(), scores: vec![0.0; turn_count] }
    }

    /// The best of all turns that are in a list, the highest score first, of equals the earlier turn: at least `wanted`
    /// of them, where there are so many. A list's hits come best first.
    pub fn best(&mut self, hits: &[Vec<Hit>], wanted: usize) -> Vec<Fused> {
        self.scores.fill(0.0);
        // What the wanted-th of any list gains by that list alone, at least so many turns reach.
        let mut floor = f64::MIN_POSITIVE;
        for (list, hits) in self.lists.iter_mut().zip(hits) {
            let known = list.gains.len();
            list.gains.extend((known..hits.len()).map(|i| list.weight / (self.rrf_k + (i + 1) as f64)));
            list.ranks.fill(0);
            for ((hit, gain), rank) in hits.iter().zip(&list.gains).zip(1..) {
                self.scores[hit.turn] += gain;
                list.ranks[hit.turn] = rank;
            }
            if (1..=hits.len()).contains(&wanted) {
                floor = floor.max(list.gains[wanted - 1]);
            }
        }
        let all = self.scores.iter().enumerate().map(|(turn, &score)| Fused { turn, score });
        let mut fused: Vec<Fused> = all.filter(|f| f.score >= floor).collect();
        fused.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.turn.cmp(&b.turn)));
        fused
    }

    /// The turn's rank in a list of the last request, from 1; 0: it is not in the list.
    pub fn rank(&self, list: usize, turn: usize) -> usize {
        self.lists[list].ranks[turn] as usize
    }
}

/// Of turns with equal content, the best placed keeps its slot. A turn without a hash is like no other.
pub fn deduplicate(fused: &mut Vec<Fused>, store: &Store) {
    let mut seen = HashSet::with_capacity(fused.len());
    fused.retain(|f| store.content_hash(f.turn).is_none_or(|hash| seen.insert(hash)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(turns: &[usize]) -> Vec<Hit> {
        turns.iter().map(|&turn| Hit { turn, score: 1.0 }).collect()
    }

    fn fuse(weights: &[f64], rrf_k: f64, lists: &[Vec<Hit>], turn_count: usize, wanted: usize) -> Vec<Fused> {
        Fusion::new(weights.iter().copied(), rrf_k, turn_count).best(lists, wanted)
    }

    #[test]
    fn sums_of_reciprocals_by_hand() {
        // k 1: turn 2 has 1/2 + 2/3, turn 1 has 2/2, turn 0 has 1/3, turn 3 is in no list.
        let lists = [list(&[2, 0]), list(&[1, 2])];
        let fused = fuse(&[1.0, 2.0], 1.0, &lists, 4, 4);
        let expected = [(2, 1.0 / 2.0 + 2.0 / 3.0), (1, 1.0), (0, 1.0 / 3.0)];
        assert_eq!(fused.iter().map(|f| (f.turn, f.score)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn equal_sums_come_in_the_order_of_the_turns() {
        let turns = fuse(&[1.0, 1.0], 60.0, &[list(&[9, 10]), list(&[10, 9])], 11, 2);
        assert_eq!(turns.iter().map(|f| f.turn).collect::<Vec<_>>(), [9, 10]);
    }

    #[test]
    fn nothing_to_fuse_is_nothing() {
        assert!(fuse(&[], 60.0, &[], 0, 9).is_empty());
        assert!(fuse(&[1.0], 60.0, &[vec![]], 5, 9).is_empty());
    }

    #[test]
    fn ranks_are_those_of_the_last_request() {
        let mut fusion = Fusion::new([1.0, 1.0], 60.0, 3);
        fusion.best(&[list(&[0, 1, 2]), list(&[2])], 3);
        fusion.best(&[list(&[1]), list(&[2, 1])], 3);
        let ranks: Vec<_> = (0..3).map(|turn| (fusion.rank(0, turn), fusion.rank(1, turn))).collect();
        assert_eq!(ranks, [(0, 0), (1, 2), (0, 1)]);
    }

    proptest! {
        #[test]
        fn the_best_are_the_first_of_all(
            first in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
            second in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
            (n, m, wanted) in (0..40usize, 0..40usize, 0..50usize),
            weights in prop::array::uniform2(0.1..3.0f64),
        ) {
            let lists = [list(&first[..n]), list(&second[..m])];
            // The definition: a score for each turn, then a stable sort.
            let gain = |weight: f64, list: &[usize], turn| {
                list.iter().position(|&t| t == turn).map_or(0.0, |i| weight / (60.0 + (i + 1) as f64))
            };
            let mut all: Vec<(usize, f64)> = (0..40)
                .map(|t| (t, gain(weights[0], &first[..n], t) + gain(weights[1], &second[..m], t)))
                .filter(|f| f.1 > 0.0)
                .collect();
            all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
            let best: Vec<_> = fuse(&weights, 60.0, &lists, 40, wanted).iter().map(|f| (f.turn, f.score)).collect();
            prop_assert!(best.len() >= wanted.min(all.len()));
            prop_assert_eq!(&best[..], &all[..best.len()]);
        }
    }
}
