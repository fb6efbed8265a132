//! Received messages of an IKE SA: they are authenticated, reassembled, and handed to their exchange.

use std::time::Duration;

use super::context::{Context, Effect};
use super::io::Io;
use super::keeping::NO_ROOM;
use super::pmtu::headers;
use super::reassembly::{Fragment, Progress};
use super::state::{Established, IkePhase, State};
use super::timer::{Timer, TimerKey};
use super::window::Class;
use super::{Channel, Core, IkeSa};
use crate::event::Path;
use crate::exchange::Refusal;
use crate::ike_sa::session::Session;
use crate::keys::Spis;
use crate::keys::epoch::{Epoch, Opened};
use crate::reason::DropReason;
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use crate::wire::{Header, Message, decode_inner_payloads};

/// How long an incomplete fragmented message is kept (RFC 7383 §2.6).
const REASSEMBLY_TIME: Duration = Duration::from_secs(30);

/// How many times `half_open_timeout` a peer gets while its fragments arrive.
const HALF_OPEN_TIMES: u32 = 4;

impl Established {
    /// True for a request on an SA that has no children yet because two rekeys crossed. It shows that the peer
    /// uses this SA and not that of our rekey. So the children move, and the peer's next try finds them.
    pub(super) fn is_early(
        &self,
        core: &Core,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> bool {
        let IkePhase::Crossed(from) = self.phase else { return false };
        let redundant = payloads.iter().any(|payload| {
            matches!(payload, Payload::Delete(delete) if delete.protocol == ProtocolId::IKE)
        });
        if !redundant {
            ctx.effects.push_back(Effect::Adopt { from, to: core.id() });
        }
        !redundant
    }
}

impl IkeSa {
    /// Handles a datagram with this SA's SPIs. Changes nothing unless the datagram is authentic.
    pub(crate) fn on_datagram(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) {
        let header = &message.header;
        if header.flags.initiator == self.core.is_initiator() {
            return ctx.io.dropped(path, DropReason::WrongInitiatorFlag);
        }
        if Spis::of(header) != self.core.spis() {
            return ctx.io.dropped(path, DropReason::SpisOfNoSa);
        }
        if !self.core.channel.takes_from(path) {
            return ctx.io.dropped(path, DropReason::WrongTransport);
        }
        let fragment = match message.payloads.last() {
            Some(Payload::Sk(_)) => None,
            Some(Payload::Skf(skf)) if self.core.channel.link.takes_fragments() => {
                Some((skf.number, skf.total))
            }
            _ => return ctx.io.dropped(path, DropReason::Unprotected),
        };
        let class = self.core.channel.window.classify(header, fragment);
        if self.core.channel.on_possible_ack(&mut ctx.io, path, octets, message, &class) {
            return;
        }
        match class {
            Class::NewRequest | Class::ExpectedResponse => {
                match self.open(ctx, path, octets, message) {
                    Ok(Some(opened)) => {
                        let whole = fragment.is_none();
                        if whole
                            && self.core.channel.take_ack(
                                &mut ctx.io,
                                path,
                                octets,
                                header,
                                &opened,
                            )
                        {
                            return;
                        }
                        if whole && header.flags.response {
                            self.core.channel.window.on_response_datagram(
                                ctx.io.now.mono,
                                None,
                                octets.len(),
                            );
                        }
                        self.on_authentic(ctx, path, header, &opened);
                    }
                    Ok(None) => {}
                    Err(why) => ctx.io.dropped(path, why),
                }
            }
            Class::RetransmittedRequest => {
                // Only a peer that has the keys gets an answer. So no one else can make this end send large
                // responses (bug class 39).
                if self.core.channel.opens(octets, message) {
                    self.core.channel.fit_response(&mut ctx.io, path, octets, fragment);
                    // The answer goes to a new address only if the peer's address may change, because an attacker
                    // could replay a captured request from any address. A connection leads only to the peer that
                    // opened it.
                    let anywhere = path.transport.is_reliable()
                        || self.core.channel.mobike.is_some()
                        || self.core.channel.may_follow(path);
                    let to = if anywhere { path } else { self.core.channel.answer_to() };
                    let elsewhere =
                        to != self.core.channel.answer_to() || self.core.channel.is_unproven(to);
                    let mobile = self.core.channel.mobike.is_some();
                    if elsewhere
                        && !path.transport.is_reliable()
                        && !self.core.channel.answers.count_elsewhere(mobile)
                    {
                        return ctx.io.dropped(path, DropReason::SentElsewhereTooOften);
                    }
                    self.core.channel.acks.on_answered_again(ctx.io.now.mono, header.message_id);
                    self.core.channel.window.answer_again(to);
                    self.core.channel.pace(&mut ctx.io);
                } else {
                    ctx.io.dropped(path, DropReason::BadIntegrity);
                }
            }
            // The datagram may be a replayed copy, so the answer goes both ways.
            Class::InProgress
                if path != self.core.channel.answer_to() && path.transport.is_reliable() =>
            {
                if self.core.channel.opens(octets, message) {
                    self.core.channel.answers.add(path);
                }
            }
            Class::InProgress => {
                if let Some((_, total)) = fragment
                    && self.core.channel.may_be_asked(ctx.io.now.mono, header, total)
                    && self.core.channel.opens(octets, message)
                {
                    self.core.channel.on_fragment(&mut ctx.io, path, header, (1, total), true);
                }
            }
            Class::Stale => ctx.io.dropped(path, DropReason::UsedMessageId),
            Class::OutOfWindow => ctx.io.dropped(path, DropReason::MessageIdOutOfWindow),
        }
    }

