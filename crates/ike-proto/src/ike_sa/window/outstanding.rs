//! Our request that awaits its response: when it is sent again, and when it is given up.

use std::time::{Duration, Instant};

use super::{Datagrams, LONGEST_WAIT, Retransmit, deadline, drawn, wait};
use crate::config::Retransmission;
use crate::crypto::SecureRandom;
use crate::ike_sa::flight::{self, Flight};
use crate::ike_sa::rtt::{LONGEST_TIMER, OVERHEAD, Rtt};
use crate::wire::registry::ExchangeType;

/// Octets of the first datagram of a response, whose arrival puts the timer off: as many as the largest of
/// the request, but no fewer.
const LEAST_OF_RESPONSE: usize = 600;

/// Octets of any other.
const MOST_OF_RESPONSE: usize = 1500;

/// A response whose fragments come no more is asked for again after so long at the least: what
/// scheduling at both ends and reordering explain.
const LEAST_STALL: Duration = Duration::from_millis(15);

/// The same, in times between two fragments.
const STALL: u32 = 4;

/// How often one exchange asks again before its timer says so.
const MOST_ASKS: u32 = 10;

/// Probes that may go without an acknowledgement before all is sent again.
const SILENT_PROBES: u32 = 2;

/// A request and its timers.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) exchange: ExchangeType,
    pub(super) message_id: u32,
    pub(super) flight: Flight,
    /// Times the timer was not enough, in all and since the peer last acknowledged something.
    pub(super) tries: u32,
    backoff: u32,
    /// When it was first sent.
    started: Instant,
    /// When it was last sent again.
    last: Option<Instant>,
    /// The timer before any backing off, and what the octets add to it.
    timer: Duration,
    cost: Duration,
    /// When to send again or give up.
    due: Instant,
    arrivals: Option<Arrivals>,
    /// Something of the response has come.
    heard: bool,
    /// When the response, of which a part is there, is asked for again.
    ask: Option<Instant>,
    asks: u32,
    /// Tries since the last acknowledgement.
    silent: u32,
}

/// Fragments of the response so far.
#[derive(Debug)]
struct Arrivals {
    first: Instant,
    last: Instant,
    /// Octets of those after the first.
    octets: usize,
    count: u32,
    /// The longest time between two.
    longest: Duration,
}

impl Outstanding {
    pub(super) fn new(
        now: Instant,
        exchange: ExchangeType,
        message_id: u32,
        datagrams: Datagrams,
        ladder: &Retransmission,
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) -> Self {
        let gap = if ladder.timeout.is_some() { Duration::ZERO } else { flight::gap(rtt) };
        let mut this = Self {
            exchange,
            message_id,
            flight: Flight::new(datagrams, gap),
            tries: 0,
            backoff: 0,
            started: now,
            last: None,
            timer: timer_of(exchange, rtt),
            cost: Duration::ZERO,
            due: now,
            arrivals: None,
            heard: false,
            ask: None,
            asks: 0,
            silent: 0,
        };
        this.cost = this.cost_on(rtt);
        this.arm(now, ladder, rng);
        this
    }

    /// What the octets of the request and of the first datagram of its response add to the timer.
    fn cost_on(&self, rtt: &Rtt) -> Duration {
        rtt.cost(self.flight.octets() + self.flight.largest().max(LEAST_OF_RESPONSE))
    }

    /// Sets the timer after a sending at `now`.
    fn arm(&mut self, now: Instant, ladder: &Retransmission, rng: &mut dyn SecureRandom) {
        let wait = match ladder.timeout {
            Some(timeout) => wait(ladder, timeout, self.tries, rng),
            None => {
                let mut wait = self.backed_off(ladder) + self.cost;
                if !ladder.limit.is_zero() {
                    wait = wait.min(ladder.limit);
                }
                // Jitter is added here: a shorter timer would be a spurious one.
                wait.mul_f64(1.0 + drawn(ladder.jitter, rng)) + self.flight.drain_time()
            }
        };
        self.due = deadline(now, wait.min(LONGEST_WAIT));
        if ladder.timeout.is_none() && ladder.tries.is_none() {
            self.due = self.due.min(deadline(self.started, time_limit()));
        }
    }

    /// True if the timer was not enough for the time that `tries` says, and nothing has come of a response or of an
    /// acknowledgement.
    pub(super) fn is_unheard_after(&self, tries: u32) -> bool {
        self.tries == tries && self.silent == tries && !self.heard
    }

    /// The timer without the octets' part, as it has been backed off so far.
    fn backed_off(&self, ladder: &Retransmission) -> Duration {
        let power = ladder.base.max(1.0).powi(i32::try_from(self.backoff).unwrap_or(i32::MAX));
        let grown = Duration::try_from_secs_f64(self.timer.as_secs_f64() * power);
        grown.unwrap_or(LONGEST_TIMER).min(LONGEST_TIMER).max(self.timer)
    }

