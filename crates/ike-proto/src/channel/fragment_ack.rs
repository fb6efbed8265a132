//! Fragment acknowledgement (draft-antony-ipsecme-ikev2-fragment-acknowledgment): the receiver of a fragmented
//! message names the missing fragments, and the sender sends only those again.
//!
//! ```text
//! fragments of a request     -->            fragments of a response  <--
//! <--  response flag, SK {N(FRAGMENT_ACK_REQ)}      -->  response flag, SK {N(FRAGMENT_ACK_RES)}
//! ```
//!
//! An acknowledgement has the exchange type and message ID of the message that it acknowledges, and always the
//! response flag. It is not part of the window: it is examined before the window, ends no exchange, and is not
//! absorbed by IntAuth. It is sealed like any other message, so that it has an IV of its own.
//!
//! An acknowledgement without a range says that the request is complete and the response is being made, which a
//! sender that probes wants to know. The draft does not say so, nor does it give such an acknowledgement another
//! meaning.
//!
//! [`arrivals`] decides when to acknowledge, and [`Flight`](super::flight::Flight) what to send again.

mod arrivals;
mod taken;

use std::time::{Duration, Instant};

use super::Channel;
use super::io::Io;
use super::rtt::Rtt;
use super::window::Class;
use crate::event::{Output, Path, Transmit, TransmitKind};
use crate::keys::epoch::{Opened, Outgoing};
use crate::reason::DropReason;
use crate::wire::payload::{MissingRange, Notify, Payload};
use crate::wire::registry::NotifyType;
use crate::wire::{Flags, Header, Message, decode_inner_payloads};
use arrivals::{Arrivals, Known, Report};
use taken::Taken;

/// The most ranges in one acknowledgement. With headers, such an acknowledgement is below the smallest datagram
/// that every path carries. Further ranges are reported when the others have arrived.
const MOST_RANGES: usize = 64;
/// The same for a peer that may not be at its address. Its fragments may be tiny, and an acknowledgement must not
/// be much larger than they are.
const MOST_RANGES_UNPROVEN: usize = 4;
/// Octets of an acknowledgement besides its ranges: IKE header, payload headers, IV, padding and integrity
/// check value of the widest suite.
const OVERHEAD: usize = 28 + 4 + 8 + 16 + 16 + 32;
/// The approximate octets of a fragment.
const USUAL_FRAGMENT: usize = 1280;
/// The longest datagram that may be an acknowledgement. A longer one is not opened as such.
const LONGEST: usize = 4096;

/// What an IKE SA knows of fragments in flight, in both directions.
#[derive(Debug, Default)]
pub(crate) struct FragmentAcks {
    /// Fragments of the peer's request.
    requests: Option<Box<Arrivals>>,
    /// Fragments of the peer's response.
    responses: Option<Box<Arrivals>>,
    /// Acknowledgements of our request.
    of_request: Taken,
    /// Acknowledgements of our response.
    of_response: Taken,
    /// The last response, and when it was sent first and last.
    answered: Option<(u32, Instant, Instant)>,
    /// The time from a response to the peer's next request. It is the only measure of the path that a responder
    /// has.
    turns: Option<Turns>,
}

/// The shortest times from a response of this end to the first sign of the peer's next request. It is unknown
/// which transmission of the response the peer has received.
#[derive(Debug, Clone, Copy)]
struct Turns {
    since_first: Duration,
    since_last: Duration,
}

impl FragmentAcks {
    /// For the successor of the SA: what it has found out about the path.
    pub(super) fn inherited(&self) -> Self {
        Self { turns: self.turns, ..Self::default() }
    }

    /// Handles the first transmission of a request.
    pub(crate) fn on_request(&mut self) {
        self.of_request.start_over();
    }

    /// Handles the first transmission of a response.
    pub(crate) fn on_answered(&mut self, now: Instant, message_id: u32) {
        self.of_response.start_over();
        self.answered = Some((message_id, now, now));
    }

    /// Handles a retransmission of the response.
    pub(crate) fn on_answered_again(&mut self, now: Instant, message_id: u32) {
        if let Some((_, _, last)) = self.answered.as_mut().filter(|(id, ..)| *id == message_id) {
            *last = now;
        }
    }

