//! Our outstanding request: when it is sent again, and when it is given up.

use std::time::{Duration, Instant};

use super::{Datagrams, LONGEST_WAIT, Retransmit, deadline, drawn, wait};
use crate::channel::flight::{self, Flight};
use crate::channel::rtt::{OVERHEAD, Rtt};
use crate::config::{LONGEST_TIMER, Retransmission};
use crate::crypto::SecureRandom;
use crate::wire::registry::ExchangeType;

/// Octets of the first datagram of a response, whose arrival postpones the timer: as many as those of the largest
/// datagram of the request, but at least this number.
const LEAST_OF_RESPONSE: usize = 600;

/// Octets of any other datagram of a response.
const MOST_OF_RESPONSE: usize = 1500;

/// The shortest wait before a response whose fragments have stopped is requested again: what scheduling at both
/// ends and reordering explain.
const LEAST_STALL: Duration = Duration::from_millis(15);

/// The same as a multiple of the time between two fragments.
const STALL: u32 = 4;

/// How often one exchange sends again before its timer expires.
const MOST_ASKS: u32 = 10;

/// Probes without an acknowledgement before the whole message is sent again.
const SILENT_PROBES: u32 = 2;

/// A request and its timers.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) exchange: ExchangeType,
    pub(super) message_id: u32,
    pub(super) flight: Flight,
    /// How often the timer has expired, in all and since the peer's last acknowledgement.
    pub(super) tries: u32,
    backoff: u32,
    /// When it was first sent.
    started: Instant,
    /// When it was last sent again.
    last: Option<Instant>,
    /// The timer without back-off, and what the octets add to it.
    timer: Duration,
    cost: Duration,
    /// When to send again or give up.
    due: Instant,
    arrivals: Option<Arrivals>,
    /// True if a part of the response has come.
    heard: bool,
    /// When the rest of a response is requested again, of which a part has come.
    ask: Option<Instant>,
    asks: u32,
    /// Tries since the last acknowledgement.
    silent: u32,
}

/// The fragments of the response so far.
#[derive(Debug)]
struct Arrivals {
    first: Instant,
    last: Instant,
    /// Octets of all fragments but the first.
    octets: usize,
    count: u32,
    /// The longest time between two fragments.
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

    /// Sets the timer after a transmission at `now`.
    fn arm(&mut self, now: Instant, ladder: &Retransmission, rng: &mut dyn SecureRandom) {
        let wait = match ladder.timeout {
            Some(timeout) => wait(ladder, timeout, self.tries, rng),
            None => {
                let mut wait = self.backed_off(ladder) + self.cost;
                if !ladder.limit.is_zero() {
                    wait = wait.min(ladder.limit);
                }
                // Jitter is added here, because a shorter timer would cause a spurious retransmission.
                wait.mul_f64(1.0 + drawn(ladder.jitter, rng)) + self.flight.drain_time()
            }
        };
        self.due = deadline(now, wait.min(LONGEST_WAIT));
        if ladder.timeout.is_none() && ladder.tries.is_none() {
            self.due = self.due.min(deadline(self.started, time_limit()));
        }
    }

    /// True if the timer has expired `tries` times without any part of a response or an acknowledgement.
    pub(super) fn is_unheard_after(&self, tries: u32) -> bool {
        self.tries == tries && self.silent == tries && !self.heard
    }

    /// The timer without the octets' part, with its present back-off.
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

    /// Replaces this request by another one, after an answer that asked for it. That answer took a round trip,
    /// too.
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

    /// Replaces the datagrams and keeps the timer.
    pub(super) fn swap(&mut self, now: Instant, datagrams: Datagrams, ladder: &Retransmission) {
        self.flight = Flight::new(datagrams, self.gap(ladder));
        self.last = Some(now);
    }