    pub(super) fn next(&self) -> Instant {
        self.ask.map_or(self.due, |ask| ask.min(self.due))
    }

    /// Takes a step if one is due. `acks` if the peer acknowledges fragments.
    pub(super) fn step(
        &mut self,
        now: Instant,
        ladder: &Retransmission,
        rtt: &mut Rtt,
        acks: bool,
        rng: &mut dyn SecureRandom,
    ) -> Retransmit {
        if self.due > now {
            if self.ask.is_none_or(|ask| ask > now) {
                return Retransmit::Nothing;
            }
            self.ask = None;
            self.asks += 1;
            self.last = Some(now);
            rtt.lost();
            self.flight.again(true);
            self.arm(now, ladder, rng);
            return Retransmit::Again;
        }
        let over = match (ladder.timeout, ladder.tries) {
            (_, Some(tries)) => self.tries >= tries,
            (Some(_), None) => self.tries >= Retransmission::strongswan().tries.unwrap_or(5),
            (None, None) => now >= deadline(self.started, time_limit()),
        };
        if over {
            return Retransmit::GiveUp;
        }
        self.tries += 1;
        self.backoff += 1;
        self.silent += 1;
        self.last = Some(now);
        self.ask = None;
        if acks && ladder.timeout.is_none() && self.silent <= SILENT_PROBES {
            self.flight.probe();
        } else {
            self.flight.again(acks || self.tries.is_multiple_of(2));
        }
        if ladder.timeout.is_none() {
            rtt.back_off(self.backed_off(ladder));
        }
        self.arm(now, ladder, rng);
        Retransmit::Again
    }

