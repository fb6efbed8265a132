//! What time it is.

use std::time::{Instant, SystemTime};

/// Tells the time, so that tests can.
pub trait Clock {
    /// For intervals.
    fn now(&self) -> Instant;
    /// Seconds since 1970, as the kernel dates the use of states.
    fn wall(&self) -> u64;
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
}
