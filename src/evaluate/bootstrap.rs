//! Percentile bootstrap over questions, by counts.
//!
//! A question has one of a few outcomes, and every figure depends only on how many questions have which outcome. Drawing
//! n questions with replacement is then drawing the counts from a multinomial distribution, exactly, and costs the same
//! for a hundred questions and nearly the same for a million.

use serde::Serialize;

use super::report::rounded;

/// How a bootstrap is drawn. The same counts, draws and seed give the same interval, on any number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bootstrap {
    pub draws: usize,
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Bootstrap { draws: 10_000, seed: 20_240_601 }
    }
}

/// A figure with its 95% percentile interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    #[serde(serialize_with = "rounded")]
    pub value: f64,
    /// 2.5% of the draws are below.
    #[serde(serialize_with = "rounded")]
    pub low: f64,
    /// 2.5% of the draws are above.
    #[serde(serialize_with = "rounded")]
    pub high: f64,
}

impl Bootstrap {
    /// Figures with intervals. `counts` says how many questions have each outcome; `figures` computes the figures from
    /// such counts. A figure that the counts do not define has no interval; draws that do not define it are left out.
    pub fn intervals<const N: usize>(
        &self,
        counts: &[u64],
        figures: impl Fn(&[u64]) -> [Option<f64>; N],
    ) -> [Option<Interval>; N] {
        let mut drawn: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(self.draws));
        let mut source = Multinomial::new(counts, self.seed);
        let mut resampled = vec![0; counts.len()];
        for _ in 0..self.draws {
            source.draw(&mut resampled);
            for (values, figure) in drawn.iter_mut().zip(figures(&resampled)) {
                values.extend(figure);
            }
        }
        let values = figures(counts);
        std::array::from_fn(|i| {
            let value = values[i]?;
            drawn[i].sort_by(f64::total_cmp);
            Some(Interval {
                value,
                low: quantile(&drawn[i], 0.025).unwrap_or(value),
                high: quantile(&drawn[i], 0.975).unwrap_or(value),
            })
        })
    }
}

/// The quantile of sorted values, linear between neighbours.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[(place.ceil() as usize).min(last)]);
    Some(below + (above - below) * place.fract())
}

/// Draws counts with the sum and the proportions of given ones.
struct Multinomial<'a> {
    counts: &'a [u64],
    /// ln(k!) for k from 0 to the sum.
    ln_factorial: Vec<f64>,
    random: SplitMix,
}

impl<'a> Multinomial<'a> {
    fn new(counts: &'a [u64], seed: u64) -> Self {
        let total = counts.iter().sum::<u64>() as usize;
        let mut ln_factorial = Vec::with_capacity(total + 1);
        ln_factorial.push(0.0);
        for k in 1..=total {
            ln_factorial.push(ln_factorial[k - 1] + (k as f64).ln());
        }
        Multinomial { counts, ln_factorial, random: SplitMix(seed) }
    }

    /// One outcome after another: each is binomial among those questions that the outcomes before have left.
    fn draw(&mut self, into: &mut [u64]) {
        let mut weight: u64 = self.counts.iter().sum();
        let mut left = weight;
        for (count, drawn) in self.counts.iter().zip(into) {
            *drawn = if *count == weight { left } else { self.binomial(left, *count as f64 / weight as f64) };
            left -= *drawn;
            weight -= count;
        }
    }

    /// A binomial count by inversion: takes the values from the mode outwards until their probabilities have used up a
    /// uniform number. About sqrt(n) steps.
    fn binomial(&mut self, n: u64, p: f64) -> u64 {
        if n == 0 || p <= 0.0 {
            return 0;
        }
        let mode = (((n + 1) as f64 * p) as u64).min(n);
        let ln = &self.ln_factorial;
        let ways = ln[n as usize] - ln[mode as usize] - ln[(n - mode) as usize];
        let at_mode = (ways + mode as f64 * p.ln() + (n - mode) as f64 * (1.0 - p).ln()).exp();
        let mut rest = self.random.unit() - at_mode;
        let odds = p / (1.0 - p);
        let (mut up, mut at_up, mut down, mut at_down) = (mode, at_mode, mode, at_mode);
        while rest >= 0.0 && (up < n || down > 0) {
            if up < n {
                at_up *= odds * (n - up) as f64 / (up + 1) as f64;
                up += 1;
                rest -= at_up;
                if rest < 0.0 {
                    return up;
                }
            }
            if down > 0 {
                at_down *= down as f64 / (odds * (n - down + 1) as f64);
                down -= 1;
                rest -= at_down;
                if rest < 0.0 {
                    return down;
                }
            }
        }
        // At the mode, or probabilities that add up to a hair below 1.
        mode
    }
}