    /// Opens the message, or adds a fragment to it. `Ok(None)` while fragments are missing.
    pub(super) fn open(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<Opened>, DropReason> {
        const BAD: DropReason = DropReason::BadIntegrity;
        let header = &message.header;
        let skf = match message.payloads.last() {
            Some(Payload::Sk(sk)) => {
                let opened = self.core.channel.session.epoch.open(octets, sk).map_err(|_| BAD)?;
                if !header.flags.response {
                    self.core.channel.request_digest = ctx.io.digest(octets);
                    self.core.channel.probe.on_new_request(octets.len() + headers(path), 1);
                }
                return Ok(Some(opened));
            }
            Some(Payload::Skf(skf)) => skf,
            _ => return Err(BAD),
        };
        let set = if header.flags.response {
            &self.core.channel.responses
        } else {
            &self.core.channel.requests
        };
        let payer = set.payer_of(header.message_id);
        let numbers = (skf.number, skf.total);
        if !set.wants(header.message_id, skf.number, skf.total) {
            if set.has(header.message_id, numbers)
                && self.core.channel.may_be_asked(ctx.io.now.mono, header, skf.total)
                && self.core.channel.session.epoch.open_fragment(octets, skf).is_ok()
            {
                self.core.channel.on_fragment(&mut ctx.io, path, header, numbers, true);
            }
            return Err(DropReason::KnownFragment);
        }
        let content =
            self.core.channel.session.epoch.open_fragment(octets, skf).map_err(|_| BAD)?;
        let payer = payer.unwrap_or_else(|| self.core.channel.payer());
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
            self.core.channel.request_digest = ctx.io.digest(octets);
            self.core.channel.probe.on_new_request(octets.len() + headers(path), skf.total);
        }
        self.core
            .channel
            .timers
            .set(TimerKey::Ike(Timer::Reassembly), ctx.io.now.mono + REASSEMBLY_TIME);
        let set = if header.flags.response {
            &mut self.core.channel.responses
        } else {
            &mut self.core.channel.requests
        };
        let progress = set.insert(fragment, payer, ctx.io.budget);
        if matches!(progress, Progress::Incomplete | Progress::Complete(_)) {
            if header.flags.response {
                let number = Some(numbers);
                self.core.channel.window.on_response_datagram(
                    ctx.io.now.mono,
                    number,
                    octets.len(),
                );
            } else {
                self.core.channel.window.on_request_fragment();
                self.core.channel.prolong_half_open(&ctx.io);
                if header.exchange == ExchangeType::IKE_FOLLOWUP_KE
                    && let Some((established, _)) = self.established_mut()
                {
                    established.answering.prolong(&mut established.life, ctx);
                }
            }
        }
        match progress {
            Progress::Complete(opened) => Ok(Some(opened)),
            Progress::Incomplete => {
                self.core.channel.on_fragment(&mut ctx.io, path, header, numbers, false);
                Ok(None)
            }
            Progress::Duplicate => Err(DropReason::KnownFragment),
            Progress::Rejected => Err(DropReason::RefusedFragment),
        }
    }

