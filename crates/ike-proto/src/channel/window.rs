//! Message IDs and reliability (RFC 7296 §2.1–2.4): one request outstanding in each direction.
//!
//! ```text
//! our requests    next_request_id → start_request → take_request / retransmit* → on_response_authenticated
//! their requests  classify: NewRequest → on_request_authenticated → start_response → take_response
//! ```
//!
//! `classify` takes `&self`: a message changes nothing here before it is authenticated.

mod classify;
mod outstanding;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flight::{self, Departure, Flight};
use super::rtt::Rtt;
use super::send::Unsent;
use crate::config::Retransmission;
use crate::crypto::SecureRandom;
use crate::event::Path;
use crate::wire::registry::ExchangeType;
pub(crate) use classify::Class;
use outstanding::Outstanding;

/// The sealed datagrams of one message. They are shared, so that a retransmission copies nothing.
pub(crate) type Datagrams = Arc<[Arc<[u8]>]>;

/// Octets of a request in flight.
#[cfg(test)]
pub(crate) const OUTSTANDING: usize = size_of::<Outstanding>();

/// What to do when the retransmission timer expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retransmit {
    /// Some datagrams are to be sent. [`Window::take_request`] returns them.
    Again,
    /// The peer does not answer any more.
    GiveUp,
    /// Nothing is due.
    Nothing,
}

/// The window of one IKE SA.
#[derive(Debug)]
pub(crate) struct Window {
    ladder: Retransmission,
    /// Message ID of our next request; `None` after the last one.
    next_request: Option<u32>,
    outstanding: Option<Box<Outstanding>>,
    /// Message ID of the peer's next request; `None` after the last one.
    next_expected: Option<u32>,
    theirs: Theirs,
    /// The response to the peer's latest request, and its path.
    answer: Option<Box<Answer>>,
    rtt: Rtt,
    /// True if the peer acknowledges fragments.
    acks: bool,
    /// True if the last response of the peer was to a probe that was sent once.
    probe_answered: bool,
}

/// A response in flight.
#[derive(Debug)]
struct Answer {
    flight: Flight,
    to: Path,
    /// How often the peer has repeated its request since its last acknowledgement.
    asked: u32,
}

/// The peer's latest request.
#[derive(Debug)]
enum Theirs {
    /// There is none yet.
    Nothing,
    /// Authenticated. Its response is not made yet.
    InProgress { exchange: ExchangeType, request: u64 },
    /// Answered.
    Answered(Box<Answered>),
}

/// A request of the peer, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Exchange type.
    pub(crate) exchange: ExchangeType,
    /// Message ID.
    pub(crate) message_id: u32,
    /// A digest of the request's first datagram.
    pub(crate) request: u64,
    /// The answer.
    pub(crate) response: Datagrams,
}

impl Window {
    /// The window of a new IKE SA: both directions start at message ID 0.
    pub(crate) fn new(ladder: Retransmission) -> Self {
        Self {
            ladder,
            next_request: Some(0),
            outstanding: None,
            next_expected: Some(0),
            theirs: Theirs::Nothing,
            answer: None,
            rtt: Rtt::default(),
            acks: false,
            probe_answered: false,
        }
    }

    /// The window after IKE_SA_INIT, which took message ID 0 of the original initiator's requests.
    pub(super) fn after_init(ladder: Retransmission, initiator: bool) -> Self {
        let window = Self::new(ladder);
        if initiator {
            Self { next_request: Some(1), ..window }
        } else {
            Self { next_expected: Some(1), ..window }
        }
    }

    /// The message ID with which the next request must be sealed.
    pub(crate) fn next_request_id(&self) -> Result<u32, Unsent> {
        if self.outstanding.is_some() {
            return Err(Unsent::Busy);
        }
        self.next_request.ok_or(Unsent::Exhausted)
    }

