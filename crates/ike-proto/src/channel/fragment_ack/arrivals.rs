//! When to acknowledge: what the arrivals of one message's fragments say about the missing ones.
//!
//! The fragments of a message arrive at intervals that depend on path and sender, from microseconds to more than a
//! second. Missing fragments are reported
//!
//! * once for each gap, when no fragment of it has arrived for longer than the interval explains,
//! * when nothing has arrived for so long (a *stall*), and the end of the message is missing as well,
//! * at once when a fragment is repeated, because the sender probes.
//!
//! Between two acknowledgements is at least half a round trip. An acknowledgement that nothing has followed is
//! repeated after twice the time. There are never many more acknowledgements than fragments that have arrived.

use std::time::{Duration, Instant};

use crate::event::Path;

/// The shortest wait for a fragment that may only be late. A sender that paces pauses for some milliseconds after
/// its first burst, and for several such pauses if consecutive fragments were lost.
const LEAST_PATIENCE: Duration = Duration::from_millis(8);
/// The round trip that is assumed if none was measured.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);
/// A round trip that took longer included other work: a signature, or a person.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// How long to wait for a second fragment on an unknown path, and at most.
const UNKNOWN_SECOND: Duration = Duration::from_millis(300);
const LONGEST_SECOND: Duration = Duration::from_secs(3);
/// The shortest time between two acknowledgements.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);
/// The longest time between acknowledgements that nothing new has followed.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Acknowledgements by the timer that nothing followed. After this number the sender must probe.
const UNANSWERED: u32 = 4;
/// How many more acknowledgements of one message than fragments of it there may be.
const SURPLUS: u32 = 4;

/// What is known of the path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    pub(crate) round_trip: Option<Duration>,
    /// How long to wait for a second fragment while the interval is unknown.
    pub(crate) second: Option<Duration>,
}

impl Known {
    fn usable(self) -> Duration {
        self.round_trip.map_or(UNKNOWN_ROUND_TRIP, |time| time.min(LONGEST_ROUND_TRIP))
    }
}

/// What to report to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Every missing fragment.
    All,
    /// The missing fragments between these two. Fragments above may still be in flight, and those below have been
    /// reported.
    Gaps(u16, u16),
    /// That nothing is missing.
    Whole,
}

/// The arrivals of one message's fragments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrivals {
    pub(crate) message_id: u32,
    pub(crate) total: u16,
    /// The path of the fragments.
    pub(crate) path: Path,
    /// True if the message is complete.
    whole: bool,
    /// The highest fragment number so far.
    highest: u16,
    /// The newest fragment that was not a repetition, and when it came.
    newest: u16,
    at: Instant,
    /// Time between two fragments: the longest so far, which decays slowly.
    spacing: Option<Duration>,
    /// Gaps up to this fragment have been reported.
    told: u16,
    /// Number of fragments above `told`.
    beyond: u16,
    /// Since when there is a gap that was not reported.
    gap: Option<Instant>,
    /// A fragment was repeated.
    asked: bool,
    /// Number of authentic fragments, repetitions included.
    came: u32,
    acks: u32,
    /// Acknowledgements that nothing new has followed.
    unanswered: u32,
    last_ack: Option<Instant>,
}

impl Arrivals {
    /// The arrivals after the first fragment.
    pub(crate) fn new(
        now: Instant,
        path: Path,
        message_id: u32,
        (number, total): (u16, u16),
    ) -> Self {
        let mut arrivals = Self {
            message_id,
            total,
            path,
            whole: false,
            highest: 0,
            newest: number,
            at: now,
            spacing: None,
            told: 0,
            beyond: 0,
            gap: None,
            asked: false,
            came: 0,
            acks: 0,
            unanswered: 0,
            last_ack: None,
        };
        arrivals.count(now, number);
        arrivals
    }

    /// True if a fragment of such a message belongs here.
    pub(crate) fn is_of(&self, message_id: u32, total: u16) -> bool {
        (self.message_id, self.total) == (message_id, total)
    }

    /// Handles a new fragment.
    pub(crate) fn on_new(&mut self, now: Instant, path: Path, number: u16) {
        // A fragment after an acknowledgement took a round trip, and says nothing about the interval.
        if self.last_ack.is_none_or(|acked| acked < self.at) {
            let steps = u32::from(number.saturating_sub(self.newest)).max(1);
            let sample = now.saturating_duration_since(self.at) / steps;
            let before = self.spacing.unwrap_or_default();
            self.spacing = Some(sample.max(before - before / 8));
        }
        (self.newest, self.at, self.path) = (number, now, path);
        self.unanswered = 0;
        self.count(now, number);
    }

