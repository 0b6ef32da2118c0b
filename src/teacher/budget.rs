//! What a run may spend: a request starts only if the most that it can cost still fits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// A limit, what is spent, and what the requests under way may still cost.
#[derive(Debug, Default)]
pub struct Budget {
    limit: Option<f64>,
    purse: Mutex<Purse>,
}

#[derive(Debug, Default)]
struct Purse {
    spent: f64,
    under_way: f64,
    requests: u64,
}

impl Budget {
    /// None is no limit.
    pub fn new(limit: Option<f64>) -> Result<Budget> {
        match limit {
            Some(limit) if !(limit.is_finite() && limit >= 0.0) => {
                Err(Error::usage(format!("the limit of costs is {limit}, and must be 0 or more")))
            }
            limit => Ok(Budget { limit, purse: Mutex::default() }),
        }
    }

    /// Takes the most that a request can cost, if that is left.
    pub fn reserve(&self, most: f64) -> bool {
        let mut purse = self.purse();
        if self.limit.is_some_and(|limit| purse.spent + purse.under_way + most > limit) {
            return false;
        }
        purse.under_way += most;
        purse.requests += 1;
        true
    }

    /// Gives back what a request reserved, and takes what it did cost.
    pub fn settle(&self, most: f64, cost: f64) {
        let mut purse = self.purse();
        purse.spent += cost;
        purse.requests = purse.requests.saturating_sub(1);
        // Sums of floating-point numbers drift: with nothing under way, nothing is reserved.
        purse.under_way = if purse.requests == 0 { 0.0 } else { (purse.under_way - most).max(0.0) };
    }

    pub fn spent(&self) -> f64 {
        self.purse().spent
    }

    /// A purse is whole after each of its few sums, so a panic elsewhere does not spoil it.
    fn purse(&self) -> MutexGuard<'_, Purse> {
        self.purse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_counts_at_its_most() {
        let budget = Budget::new(Some(10.0)).unwrap();
        assert!(budget.reserve(4.0) && budget.reserve(4.0));
        assert!(!budget.reserve(4.0));
        // 1 spent, 4 under way, 4 more: 9.
        budget.settle(4.0, 1.0);
        assert!(budget.reserve(4.0));
        assert!(!budget.reserve(2.0) && budget.reserve(1.0));
        assert_eq!(budget.spent(), 1.0);
        for (most, cost) in [(4.0, 4.0), (4.0, 4.0), (1.0, 1.0)] {
            budget.settle(most, cost);
        }
        assert_eq!(budget.spent(), 10.0);
        assert!(budget.reserve(0.0) && !budget.reserve(1e-9));
    }

    #[test]
    fn without_a_limit_all_fits() {
        let budget = Budget::default();
        assert!((0..100).all(|_| budget.reserve(1e9)));
        assert!(Budget::new(Some(0.0)).is_ok());
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Budget::new(Some(bad)).is_err());
        }
    }
}