    /// Records that the request with [`next_request_id`](Self::next_request_id) is sent at `now`. On an error
    /// nothing changes.
    pub(crate) fn start_request(
        &mut self,
        now: Instant,
        exchange: ExchangeType,
        datagrams: Datagrams,
        rng: &mut dyn SecureRandom,
    ) -> Result<(), Unsent> {
        let message_id = self.next_request_id()?;
        self.next_request = message_id.checked_add(1);
        self.outstanding = Some(Box::new(Outstanding::new(
            now,
            exchange,
            message_id,
            datagrams,
            &self.ladder,
            &self.rtt,
            rng,
        )));
        Ok(())
    }

    /// Replaces the outstanding request by other datagrams under its message ID, and starts the schedule again: an
    /// IKE_SA_INIT with a cookie or another key exchange method (RFC 7296 §2.2), or smaller fragments (RFC 7383
    /// §2.5.2). False if no request is outstanding.
    pub(crate) fn replace_request(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        rng: &mut dyn SecureRandom,
    ) -> bool {
        let Some(ours) = &mut self.outstanding else { return false };
        ours.replace(now, datagrams, &self.ladder, &mut self.rtt, rng);
        true
    }

    /// As [`replace_request`](Self::replace_request), but the schedule continues.
    pub(crate) fn swap_request(&mut self, now: Instant, datagrams: Datagrams) -> bool {
        let Some(ours) = &mut self.outstanding else { return false };
        ours.swap(now, datagrams, &self.ladder);
        true
    }

    /// The datagrams of the outstanding request.
    pub(crate) fn outstanding_datagrams(&self) -> Option<&Datagrams> {
        self.outstanding.as_ref().map(|ours| ours.flight.datagrams())
    }

    /// Sends the outstanding request in smaller datagrams from now on, and starts its timers again (RFC 7383
    /// §2.5.2).
    pub(crate) fn refit_request(
        &mut self,
        now: Instant,
        datagrams: Datagrams,
        rng: &mut dyn SecureRandom,
    ) {
        if let Some(ours) = &mut self.outstanding {
            ours.refit(now, datagrams, (&self.ladder, self.acks), &self.rtt, rng);
        }
    }

    // ---- probes ----

    /// Makes the outstanding request, which was not sent yet, a probe of the path.
    pub(super) fn begin_probe(&mut self) {
        if let Some(ours) = &mut self.outstanding {
            ours.flight.begin_probe();
        }
    }

    /// True if the outstanding request is a probe that was sent once.
    pub(super) fn is_probing(&self) -> bool {
        self.outstanding.as_ref().is_some_and(|ours| ours.flight.is_probe())
    }

    /// True if the last response of the peer was to a probe that was sent once: the path carries its datagram.
    pub(crate) fn is_probe_answered(&self) -> bool {
        self.probe_answered
    }

    // ---- the request again ----

    /// Handles another path: the outstanding request is sent on it at once, and its timers start again.
    pub(super) fn on_moved(&mut self, now: Instant, rng: &mut dyn SecureRandom) {
        if let Some(ours) = &mut self.outstanding {
            ours.move_on(now, &self.ladder, &self.rtt, rng);
        }
    }

    /// The response that is kept.
    pub(crate) fn response(&self) -> Option<&Datagrams> {
        match &self.theirs {
            Theirs::Answered(answered) => Some(&answered.response),
            Theirs::Nothing | Theirs::InProgress { .. } => None,
        }
    }

    /// Sends the kept response in smaller datagrams from now on.
    pub(crate) fn refit_response(&mut self, datagrams: Datagrams) {
        let gap = self.gap();
        let Theirs::Answered(answered) = &mut self.theirs else {
            return debug_assert!(false, "another form of a response that is not kept");
        };
        answered.response = Arc::clone(&datagrams);
        if let Some(answer) = &mut self.answer {
            answer.flight = Flight::new(datagrams, gap);
        }
    }

    /// Exchange type and message ID of the outstanding request.
    pub(crate) fn outstanding(&self) -> Option<(ExchangeType, u32)> {
        self.outstanding.as_ref().map(|ours| (ours.exchange, ours.message_id))
    }

