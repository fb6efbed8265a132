//! The datagrams of one message, and which of them are to be sent when.
//!
//! A large message leaves as a burst and the rest one by one (pacing), so that it fits the queue of a
//! slow link: what a burst loses there costs a round trip. What is sent again is in another order each
//! time, so that bursts and short queues do not take the same fragments always.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rtt::{OVERHEAD, Rtt};
use super::window::Datagrams;

/// Datagrams that leave at once: the initial window of RFC 6928.
const BURST: u32 = 10;

/// Bounds of the time between datagrams after them. More than the upper one protects nobody: it is
/// 1 Mbit/s.
const LEAST_GAP: Duration = Duration::from_millis(1);
const MOST_GAP: Duration = Duration::from_millis(10);

/// The same, where the round-trip time is unknown.
const USUAL_GAP: Duration = Duration::from_millis(2);

/// Messages of so few datagrams are sent again whole: asking what is missing takes as many.
const FEW: usize = 2;

/// A datagram that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) octets: Arc<[u8]>,
    /// Sent before.
    pub(crate) again: bool,
}

/// The flight.
#[derive(Debug)]
pub(crate) struct Flight {
    datagrams: Datagrams,
    /// When each was last sent.
    sent: Vec<Option<Instant>>,
    /// Places of those to be sent, the next one first.
    queue: VecDeque<usize>,
    /// Those the peer said it lacks, the lowest first.
    lacking: Vec<usize>,
    /// Time between datagrams; zero does not pace.
    gap: Duration,
    /// Datagrams that may leave at once, as of `counted`.
    credit: u32,
    counted: Option<Instant>,
    /// Times the whole was sent again.
    rounds: usize,
    /// When a datagram last left that had left before.
    resent: Option<Instant>,
}

impl Flight {
    /// All of `datagrams` are to be sent, `gap` apart after the first burst.
    pub(crate) fn new(datagrams: Datagrams, gap: Duration) -> Self {
        Self {
            sent: vec![None; datagrams.len()],
            queue: (0..datagrams.len()).collect(),
            lacking: Vec::new(),
            gap,
            credit: BURST,
            counted: None,
            rounds: 0,
            resent: None,
            datagrams,
        }
    }

    /// The datagrams.
    pub(crate) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    /// Octets of all of them with their headers.
    pub(crate) fn octets(&self) -> usize {
        self.datagrams.iter().map(|datagram| datagram.len() + OVERHEAD).sum()
    }

    /// Octets of the largest of them, with its headers.
    pub(crate) fn largest(&self) -> usize {
        self.datagrams.iter().map(|datagram| datagram.len() + OVERHEAD).max().unwrap_or(0)
    }

    /// True if nothing waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if so few datagrams are cheaper sent again than asked for.
    pub(crate) fn is_small(&self) -> bool {
        self.datagrams.len() <= FEW
    }

    /// When a datagram last left that had left before.
    pub(crate) fn resent(&self) -> Option<Instant> {
        self.resent
    }

    /// Time between datagrams after the first burst.
    pub(crate) fn gap(&self) -> Duration {
        self.gap
    }

    /// The peer has all of it: nothing needs to leave any more.
    pub(crate) fn hold(&mut self) {
        self.queue.clear();
        self.lacking.clear();
    }

    /// How long it takes until all that waits has been sent.
    pub(crate) fn drain_time(&self) -> Duration {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.gap.saturating_mul(waiting.saturating_sub(self.credit))
    }

    /// All are to be sent again; `first_in_front` if fragment 1 is what matters (RFC 7383 §2.6.1).
    pub(crate) fn again(&mut self, first_in_front: bool) {
        let count = self.datagrams.len();
        self.rounds += 1;
        self.queue.clear();
        self.lacking.clear();
        if first_in_front {
            self.queue.extend(0..count);
            return;
        }
        // A third further each time, and backwards every other time.
        let start = self.rounds * count.div_ceil(3);
        let places = (0..count).map(|place| (place + start).checked_rem(count).unwrap_or(0));
        if !self.rounds.is_multiple_of(2) {
            self.queue.extend(places.rev());
        } else {
            self.queue.extend(places);
        }
    }