/// The SplitMix64 generator (Steele, Lea and Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1, in steps of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(c: &[u64]) -> [Option<f64>; 1] {
        let n = c[0] + c[1];
        [(n > 0).then(|| c[0] as f64 / n as f64)]
    }

    #[test]
    fn splitmix_gives_the_published_numbers() {
        // From the reference implementation with seed 1234567.
        let mut random = SplitMix(1234567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [6457827717110365317, 3203168211198807973, 9817491932198370423]
        );
    }

    #[test]
    fn interval_of_a_share_is_near_the_normal_approximation() {
        for (hits, n) in [(320, 400), (200, 400), (40, 400)] {
            let [interval] = Bootstrap::default().intervals(&[hits, n - hits], share);
            let interval = interval.unwrap();
            let p = hits as f64 / n as f64;
            let half = 1.96 * (p * (1.0 - p) / n as f64).sqrt();
            assert_eq!(interval.value, p);
            assert!((interval.low - (p - half)).abs() < 0.01, "{interval:?}");
            assert!((interval.high - (p + half)).abs() < 0.01, "{interval:?}");
        }
    }

    #[test]
    fn the_same_counts_give_the_same_interval_on_any_thread() {
        let one = Bootstrap::default().intervals(&[700, 300], share);
        let many: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| Bootstrap::default().intervals(&[700, 300], share)))
            .map(|t| t.join().unwrap())
            .collect();
        assert!(many.iter().all(|m| *m == one));
        let other = Bootstrap { seed: 1, ..Bootstrap::default() }.intervals(&[700, 300], share)[0].unwrap();
        let one = one[0].unwrap();
        assert!((other.low - one.low).abs() < 0.004 && (other.high - one.high).abs() < 0.004, "{other:?} {one:?}");
    }

    #[test]
    fn binomial_counts_have_their_probabilities() {
        // n = 3, p = 0.3: 0.343, 0.441, 0.189, 0.027.
        let mut source = Multinomial::new(&[3, 7], 5);
        let mut seen = [0.0f64; 4];
        for _ in 0..100_000 {
            seen[source.binomial(3, 0.3) as usize] += 1e-5;
        }
        for (got, want) in seen.iter().zip([0.343, 0.441, 0.189, 0.027]) {
            assert!((got - want).abs() < 0.006, "{seen:?}");
        }
    }

    #[test]
    fn drawn_counts_keep_sum_mean_and_variance() {
        let counts = [1500, 300, 0, 200];
        let mut source = Multinomial::new(&counts, 7);
        let (draws, mut sum, mut squares) = (20_000, [0.0; 4], [0.0; 4]);
        let mut drawn = [0; 4];
        for _ in 0..draws {
            source.draw(&mut drawn);
            assert_eq!(drawn.iter().sum::<u64>(), 2000);
            for i in 0..4 {
                sum[i] += drawn[i] as f64;
                squares[i] += (drawn[i] as f64).powi(2);
            }
        }
        for i in 0..4 {
            let (mean, p) = (sum[i] / draws as f64, counts[i] as f64 / 2000.0);
            let variance = squares[i] / draws as f64 - mean * mean;
            assert!((mean - counts[i] as f64).abs() < 1.0, "{i}: {mean}");
            assert!((variance - 2000.0 * p * (1.0 - p)).abs() <= 0.05 * 2000.0 * p * (1.0 - p), "{i}: {variance}");
        }
    }

    #[test]
    fn certain_and_undefined_figures() {
        let bootstrap = Bootstrap::default();
        assert_eq!(bootstrap.intervals(&[5, 0], share), [Some(Interval { value: 1.0, low: 1.0, high: 1.0 })]);
        assert_eq!(bootstrap.intervals(&[0, 5], share), [Some(Interval { value: 0.0, low: 0.0, high: 0.0 })]);
        assert_eq!(bootstrap.intervals(&[0, 0], share), [None]);
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[0.0, 10.0, 20.0], 0.25), Some(5.0));
        assert_eq!(quantile(&[3.0], 0.975), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
