//! What is known of a path: its round-trip time (RFC 6298), and what an octet more costs.
//!
//! An exchange takes `T = P + c * octets`: propagation and the peer's work, and serialization both ways.
//! Post-quantum messages differ so much in size that `c` matters: 13 kB over 9.6 kbit/s take 11 s, a
//! liveness check 0.2 s. `P` is estimated as RFC 6298 has it, without its floor of one second, from
//! times less what the octets took at least; a timer adds what the octets may take at most.

use std::collections::VecDeque;
use std::time::Duration;

/// First timer of a path nobody knows: half of RFC 6298's, which is meant for all of the Internet;
/// RFC 7296 §2.4 leaves it open.
pub(crate) const FIRST_TIMER: Duration = Duration::from_millis(500);

/// What a timer leaves for the peer's work and for scheduling, above the round-trip time.
pub(crate) const WORK: Duration = Duration::from_millis(50);

/// The same of IKE_AUTH, which takes a signature, certificates and perhaps a token or another process:
/// earlier exchanges do not tell how long. Where the path has been seen to lose datagrams, loss is likelier.
pub(crate) const AUTH_WORK: Duration = Duration::from_millis(120);

/// No timer is longer, unless the octets alone take longer.
pub(crate) const LONGEST_TIMER: Duration = Duration::from_secs(15);

/// The most of it that an exchange leaves to the one after it, and in timers without any backing off. It
/// doubles with each exchange in a row that was sent again, as far as the time that these took allows: that may be
/// a path that has become slow.
const LONGEST_CARRIED: Duration = FIRST_TIMER.saturating_mul(2);
const CARRIED: u32 = 2;

/// Octets of IP, UDP and non-ESP marker that are counted for each datagram.
pub(crate) const OVERHEAD: usize = 32;

/// Exchanges remembered.
const KEPT: usize = 8;

/// Exchanges must differ by so many octets to tell propagation from serialization.
const APART: f64 = 1000.0;

/// How much slower than the way back, which arriving fragments tell, the way there may be.
const ASYMMETRY: f64 = 16.0;

/// Least time between arrivals that clocks and batches of datagrams tell for certain.
const GRAIN: f64 = 0.002;

/// One exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    octets: f64,
    seconds: f64,
    /// Sent more than once: `seconds`, from the first time on, are at least what it took.
    ambiguous: bool,
}

/// The estimator.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rtt {
    smoothed: Option<f64>,
    variation: f64,
    /// The timer as an exchange that was sent again left it (RFC 6298 §5.5–5.7): in force until an
    /// exchange that was not.
    backed_off: Option<Duration>,
    /// The same before it was cut, while the second answer to the first exchange may come.
    withheld: Option<Duration>,
    /// Exchanges in a row that were sent again.
    in_a_row: u32,
    /// The shortest time that one of these took from its first sending to its response: none of them can have
    /// needed a longer timer.
    shortest: Option<Duration>,
    /// Datagrams were lost, as far as anybody can tell.
    lossy: bool,
    /// Where only an ambiguous exchange is known: from its last sending to the response.
    guess: Option<Duration>,
    samples: VecDeque<Sample>,
    /// Seconds for each octet on the way back, as fragments arrived.
    back: Option<f64>,
    /// What the first exchange took if its response answered the first of several sendings.
    doubted: Option<f64>,
}