    /// Handles a complete message from a peer that has the keys.
    pub(super) fn on_authentic(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        header: &Header,
        inner: &Opened,
    ) {
        self.core.channel.last_heard = ctx.io.now.mono;
        if let Some((established, _)) = self.established_mut() {
            established.life.note_sign();
        }
        self.core.channel.acks.on_heard(ctx.io.now.mono, header);
        self.core.channel.acks.on_whole(header.flags.response);
        let decoded = decode_inner_payloads(inner.first, &inner.octets);
        if header.flags.response {
            self.core.channel.responses.release(ctx.io.budget);
            self.core.channel.probe.on_answered(self.core.channel.largest_request());
            self.core.channel.probe.on_heard(
                ctx.io.mtus,
                ctx.io.now.mono,
                self.core.channel.path.remote.ip(),
            );
            if !self.has_room_for(ctx, &decoded, inner) {
                return ctx.io.dropped(path, NO_ROOM);
            }
            if !self.core.channel.window.on_response_authenticated(header.message_id) {
                return;
            }
            if let Some((established, core)) = self.established_mut() {
                established.follow(core, ctx, path);
                established.on_response_by(core, ctx, path);
            }
            match decoded {
                Ok(payloads) => self.on_response(ctx, &payloads, inner),
                Err(error) => {
                    let refusal = Refusal::from(error);
                    self.change(|state, core| state.on_malformed_response(core, ctx, &refusal));
                }
            }
        } else {
            self.core.channel.requests.release(ctx.io.budget);
            if self.state.is_unproven() {
                // It has overtaken the response after which the peer may send requests. It will be repeated.
                return ctx.io.dropped(path, DropReason::RequestBeforeAuth);
            }
            if let Ok(payloads) = &decoded
                && let Some((established, core)) = self.established()
                && established.is_early(core, ctx, payloads)
            {
                return;
            }
            // A message without room counts as lost. The peer sends it again.
            if !self.has_room_for(ctx, &decoded, inner) {
                return ctx.io.dropped(path, NO_ROOM);
            }
            let (id, exchange) = (header.message_id, header.exchange);
            if !self.core.channel.window.on_request_authenticated(
                id,
                exchange,
                self.core.channel.request_digest,
            ) {
                return;
            }
            // The peer has our last response, so nothing under the old keys will be sent again.
            self.core.channel.session.previous = None;
            self.core.channel.probe.on_heard(
                ctx.io.mtus,
                ctx.io.now.mono,
                self.core.channel.path.remote.ip(),
            );
            match self.established_mut() {
                Some((established, core)) => established.follow(core, ctx, path),
                None => self.core.channel.follow_unauthenticated(&mut ctx.io, path),
            }
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.11
            //# An implementation MUST
            //# accept incoming requests even if the source port is not 500 or 4500,
            //# and MUST respond to the address and port from which the request was
            //# received.
            self.core.channel.answers.begin(path);
            match decoded {
                Ok(payloads) => self.on_request(ctx, header.exchange, &payloads, inner),
                Err(error) => self.core.refuse(ctx, Refusal::from(error)),
            }
        }
    }

    pub(crate) fn on_request(
        &mut self,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        self.change(|state, core| state.on_request(core, ctx, exchange, payloads, opened));
    }

    pub(crate) fn on_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        self.change(|state, core| state.on_response(core, ctx, payloads, opened));
    }
}

