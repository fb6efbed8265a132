//! What is known of a path: its round-trip time (RFC 6298), and the cost of an additional octet.
//!
//! An exchange takes `T = P + c * octets`: propagation and the peer's work, and serialization both ways.
//! Post-quantum messages differ so much in size that `c` matters: over 9.6 kbit/s, 13 kB take 11 s and a liveness
//! check takes 0.2 s. `P` is estimated as in RFC 6298, without its minimum of one second, from times minus the
//! least that the octets took. A timer adds the most that the octets may take.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::LONGEST_TIMER;

/// First timer of an unknown path: half of RFC 6298's, which is meant for the whole Internet. RFC 7296 §2.4 leaves
/// it open.
pub(crate) const FIRST_TIMER: Duration = Duration::from_millis(500);

/// Time that a timer adds to the round-trip time for the peer's work and for scheduling.
pub(crate) const WORK: Duration = Duration::from_millis(50);

/// The same for IKE_AUTH, which needs a signature, certificates and perhaps a token or another process. Earlier
/// exchanges do not show how long that takes. If the path has lost datagrams before, a loss is more likely.
pub(crate) const AUTH_WORK: Duration = Duration::from_millis(120);

/// The most of a timer that an exchange leaves to the next one, in timers without back-off. It doubles with each
/// consecutive exchange that was retransmitted, because the path may have become slow. The time of these exchanges
/// limits it.
const LONGEST_CARRIED: Duration = FIRST_TIMER.saturating_mul(2);
const CARRIED: u32 = 2;

/// Octets of IP, UDP and non-ESP marker, counted for each datagram.
pub(crate) const OVERHEAD: usize = 32;

/// Exchanges that are remembered.
const KEPT: usize = 8;

/// The octets by which exchanges must differ to separate propagation from serialization.
const APART: f64 = 1000.0;

/// The most seconds per octet that a timer allows for: 2.4 kbit/s. A retransmitted exchange of a few octets may have
/// waited for the end of an outage.
const SLOWEST: f64 = 1.0 / 300.0;

/// How much slower the path there may be than the path back, which arriving fragments show.
const ASYMMETRY: f64 = 16.0;

/// The shortest time between arrivals that is certain in spite of clocks and batches of datagrams.
const GRAIN: f64 = 0.002;

/// One exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    octets: f64,
    seconds: f64,
    /// True if it was sent more than once. Then `seconds`, from the first time on, is a lower limit.
    ambiguous: bool,
}

/// The estimator.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rtt {
    smoothed: Option<f64>,
    variation: f64,
    /// The timer that a retransmitted exchange has left (RFC 6298 §5.5–5.7). It is in force until an exchange that
    /// was not retransmitted.
    backed_off: Option<Duration>,
    /// The same before it was cut, while a second answer to the first exchange may come.
    withheld: Option<Duration>,
    /// Consecutive exchanges that were retransmitted.
    in_a_row: u32,
    /// The shortest time of these from the first transmission to the response. None of them can have needed a
    /// longer timer.
    shortest: Option<Duration>,
    /// True if datagrams seem to have been lost.
    lossy: bool,
    /// If only an ambiguous exchange is known: the time from its last transmission to the response.
    guess: Option<Duration>,
    samples: VecDeque<Sample>,
    /// Seconds per octet on the path back, by the arrival of fragments.
    back: Option<f64>,
    /// The time of the first exchange if its response answered the first of several transmissions.
    doubted: Option<f64>,
}

impl Rtt {
    /// Adds an exchange of `octets` both ways that was sent once and took `time`.
    pub(crate) fn sample(&mut self, octets: usize, time: Duration) {
        self.keep(octets, time, false);
        self.backed_off = None;
        self.guess = None;
        self.doubted = None;
        (self.in_a_row, self.shortest) = (0, None);
        let net = (time.as_secs_f64() - self.least_cost() * size(octets)).max(0.0);
        // RFC 6298 §2:
        // RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|
        // SRTT <- (1 - alpha) * SRTT + alpha * R'
        match &mut self.smoothed {
            None => {
                self.smoothed = Some(net);
                self.variation = net / 2.0;
            }
            Some(smoothed) => {
                self.variation = 0.75 * self.variation + 0.25 * (*smoothed - net).abs();
                *smoothed = 0.875 * *smoothed + 0.125 * net;
            }
        }
    }

    /// Adds an exchange of `octets` that was sent more than once. Its response came `since_first` after the first
    /// transmission and `since_last` after the last. By Karn's rule it is no sample, but it limits the cost.
    pub(crate) fn ambiguous(&mut self, octets: usize, since_first: Duration, since_last: Duration) {
        self.keep(octets, since_first, true);
        if self.smoothed.is_none() {
            self.guess = Some(since_last);
        }
        self.carry(since_first);
    }

    // RFC 6298 §5:
    // Note that after retransmitting, once a new RTT measurement is obtained
    // (which can only happen when new data has been sent and acknowledged),
    // the computations outlined in Section 2 are performed, including the
    // computation of RTO, which may result in "collapsing" RTO back down
    // after it has been subject to exponential back off (rule 5.5).
    /// Handles the end of an exchange that was retransmitted. Its timer carries over. Most of the timer's growth
    /// was waiting for lost datagrams, and nothing has shown that the next exchange takes long.
    ///
    /// On a path with many losses no exchange gives a sample for a long time (Karn's rule), and the timer must not
    /// grow for so long. `since_first` limits what a path that has become slow needs: on a slow path it is the
    /// round-trip time itself.
    fn carry(&mut self, since_first: Duration) {
        let doublings = self.in_a_row.min(10);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let shortest = self.shortest.map_or(since_first, |known| known.min(since_first));
        self.shortest = Some(shortest);
        let least = LONGEST_CARRIED.max(self.fresh(WORK) * CARRIED);
        let needed = shortest.saturating_add(shortest / 4).saturating_add(WORK);
        let most = (least * (1 << doublings)).min(least.max(needed));
        self.backed_off = self.backed_off.map(|timer| timer.min(most));
    }

