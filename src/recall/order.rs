//! The order of hits: the highest score first, of equals the earlier turn.
//!
//! What depends on no comparison of each with each: hits are thrown into as many buckets as there are hits, by their
//! score, and only those of one bucket are compared. A whole list of some thousand turns is ranked for every request,
//! so that this is most of what its fusion costs.

use std::cmp::Ordering;

use super::lists::Hit;

/// Hits that are sorted as they are.
const FEW: usize = 64;

/// The best `depth` of the hits that may be kept, best first. They come in the order of their turns, and no score that is
/// not finite may be kept.
pub(super) fn best_first(hits: impl Iterator<Item = Hit>, keep: impl Fn(&Hit) -> bool, depth: usize) -> Vec<Hit> {
    if hits.size_hint().1.is_none_or(|most| depth < most) {
        return best(hits, keep, depth);
    }
    let mut hits: Vec<Hit> = hits.filter(keep).collect();
    debug_assert!(hits.is_sorted_by_key(|hit| hit.turn) && hits.iter().all(|hit| hit.score.is_finite()));
    if hits.len() > FEW
        && let Some(sorted) = by_buckets(&hits)
    {
        return sorted;
    }
    hits.sort_unstable_by(order);
    hits
}

fn order(a: &Hit, b: &Hit) -> Ordering {
    // Of finite scores only 0 and -0 are equal and not the same: they are a tie.
    b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal).then(a.turn.cmp(&b.turn))
}

/// The best `depth` hits, chosen as whole numbers, which are compared in a step.
fn best(hits: impl Iterator<Item = Hit>, keep: impl Fn(&Hit) -> bool, depth: usize) -> Vec<Hit> {
    if depth == 0 {
        return Vec::new();
    }
    // Cut back to `depth` whenever four times as many have come; `floor` is then the worst of them.
    let most = depth.saturating_mul(4);
    let mut best: Vec<u128> = Vec::new();
    let mut floor = f64::NEG_INFINITY;
    for hit in hits {
        // Of equals the earlier turn is better, and that one came before. Most hits are turned away here.
        if hit.score > floor && keep(&hit) {
            best.push(key(hit));
            if best.len() == most {
                floor = of_key(*best.select_nth_unstable(depth - 1).1).score;
                best.truncate(depth);
            }
        }
    }
    if best.len() > depth {
        best.select_nth_unstable(depth - 1);
        best.truncate(depth);
    }
    best.sort_unstable();
    best.into_iter().map(of_key).collect()
}

/// A number that is the smaller the better the hit: its score, turned about, then its turn.
fn key(hit: Hit) -> u128 {
    // Adding 0 makes -0 the same as 0. Bits of positive numbers rise with them, those of negative ones fall.
    let bits = (hit.score + 0.0).to_bits();
    let rising = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    u128::from(!rising) << 64 | hit.turn as u128
}

fn of_key(key: u128) -> Hit {
    let rising = !((key >> 64) as u64);
    let bits = if rising >> 63 == 1 { rising & !(1 << 63) } else { !rising };
    Hit { turn: key as u64 as usize, score: f64::from_bits(bits) }
}

/// None where the scores cannot be told apart by their distance.
fn by_buckets(hits: &[Hit]) -> Option<Vec<Hit>> {
    let (low, high) = hits.iter().fold((f64::MAX, f64::MIN), |(l, h), hit| (l.min(hit.score), h.max(hit.score)));
    let buckets = hits.len();
    let scale = (buckets - 1) as f64 / (high - low);
    if !scale.is_normal() {
        return None;
    }
    // A higher score is never in a later bucket: subtraction and multiplication round in one direction.
    let bucket = |hit: &Hit| (((high - hit.score) * scale) as u32).min(buckets as u32 - 1);
    let bucket_of: Vec<u32> = hits.iter().map(bucket).collect();
    let mut ends = vec![0u32; buckets];
    bucket_of.iter().for_each(|&bucket| ends[bucket as usize] += 1);
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    let mut sorted = vec![Hit::default(); hits.len()];
    for (hit, &bucket) in hits.iter().zip(&bucket_of) {
        let at = &mut ends[bucket as usize];
        sorted[*at as usize] = *hit;
        *at += 1;
    }
    let mut start = 0;
    for end in ends {
        let end = end as usize;
        if end > start + 1 {
            sorted[start..end].sort_unstable_by(order);
        }
        start = end;
    }
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hits(scores: &[f64]) -> Vec<Hit> {
        scores.iter().enumerate().map(|(turn, &score)| Hit { turn, score }).collect()
    }

    /// A stable sort keeps the earlier turn first.
    fn by_definition(scores: &[f64], depth: usize) -> Vec<Hit> {
        let mut all = hits(scores);
        all.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap());
        all.truncate(depth);
        all
    }

    #[test]
    fn scores_without_a_range_are_sorted_too() {
        let tiny = f64::MIN_POSITIVE / 4.0;
        for scores in [vec![1.5; 200], [0.0, -0.0].repeat(100), [0.0, tiny, 2.0 * tiny].repeat(70)] {
            assert_eq!(best_first(hits(&scores).into_iter(), |_| true, usize::MAX), by_definition(&scores, usize::MAX));
        }
        let far: Vec<f64> = [f64::MAX, f64::MIN, 0.0, 1.0].repeat(50);
        assert_eq!(best_first(hits(&far).into_iter(), |_| true, usize::MAX), by_definition(&far, usize::MAX));
        assert!(best_first(std::iter::empty(), |_| true, 5).is_empty());
    }

    proptest! {
        #[test]
        fn any_scores_are_sorted(
            scores in prop::collection::vec(
                prop_oneof![-1.0..1.0f64, (0..4u8).prop_map(f64::from), 0.0..1e-300f64, (0..3u8).prop_map(|i| 0.1 + f64::from(i) * 1e-17)],
                0..400,
            ),
            depth in prop_oneof![0..20usize, Just(128), Just(usize::MAX)],
        ) {
            prop_assert_eq!(best_first(hits(&scores).into_iter(), |_| true, depth), by_definition(&scores, depth));
        }
    }
}