    /// Handles a datagram of the response, of `octets` without headers. `fragment` is number and total of a new
    /// fragment.
    ///
    /// The first datagram gives the round-trip time. Later ones may have been lost and sent again.
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
            // The fragments before it were in flight as well.
            let before = fragment.map_or(1, |(number, _)| usize::from(number));
            self.sample(now, (octets + OVERHEAD) * before, rtt);
        }
        if let Some((_, total)) = fragment {
            self.on_fragment(now, total, octets, rules, rtt);
        }
    }

    /// Sends the same request in smaller datagrams, after silence. The timers start again, but not the time after
    /// which the peer is given up. `acks` if the peer acknowledges fragments: such a peer knows its request in any
    /// form.
    pub(super) fn refit(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        (ladder, acks): (&Retransmission, bool),
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        self.flight = self.flight.smaller(datagrams, self.gap(ladder), !acks);
        self.start_again(now, ladder, rtt, rng);
    }

    fn gap(&self, ladder: &Retransmission) -> Duration {
        if ladder.timeout.is_some() { Duration::ZERO } else { self.flight.gap() }
    }

    fn start_again(
        &mut self,
        now: Instant,
        ladder: &Retransmission,
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        self.last = Some(now);
        (self.tries, self.backoff, self.silent, self.ask) = (0, 0, 0, None);
        self.cost = self.cost_on(rtt);
        self.arm(now, ladder, rng);
    }

    /// Sends the same request by another path, as if for the first time.
    pub(super) fn move_on(
        &mut self,
        now: Instant,
        ladder: &Retransmission,
        rtt: &Rtt,
        rng: &mut dyn SecureRandom,
    ) {
        self.flight = self.flight.restarted(self.gap(ladder));
        (self.started, self.timer) = (now, timer_of(self.exchange, rtt));
        self.start_again(now, ladder, rtt, rng);
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

    /// The same for the first exchange with a peer.
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

    /// Handles that the path is slower than `rtt` said when the request was sent.
    pub(super) fn slower(&mut self, rtt: &Rtt, ladder: &Retransmission) {
        let (cost, timer) = (self.cost_on(rtt), timer_of(self.exchange, rtt).max(self.timer));
        let more = cost.saturating_sub(self.cost) + timer.saturating_sub(self.timer);
        if ladder.timeout.is_none() && self.tries == 0 {
            (self.cost, self.timer) = (cost, timer);
            self.due = deadline(self.due, more).min(deadline(self.started, time_limit()));
        }
    }

    /// Handles that the response is complete.
    pub(super) fn on_whole(&self, rtt: &mut Rtt) {
        if let Some(arrivals) = self.arrivals.as_ref().filter(|arrivals| arrivals.count > 2) {
            let span = arrivals.last.saturating_duration_since(arrivals.first);
            rtt.arrivals(arrivals.octets, span);
        }
    }

    /// Handles a new fragment, one of `total`. The request has arrived as a whole, and the response is in flight.
    /// The timer is postponed. If no other fragment follows soon, one was lost: the request is sent again to get
    /// it, unless acknowledgements do that.
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
        // The first fragment says nothing about the next ones, except what the path may cost.
        let (one, longest) = (arrivals.count == 1, arrivals.longest);
        let between = if one { rtt.cost(octets + OVERHEAD) / 2 } else { longest };
        let jitter = rtt.round_trip().unwrap_or_default() / 2;
        let mut stall = (between * STALL).max(jitter).max(LEAST_STALL);
        if self.asks > 0 {
            // Fragments that arrived before may be repeated in between, unseen.
            stall += between * u32::from(total);
        }
        let stall = stall.min(LONGEST_TIMER);
        self.ask = (self.asks < MOST_ASKS && !acks).then(|| deadline(now, stall));
        self.put_off(now, self.timer.max(stall) + rtt.cost(MOST_OF_RESPONSE));
    }

    /// Postpones the timer until `wait` has passed, because the peer is alive. But an exchange cannot last longer
    /// by this than by silence.
    fn put_off(&mut self, now: Instant, wait: Duration) {
        let due = deadline(now, wait).min(deadline(self.started, time_limit()));
        self.due = self.due.max(due);
    }

    /// Handles an acknowledgement: the peer lacks the fragments in `ranges`. Returns the number of those that are
    /// sent again.
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
            // A peer that has the whole request is working on it, for as long as that takes.
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

/// The timer of such an exchange without its octets.
fn timer_of(exchange: ExchangeType, rtt: &Rtt) -> Duration {
    if exchange == ExchangeType::IKE_AUTH { rtt.auth_timer() } else { rtt.timer() }
}

/// Octets of an answer that asks for another request, with its headers.
const SMALL: usize = 128;

/// When adaptive retransmission gives up: at the end of strongSwan's schedule.
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
