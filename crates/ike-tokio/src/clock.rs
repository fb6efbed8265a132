//! The engine's clock, which goes on while the machine is suspended.
//!
//! An [`Instant`] stands still in a suspended machine, and keys would live longer than they should. The time of
//! suspension is the distance between two clocks of the system, and is added here. Timers of the runtime do not
//! include it, so no task sleeps longer than [`LONGEST_SLEEP`] without a look at the clock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ike_proto::Now;
use nix::time::{ClockId, clock_gettime};

/// After a resume, deadlines that have passed are noticed within this time. A tunnel that is wanted carries traffic ten
/// seconds after a resume, and an exchange that a peer does not answer takes five of them.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(2);

/// Nobody is hurt by a timer that is so late: those of the runtime have milliseconds.
pub(crate) const SLACK: Duration = Duration::from_micros(100);

/// Two readings further apart than this were interrupted.
const STEADY: Duration = Duration::from_millis(1);

/// The clocks are compared so often at the most: the engine is told the time for every message.
const COMPARED: Duration = Duration::from_millis(10);

/// The time now, by the only clock that engines see. It goes on while the machine is suspended.
pub fn now() -> Now {
    let steady = Instant::now();
    Now { mono: steady + suspended_by(steady), wall: SystemTime::now() }
}

/// How long the machine has been suspended, as far as is known at `steady`. It never becomes less.
fn suspended_by(steady: Instant) -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // One more than the nanoseconds from the start; 0 is never.
    static READ: AtomicU64 = AtomicU64::new(0);
    static SECONDS: AtomicU64 = AtomicU64::new(0);
    let since = steady.saturating_duration_since(*START).as_nanos();
    let since = u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1);
    let read = READ.load(Ordering::Relaxed);
    let fresh = u128::from(since.saturating_sub(read)) < COMPARED.as_nanos();
    let seconds = if read != 0 && fresh {
        SECONDS.load(Ordering::Acquire)
    } else {
        let seconds = suspended().as_secs();
        let before = SECONDS.fetch_max(seconds, Ordering::AcqRel);
        READ.fetch_max(since, Ordering::Relaxed);
        before.max(seconds)
    };
    Duration::from_secs(seconds)
}

/// How long to sleep towards `deadline`.
pub(crate) fn until(now: Instant, deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now).min(LONGEST_SLEEP)
}

/// How long the machine has been suspended since it started, in whole seconds: less is no matter, and
/// would make the time go back by what lies between the readings.
fn suspended() -> Duration {
    for _ in 0..10 {
        let read = |clock| clock_gettime(clock).ok().map(Duration::from);
        let readings = (
            read(ClockId::CLOCK_MONOTONIC),
            read(ClockId::CLOCK_BOOTTIME),
            read(ClockId::CLOCK_MONOTONIC),
        );
        let (Some(before), Some(boot), Some(after)) = readings else { break };
        if after.saturating_sub(before) < STEADY {
            return Duration::from_secs(boot.saturating_sub(before).as_secs());
        }
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let mut last = now().mono;
        for _ in 0..10_000 {
            let next = now().mono;
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn sleeps_are_short_enough_to_notice_a_resume() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(until(start, at(1500)), Duration::from_millis(1500));
        assert_eq!(until(at(1500), start), Duration::ZERO);
        assert_eq!(until(start, at(3_600_000)), LONGEST_SLEEP);
    }
}