    /// Sends the outstanding request again, on another connection. False if there is none.
    pub(crate) fn request_again(&mut self) -> bool {
        let Some(ours) = &mut self.outstanding else { return false };
        ours.flight.again(true);
        true
    }

    /// Number of datagrams of the outstanding request, if it is this one.
    pub(crate) fn fragments_of_request(&self, exchange: ExchangeType, id: u32) -> Option<usize> {
        let ours = self.outstanding.as_ref()?;
        ((ours.exchange, ours.message_id) == (exchange, id)).then(|| ours.flight.datagrams().len())
    }

    /// Number of datagrams of the kept answer, if it is to this request.
    pub(crate) fn fragments_of_answer(&self, exchange: ExchangeType, id: u32) -> Option<usize> {
        let Theirs::Answered(answered) = &self.theirs else { return None };
        let its = (answered.exchange, answered.message_id) == (exchange, id);
        its.then_some(answered.response.len())
    }

    /// Ends the outstanding request: its response is authenticated and complete. False if `message_id` is another
    /// one.
    pub(crate) fn on_response_authenticated(&mut self, message_id: u32) -> bool {
        let ours = self.outstanding.take_if(|ours| ours.message_id == message_id);
        if let Some(ours) = &ours {
            self.probe_answered = ours.flight.is_probe();
            ours.on_whole(&mut self.rtt);
        }
        ours.is_some()
    }

    /// Records an authentic datagram of the outstanding request's response, of `octets`. `fragment` is number and
    /// total of a new fragment.
    pub(crate) fn on_response_datagram(
        &mut self,
        now: Instant,
        fragment: Option<(u16, u16)>,
        octets: usize,
    ) {
        if let Some(ours) = &mut self.outstanding {
            let rules = (&self.ladder, self.acks);
            ours.on_datagram(now, fragment, octets, rules, &mut self.rtt);
        }
    }

