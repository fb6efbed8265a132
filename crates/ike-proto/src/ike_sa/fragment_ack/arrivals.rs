//! When to acknowledge: what the arrivals of one message's fragments say of those that are missing.
//!
//! The fragments of a message come at a pace that path and sender make, from microseconds apart to more
//! than a second. What is missing is told
//!
//! * once for each gap, when no fragment in it has come for longer than the pace explains,
//! * when nothing has come for so long (a *stall*), and the end of the message is missing as well,
//! * at once when a fragment comes again: the sender asks.
//!
//! Between two acknowledgements is half a round trip at the least, and one that nothing followed is made
//! again after twice the time. There are never many more of them than fragments that came.

use std::time::{Duration, Instant};

use crate::event::Path;

/// The least time to wait for what may only be late. A sender that paces pauses for some milliseconds after
/// its first burst, and for several of these pauses where fragments in a row were lost.
const LEAST_PATIENCE: Duration = Duration::from_millis(8);
/// Stands for the round trip where none was measured.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);
/// A round trip that took longer had something else in it: a signature, or a person.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// How long to wait for a second fragment on a path nobody knows, and how long at the most.
const UNKNOWN_SECOND: Duration = Duration::from_millis(300);
const LONGEST_SECOND: Duration = Duration::from_secs(3);
/// The least time between two acknowledgements.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);
/// The same between those that nothing new has followed.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Acknowledgements made by the clock that nothing followed; from then on the sender must ask.
const UNANSWERED: u32 = 4;
/// Acknowledgements of one message beyond the fragments of it that came.
const SURPLUS: u32 = 4;

/// What is known of the path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    pub(crate) round_trip: Option<Duration>,
    /// How long to wait for a second fragment, while there is no pace yet.
    pub(crate) second: Option<Duration>,
}

impl Known {
    fn usable(self) -> Duration {
        self.round_trip.map_or(UNKNOWN_ROUND_TRIP, |time| time.min(LONGEST_ROUND_TRIP))
    }
}

/// What to tell the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Every missing fragment.
    All,
    /// The missing fragments above the first and below the second of these: those further up may still be
    /// on their way, and those further down have been told.
    Gaps(u16, u16),
    /// That nothing is missing.
    Whole,
}

/// The arrivals of one message's fragments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrivals {
    pub(crate) message_id: u32,
    pub(crate) total: u16,
    /// Where the fragments come from.
    pub(crate) path: Path,
    /// The message is whole.
    whole: bool,
    /// The highest fragment number that came.
    highest: u16,
    /// The fragment that came last for the first time, and when.
    newest: u16,
    at: Instant,
    /// Time between two fragments: the longest seen, slowly forgotten.
    spacing: Option<Duration>,
    /// Gaps up to this fragment have been told.
    told: u16,
    /// Fragments above `told` that came.
    beyond: u16,
    /// Since when there is a gap not told.
    gap: Option<Instant>,
    /// A fragment came again.
    asked: bool,
    /// Authentic fragments, also those that came again.
    came: u32,
    acks: u32,
    /// Acknowledgements that nothing new has followed.
    unanswered: u32,
    last_ack: Option<Instant>,
}

impl Arrivals {
    /// The first fragment has come.
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

    /// True if a fragment of such a message goes here.
    pub(crate) fn is_of(&self, message_id: u32, total: u16) -> bool {
        (self.message_id, self.total) == (message_id, total)
    }

    /// A fragment has come for the first time.
    pub(crate) fn on_new(&mut self, now: Instant, path: Path, number: u16) {
        // What comes after an acknowledgement took a round trip, and says nothing of the pace.
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

    /// A fragment has come again.
    pub(crate) fn on_again(&mut self) {
        self.came = self.came.saturating_add(1);
        self.asked = true;
    }

    /// The message is whole.
    pub(crate) fn on_whole(&mut self) {
        (self.whole, self.gap, self.asked) = (true, None, false);
    }

    /// True if the message is whole.
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

    /// True if another acknowledgement may be made at `now`.
    pub(crate) fn may(&self, now: Instant, known: Known) -> bool {
        self.acks < self.came.saturating_add(SURPLUS)
            && self.earliest(known).is_none_or(|earliest| earliest <= now)
    }

    /// From when on another acknowledgement may be made.
    fn earliest(&self, known: Known) -> Option<Instant> {
        let interval = (known.usable() / 2).max(LEAST_INTERVAL);
        // Who asks again and again, and sends nothing else, is answered less and less.
        let doublings = self.unanswered.saturating_sub(2).min(10);
        let interval = interval.saturating_mul(1 << doublings).min(LONGEST_INTERVAL.max(interval));
        self.last_ack.map(|acked| acked + interval)
    }

    /// When nothing has come for too long.
    fn stall(&self, known: Known) -> Option<Instant> {
        let (patience, rtt) = (self.patience(known), known.usable());
        let quiet = self.at + patience;
        let Some(acked) = self.last_ack else { return Some(quiet) };
        match self.unanswered {
            // What was told last takes a round trip to come.
            0 => Some(quiet.max(acked + rtt * 5 / 4)),
            n if n <= UNANSWERED => Some(acked + (rtt * 3 / 2 + patience) * (1 << (n - 1))),
            _ => None,
        }
    }

    /// When to acknowledge.
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

    /// What to tell at `now`, if anything is to be told. [`on_told`](Self::on_told) says how much of it was.
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
            // Asked for what is on its way.
            return None;
        };
        self.gap = None;
        self.acks = self.acks.saturating_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.last_ack = Some(now);
        Some(report)
    }

    /// What is missing has been told up to fragment `last`, above which `beyond` fragments are there.
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
