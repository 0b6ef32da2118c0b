//! How long to wait before a pair is asked again.

use std::time::Duration;

use sha2::{Digest, Sha256};

/// A server's wish is honoured up to this.
const LONGEST_WISH: f64 = 60.0;

/// Waits that double from `first` to `longest`.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The wait after a failed attempt, counted from 1: between half of the doubled wait and all of it, or what the server
    /// wishes and up to one first wait more. Chance is made of the pair and the attempt, so that many pairs do not come
    /// back at once, and the same run waits the same.
    pub fn wait(&self, key: &[u8; 32], attempt: u32, wish: Option<Duration>) -> Duration {
        let chance = chance(key, attempt);
        if let Some(wish) = wish {
            return wish + self.first.mul_f64(chance);
        }
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        doubled.min(self.longest).mul_f64(0.5 + 0.5 * chance)
    }
}

/// From 0 to 1.
fn chance(key: &[u8; 32], attempt: u32) -> f64 {
    let hash = Sha256::new().chain_update(key).chain_update(attempt.to_le_bytes()).finalize();
    f64::from(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])) / f64::from(u32::MAX)
}

/// A Retry-After header in seconds, a minute at most; a date is not read, as no clock is.
pub fn wish(header: &str) -> Option<Duration> {
    let seconds: f64 = header.trim().parse().ok()?;
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(LONGEST_WISH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_bounds() {
        let backoff = Backoff::default();
        for (attempt, most) in [(1, 500), (2, 1000), (3, 2000), (6, 16_000), (7, 30_000), (99, 30_000)] {
            let wait = backoff.wait(&[7; 32], attempt, None).as_millis();
            assert!((most / 2..=most).contains(&wait), "{attempt}: {wait}");
            assert_eq!(wait, backoff.wait(&[7; 32], attempt, None).as_millis());
        }
        assert_ne!(backoff.wait(&[7; 32], 1, None), backoff.wait(&[8; 32], 1, None));
        let wait = backoff.wait(&[7; 32], 1, Some(Duration::from_secs(3))).as_millis();
        assert!((3000..=3500).contains(&wait), "{wait}");
    }

    #[test]
    fn a_wish_is_a_number_of_seconds() {
        let seconds = |text: &str| wish(text).map(|d| d.as_secs_f64());
        assert_eq!((seconds("2"), seconds(" 0.5 "), seconds("0")), (Some(2.0), Some(0.5), Some(0.0)));
        assert_eq!((seconds("3600"), seconds("inf"), seconds("1e300")), (Some(60.0), Some(60.0), Some(60.0)));
        for none in ["-1", "nan", "", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(seconds(none), None, "{none}");
        }
    }
}