    /// Records a new authentic fragment of the peer's next request, which shows that the peer has our last
    /// response.
    pub(crate) fn on_request_fragment(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.flight.hold();
        }
    }

    /// What is known of the path if the IKE_SA_INIT response of `octets` that has just come is genuine.
    pub(crate) fn rtt_with(&self, now: Instant, octets: usize) -> Rtt {
        let mut rtt = self.rtt.clone();
        if let Some(ours) = &self.outstanding {
            ours.sample_first(now, octets, &mut rtt);
        }
        rtt
    }

    /// Handles a repeated response to IKE_SA_INIT: there was one for each transmission of the request.
    pub(super) fn on_init_answered_twice(&mut self) {
        if self.rtt.answered_twice()
            && let Some(ours) = &mut self.outstanding
        {
            ours.slower(&self.rtt, &self.ladder);
        }
    }

    /// What is known of the path.
    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Starts with what another IKE SA with this peer has learnt.
    pub(crate) fn inherit(&mut self, rtt: Rtt) {
        self.rtt = rtt;
    }

    /// A round-trip time for pacing, until an exchange of ours has measured it.
    pub(crate) fn suppose_round_trip(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.rtt.suppose(time);
        }
    }

    /// Records whether the peer acknowledges fragments. [`missing`](Self::missing) handles acknowledgements.
    pub(super) fn set_fragment_acks(&mut self, acks: bool) {
        self.acks = acks;
    }

    /// Handles an authentic acknowledgement: the peer lacks the fragments of these ranges (first to last, from 1)
    /// of our outstanding request, or of our last response, and no others that it could have. They are sent again,
    /// except those sent within half a `round_trip`. Returns their number. The caller has checked the message ID
    /// and the exchange.
    pub(crate) fn missing(
        &mut self,
        now: Instant,
        response: bool,
        round_trip: Option<Duration>,
        ranges: &[(u16, u16)],
    ) -> usize {
        let lately = round_trip.map_or(LATELY, |time| (time / 2).max(LEAST_LATELY));
        if response {
            let Some(answer) = &mut self.answer else { return 0 };
            answer.asked = 0;
            return answer.flight.missing(now, ranges, lately);
        }
        let Some(ours) = &mut self.outstanding else { return 0 };
        ours.missing(now, ranges, &self.ladder, &mut self.rtt, lately)
    }

    /// Sends nothing of our request until the timer expires again.
    pub(crate) fn hold_request(&mut self) {
        if let Some(ours) = &mut self.outstanding {
            ours.flight.hold();
        }
    }

    /// Takes the next datagram of our request that may be sent now.
    pub(crate) fn take_request(&mut self, now: Instant) -> Option<Departure> {
        self.outstanding.as_mut()?.flight.take_due(now)
    }

    /// Takes the next datagram of our response that may be sent now, and its path.
    pub(crate) fn take_response(&mut self, now: Instant) -> Option<(Path, Departure)> {
        let answer = self.answer.as_mut()?;
        Some((answer.to, answer.flight.take_due(now)?))
    }

    /// As [`take_response`](Self::take_response), whether it is due or not, because the IKE SA ends.
    pub(crate) fn take_rest(&mut self) -> Option<(Path, Departure)> {
        let answer = self.answer.as_mut()?;
        Some((answer.to, answer.flight.take_any()?))
    }

    /// When there is a datagram to take.
    pub(super) fn next_departure(&self, now: Instant) -> Option<Instant> {
        let request = self.outstanding.as_ref().and_then(|ours| ours.flight.next_at(now));
        let response = self.answer.as_ref().and_then(|answer| answer.flight.next_at(now));
        request.into_iter().chain(response).min()
    }

    /// Drops the outstanding request without a response. Its message ID stays used, so only an IKE SA that is
    /// about to end may do this (RFC 7296 §2.8.2, §2.25.2).
    pub(crate) fn abandon_request(&mut self) {
        self.outstanding = None;
    }

    /// When [`retransmit`](Self::retransmit) is due.
    pub(crate) fn next_retransmit(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|ours| ours.next())
    }

    /// Takes one step of the retransmission schedule if it is due at `now`.
    pub(crate) fn retransmit(&mut self, now: Instant, rng: &mut dyn SecureRandom) -> Retransmit {
        let Some(ours) = &mut self.outstanding else { return Retransmit::Nothing };
        ours.step(now, &self.ladder, &mut self.rtt, self.acks, rng)
    }

    /// The outstanding request and its octets, if it is large and its timer has expired [`TELLING`] times without a
    /// sign that any of it has arrived.
    pub(crate) fn large_unanswered(&self) -> Option<(ExchangeType, usize)> {
        let ours = self.outstanding.as_ref()?;
        let octets = ours.flight.octets();
        (octets > LARGE && ours.is_unheard_after(TELLING)).then_some((ours.exchange, octets))
    }

    /// How often the timer of the outstanding request has expired.
    pub(crate) fn tries(&self) -> u32 {
        self.outstanding.as_ref().map_or(0, |ours| ours.tries)
    }

    /// Records that the expected request is authenticated and complete, and is being answered. `request` is a
    /// digest of its first datagram. The former response is dropped, because the peer has it (RFC 7296 §2.1).
    /// False, without any change, if `message_id` is not the expected one.
    pub(crate) fn on_request_authenticated(
        &mut self,
        message_id: u32,
        exchange: ExchangeType,
        request: u64,
    ) -> bool {
        let due = self.next_expected == Some(message_id)
            && !matches!(self.theirs, Theirs::InProgress { .. });
        if due {
            self.theirs = Theirs::InProgress { exchange, request };
            self.answer = None;
        }
        due
    }

    /// Message ID and exchange type of the request being answered.
    pub(crate) fn in_progress(&self) -> Option<(u32, ExchangeType)> {
        match self.theirs {
            Theirs::InProgress { exchange, .. } => Some((self.next_expected?, exchange)),
            _ => None,
        }
    }

    /// Records that the response to the request in progress is sent, and keeps it in case the request is repeated.
    /// False if no request is in progress.
    pub(super) fn start_response(&mut self, to: Path, response: Datagrams) -> bool {
        let Theirs::InProgress { exchange, request } = self.theirs else { return false };
        let Some(message_id) = self.next_expected else { return false };
        let flight = Flight::new(Arc::clone(&response), self.gap());
        self.answer = Some(Box::new(Answer { flight, to, asked: 0 }));
        let answered = Answered { exchange, message_id, request, response };
        self.theirs = Theirs::Answered(Box::new(answered));
        self.next_expected = message_id.checked_add(1);
        true
    }

    /// Handles a repetition of the peer's last request from `to`: sends the response again, or of a long response
    /// the fragment that makes the peer acknowledge.
    pub(crate) fn answer_again(&mut self, to: Path) {
        let Some(answer) = &mut self.answer else {
            return debug_assert!(false, "a request without an answer is answered again");
        };
        answer.to = to;
        if !answer.flight.is_idle() {
            // It is being sent already.
            return;
        }
        answer.asked += 1;
        if self.acks && self.ladder.timeout.is_none() && answer.asked <= 1 {
            answer.flight.probe();
        } else {
            answer.flight.again(false);
        }
    }

    /// The path of the kept response.
    pub(crate) fn answer_to(&self) -> Option<Path> {
        self.answer.as_ref().map(|answer| answer.to)
    }

    /// Time between datagrams of a large message.
    fn gap(&self) -> Duration {
        if self.ladder.timeout.is_some() { Duration::ZERO } else { flight::gap(&self.rtt) }
    }

    /// Returns the kept answer, when the IKE SA has ended.
    pub(crate) fn take_answered(&mut self) -> Option<Answered> {
        match std::mem::replace(&mut self.theirs, Theirs::Nothing) {
            Theirs::Answered(answered) => Some(*answered),
            Theirs::Nothing | Theirs::InProgress { .. } => None,
        }
    }

    /// Drops the kept answer.
    pub(crate) fn forget_answer(&mut self) {
        if matches!(self.theirs, Theirs::Answered(_)) {
            self.theirs = Theirs::Nothing;
            self.answer = None;
        }
    }
}

