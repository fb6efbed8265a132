//! Void tickets (RFC 5723 §9.8), by the IKE SAs to which they belong: resumed already, rekeyed, or deleted. What
//! other gateways with the same keys have done is not known here.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Instant, SystemTime};

use crate::event::Now;

/// IKE SAs that are remembered at most. Beyond that the oldest are forgotten.
const MOST: usize = 1 << 16;

/// An IKE SA by its SPIs, the initiator's first, and the time until which its tickets could be valid.
pub type Void = ((u64, u64), SystemTime);

/// A list of IKE SAs, by their SPIs.
#[derive(Default)]
pub(super) struct Spent {
    until: BTreeMap<(u64, u64), Until>,
    /// In the order in which they were added. An SA whose time was extended is in it once more.
    order: VecDeque<(u64, u64)>,
    /// The number of additions so far.
    added: u64,
}

/// How long an IKE SA is remembered.
struct Until {
    /// By the wall clock, for storage.
    wall: SystemTime,
    /// The same by the monotonic clock. The wall clock may be set to a time when all tickets have expired, and
    /// back again. `None` if the monotonic clock does not reach so far.
    mono: Option<Instant>,
}

impl Until {
    fn new(now: Now, until: SystemTime) -> Self {
        let left = until.duration_since(now.wall).unwrap_or_default();
        Self { wall: until, mono: now.mono.checked_add(left) }
    }
}

impl Spent {
    /// Adds an IKE SA. False if it was there.
    pub(super) fn add(&mut self, spis: (u64, u64), now: Now, until: SystemTime) -> bool {
        while let Some(first) = self.order.front() {
            let is_over = |until: &Until| until.mono.is_some_and(|until| until < now.mono);
            let over = self.until.get(first).is_none_or(is_over);
            if !over && self.order.len() < MOST {
                break;
            }
            self.until.remove(first);
            self.order.pop_front();
        }
        let new = Until::new(now, until);
        if let Some(known) = self.until.get_mut(&spis) {
            known.mono = known.mono.zip(new.mono).map(|(known, new)| known.max(new));
            if until > known.wall {
                known.wall = until;
                // The list in storage must get the new time.
                self.order.push_back(spis);
                self.added += 1;
            }
            return false;
        }
        self.until.insert(spis, new);
        self.order.push_back(spis);
        self.added += 1;
        true
    }

    /// The additions after the first `seen`, unless they are forgotten, and the number of additions so far.
    pub(super) fn since(&self, seen: u64) -> (u64, Vec<Void>) {
        let count = usize::try_from(self.added.saturating_sub(seen)).unwrap_or(usize::MAX);
        let known = self.order.len();
        let new = self.order.iter().skip(known.saturating_sub(count));
        let found = new.filter_map(|spis| Some((*spis, self.until.get(spis)?.wall))).collect();
        (self.added, found)
    }

    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    pub(super) fn holds(&self, spis: (u64, u64)) -> bool {
        self.until.contains_key(&spis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[expect(clippy::disallowed_methods, reason = "an instant cannot be had otherwise")]
    fn beginning() -> Instant {
        Instant::now()
    }

    #[test]
    fn what_is_over_is_forgotten_and_there_is_an_end_to_it() {
        let begin = beginning();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let now = |seconds| Now { mono: begin + Duration::from_secs(seconds), wall: at(seconds) };
        let mut spent = Spent::default();
        assert!(spent.add((1, 1), now(0), at(10)));
        assert!(!spent.add((1, 1), now(1), at(10)) && spent.holds((1, 1)));
        assert!(spent.add((2, 2), now(11), at(20)));
        assert!(!spent.holds((1, 1)) && spent.holds((2, 2)));
        for n in 0..2 * MOST as u64 {
            spent.add((n, 7), now(12), at(30));
        }
        assert_eq!((spent.until.len(), spent.order.len()), (MOST, MOST));
        assert!(spent.holds((2 * MOST as u64 - 1, 7)));
        let (added, all) = spent.since(0);
        assert_eq!((added, all.len()), (2 + 2 * MOST as u64, MOST));
        assert!(spent.add((5, 5), now(13), at(40)));
        assert_eq!(spent.since(added), (added + 1, vec![((5, 5), at(40))]));
        assert_eq!(spent.since(added + 1), (added + 1, Vec::new()));
        assert!(!spent.add((5, 5), now(14), at(40)));
        assert_eq!(spent.since(added + 1), (added + 1, Vec::new()));
        let len = spent.len();
        assert!(!spent.add((5, 5), now(14), at(50)));
        assert_eq!(
            spent.since(added + 1),
            (added + 2, vec![((5, 5), at(50))]),
            "it is void for longer"
        );
        assert_eq!(spent.len(), len);
        assert!(spent.add((6, 6), now(51), at(60)));
        assert_eq!((spent.until.len(), spent.order.len()), (1, 1));
    }

    /// The wall clock is set thirty years ahead, something else is remembered, and it is set back; and the same the
    /// other way about. What was void is void.
    ///
    /// Fault: in `Spent::add`, compare `until.wall` with `now.wall`.
    #[test]
    fn a_clock_that_steps_revives_nothing() {
        let (begin, year) = (beginning(), 365 * 24 * 3600);
        let hour = Duration::from_secs(3600);
        let right = UNIX_EPOCH + Duration::from_secs(60 * year);
        for wrong in [UNIX_EPOCH + Duration::from_secs(90 * year), UNIX_EPOCH] {
            let mut spent = Spent::default();
            let now =
                |minutes: u64, wall| Now { mono: begin + Duration::from_secs(60 * minutes), wall };
            spent.add((1, 1), now(0, right), right + hour);
            spent.add((2, 2), now(1, wrong), wrong + hour);
            assert!(spent.holds((1, 1)) && spent.holds((2, 2)), "{wrong:?}");
            spent.add((3, 3), now(2, right), right + hour);
            assert!([(1, 1), (2, 2), (3, 3)].iter().all(|spis| spent.holds(*spis)), "{wrong:?}");
            // Each goes when its time is over.
            spent.add((4, 4), now(61, right), right + hour);
            let left = [(1, 1), (2, 2), (3, 3), (4, 4)].map(|spis| spent.holds(spis));
            assert_eq!(left, [false, true, true, true], "{wrong:?}");
        }
    }
}