    /// One fragment is to be sent again, to learn by its acknowledgement what else the peer lacks.
    ///
    /// It is fragment 1. If the peer has nothing, or a part, it acknowledges; if it has answered, no
    /// other one makes it send its response again (RFC 7383 §2.6.1). With it goes the lowest of those
    /// the peer said it lacks, which may have been lost again.
    pub(crate) fn probe(&mut self) {
        if self.is_small() {
            return self.again(true);
        }
        let lowest = self.lacking.first().copied().filter(|lowest| *lowest != 0);
        for place in lowest.into_iter().chain([0]) {
            if !self.queue.contains(&place) {
                self.queue.push_front(place);
            }
        }
    }

    /// The peer lacks the fragments of these ranges, first to last, counted from 1: they go out again, the
    /// lowest first, but none that left within `lately`. Returns how many do. What is not there is not
    /// sent. No range says that the peer lacks none.
    ///
    /// An acknowledgement may name what the one before did not and leave out what that one did: what waits
    /// because it was named goes on waiting. What waits because all is sent again was only suspected.
    pub(crate) fn missing(
        &mut self,
        now: Instant,
        ranges: &[(u16, u16)],
        lately: Duration,
    ) -> usize {
        let named = |place: usize| {
            let number = place + 1;
            ranges
                .iter()
                .any(|(first, last)| (usize::from(*first)..=usize::from(*last)).contains(&number))
        };
        let lacking: Vec<_> = (0..self.datagrams.len()).filter(|place| named(*place)).collect();
        let recent = |place: &usize| match self.sent.get(*place) {
            Some(Some(at)) => now.saturating_duration_since(*at) < lately,
            // Not sent yet: it waits its turn.
            _ => true,
        };
        let again: Vec<_> = lacking.iter().copied().filter(|place| !recent(place)).collect();
        let before = std::mem::take(&mut self.lacking);
        let (sent, all_there) = (&self.sent, ranges.is_empty());
        self.queue.retain(|place| {
            let first_time = sent.get(*place).is_some_and(Option::is_none);
            let waits = named(*place) || first_time || before.contains(place);
            waits && !again.contains(place) && !all_there
        });
        let still = before.into_iter().filter(|place| self.queue.contains(place));
        self.lacking = still.chain(lacking).collect();
        self.lacking.sort_unstable();
        self.lacking.dedup();
        for place in again.iter().rev() {
            self.queue.push_front(*place);
        }
        again.len()
    }

    /// Takes the next datagram if it may leave at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Departure> {
        if self.next_at(now).is_none_or(|at| at > now) {
            return None;
        }
        let place = self.queue.pop_front()?;
        self.count(now);
        self.credit = self.credit.saturating_sub(1);
        self.take(place, Some(now))
    }

    /// Takes the next datagram whether it is due or not: there is no later.
    pub(crate) fn take_any(&mut self) -> Option<Departure> {
        let place = self.queue.pop_front()?;
        self.take(place, None)
    }

    fn take(&mut self, place: usize, now: Option<Instant>) -> Option<Departure> {
        let sent = self.sent.get_mut(place)?;
        let again = sent.is_some();
        *sent = now.or(*sent);
        if again {
            self.resent = now.or(self.resent);
        }
        Some(Departure { octets: Arc::clone(self.datagrams.get(place)?), again })
    }

    /// When [`take_due`](Self::take_due) has a datagram; `None` if none waits. A time in the past, or
    /// that of the last datagram, is at once.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        self.queue.front()?;
        let counted = self.counted.unwrap_or(now);
        Some(if self.credit > 0 { counted } else { counted + self.gap })
    }

    /// Credit grows by a datagram for every `gap`, up to a burst.
    fn count(&mut self, now: Instant) {
        let counted = *self.counted.get_or_insert(now);
        let elapsed = now.saturating_duration_since(counted);
        let earned = elapsed.as_nanos().checked_div(self.gap.as_nanos());
        let earned = earned.map_or(BURST, |earned| u32::try_from(earned).unwrap_or(BURST));
        if self.credit + earned.min(BURST) >= BURST {
            self.credit = BURST;
            self.counted = Some(now);
        } else {
            self.credit += earned;
            self.counted = Some(counted + self.gap * earned);
        }
    }
}

/// The time between datagrams of a large message on such a path.
pub(crate) fn gap(rtt: &Rtt) -> Duration {
    rtt.round_trip().map_or(USUAL_GAP, |time| (time / 20).clamp(LEAST_GAP, MOST_GAP))
}

#[cfg(test)]
mod tests;