    /// Another request in the place of this one, after an answer that asked for it. That answer was a
    /// round trip, too.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        ladder: &Retransmission,
        rtt: &mut Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        self.sample(now, SMALL, rtt);
        *self = Self::new(now, self.exchange, self.message_id, datagrams, ladder, rtt, rng);
    }

    /// Other datagrams, and no other timer.
    pub(super) fn swap(&mut self, now: Instant, datagrams: Datagrams, ladder: &Retransmission) {
        let gap = if ladder.timeout.is_some() { Duration::ZERO } else { self.flight.gap() };
        self.flight = Flight::new(datagrams, gap);
        self.last = Some(now);
    }

    /// A datagram of the response has come, of `octets` without headers; `fragment` is number and total of
    /// a new fragment.
    ///
    /// The first of them is what the round-trip time is taken from. What comes later may have been lost
    /// and sent again.
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        fragment: Option<(u16, u16)>,
        octets: usize,
        rules: (&Retransmission, bool),
        rtt: &mut Rtt,
    ) {
        if !self.heard {
            self.heard = true;
            // Those before it were on the way as well.
            let before = fragment.map_or(1, |(number, _)| usize::from(number));
            self.sample(now, (octets + OVERHEAD) * before, rtt);
        }
        if let Some((_, total)) = fragment {
            self.on_fragment(now, total, octets, rules, rtt);
        }
    }

    /// The same request in smaller datagrams, after silence: the timers start over, but not the time after
    /// which the peer is given up.
    pub(super) fn refit(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        ladder: &Retransmission,
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        self.swap(now, datagrams, ladder);
        (self.tries, self.backoff, self.silent, self.ask) = (0, 0, 0, None);
        self.cost = self.cost_on(rtt);
        self.arm(now, ladder, rng);
    }

    /// The same request by another path, as if it left only now.
    pub(super) fn move_on(
        &mut self,
        now: Instant,
        ladder: &Retransmission,
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        let datagrams = self.flight.datagrams().clone();
        (self.started, self.timer) = (now, timer_of(self.exchange, rtt));
        self.refit(now, datagrams, ladder, rtt, rng);
    }

    /// Tells `rtt` what a response means of which `octets`, with headers, have come.
    pub(super) fn sample(&self, now: Instant, octets: usize, rtt: &mut Rtt) {
        let since = |then: Instant| now.saturating_duration_since(then);
        let octets = self.flight.octets() + octets;
        match [self.last, self.flight.resent()].into_iter().flatten().max() {
            None => rtt.sample(octets, since(self.started)),
            Some(last) => rtt.ambiguous(octets, since(self.started), since(last)),
        }
    }

    /// The same of the first exchange with a peer.
    pub(super) fn sample_first(&self, now: Instant, octets: usize, rtt: &mut Rtt) {
        let since = |then: Instant| now.saturating_duration_since(then);
        match self.last {
            None => self.sample(now, octets, rtt),
            Some(last) => {
                let octets = self.flight.octets() + octets;
                rtt.ambiguous_first(octets, since(self.started), since(last));
            }
        }
    }

    /// The path has turned out to be slower than `rtt` said when this was sent.
    pub(super) fn slower(&mut self, rtt: &Rtt, ladder: &Retransmission) {
        let (cost, timer) = (self.cost_on(rtt), timer_of(self.exchange, rtt).max(self.timer));
        let more = cost.saturating_sub(self.cost) + timer.saturating_sub(self.timer);
        if ladder.timeout.is_none() && self.tries == 0 {
            (self.cost, self.timer) = (cost, timer);
            self.due = deadline(self.due, more).min(deadline(self.started, time_limit()));
        }
    }

    /// The response is whole.
    pub(super) fn on_whole(&self, rtt: &mut Rtt) {
        if let Some(arrivals) = self.arrivals.as_ref().filter(|arrivals| arrivals.count > 2) {
            let span = arrivals.last.saturating_duration_since(arrivals.first);
            rtt.arrivals(arrivals.octets, span);
        }
    }

    /// A new fragment, one of `total`: the request has arrived whole, and the response is on its way. The
    /// timer is put off; if no other fragment follows soon, one was lost, and is asked for by sending
    /// the request again, unless acknowledgements do that.
    fn on_fragment(
        &mut self,
        now: Instant,
        total: u16,
        octets: usize,
        (ladder, acks): (&Retransmission, bool),
        rtt: &Rtt,
    ) {
        self.flight.hold();
        let arrivals = self.arrivals.get_or_insert(Arrivals {
            first: now,
            last: now,
            octets: 0,
            count: 0,
            longest: Duration::ZERO,
        });
        if arrivals.count > 0 {
            let gap = now.saturating_duration_since(arrivals.last);
            arrivals.longest = arrivals.longest.max(gap);
            arrivals.octets += octets + OVERHEAD;
        }
        arrivals.count += 1;
        arrivals.last = now;
        if ladder.timeout.is_some() {
            return;
        }
        // The first says nothing about those after it but what the path may cost.
        let (one, longest) = (arrivals.count == 1, arrivals.longest);
        let between = if one { rtt.cost(octets + OVERHEAD) / 2 } else { longest };
        let jitter = rtt.round_trip().unwrap_or_default() / 2;
        let mut stall = (between * STALL).max(jitter).max(LEAST_STALL);
        if self.asks > 0 {
            // What arrived before comes again in between, unseen.
            stall += between * u32::from(total);
        }
        let stall = stall.min(LONGEST_TIMER);
        self.ask = (self.asks < MOST_ASKS && !acks).then(|| deadline(now, stall));
        self.put_off(now, self.timer.max(stall) + rtt.cost(MOST_OF_RESPONSE));
    }

    /// The peer is alive: no timer before `wait` is over. But nobody keeps an exchange going by this
    /// longer than by silence.
    fn put_off(&mut self, now: Instant, wait: Duration) {
        let due = deadline(now, wait).min(deadline(self.started, time_limit()));
        self.due = self.due.max(due);
    }

    /// The peer acknowledges fragments and lacks those of `ranges`. Returns how many go out again.
    pub(super) fn missing(
        &mut self,
        now: Instant,
        ranges: &[(u16, u16)],
        ladder: &Retransmission,
        rtt: &mut Rtt,
        lately: Duration,
    ) -> usize {
        let again = self.flight.missing(now, ranges, lately);
        self.silent = 0;
        if again > 0 {
            rtt.lost();
        }
        if ladder.timeout.is_none() {
            // A peer that has all of it is at work, for as long as that takes it.
            if !ranges.is_empty() {
                self.backoff = 0;
                if self.exchange == ExchangeType::IKE_AUTH {
                    self.timer = self.timer.min(rtt.auth_timer());
                }
            }
            self.put_off(now, self.timer + self.cost);
        }
        again
    }
}

/// The timer of such an exchange before its octets are counted.
fn timer_of(exchange: ExchangeType, rtt: &Rtt) -> Duration {
    if exchange == ExchangeType::IKE_AUTH { rtt.auth_timer() } else { rtt.timer() }
}

/// Octets of an answer that asks for another request, with its headers.
const SMALL: usize = 128;

/// When adaptive retransmission gives up: when strongSwan's ladder does.
fn time_limit() -> Duration {
    let ladder = Retransmission::strongswan();
    let mut wait = ladder.timeout.unwrap_or_default();
    let mut all = Duration::ZERO;
    for _ in 0..=ladder.tries.unwrap_or_default() {
        all += wait;
        wait = wait.mul_f64(ladder.base);
    }
    all
}
