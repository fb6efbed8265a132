//! The datagrams of one message, and when each is sent.
//!
//! A large message begins with a burst. Its other datagrams follow one by one (pacing), so that it fits the queue
//! of a slow link: datagrams of a burst that are lost there cost a round trip. Retransmissions are in another
//! order each time, so that bursts and short queues do not always lose the same fragments.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rtt::{OVERHEAD, Rtt};
use super::window::Datagrams;

/// Datagrams that are sent at once: the initial window of RFC 6928.
const BURST: u32 = 10;

/// Limits of the time between datagrams after the burst. A longer time would protect no link: the upper limit is 1
/// Mbit/s.
const LEAST_GAP: Duration = Duration::from_millis(1);
const MOST_GAP: Duration = Duration::from_millis(10);

/// The same if the round-trip time is unknown.
const USUAL_GAP: Duration = Duration::from_millis(2);

/// Messages of so few datagrams are sent again as a whole: a probe for the missing ones takes as many.
const FEW: usize = 2;

/// A datagram that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) octets: Arc<[u8]>,
    /// True if it was sent before.
    pub(crate) again: bool,
    /// True if it is not to be fragmented on the way.
    pub(super) whole: bool,
}

/// The datagrams of one message, and their state.
#[derive(Debug)]
pub(crate) struct Flight {
    datagrams: Datagrams,
    /// When each was last sent.
    sent: Vec<Option<Instant>>,
    /// Places of the datagrams to be sent, the next one first.
    queue: VecDeque<usize>,
    /// Places of the datagrams that the peer reported as missing, the lowest first.
    lacking: Vec<usize>,
    /// Time between datagrams; zero for no pacing.
    gap: Duration,
    /// Datagrams that may be sent at once, as of `counted`.
    credit: u32,
    counted: Option<Instant>,
    /// How often the whole message was sent again.
    rounds: u32,
    /// When a datagram was last sent again.
    resent: Option<Instant>,
    former: Option<Box<Former>>,
}

/// The first datagram of each larger form in which the same message was sent before, the oldest first.
///
/// A peer that has answered one of these forms may take no other datagram for a retransmission of it (strongSwan
/// takes none). It sends its answer again for fragment 1 of the form that it had (RFC 7383 §2.6.1).
#[derive(Debug)]
struct Former {
    firsts: Vec<Arc<[u8]>>,
    /// True if there was no larger form, and the flight probes the path: its datagram is sent once with Don't Fragment. The
    /// flag is in this box to save memory, because nearly no flight is a probe.
    probes: bool,
}

