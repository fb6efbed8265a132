//! Running an operation many times.

use std::time::{Duration, Instant};

use crate::counter::ticks;

/// How often to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Runs of each operation.
    pub runs: usize,
    /// An operation that takes longer than this in all stops early, but not before
    /// [`Plan::MIN_RUNS`].
    pub limit: Duration,
}

impl Plan {
    /// Runs that even a slow operation gets.
    pub const MIN_RUNS: usize = 10;
}

/// Ticks of the counter per run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Runs made.
    pub runs: usize,
    /// The fastest.
    pub min: u64,
    /// The middle one.
    pub median: u64,
    /// The slowest.
    pub max: u64,
}

impl Spread {
    /// Of some samples; all zero if there are none.
    pub fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let at = |index: usize| samples.get(index).copied().unwrap_or_default();
        let last = samples.len().saturating_sub(1);
        Self { runs: samples.len(), min: at(0), median: at(samples.len() / 2), max: at(last) }
    }
}

/// Runs `operation` as `plan` says. What it returns is dropped outside the measured time.
pub fn sample<T>(plan: Plan, operation: &mut dyn FnMut() -> T) -> Spread {
    // Caches, branch predictors and lazily built tables.
    for _ in 0..Plan::MIN_RUNS.min(plan.runs) {
        operation();
    }
    let mut samples = Vec::with_capacity(plan.runs);
    let start = Instant::now();
    while samples.len() < plan.runs {
        let before = ticks();
        let result = operation();
        samples.push(ticks().saturating_sub(before));
        drop(result);
        if samples.len() >= Plan::MIN_RUNS && start.elapsed() > plan.limit {
            break;
        }
    }
    Spread::of(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = Spread::of(vec![5, 1, 9, 3, 7]);
        assert_eq!(spread, Spread { runs: 5, min: 1, median: 5, max: 9 });
        assert_eq!(Spread::of(vec![]), Spread { runs: 0, min: 0, median: 0, max: 0 });
    }

    #[test]
    fn plans_are_kept() {
        let mut calls = 0;
        let plan = Plan { runs: 100, limit: Duration::from_secs(60) };
        let spread = sample(plan, &mut || calls += 1);
        assert_eq!((spread.runs, calls), (100, 100 + Plan::MIN_RUNS));
        assert!(spread.min <= spread.median && spread.median <= spread.max);
        let spread = sample(Plan { limit: Duration::ZERO, ..plan }, &mut || ());
        assert_eq!(spread.runs, Plan::MIN_RUNS);
    }
}
