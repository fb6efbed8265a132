//! Authentic messages of the peer: whether the SA takes them, and the exchange to which each belongs.

use super::context::{Context, Effect};
use super::keeping::NO_ROOM;
use super::state::{Established, IkePhase, State};
use super::{IkeSa, Stem};
use crate::channel::{Channel, Received};
use crate::event::Path;
use crate::exchange::Refusal;
use crate::keys::epoch::Opened;
use crate::reason::DropReason;
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use crate::wire::{Header, Message, decode_inner_payloads};

impl Established {
    /// True for a request on an SA that has no children yet because two rekeys crossed. It shows that the peer
    /// uses this SA and not that of our rekey. So the children move, and the peer's next try finds them.
    pub(super) fn is_early(
        &self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> bool {
        let IkePhase::Crossed(from) = self.phase else { return false };
        let redundant = payloads.iter().any(|payload| {
            matches!(payload, Payload::Delete(delete) if delete.protocol == ProtocolId::IKE)
        });
        if !redundant {
            ctx.effects.push_back(Effect::Adopt { from, to: channel.link().id() });
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
        match self.channel.receive(&mut ctx.io, path, octets, message) {
            Ok(None) => {}
            Ok(Some(Received::Fragment)) => self.on_fragment(ctx, header),
            Ok(Some(Received::Fragmented(opened))) => {
                self.on_fragment(ctx, header);
                self.on_authentic(ctx, path, header, &opened);
            }
            Ok(Some(Received::Whole(opened))) => self.on_authentic(ctx, path, header, &opened),
            Err(why) => ctx.io.dropped(path, why),
        }
    }

    /// Handles a new fragment: a peer that makes progress with a further key exchange gets more time.
    fn on_fragment(&mut self, ctx: &Context<'_>, header: &Header) {
        if !header.flags.response && header.exchange == ExchangeType::IKE_FOLLOWUP_KE {
            self.when_established(|established, _| {
                established.answering.prolong(&mut established.life, ctx);
            });
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
        self.channel.note_authentic(&mut ctx.io, header);
        self.when_established(|established, _| established.life.note_sign());
        let decoded = decode_inner_payloads(inner.first, &inner.octets);
        if header.flags.response {
            if !self.has_room_for(ctx, &decoded, inner) {
                return ctx.io.dropped(path, NO_ROOM);
            }
            if !self.channel.accept(&mut ctx.io, path, header) {
                return;
            }
            self.when_established(|established, stem| {
                established.follow(stem.channel, ctx, path);
                if let Some(heard) = stem.channel.roaming().heard() {
                    established.on_response_by(stem.channel, ctx, path, heard);
                }
            });
            match decoded {
                Ok(payloads) => self.on_response(ctx, &payloads, inner),
                Err(error) => {
                    let refusal = Refusal::from(error);
                    self.change(|state, stem| state.on_malformed_response(stem, ctx, &refusal));
                }
            }
        } else {
            if self.state.is_unproven() {
                // It has overtaken the response after which the peer may send requests. It will be repeated.
                return ctx.io.dropped(path, DropReason::RequestBeforeAuth);
            }
            if let Ok(payloads) = &decoded
                && let Some(established) = self.established()
                && established.is_early(&self.channel, ctx, payloads)
            {
                return;
            }
            // A message without room counts as lost. The peer sends it again.
            if !self.has_room_for(ctx, &decoded, inner) {
                return ctx.io.dropped(path, NO_ROOM);
            }
            if !self.channel.accept(&mut ctx.io, path, header) {
                return;
            }
            let follow = |established: &mut Established, stem: &mut Stem<'_>| {
                established.follow(stem.channel, ctx, path);
            };
            if self.when_established(follow).is_none() {
                self.channel.follow_unauthenticated(&mut ctx.io, path);
            }
            match decoded {
                Ok(payloads) => self.on_request(ctx, header.exchange, &payloads, inner),
                Err(error) => self.stem().refuse(ctx, Refusal::from(error)),
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
        self.change(|state, stem| state.on_request(stem, ctx, exchange, payloads, opened));
    }

    pub(crate) fn on_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        self.change(|state, stem| state.on_response(stem, ctx, payloads, opened));
    }
}

impl State {
    fn on_request(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Self {
        match (self, exchange) {
            (Self::ExpectIntermediateRequest(waiting), ExchangeType::IKE_INTERMEDIATE) => {
                waiting.on_request(stem, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::IKE_INTERMEDIATE)
                if waiting.first.is_none() && waiting.rounds.proven() == 0 =>
            {
                waiting.on_idle_request(stem, ctx, payloads, opened)
            }
            // The initiator offers no PPK although both ends announced one: as if this end had none of the offered
            // ones. IKE_AUTH refuses that if a PPK is required.
            (Self::ExpectIntermediateRequest(waiting), ExchangeType::IKE_AUTH)
                if waiting.step.method.is_none() =>
            {
                waiting.auth.on_request(stem, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::IKE_AUTH) => {
                waiting.on_request(stem, ctx, payloads, opened)
            }
            (Self::ExpectAuthRequest(waiting), ExchangeType::INFORMATIONAL)
                if waiting.first.is_some() =>
            {
                waiting.on_complaint(stem, ctx, payloads)
            }
            (Self::Established(mut established), ExchangeType::CREATE_CHILD_SA) => {
                established.on_create_child_request(stem, ctx, payloads, opened);
                Self::Established(established)
            }
            (Self::Established(mut established), ExchangeType::IKE_FOLLOWUP_KE) => {
                established.on_followup_request(stem, ctx, payloads, opened);
                Self::Established(established)
            }
            (Self::Established(mut established), ExchangeType::INFORMATIONAL) => {
                established.on_informational_request(stem, ctx, payloads);
                Self::Established(established)
            }
            (state, _) => {
                stem.refuse(ctx, NotifyType::INVALID_SYNTAX.into());
                state
            }
        }
    }

    fn on_response(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Self {
        match self {
            Self::ExpectIntermediateResponse(waiting) => {
                waiting.on_response(stem, ctx, payloads, opened)
            }
            Self::ExpectAuthResponse(waiting) => waiting.on_response(stem, ctx, payloads, opened),
            Self::Established(mut established) => {
                established.on_response(stem, ctx, payloads, opened);
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
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        refusal: &Refusal,
    ) -> Self {
        let failure = refusal.clone().into();
        match self {
            Self::ExpectAuthResponse(waiting) => {
                stem.report_error(ctx, refusal);
                waiting.end(stem, failure)
            }
            Self::Established(mut established) => {
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.3
                //# If
                //# errors are seen that indicate that the peers do not have the same
                //# state, it might be good to delete the IKE SA to clean up state and
                //# start over.
                match established.sent.take_if(|ours| !ours.ends_sa()) {
                    Some(ours) => established.abandon(stem.channel, ctx, ours, refusal.kind),
                    None => stem.ending.end(failure),
                }
                Self::Established(established)
            }
            state => {
                stem.ending.end(failure);
                state
            }
        }
    }
}