impl Rtt {
    /// An exchange of `octets` both ways took `time`, and was sent once.
    pub(crate) fn sample(&mut self, octets: usize, time: Duration) {
        self.keep(octets, time, false);
        self.backed_off = None;
        self.guess = None;
        self.doubted = None;
        (self.in_a_row, self.shortest) = (0, None);
        let net = (time.as_secs_f64() - self.least_cost() * size(octets)).max(0.0);
        //= RFC 6298 §2
        //# RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|
        //# SRTT <- (1 - alpha) * SRTT + alpha * R'
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

    /// An exchange of `octets` was sent more than once: its response came `since_first` and `since_last`
    /// after the first and the last of these. By Karn's rule it is no sample, but a bound of the cost.
    pub(crate) fn ambiguous(&mut self, octets: usize, since_first: Duration, since_last: Duration) {
        self.keep(octets, since_first, true);
        if self.smoothed.is_none() {
            self.guess = Some(since_last);
        }
        self.carry(since_first);
    }

    //= RFC 6298 §5
    //# Note that after retransmitting, once a new RTT measurement is obtained
    //# (which can only happen when new data has been sent and acknowledged),
    //# the computations outlined in Section 2 are performed, including the
    //# computation of RTO, which may result in "collapsing" RTO back down
    //# after it has been subject to exponential back off (rule 5.5).
    /// An exchange is over that was sent again, and its timer carries over. Most of what it had grown to was
    /// waiting for what was lost, and nothing has shown that what follows takes long.
    ///
    /// On a path that loses much no exchange gives a sample for a long time (Karn's rule), and the timer must not
    /// grow for as long. `since_first` bounds what a path that has become slow needs: on a slow path it is the
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

    /// A datagram was lost, or seems to have been.
    pub(crate) fn lost(&mut self) {
        self.lossy = true;
    }

    /// The first exchange was sent more than once. Was the path lossy, and the last sending answered, or is
    /// it slow, and the first one was? A slow path brings an answer to each of them:
    /// [`answered_twice`](Self::answered_twice) says so, before the timer that this leaves is over.
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

    /// The first exchange was answered more than once: the path is slow. True if that is news.
    pub(crate) fn answered_twice(&mut self) -> bool {
        let (Some(seconds), Some(first)) = (self.doubted.take(), self.samples.front_mut()) else {
            return false;
        };
        first.seconds = seconds;
        self.backed_off = self.backed_off.max(self.withheld.take());
        self.lossy = false;
        true
    }

    /// True if an exchange of ours has been timed.
    pub(crate) fn is_measured(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Something else than an exchange of ours tells a round-trip time.
    pub(crate) fn suppose(&mut self, time: Duration) {
        if self.smoothed.is_none() {
            self.guess = Some(time);
        }
    }

    /// Fragments of `octets` in all arrived within `span` after the one before them.
    pub(crate) fn arrivals(&mut self, octets: usize, span: Duration) {
        if octets > 0 {
            self.back = Some((span.as_secs_f64() + GRAIN) / size(octets));
        }
    }

    /// The timer was not enough; `timer` is the next.
    pub(crate) fn back_off(&mut self, timer: Duration) {
        self.backed_off = Some(timer.min(LONGEST_TIMER));
    }

    /// The timer for an exchange of no size.
    pub(crate) fn timer(&self) -> Duration {
        self.timer_with(WORK)
    }

    /// The same of an IKE_AUTH exchange.
    pub(crate) fn auth_timer(&self) -> Duration {
        self.timer_with(if self.lossy { WORK } else { AUTH_WORK })
    }

    fn timer_with(&self, work: Duration) -> Duration {
        self.fresh(work).max(self.backed_off.unwrap_or_default()).min(LONGEST_TIMER)
    }

    /// The timer without any backing off.
    fn fresh(&self, work: Duration) -> Duration {
        match self.smoothed {
            Some(smoothed) => seconds(smoothed + (4.0 * self.variation).max(work.as_secs_f64())),
            // A guess makes no timer shorter.
            None => self.guess.map_or(FIRST_TIMER, |guess| FIRST_TIMER.max(guess.mul_f64(1.5))),
        }
    }

    /// The most that `octets` add to it, as far as is known.
    pub(crate) fn cost(&self, octets: usize) -> Duration {
        seconds(self.most_cost() * size(octets))
    }

    /// The round-trip time, or a guess at it.
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

    /// Seconds for each octet, at the most. Each exchange bounds it, were all of its time
    /// serialization; so do two of different size, and the rate of the way back.
    fn most_cost(&self) -> f64 {
        let alone = self.samples.iter().map(|sample| sample.seconds / sample.octets);
        let slope = self.slope().map(|(slope, margin)| slope + margin).filter(|most| *most > 0.0);
        let back = self.back.map(|back| back * ASYMMETRY);
        let most = alone.chain(slope).chain(back).fold(f64::INFINITY, f64::min);
        if most.is_finite() { most } else { 0.0 }
    }

    /// Seconds for each octet, at the least.
    fn least_cost(&self) -> f64 {
        self.slope().map_or(0.0, |(slope, margin)| (slope - margin).max(0.0))
    }

    /// Seconds for each octet by the smallest and the largest exchange, and how far off that may be:
    /// neither the peer's work nor the path's jitter is the same in both.
    fn slope(&self) -> Option<(f64, f64)> {
        let clean = || self.samples.iter().filter(|sample| !sample.ambiguous);
        let by_size = |a: &&Sample, b: &&Sample| a.octets.total_cmp(&b.octets);
        let (small, large) = (clean().min_by(by_size)?, clean().max_by(by_size)?);
        let apart = large.octets - small.octets;
        let margin = (WORK.as_secs_f64() / 2.0).max(small.seconds / 4.0);
        // One that was larger and much faster tells that something else was slow.
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