    /// Records that a datagram was lost, or seems to be.
    pub(crate) fn lost(&mut self) {
        self.lossy = true;
    }

    /// Handles a first exchange that was sent more than once. Either the path loses datagrams, and the response
    /// answers the last transmission, or it is slow, and the response answers the first. A slow path brings an
    /// answer to each transmission. [`answered_twice`](Self::answered_twice) handles that, before the timer set
    /// here expires.
    pub(crate) fn ambiguous_first(
        &mut self,
        octets: usize,
        since_first: Duration,
        since_last: Duration,
    ) {
        self.keep(octets, since_last, true);
        self.doubted = Some(since_first.as_secs_f64());
        self.guess = Some(since_last);
        self.withheld = self.backed_off;
        self.lossy = true;
        self.carry(since_first);
    }

    /// Handles a second answer to the first exchange: the path is slow. True if that was not known.
    pub(crate) fn answered_twice(&mut self) -> bool {
        let (Some(seconds), Some(first)) = (self.doubted.take(), self.samples.front_mut()) else {
            return false;
        };
        first.seconds = seconds;
        self.backed_off = self.backed_off.max(self.withheld.take());
        self.lossy = false;
        true
    }

    /// True if an exchange of ours has been measured.
    pub(crate) fn is_measured(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Records a round-trip time from another source than an exchange of ours.
    pub(crate) fn suppose(&mut self, time: Duration) {
        if self.smoothed.is_none() {
            self.guess = Some(time);
        }
    }

    /// Records fragments of `octets` in all that arrived within `span` after the fragment before them.
    pub(crate) fn arrivals(&mut self, octets: usize, span: Duration) {
        if octets > 0 {
            self.back = Some((span.as_secs_f64() + GRAIN) / size(octets));
        }
    }

    /// Handles a timer that was too short. `timer` is the next one.
    pub(crate) fn back_off(&mut self, timer: Duration) {
        self.backed_off = Some(timer.min(LONGEST_TIMER));
    }

    /// The timer for an exchange without octets.
    pub(crate) fn timer(&self) -> Duration {
        self.timer_with(WORK)
    }

    /// The same for an IKE_AUTH exchange.
    pub(crate) fn auth_timer(&self) -> Duration {
        self.timer_with(if self.lossy { WORK } else { AUTH_WORK })
    }

    fn timer_with(&self, work: Duration) -> Duration {
        self.fresh(work).max(self.backed_off.unwrap_or_default()).min(LONGEST_TIMER)
    }

    /// The timer without back-off.
    fn fresh(&self, work: Duration) -> Duration {
        match self.smoothed {
            Some(smoothed) => seconds(smoothed + (4.0 * self.variation).max(work.as_secs_f64())),
            // A guess never shortens a timer.
            None => self.guess.map_or(FIRST_TIMER, |guess| FIRST_TIMER.max(guess.mul_f64(1.5))),
        }
    }

    /// The most that `octets` add to the timer, as far as is known.
    pub(crate) fn cost(&self, octets: usize) -> Duration {
        seconds(self.most_cost() * size(octets))
    }

    /// The round-trip time, or a guess.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.smoothed.map(seconds).or(self.guess)
    }

    fn keep(&mut self, octets: usize, time: Duration, ambiguous: bool) {
        if self.samples.len() >= KEPT {
            self.samples.pop_front();
        }
        let seconds = time.as_secs_f64();
        self.samples.push_back(Sample { octets: size(octets), seconds, ambiguous });
    }

    /// The highest possible seconds per octet, at most [`SLOWEST`]. Each exchange limits it, as if its whole time were
    /// serialization. So do two exchanges of different sizes, and the rate of the path back.
    fn most_cost(&self) -> f64 {
        let alone = self.samples.iter().map(|sample| sample.seconds / sample.octets);
        let slope = self.slope().map(|(slope, margin)| slope + margin).filter(|most| *most > 0.0);
        let back = self.back.map(|back| back * ASYMMETRY);
        let most = alone.chain(slope).chain(back).fold(f64::INFINITY, f64::min);
        if most.is_finite() { most.min(SLOWEST) } else { 0.0 }
    }

    /// The lowest possible seconds per octet.
    fn least_cost(&self) -> f64 {
        self.slope().map_or(0.0, |(slope, margin)| (slope - margin).max(0.0))
    }

    /// Seconds per octet by the smallest and the largest exchange, and the possible error: the peer's work and the
    /// path's jitter differ between the two.
    fn slope(&self) -> Option<(f64, f64)> {
        let clean = || self.samples.iter().filter(|sample| !sample.ambiguous);
        let by_size = |a: &&Sample, b: &&Sample| a.octets.total_cmp(&b.octets);
        let (small, large) = (clean().min_by(by_size)?, clean().max_by(by_size)?);
        let apart = large.octets - small.octets;
        let margin = (WORK.as_secs_f64() / 2.0).max(small.seconds / 4.0);
        // If the larger one was much faster, something else was slow.
        let alike = large.seconds >= 0.9 * small.seconds;
        let tells = alike && apart >= APART && apart >= small.octets;
        tells.then(|| ((large.seconds - small.seconds) / apart, margin / apart))
    }
}

/// Octets as a factor; never zero.
fn size(octets: usize) -> f64 {
    f64::from(u32::try_from(octets.max(1)).unwrap_or(u32::MAX))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_TIMER)
}

#[cfg(test)]
mod tests;
