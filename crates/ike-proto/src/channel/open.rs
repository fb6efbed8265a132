//! From the datagrams of the peer to its messages: they are authenticated and reassembled. A message may still be
//! refused before it is accepted, and then it is as if it had been lost.

use std::time::Duration;

use super::Channel;
use super::deadlines::Deadlines;
use super::io::Io;
use super::pmtu::headers;
use super::reassembly::{Fragment, Progress};
use super::timer::{Timer, TimerKey};
use super::window::Class;
use crate::event::Path;
use crate::keys::Spis;
use crate::keys::epoch::{Epoch, Opened};
use crate::reason::DropReason;
use crate::wire::payload::Payload;
use crate::wire::{Header, Message};

/// How long an incomplete fragmented message is kept (RFC 7383 §2.6).
const REASSEMBLY_TIME: Duration = Duration::from_secs(30);

/// What came with a datagram.
pub(crate) enum Received {
    /// A new fragment of a message that is not complete.
    Fragment,
    /// The last fragment of this message.
    Fragmented(Opened),
    /// All of this message.
    Whole(Opened),
}

impl Channel {
    /// Handles a datagram with this SA's SPIs. Changes nothing unless the datagram is authentic. `Ok(None)` if it has
    /// nothing new for the SA.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    pub(crate) fn receive(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<Received>, DropReason> {
        let header = &message.header;
        if header.flags.initiator == self.link.is_initiator() {
            return Err(DropReason::WrongInitiatorFlag);
        }
        if Spis::of(header) != self.link.spis() {
            return Err(DropReason::SpisOfNoSa);
        }
        if !self.route.takes_from(&self.link, path) {
            return Err(DropReason::WrongTransport);
        }
        let fragment = match message.payloads.last() {
            Some(Payload::Sk(_)) => None,
            Some(Payload::Skf(skf)) if self.link.takes_fragments() => Some((skf.number, skf.total)),
            _ => return Err(DropReason::Unprotected),
        };
        let class = self.window.classify(header, fragment);
        if self.on_possible_ack(io, path, octets, message, &class) {
            return Ok(None);
        }
        match class {
            Class::NewRequest | Class::ExpectedResponse => {
                let received = self.open(io, path, octets, message)?;
                if let Received::Whole(opened) = &received {
                    if self.take_ack(io, path, octets, header, opened) {
                        return Ok(None);
                    }
                    if header.flags.response {
                        self.window.on_response_datagram(io.now.mono, None, octets.len());
                    }
                }
                return Ok(Some(received));
            }
            // Only a peer that has the keys gets an answer. So no one else can make this end send large responses
            // (bug class 39).
            Class::RetransmittedRequest if self.session.opens(octets, message) => {
                self.fit_response(io, path, octets, fragment);
                self.answer_again(io, path, header.message_id)?;
            }
            Class::RetransmittedRequest => return Err(DropReason::BadIntegrity),
            // The datagram may be a replayed copy, so the answer goes both ways.
            Class::InProgress if path != self.route.answer_to() && path.transport.is_reliable() => {
                if self.session.opens(octets, message) {
                    self.route.answers.add(path);
                }
            }
            Class::InProgress => {
                if let Some((_, total)) = fragment
                    && self.may_be_asked(io.now.mono, header, total)
                    && self.session.opens(octets, message)
                {
                    self.on_fragment(io, path, header, (1, total), true);
                }
            }
            Class::Stale => return Err(DropReason::UsedMessageId),
            Class::OutOfWindow => return Err(DropReason::MessageIdOutOfWindow),
        }
        Ok(None)
    }

    /// Sends the response again for a repeated request that came by `path`.
    fn answer_again(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        message_id: u32,
    ) -> Result<(), DropReason> {
        // The answer goes to a new address only if the peer's address may change, because an attacker could replay a
        // captured request from any address. A connection leads only to the peer that opened it.
        let reliable = path.transport.is_reliable();
        let anywhere =
            reliable || self.route.mobike.is_some() || self.route.may_follow(&self.link, path);
        let to = if anywhere { path } else { self.route.answer_to() };
        let elsewhere = to != self.route.answer_to() || self.route.is_unproven(&self.link, to);
        if elsewhere
            && !reliable
            && !self.route.answers.count_elsewhere(self.route.mobike.is_some())
        {
            return Err(DropReason::SentElsewhereTooOften);
        }
        self.acks.on_answered_again(io.now.mono, message_id);
        self.window.answer_again(to);
        self.pace(io);
        Ok(())
    }

    /// Opens the message, or adds a fragment to it.
    fn open(
        &mut self,
        io: &mut Io<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) -> Result<Received, DropReason> {
        const BAD: DropReason = DropReason::BadIntegrity;
        let header = &message.header;
        let skf = match message.payloads.last() {
            Some(Payload::Sk(sk)) => {
                let opened = self.session.epoch.open(octets, sk).map_err(|_| BAD)?;
                if !header.flags.response {
                    self.request_digest = io.digest(octets);
                    self.probe.on_new_request(octets.len() + headers(path), 1);
                }
                return Ok(Received::Whole(opened));
            }
            Some(Payload::Skf(skf)) => skf,
            _ => return Err(BAD),
        };
        let set = if header.flags.response { &self.responses } else { &self.requests };
        let payer = set.payer_of(header.message_id);
        let numbers = (skf.number, skf.total);
        if !set.wants(header.message_id, skf.number, skf.total) {
            if set.has(header.message_id, numbers)
                && self.may_be_asked(io.now.mono, header, skf.total)
                && self.session.epoch.open_fragment(octets, skf).is_ok()
            {
                self.on_fragment(io, path, header, numbers, true);
            }
            return Err(DropReason::KnownFragment);
        }
        let content = self.session.epoch.open_fragment(octets, skf).map_err(|_| BAD)?;
        let payer = payer.unwrap_or_else(|| self.link.payer(self.route.path));
        let fragment = Fragment {
            message_id: header.message_id,
            exchange: header.exchange,
            number: skf.number,
            total: skf.total,
            first: skf.first,
            content,
            front: if skf.number == 1 { Epoch::fragment_front(octets, skf) } else { Vec::new() },
        };
        if skf.number == 1 && !header.flags.response {
            self.request_digest = io.digest(octets);
            self.probe.on_new_request(octets.len() + headers(path), skf.total);
        }
        self.timers.set(TimerKey::Ike(Timer::Reassembly), io.now.mono + REASSEMBLY_TIME);
        let set = if header.flags.response { &mut self.responses } else { &mut self.requests };
        let progress = set.insert(fragment, payer, io.budget);
        if matches!(progress, Progress::Incomplete | Progress::Complete(_)) {
            if header.flags.response {
                let number = Some(numbers);
                self.window.on_response_datagram(io.now.mono, number, octets.len());
            } else {
                self.window.on_request_fragment();
                Deadlines::of(&mut self.timers).prolong_half_open(io, &self.link);
            }
        }
        match progress {
            Progress::Complete(opened) => Ok(Received::Fragmented(opened)),
            Progress::Incomplete => {
                self.on_fragment(io, path, header, numbers, false);
                Ok(Received::Fragment)
            }
            Progress::Duplicate => Err(DropReason::KnownFragment),
            Progress::Rejected => Err(DropReason::RefusedFragment),
        }
    }

    /// Handles that a message of the peer is complete, whether the SA takes it or not.
    pub(crate) fn note_authentic(&mut self, io: &mut Io<'_>, header: &Header) {
        self.last_heard = io.now.mono;
        self.acks.on_heard(io.now.mono, header);
        self.acks.on_whole(header.flags.response);
        if header.flags.response {
            self.responses.release(io.budget);
            self.probe.on_answered(self.largest_request());
            self.probe.on_heard(io.mtus, io.now.mono, self.route.path.remote.ip());
        } else {
            self.requests.release(io.budget);
        }
    }

    /// Takes the message with this header, which came by `path`. The window advances here and nowhere else. False if
    /// the message has no place in it any more.
    pub(crate) fn accept(&mut self, io: &mut Io<'_>, path: Path, header: &Header) -> bool {
        let (id, exchange) = (header.message_id, header.exchange);
        if header.flags.response {
            return self.window.on_response_authenticated(id);
        }
        if !self.window.on_request_authenticated(id, exchange, self.request_digest) {
            return false;
        }
        // The peer has our last response, so nothing under the old keys will be sent again.
        self.session.previous = None;
        self.probe.on_heard(io.mtus, io.now.mono, self.route.path.remote.ip());
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.11
        //# An implementation MUST
        //# accept incoming requests even if the source port is not 500 or 4500,
        //# and MUST respond to the address and port from which the request was
        //# received.
        self.route.answers.begin(path);
        true
    }
}