    /// Handles that our message is sent in smaller fragments from now on: earlier acknowledgements were about
    /// others.
    pub(crate) fn on_refragmented(&mut self, response: bool) {
        if response {
            self.of_response.start_over();
            self.answered = None;
        } else {
            self.of_request.start_over();
        }
    }

    /// Handles the arrival of the peer's message, or of its first fragment.
    pub(crate) fn on_heard(&mut self, now: Instant, header: &Header) {
        let next = |id: u32| !header.flags.response && id.checked_add(1) == Some(header.message_id);
        if let Some((_, first, last)) = self.answered.take_if(|(id, ..)| next(*id)) {
            let since_first = now.saturating_duration_since(first);
            let again = last != first;
            let since_last = if again { now.saturating_duration_since(last) } else { since_first };
            let before = self.turns.unwrap_or(Turns { since_first, since_last });
            self.turns = Some(Turns {
                since_first: since_first.min(before.since_first),
                since_last: since_last.min(before.since_last),
            });
        }
    }

    /// Forgets all messages.
    pub(crate) fn forget(&mut self) {
        for arrivals in [&mut self.requests, &mut self.responses] {
            arrivals.take_if(|arrivals| arrivals.is_whole());
        }
        self.of_response.start_over();
    }

    /// Records that the message in progress is complete.
    pub(crate) fn on_whole(&mut self, response: bool) {
        let arrivals = if response { &mut self.responses } else { &mut self.requests };
        if let Some(arrivals) = arrivals {
            arrivals.on_whole();
        }
    }

    /// What is to be reported of the peer's response or request by now, with its message ID and its path.
    fn report(
        &mut self,
        of_response: bool,
        now: Instant,
        known: Known,
    ) -> Option<(u32, Path, Report)> {
        let arrivals = if of_response { &mut self.responses } else { &mut self.requests };
        let arrivals = arrivals.as_deref_mut()?;
        let report = arrivals.report(now, known)?;
        Some((arrivals.message_id, arrivals.path, report))
    }

    /// Records that the peer was told of fragments up to `last`, beyond which there are `beyond`.
    fn on_told(&mut self, of_response: bool, now: Instant, last: u16, beyond: u16) {
        let arrivals = if of_response { &mut self.responses } else { &mut self.requests };
        if let Some(arrivals) = arrivals {
            arrivals.on_told(now, last, beyond);
        }
    }

    /// The shortest time from a response of this end to the peer's next request.
    pub(super) fn shortest_turn(&self) -> Option<Duration> {
        self.turns.map(|turns| turns.since_first)
    }

    /// What is known of the path, of which `rtt` are the round-trip times.
    fn known(&self, rtt: &Rtt) -> Known {
        let since_last = self.turns.map(|turns| turns.since_last);
        // All of the time of the measured exchanges may be due to their octets.
        let measured = |time: Duration| (time * 3 / 2).max(rtt.cost(USUAL_FRAGMENT) * 2);
        // One fragment is a part of a turn.
        let second = rtt.round_trip().filter(|_| rtt.is_measured()).map(measured);
        Known {
            round_trip: rtt.round_trip().into_iter().chain(since_last).min(),
            second: second.or(self.shortest_turn()),
        }
    }

    /// When the next acknowledgement is due.
    pub(super) fn due(&self, rtt: &Rtt) -> Option<Instant> {
        let all = [&self.requests, &self.responses].into_iter().flatten();
        all.filter_map(|arrivals| arrivals.due(self.known(rtt))).min()
    }
}

impl Channel {
    /// Handles an authentic fragment of the message in progress, new or repeated.
    pub(super) fn on_fragment(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        header: &Header,
        fragment: (u16, u16),
        again: bool,
    ) {
        let now = io.now.mono;
        self.acks.on_heard(now, header);
        if self.link.acknowledges().is_none() {
            return;
        }
        let (number, total) = fragment;
        let follow = self.route.may_follow(&self.link, path);
        let place =
            if header.flags.response { &mut self.acks.responses } else { &mut self.acks.requests };
        match place.as_mut().filter(|arrivals| arrivals.is_of(header.message_id, total)) {
            Some(arrivals) if again => {
                if follow {
                    arrivals.path = path;
                }
                arrivals.on_again();
            }
            Some(arrivals) if !arrivals.is_whole() => arrivals.on_new(now, path, number),
            _ if again => {}
            _ => {
                let arrivals = Arrivals::new(now, path, header.message_id, fragment);
                *place = Some(Box::new(arrivals));
            }
        }
        self.acknowledge(io);
    }