impl Flight {
    /// A flight whose `datagrams` are all to be sent, `gap` apart after the first burst.
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
            former: None,
            datagrams,
        }
    }

    /// A flight of the same message in smaller `datagrams`. With `remind` the first datagram of this form, and of
    /// those before it, goes with each retransmission of the whole message.
    pub(crate) fn smaller(&mut self, datagrams: Datagrams, gap: Duration, remind: bool) -> Self {
        let former = self.former.take().filter(|_| remind);
        let mut firsts = former.map(|former| former.firsts).unwrap_or_default();
        firsts.extend(self.datagrams.first().filter(|_| remind).cloned());
        let mut smaller = Self::new(datagrams, gap);
        smaller.sent.resize(smaller.datagrams.len() + firsts.len(), None);
        smaller.former = (!firsts.is_empty()).then(|| Box::new(Former { firsts, probes: false }));
        smaller
    }

    /// The same flight from its beginning, for another path.
    pub(crate) fn restarted(&mut self, gap: Duration) -> Self {
        let former = self.former.take().filter(|former| !former.probes);
        let sent = vec![None; self.sent.len()];
        Self { former, sent, ..Self::new(Arc::clone(&self.datagrams), gap) }
    }

    /// Makes this flight, which was not sent yet, a probe of the path.
    pub(crate) fn begin_probe(&mut self) {
        self.former = Some(Box::new(Former { firsts: Vec::new(), probes: true }));
    }

    /// True if it probes the path and was not sent again: an answer is an answer to the probe itself.
    pub(crate) fn is_probe(&self) -> bool {
        self.rounds == 0 && self.former.as_ref().is_some_and(|former| former.probes)
    }

    /// The datagrams.
    pub(crate) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    /// Octets of all datagrams with their headers.
    pub(crate) fn octets(&self) -> usize {
        self.datagrams.iter().map(|datagram| datagram.len() + OVERHEAD).sum()
    }

    /// Octets of the largest datagram with its headers.
    pub(crate) fn largest(&self) -> usize {
        self.datagrams.iter().map(|datagram| datagram.len() + OVERHEAD).max().unwrap_or(0)
    }

    /// True if no datagram waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if the message has so few datagrams that sending it again is cheaper than a probe.
    pub(crate) fn is_small(&self) -> bool {
        self.datagrams.len() <= FEW
    }

    /// When a datagram was last sent again.
    pub(crate) fn resent(&self) -> Option<Instant> {
        self.resent
    }

    /// Time between datagrams after the first burst.
    pub(crate) fn gap(&self) -> Duration {
        self.gap
    }

    /// Stops sending: the peer has the whole message.
    pub(crate) fn hold(&mut self) {
        self.queue.clear();
        self.lacking.clear();
    }

    /// How long it takes to send all waiting datagrams.
    pub(crate) fn drain_time(&self) -> Duration {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.gap.saturating_mul(waiting.saturating_sub(self.credit))
    }

    /// Queues all datagrams again. With `first_in_front` fragment 1 is the first, because it matters most (RFC
    /// 7383 §2.6.1).
    pub(crate) fn again(&mut self, first_in_front: bool) {
        let count = self.datagrams.len();
        self.rounds += 1;
        self.queue.clear();
        self.lacking.clear();
        // The start moves by a third each time, and every other round goes backwards.
        let start = self.rounds as usize * count.div_ceil(3);
        let places = (0..count).map(|place| (place + start).checked_rem(count).unwrap_or(0));
        if first_in_front {
            self.queue.extend(0..count);
        } else if !self.rounds.is_multiple_of(2) {
            self.queue.extend(places.rev());
        } else {
            self.queue.extend(places);
        }
        self.queue.extend(count..self.sent.len());
    }

    /// Queues one fragment again. Its acknowledgement tells which others the peer lacks.
    ///
    /// It is fragment 1. A peer that has nothing, or a part, acknowledges it. A peer that has answered sends its
    /// response again for fragment 1 only (RFC 7383 §2.6.1). The lowest fragment that the peer reported as missing
    /// goes with it, because it may have been lost again.
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

    /// Queues the fragments of these ranges again (first to last, counted from 1), the lowest first, except those
    /// sent within `lately`. The peer lacks them. Returns their number. Fragments that do not exist are not sent.
    /// No range means that the peer lacks none.
    ///
    /// An acknowledgement may name fragments that the one before did not name, and leave out others. A fragment
    /// that waits because it was named goes on waiting. A fragment that waits because the whole message is sent
    /// again was only suspected.
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
            // It was not sent yet, and waits for its turn.
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

    /// Takes the next datagram if it may be sent at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Departure> {
        if self.next_at(now).is_none_or(|at| at > now) {
            return None;
        }
        let place = self.queue.pop_front()?;
        self.count(now);
        self.credit = self.credit.saturating_sub(1);
        self.take(place, Some(now))
    }

    /// Takes the next datagram whether it is due or not, because there will be no other time.
    pub(crate) fn take_any(&mut self) -> Option<Departure> {
        let place = self.queue.pop_front()?;
        self.take(place, None)
    }

    fn take(&mut self, place: usize, now: Option<Instant>) -> Option<Departure> {
        let sent = self.sent.get_mut(place)?;
        let again = sent.is_some() || place >= self.datagrams.len();
        *sent = now.or(*sent);
        if again {
            self.resent = now.or(self.resent);
        }
        let whole = self.is_probe() && !again;
        Some(Departure { octets: Arc::clone(self.datagram(place)?), again, whole })
    }

    /// The datagram of a place. The places behind those of the message are those of its former forms.
    fn datagram(&self, place: usize) -> Option<&Arc<[u8]>> {
        self.datagrams.get(place).or_else(|| {
            let former = place.checked_sub(self.datagrams.len())?;
            self.former.as_ref()?.firsts.get(former)
        })
    }

    /// When [`take_due`](Self::take_due) has a datagram; `None` if none waits. A time in the past, or that of the
    /// last datagram, means at once.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        self.queue.front()?;
        let counted = self.counted.unwrap_or(now);
        Some(if self.credit > 0 { counted } else { counted + self.gap })
    }

    /// Adds one datagram of credit for every `gap`, up to a burst.
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