impl State {
    fn on_request(
        self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Self {
        match (self, exchange) {
            (Self::ExpectIntermediateRequest(waiting), ExchangeType::IKE_INTERMEDIATE) => {
                waiting.on_request(core, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::IKE_INTERMEDIATE)
                if waiting.first.is_none() && waiting.rounds.proven() == 0 =>
            {
                waiting.on_idle_request(core, ctx, payloads, opened)
            }
            // The initiator offers no PPK although both ends announced one: as if this end had none of the offered
            // ones. IKE_AUTH refuses that if a PPK is required.
            (Self::ExpectIntermediateRequest(waiting), ExchangeType::IKE_AUTH)
                if waiting.step.method.is_none() =>
            {
                waiting.auth.on_request(core, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::IKE_AUTH) => {
                waiting.on_request(core, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::INFORMATIONAL)
                if waiting.first.is_some() =>
            {
                waiting.on_complaint(core, ctx, payloads)
            }
            (Self::Established(mut established), ExchangeType::CREATE_CHILD_SA) => {
                established.on_create_child_request(core, ctx, payloads, opened);
                Self::Established(established)
            }
            (Self::Established(mut established), ExchangeType::IKE_FOLLOWUP_KE) => {
                established.on_followup_request(core, ctx, payloads, opened);
                Self::Established(established)
            }
            (Self::Established(mut established), ExchangeType::INFORMATIONAL) => {
                established.on_informational_request(core, ctx, payloads);
                Self::Established(established)
            }
            (state, _) => {
                core.refuse(ctx, NotifyType::INVALID_SYNTAX.into());
                state
            }
        }
    }

    fn on_response(
        self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Self {
        match self {
            Self::ExpectIntermediateResponse(waiting) => {
                waiting.on_response(core, ctx, payloads, opened)
            }
            Self::ExpectAuthResponse(waiting) => waiting.on_response(core, ctx, payloads, opened),
            Self::Established(mut established) => {
                established.on_response(core, ctx, payloads, opened);
                Self::Established(established)
            }
            idle @ (Self::ExpectIntermediateRequest(_)
            | Self::ExpectAuthRequest(_)
            | Self::AwaitRequestSignature(_)
            | Self::AwaitResponderVerdict(_)
            | Self::AwaitInitiatorVerdict(_)
            | Self::AwaitResponseSignature(_)
            | Self::AwaitLease(_)
            | Self::AwaitAuthenticatorPacket(_)
            | Self::AwaitPeerPacket(_)
            | Self::Closed(_)) => {
                debug_assert!(false, "a response, and no request was outstanding");
                idle
            }
        }
    }

    /// Ends the SA because of a response that cannot be decoded.
    fn on_malformed_response(
        self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        refusal: &Refusal,
    ) -> Self {
        let failure = refusal.clone().into();
        match self {
            Self::ExpectAuthResponse(waiting) => {
                core.report_error(ctx, refusal);
                waiting.end(core, failure)
            }
            Self::Established(mut established) => {
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.3
                //# If
                //# errors are seen that indicate that the peers do not have the same
                //# state, it might be good to delete the IKE SA to clean up state and
                //# start over.
                match established.sent.take_if(|ours| !ours.ends_sa()) {
                    Some(ours) => established.abandon(core, ctx, ours, refusal.kind),
                    None => core.end(failure),
                }
                Self::Established(established)
            }
            state => {
                core.end(failure);
                state
            }
        }
    }
}

impl Channel {
    /// True if the peer sealed this message, with the present keys or with those before.
    pub(super) fn opens(&self, octets: &[u8], message: &Message<'_>) -> bool {
        let Session { epoch, previous, .. } = &self.session;
        [Some(epoch), previous.as_deref()].into_iter().flatten().any(|epoch| {
            match message.payloads.last() {
                Some(Payload::Sk(sk)) => epoch.open(octets, sk).is_ok(),
                Some(Payload::Skf(skf)) => epoch.open_fragment(octets, skf).is_ok(),
                _ => false,
            }
        })
    }

    /// Extends the time of a half-open SA whose peer makes progress with authentic fragments. `half_open_timeout`
    /// is not meant for such an SA: FrodoKEM takes longer over 9.6 kbit/s. It gets four times that time at most.
    pub(super) fn prolong_half_open(&mut self, io: &Io<'_>) {
        let key = TimerKey::Ike(Timer::HalfOpen);
        let timeout = io.config.half_open_timeout;
        if let Some(at) = self.timers.get(key).filter(|_| !self.link.is_initiator()) {
            let latest = self.link.started() + timeout.saturating_mul(HALF_OPEN_TIMES);
            self.timers.set(key, at.max((io.now.mono + timeout).min(latest)));
        }
    }
}