/// The wait after try `n` of strongSwan's schedule: `timeout * base^n`, at most `limit`, minus the jitter.
fn wait(
    ladder: &Retransmission,
    timeout: Duration,
    n: u32,
    rng: &mut dyn SecureRandom,
) -> Duration {
    let power = ladder.base.max(1.0).powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut wait = Duration::try_from_secs_f64(timeout.as_secs_f64() * power)
        .unwrap_or(LONGEST_WAIT)
        .min(LONGEST_WAIT);
    if !ladder.limit.is_zero() {
        wait = wait.min(ladder.limit);
    }
    wait.mul_f64(1.0 - drawn(ladder.jitter, rng))
}

/// A random part of up to `jitter` percent of 1.
fn drawn(jitter: u32, rng: &mut dyn SecureRandom) -> f64 {
    if jitter == 0 {
        return 0.0;
    }
    let mut octets = [0; 4];
    rng.fill(&mut octets);
    let drawn = f64::from(u32::from_be_bytes(octets)) / f64::from(u32::MAX);
    drawn * f64::from(jitter.min(100)) / 100.0
}

/// `now + wait`, or `now` on a clock that cannot hold the sum.
fn deadline(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now)
}

/// The shortest time before a fragment is sent again if the round-trip time is unknown: an acknowledgement within
/// this time is older than its last transmission.
const LATELY: Duration = Duration::from_millis(5);
const LEAST_LATELY: Duration = Duration::from_millis(1);

/// Octets of a message that no path carries in one datagram.
const LARGE: usize = 2000;

/// A large message that was sent so often without a sign of the peer is more likely too large than lost.
const TELLING: u32 = 4;

/// A day. It keeps the sum with any reasonable `Instant` in range, whatever the configuration says.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests;
