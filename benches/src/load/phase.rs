//! One stretch of a run: how many handshakes are begun and when, and what came of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When handshakes begin. Shared by all workers.
#[derive(Debug)]
pub struct Phase {
    begin: Instant,
    /// Handshakes to begin; none means until the time is up.
    count: Option<u64>,
    until: Option<Instant>,
    /// Handshakes a second; none means as soon as one has ended.
    rate: Option<f64>,
    begun: AtomicU64,
    stop: AtomicBool,
    /// Datagrams that came back.
    pub answers: AtomicU64,
    /// Handshakes that came about, so far.
    pub established: AtomicU64,
    /// Handshakes that did not.
    pub failed: AtomicU64,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A handshake, which was due then.
    Begin(Instant),
    /// Nothing before then.
    Wait(Instant),
    /// Nothing any more.
    Over,
}

impl Phase {
    /// Begins now.
    pub fn new(count: Option<u64>, duration: Option<Duration>, rate: Option<f64>) -> Self {
        let begin = Instant::now();
        Self {
            begin,
            count,
            until: duration.and_then(|duration| begin.checked_add(duration)),
            rate,
            begun: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            established: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// When it began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// Begins no more handshakes.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if it was stopped.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes the next handshake, if it is due.
    pub fn next(&self, now: Instant) -> Next {
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            let over = self.count.is_some_and(|count| begun >= count)
                || self.until.is_some_and(|until| now >= until);
            if over || self.stopped() {
                return Next::Over;
            }
            // In an open loop, the time that a handshake had to wait for its turn is part of its latency.
            let due = match self.rate {
                None => now,
                Some(rate) => {
                    let after = Duration::try_from_secs_f64(begun as f64 / rate);
                    match after.ok().and_then(|after| self.begin.checked_add(after)) {
                        Some(due) if due <= now => due,
                        Some(due) => return Next::Wait(due),
                        None => return Next::Over,
                    }
                }
            };
            let taken =
                self.begun.compare_exchange(begun, begun + 1, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                return Next::Begin(due);
            }
        }
    }
}

/// What came of the handshakes of a worker, or of all.
#[derive(Debug, Default, Clone)]
pub struct Outcomes {
    /// Time to the answer that established each, in seconds.
    pub latencies: Vec<f64>,
    /// Why others failed, and how many.
    pub failures: BTreeMap<String, u64>,
    /// Begun, and neither established nor failed when the run was stopped.
    pub unfinished: u64,
    /// Requests sent again, fragments each.
    pub retransmissions: u64,
    /// SAs whose delete was not confirmed.
    pub undeleted: u64,
}

impl Outcomes {
    /// Adds those of another worker.
    pub fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        for (why, count) in other.failures {
            *self.failures.entry(why).or_default() += count;
        }
        self.unfinished += other.unfinished;
        self.retransmissions += other.retransmissions;
        self.undeleted += other.undeleted;
    }

    /// Handshakes that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_ends_by_count() {
        let phase = Phase::new(Some(2), None, None);
        let now = phase.begin();
        assert_eq!(phase.next(now), Next::Begin(now));
        assert_eq!(phase.next(now), Next::Begin(now));
        assert_eq!(phase.next(now), Next::Over);
        let phase = Phase::new(None, Some(Duration::from_secs(1)), None);
        let (now, end) = (phase.begin(), phase.begin() + Duration::from_secs(1));
        assert_eq!(phase.next(now), Next::Begin(now));
        assert_eq!(phase.next(end), Next::Over);
    }

    #[test]
    fn an_open_loop_keeps_its_times() {
        let phase = Phase::new(Some(3), None, Some(10.0));
        let at = |ms| phase.begin() + Duration::from_millis(ms);
        assert_eq!(phase.next(at(0)), Next::Begin(at(0)));
        assert_eq!(phase.next(at(0)), Next::Wait(at(100)));
        // Late, and due when it was due.
        assert_eq!(phase.next(at(350)), Next::Begin(at(100)));
        assert_eq!(phase.next(at(350)), Next::Begin(at(200)));
        assert_eq!(phase.next(at(350)), Next::Over);
    }

    #[test]
    fn a_stop_is_heard() {
        let phase = Phase::new(None, None, None);
        phase.stop();
        assert_eq!(phase.next(phase.begin()), Next::Over);
    }
}
