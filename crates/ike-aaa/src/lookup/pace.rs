//! Limits the fetches per second for strangers, which may name any host.

use std::time::Instant;

/// Fetches that may begin.
#[derive(Debug)]
pub(super) struct Pace {
    left: f64,
    at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now }
    }

    /// True if one may begin.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * PER_SECOND).min(AT_ONCE);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

/// Fetches a second.
const PER_SECOND: f64 = 8.0;
/// Fetches after a while without any.
const AT_ONCE: f64 = 32.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_gets_what_there_is_each_second() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        let flood = |pace: &mut Pace, from: u64, to: u64| {
            (from..to).filter(|ms| pace.take(begin + Duration::from_millis(*ms))).count()
        };
        let first = flood(&mut pace, 0, 1000);
        assert!((39..=40).contains(&first), "{first}");
        let later = flood(&mut pace, 1000, 11_000);
        assert!((79..=81).contains(&later), "{later}");
        assert_eq!(flood(&mut pace, 100_000, 100_004), 4);
    }
}