    fn count(&mut self, now: Instant, number: u16) {
        self.came = self.came.saturating_add(1);
        self.highest = self.highest.max(number);
        if number > self.told {
            self.beyond = self.beyond.saturating_add(1);
        }
        self.find_gap(now);
    }

    /// Handles a repeated fragment.
    pub(crate) fn on_again(&mut self) {
        self.came = self.came.saturating_add(1);
        self.asked = true;
    }

    /// Records that the message is complete.
    pub(crate) fn on_whole(&mut self) {
        (self.whole, self.gap, self.asked) = (true, None, false);
    }

    /// True if the message is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// How long to wait for a fragment that may only be late.
    fn patience(&self, known: Known) -> Duration {
        let rtt = known.usable();
        let patience = match self.spacing {
            Some(spacing) => spacing * 2 + rtt / 4,
            None => known.second.unwrap_or(UNKNOWN_SECOND).min(LONGEST_SECOND),
        };
        patience.max(LEAST_PATIENCE)
    }

    /// True if another acknowledgement may be sent at `now`.
    pub(crate) fn may(&self, now: Instant, known: Known) -> bool {
        self.acks < self.came.saturating_add(SURPLUS)
            && self.earliest(known).is_none_or(|earliest| earliest <= now)
    }

    /// The earliest time of another acknowledgement.
    fn earliest(&self, known: Known) -> Option<Instant> {
        let interval = (known.usable() / 2).max(LEAST_INTERVAL);
        // A sender that only repeats its probes gets fewer and fewer answers.
        let doublings = self.unanswered.saturating_sub(2).min(10);
        let interval = interval.saturating_mul(1 << doublings).min(LONGEST_INTERVAL.max(interval));
        self.last_ack.map(|acked| acked + interval)
    }

    /// When nothing has arrived for too long.
    fn stall(&self, known: Known) -> Option<Instant> {
        let (patience, rtt) = (self.patience(known), known.usable());
        let quiet = self.at + patience;
        let Some(acked) = self.last_ack else { return Some(quiet) };
        match self.unanswered {
            // Fragments that were just reported take a round trip to arrive.
            0 => Some(quiet.max(acked + rtt * 5 / 4)),
            n if n <= UNANSWERED => Some(acked + (rtt * 3 / 2 + patience) * (1 << (n - 1))),
            _ => None,
        }
    }

    /// When the next acknowledgement is due.
    pub(crate) fn due(&self, known: Known) -> Option<Instant> {
        if self.acks >= self.came.saturating_add(SURPLUS) {
            return None;
        }
        let gap = self.gap.map(|since| since + self.patience(known));
        let asked = self.asked.then_some(self.at);
        let stall = if self.whole { None } else { self.stall(known) };
        let due = [gap, asked, stall].into_iter().flatten().min()?;
        Some(self.earliest(known).map_or(due, |earliest| due.max(earliest)))
    }

    /// What to report at `now`, if anything. [`on_told`](Self::on_told) records how much of it was reported.
    pub(crate) fn report(&mut self, now: Instant, known: Known) -> Option<Report> {
        if self.due(known).is_none_or(|due| due > now) {
            return None;
        }
        let asked = std::mem::take(&mut self.asked);
        let report = if self.whole {
            Report::Whole
        } else if self.stall(known).is_some_and(|stall| stall <= now)
            || asked && now >= self.at + self.patience(known)
        {
            Report::All
        } else if self.gap.is_some() {
            Report::Gaps(self.told, self.highest)
        } else {
            // The fragments that are probed for are in flight.
            return None;
        };
        self.gap = None;
        self.acks = self.acks.saturating_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.last_ack = Some(now);
        Some(report)
    }

    /// Records that missing fragments up to `last` were reported. `beyond` fragments above it have arrived.
    pub(crate) fn on_told(&mut self, now: Instant, last: u16, beyond: u16) {
        (self.told, self.beyond) = (last, beyond);
        self.find_gap(now);
    }

    fn find_gap(&mut self, now: Instant) {
        let gaps = self.highest.saturating_sub(self.told) > self.beyond;
        self.gap = gaps.then(|| self.gap.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests;