    /// Sends the acknowledgements that are due.
    pub(super) fn acknowledge(&mut self, io: &mut Io<'_>) {
        if let Some(types) = self.link.acknowledges() {
            let (now, known) = (io.now.mono, self.acks.known(self.window.rtt()));
            for of_response in [false, true] {
                let due = self.acks.report(of_response, now, known);
                let Some((id, path, report)) = due else { continue };
                let kind = if of_response { types.response } else { types.request };
                if !self.send_ack(io, path, NotifyType(kind), id, of_response, report) {
                    // The fragments were dropped.
                    *(if of_response {
                        &mut self.acks.responses
                    } else {
                        &mut self.acks.requests
                    }) = None;
                }
            }
        }
    }

    /// Sends one acknowledgement. False if there is nothing to acknowledge.
    fn send_ack(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        kind: NotifyType,
        message_id: u32,
        of_response: bool,
        report: Report,
    ) -> bool {
        let set = if of_response { &self.responses } else { &self.requests };
        let room = self.probe.room(io.mtus, io.now.mono, self.route.path).saturating_sub(OVERHEAD);
        let most = if !of_response && self.route.is_unproven(&self.link, path) {
            MOST_RANGES_UNPROVEN
        } else {
            (room / 4).clamp(1, MOST_RANGES)
        };
        let exchange = match report {
            // The request has been answered meanwhile, and needs no acknowledgement any more.
            Report::Whole => {
                let whole = self.window.in_progress().filter(|(id, _)| *id == message_id);
                whole.map(|(_, exchange)| exchange)
            }
            _ => set.exchange_of(message_id),
        };
        let Some(exchange) = exchange else { return false };
        let (first, last) = match report {
            Report::Whole | Report::All => (1, u16::MAX),
            Report::Gaps(above, below) => (above.saturating_add(1), below.saturating_sub(1)),
        };
        let mut ranges: Vec<_> = set.missing(first, last).take(most + 1).collect();
        let last = if ranges.len() > most {
            ranges.truncate(most);
            ranges.last().map_or(last, |range| range.last)
        } else {
            last
        };
        let beyond = set.above(last);
        if ranges.is_empty() && report != Report::Whole {
            return false;
        }
        let mut data = Vec::with_capacity(ranges.len() * 4);
        MissingRange::encode_all(&ranges, &mut data);
        //= https://www.ietf.org/archive/id/draft-antony-ipsecme-ikev2-fragment-acknowledgment-02#section-3.1
        //# When the initiator sends a FRAGMENT_ACK_RES notification in response
        //# to a fragmented response, it MUST set the IKE header Response (R)
        //# bit.
        let flags = Flags { initiator: self.link.is_initiator(), version: false, response: true };
        let outgoing = Outgoing {
            spi_i: self.link.spis().i(),
            spi_r: self.link.spis().r(),
            exchange,
            flags,
            message_id,
            payloads: &[Payload::Notify(Notify::new(kind, &data))],
            max_datagram: None,
            force_fragment: false,
        };
        // There are no IVs left. The next message that matters ends the SA because of it.
        let Ok(sealed) = self.session.epoch.seal(&outgoing, io.rng) else {
            return false;
        };
        let path = if of_response { self.route.path } else { path };
        for octets in sealed.into_iter().map(Into::into) {
            let (kind, dscp) = (TransmitKind::FragmentAck, self.link.connection().dscp);
            io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
        }
        self.arm_keepalive(io);
        self.acks.on_told(of_response, io.now.mono, last, beyond);
        true
    }

    /// Handles an acknowledgement of a response of this end, for which the window has no place. False if the
    /// message cannot be one.
    pub(super) fn on_possible_ack(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
        class: &Class,
    ) -> bool {
        let header = &message.header;
        let Some(Payload::Sk(sk)) = message.payloads.last() else { return false };
        let possible = matches!(class, Class::Stale | Class::OutOfWindow)
            && header.flags.response
            && self.link.acknowledges().is_some()
            && octets.len() <= LONGEST
            && self.window.fragments_of_answer(header.exchange, header.message_id).is_some();
        if !possible {
            return false;
        }
        let epochs = [Some(&self.session.epoch), self.session.previous.as_deref()];
        let opened = epochs.into_iter().flatten().find_map(|epoch| epoch.open(octets, sk).ok());
        match opened {
            None => io.dropped(path, DropReason::BadIntegrity),
            Some(opened) if self.take_ack(io, path, octets, header, &opened) => {}
            Some(_) => io.dropped(path, DropReason::UsedMessageId),
        }
        true
    }

