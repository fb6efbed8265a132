//! What comes of handshakes.

use std::time::Duration;

/// What one handshake took, from the first datagram until the initiator has the SA. Every attempt
/// counts, and so does what both ends sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// False if it was given up after the limit of the run.
    pub established: bool,
    /// How long it took.
    pub time: Duration,
    /// Datagrams sent by the initiator and the responder.
    pub datagrams: [u64; 2],
    /// Octets of IKE messages sent by the initiator and the responder, without non-ESP marker.
    pub ike_octets: [u64; 2],
    /// Octets of the IP packets sent by the initiator and the responder.
    pub ip_octets: [u64; 2],
    /// Attempts begun.
    pub attempts: u32,
}

impl Outcome {
    /// Datagrams of both ends.
    pub fn all_datagrams(&self) -> u64 {
        self.datagrams.iter().sum()
    }

    /// Octets of IKE messages of both ends.
    pub fn all_ike_octets(&self) -> u64 {
        self.ike_octets.iter().sum()
    }

    /// Octets of IP packets of both ends.
    pub fn all_ip_octets(&self) -> u64 {
        self.ip_octets.iter().sum()
    }
}

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub worst: f64,
}

impl Spread {
    /// Of some values; all zero if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let Some(&worst) = values.last() else { return Self::default() };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let [median, p95, p99] = [0.5, 0.95, 0.99].map(|part| quantile(&values, part));
        Self { median, mean, p95, p99, worst }
    }

    /// The same in another unit.
    pub fn scaled(self, factor: f64) -> Self {
        let Self { median, mean, p95, p99, worst } = self;
        Self {
            median: median * factor,
            mean: mean * factor,
            p95: p95 * factor,
            p99: p99 * factor,
            worst: worst * factor,
        }
    }
}

/// The quantile of ascending values, between two of them in proportion; 0 if there are none.
pub fn quantile(ascending: &[f64], part: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let place = part.clamp(0.0, 1.0) * last as f64;
    let low = place.floor() as usize;
    let at = |index: usize| ascending.get(index.min(last)).copied().unwrap_or(0.0);
    let rest = place - place.floor();
    // Not a product with a rest of zero: a neighbour may be infinite.
    if rest == 0.0 { at(low) } else { at(low) + (at(low + 1) - at(low)) * rest }
}

/// All handshakes of a row.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Handshakes.
    pub runs: usize,
    /// Setup time in seconds of those that came about.
    pub time: Spread,
    /// Octets of IKE messages of both ends, of all handshakes.
    pub ike_octets: Spread,
    /// Octets of IP packets of both ends, of all handshakes.
    pub ip_octets: Spread,
    /// Datagrams of both ends, of all handshakes.
    pub datagrams: Spread,
    /// Share that came about.
    pub success: f64,
    /// Share that came about within [`PROMPT`].
    pub prompt: f64,
    /// Share that took longer than without loss by the first timer of the initiator's rules or more.
    pub stalled: f64,
    /// Share in which a datagram was sent again.
    pub resent: f64,
    /// Mean number of attempts.
    pub attempts: f64,
}

/// What an operator may still wait for.
pub const PROMPT: Duration = Duration::from_secs(60);

impl Summary {
    /// Of `outcomes`, compared with the handshake on which nothing is lost; `timer` is the initiator's
    /// first.
    pub fn of(outcomes: &[Outcome], lossless: &Outcome, timer: Duration) -> Self {
        let runs = outcomes.len();
        let share = |which: &dyn Fn(&Outcome) -> bool| {
            outcomes.iter().filter(|outcome| which(outcome)).count() as f64 / runs.max(1) as f64
        };
        let established = outcomes.iter().filter(|outcome| outcome.established);
        // Jitter must not count as a timer that expired, nor a timer with jitter as one that did not.
        let stall = lossless.time + timer.mul_f64(0.8);
        Self {
            runs,
            time: Spread::of(established.map(|outcome| outcome.time.as_secs_f64())),
            ike_octets: Spread::of(outcomes.iter().map(|o| o.all_ike_octets() as f64)),
            ip_octets: Spread::of(outcomes.iter().map(|o| o.all_ip_octets() as f64)),
            datagrams: Spread::of(outcomes.iter().map(|o| o.all_datagrams() as f64)),
            success: share(&|outcome| outcome.established),
            prompt: share(&|outcome| outcome.established && outcome.time <= PROMPT),
            stalled: share(&|outcome| !outcome.established || outcome.time > stall),
            resent: share(&|outcome| outcome.all_datagrams() > lossless.all_datagrams()),
            attempts: outcomes.iter().map(|o| f64::from(o.attempts)).sum::<f64>()
                / runs.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert!((quantile(&values, 0.95) - 4.8).abs() < 1e-9);
        assert_eq!(quantile(&values, 1.0), 5.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn what_failed_has_no_setup_time_but_cost() {
        let good = Outcome {
            established: true,
            time: Duration::from_millis(20),
            datagrams: [2, 2],
            ike_octets: [500, 400],
            ip_octets: [556, 456],
            attempts: 1,
        };
        let slow = Outcome { time: Duration::from_secs(5), datagrams: [3, 2], ..good };
        let bad = Outcome { established: false, datagrams: [9, 0], attempts: 2, ..slow };
        let timer = Duration::from_secs(4);
        let summary = Summary::of(&[good, good, slow, bad], &good, timer);
        assert_eq!((summary.success, summary.prompt), (0.75, 0.75));
        assert_eq!((summary.stalled, summary.resent), (0.5, 0.5));
        assert_eq!(summary.time.worst, 5.0);
        assert_eq!(summary.datagrams.worst, 9.0);
        assert_eq!(summary.attempts, 1.25);
    }
}
