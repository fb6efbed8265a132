//! Whether a shard is behind: then strangers need a cookie earlier than half-open SAs alone would have it.

use std::time::{Duration, Instant};

/// Sockets that are not read empty for so long hold a shard up: what comes waits longer than it takes.
const BEHIND: Duration = Duration::from_millis(100);
/// How long after that they must have been read empty again and again, so that one gap in a flood says nothing.
const RELIEVED: Duration = Duration::from_secs(1);

/// Where datagrams come from. Each is judged by itself: that one is read empty says nothing of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The socket of this number.
    Socket(usize),
    /// What the data plane has received.
    DataPlane,
    /// What other shards hand over.
    Shards,
}

/// Watches how full the sockets are, and what waits that others have received.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Since when there has been more than was taken.
    full_since: Vec<(Source, Instant)>,
    /// When that was last so for too long.
    last: Option<Instant>,
    behind: bool,
}

impl Pressure {
    /// A batch was taken from `source`; `more` says that there may be more. Answers what has changed.
    pub(super) fn taken(&mut self, source: Source, now: Instant, more: bool) -> Option<bool> {
        if more {
            let known = self.full_since.iter().find(|(other, _)| *other == source);
            let since = known.map_or(now, |(_, since)| *since);
            if known.is_none() {
                self.full_since.push((source, now));
            }
            if now.saturating_duration_since(since) >= BEHIND {
                self.last = Some(now);
            }
        } else {
            self.full_since.retain(|(other, _)| *other != source);
        }
        self.judge(now)
    }

    /// When it may be over without anything taken.
    pub(super) fn next(&self) -> Option<Instant> {
        self.last.filter(|_| self.behind).map(|last| last + RELIEVED)
    }

    /// Answers what the passing of time has changed.
    pub(super) fn judge(&mut self, now: Instant) -> Option<bool> {
        let behind = self.last.is_some_and(|last| now.saturating_duration_since(last) < RELIEVED);
        let changed = self.behind != behind;
        self.behind = behind;
        changed.then_some(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_is_who_does_not_keep_up_for_long() {
        let start = crate::driver::now().mono;
        let at = |ms| start + Duration::from_millis(ms);
        let mut pressure = Pressure::default();
        let one = Source::Socket(0);
        // A burst.
        assert_eq!(pressure.taken(one, at(0), true), None);
        assert_eq!(pressure.taken(one, at(60), false), None);
        // A flood.
        assert_eq!(pressure.taken(one, at(70), true), None);
        assert_eq!(pressure.taken(one, at(140), true), None);
        assert_eq!(pressure.taken(one, at(170), true), Some(true));
        assert_eq!(pressure.taken(one, at(500), true), None, "told once");
        // It ebbs.
        assert_eq!(pressure.taken(one, at(510), false), None);
        assert_eq!(pressure.taken(one, at(900), true), None);
        assert_eq!(pressure.next(), Some(at(1500)));
        assert_eq!(pressure.judge(at(1499)), None);
        assert_eq!(pressure.taken(one, at(1500), false), Some(false));
        assert_eq!(pressure.next(), None);
    }

    #[test]
    fn a_quiet_socket_does_not_hide_a_flood_at_another() {
        let start = crate::driver::now().mono;
        let at = |ms| start + Duration::from_millis(ms);
        for flooded in [Source::Socket(0), Source::DataPlane, Source::Shards] {
            let mut pressure = Pressure::default();
            for ms in (0..100).step_by(10) {
                assert_eq!(pressure.taken(flooded, at(ms), true), None);
                assert_eq!(pressure.taken(Source::Socket(1), at(ms + 5), false), None);
            }
            assert_eq!(pressure.taken(flooded, at(100), true), Some(true));
        }
    }
}
