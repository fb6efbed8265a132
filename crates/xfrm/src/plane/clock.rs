//! The time.

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Tells the time, so that tests can.
pub trait Clock {
    /// For intervals.
    fn now(&self) -> Instant;
    /// Seconds since 1970, as the kernel dates the use of states. It may be set.
    fn wall(&self) -> u64;
    /// Time since some moment. It cannot be set, and it goes on while the machine is suspended.
    fn steady(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that asks")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that asks")]
    fn wall(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    fn steady(&self) -> Duration {
        // The kernel never says a negative time.
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }
}