    /// Acts upon an authentic message if it is an acknowledgement. False if it is something else.
    pub(super) fn take_ack(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        octets: &[u8],
        header: &Header,
        opened: &Opened,
    ) -> bool {
        let agreed = self.link.acknowledges();
        let Some(types) =
            agreed.or_else(|| self.link.announced(io)).filter(|_| header.flags.response)
        else {
            return false;
        };
        let Ok(payloads) = decode_inner_payloads(opened.first, &opened.octets) else {
            return false;
        };
        let is_ack = |payload: &Payload<'_>| match payload {
            Payload::Notify(notify) => [types.request, types.response].contains(&notify.kind.0),
            _ => false,
        };
        if !payloads.iter().any(is_ack) {
            return false;
        }
        if agreed.is_none() {
            // It is no response. Missing fragments are sent again by the timers.
            io.dropped(path, DropReason::AckNotAgreed);
            return true;
        }
        let [Payload::Notify(notify)] = payloads.as_slice() else {
            io.dropped(path, DropReason::AckWithPayloads);
            return true;
        };
        let of_response = notify.kind.0 == types.response;
        let sent = if of_response {
            self.window.fragments_of_answer(header.exchange, header.message_id)
        } else {
            self.window.fragments_of_request(header.exchange, header.message_id)
        };
        let Some(fragments) = sent.filter(|fragments| *fragments > 1) else {
            io.dropped(path, DropReason::AckOfNothing);
            return true;
        };
        let total = u16::try_from(fragments).unwrap_or(u16::MAX);
        let Ok(ranges) = MissingRange::decode_all(notify.data, total) else {
            io.dropped(path, DropReason::AckContradiction);
            return true;
        };
        let digest = io.digest(octets);
        let taken =
            if of_response { &mut self.acks.of_response } else { &mut self.acks.of_request };
        if !taken.take(digest) {
            io.dropped(path, DropReason::AckTooOften);
            return true;
        }
        // Only now: a replayed acknowledgement is no sign of life.
        self.last_heard = io.now.mono;
        let unproven = of_response
            && self.window.answer_to().is_some_and(|to| {
                !to.transport.is_reliable() && self.route.is_unproven(&self.link, to)
            });
        if unproven && !self.route.answers.count_elsewhere(self.route.mobike.is_some()) {
            io.dropped(path, DropReason::SentElsewhereTooOften);
            return true;
        }
        let ranges: Vec<_> = ranges.iter().map(|range| (range.first, range.last)).collect();
        if of_response {
            self.probe.on_response_acknowledged(total, &ranges);
        } else {
            let (again, octets) = (self.window.tries(), self.largest_request());
            self.probe.on_request_acknowledged(io.now.mono, (total, &ranges), again, octets);
        }
        let round_trip = self.acks.known(self.window.rtt()).round_trip;
        self.window.missing(io.now.mono, of_response, round_trip, &ranges);
        self.pace(io);
        true
    }

    /// Handles the transmission of the IKE_SA_INIT response. `again` for a retransmission.
    pub(crate) fn init_answered(&mut self, now: Instant, again: bool) {
        if again {
            self.acks.on_answered_again(now, 0);
        } else {
            self.last_heard = now;
            self.acks.on_answered(now, 0);
        }
    }

    /// True if a repeated fragment is worth opening, because it may be a probe.
    pub(super) fn may_be_asked(&self, now: Instant, header: &Header, total: u16) -> bool {
        let arrivals =
            if header.flags.response { &self.acks.responses } else { &self.acks.requests };
        self.link.acknowledges().is_some()
            && arrivals.as_ref().is_some_and(|arrivals| {
                arrivals.is_of(header.message_id, total)
                    && arrivals.may(now, self.acks.known(self.window.rtt()))
            })
    }
}
