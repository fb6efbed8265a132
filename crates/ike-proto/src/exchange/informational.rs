//! INFORMATIONAL (RFC 7296 §1.4): deletes, liveness checks and notifies.
//!
//! ```text
//!    HDR, SK {[N,] [D,] [CP,] ...}  -->
//!                               <--  HDR, SK {[N,] [D,] [CP,] ...}
//! ```

use super::config::OwnedConfig;
use super::{Payloads, payloads_of};
use crate::channel::Channel;
use crate::channel::timer::{Timer, TimerKey};
use crate::event::{ChildSaId, Failure, IkeSaId, RequestId};
use crate::exchange::mobike::Ends;
use crate::exchange::redirect::ToldGateway;
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::collision::{self, ChildActivity, DeleteAnswer, IkeDelete};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase};
use crate::wire::payload::{Delete, Payload};
use crate::wire::registry::{ExchangeType, ProtocolId};

impl Established {
    /// Checks that the peer is alive, by an empty request (RFC 7296 §2.4).
    pub(crate) fn send_liveness(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
        //# When the initiator is behind a NAT (as detected earlier using the
        //# NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP
        //# notifications), it SHOULD include these notifications in DPD messages
        let mapped = stem.channel.route().decides() && stem.channel.route().nat().local;
        let nat = (mapped && stem.channel.route().nat().supported)
            .then(|| Ends::of(stem.channel).nat_hashes(ctx));
        let mut payloads = Vec::new();
        if let Some(nat) = &nat {
            nat.push(&mut payloads);
        }
        self.inform(stem, ctx, &payloads, Sent::Liveness);
    }

    /// Deletes the pair of SAs whose inbound SA has `spi`.
    pub(crate) fn send_delete_child(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        spi: u32,
        ours: Sent,
    ) {
        let delete = Delete { protocol: ProtocolId::ESP, spis: vec![spi] };
        self.inform(stem, ctx, &[Payload::Delete(delete)], ours);
    }

    pub(crate) fn send_delete_ike(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        reason: Failure,
        request: Option<RequestId>,
    ) {
        if self.phase == IkePhase::Alive {
            self.phase = IkePhase::Closing;
        }
        let delete = Delete { protocol: ProtocolId::IKE, spis: Vec::new() };
        self.inform(stem, ctx, &[Payload::Delete(delete)], Sent::DeleteIke { reason, request });
    }

    pub(crate) fn inform(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        ours: Sent,
    ) {
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, payloads);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        self.sent = Some(ours);
    }

    /// The peer has confirmed the delete of `child`.
    pub(crate) fn on_child_deleted(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        reason: &Failure,
        request: Option<RequestId>,
    ) {
        self.drop_child(channel, ctx, child, reason);
        ctx.done(request, Ok(()));
    }

    pub(crate) fn on_informational_request(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) {
        let parsed = Payloads(payloads);
        let deletes = || {
            payloads.iter().filter_map(|payload| match payload {
                Payload::Delete(delete) => Some(delete),
                _ => None,
            })
        };
        if deletes().any(|delete| delete.protocol == ProtocolId::IKE) {
            return self.on_ike_delete(stem, ctx);
        }
        let this = stem.channel.window().in_progress().map(|(message_id, _)| message_id);
        let follows_auth = self.answering.follows_auth(this);
        if follows_auth && let Some(kind) = parsed.fatal_in_auth() {
            stem.respond(ctx, &[]);
            return stem.ending.end(Failure::Peer(kind));
        }
        stem.peer.take_token(stem.channel, payloads);
        self.take_auth_lifetime(stem.channel, ctx.io.now.mono, &parsed);
        let mut answered = Vec::new();
        for delete in deletes().filter(|delete| delete.protocol == ProtocolId::ESP) {
            for &spi in &delete.spis {
                if let Some(own) = self.on_esp_delete(stem.channel, ctx, spi)
                    && !answered.contains(&own)
                {
                    answered.push(own);
                }
            }
        }
        if let Some(told) = ToldGateway::read(&parsed, stem.channel, ctx) {
            told.follow(stem.seen(), ctx);
        }
        let mobility = self.on_mobility_request(stem.channel, ctx, &parsed);
        let config = stem.peer.assigned().answer(&parsed);
        let ticket = self.answer_ticket_request(stem.channel, stem.peer, ctx, &parsed);
        let mut reply = mobility.payloads();
        if !answered.is_empty() {
            let delete = Delete { protocol: ProtocolId::ESP, spis: answered };
            reply.push(Payload::Delete(delete));
        }
        reply.extend(config.as_ref().map(OwnedConfig::payload));
        reply.extend(payloads_of(&ticket));
        stem.respond(ctx, &reply);
    }

    /// Deletes the child whose outbound SA has `spi`. Returns the SPI of the inbound SA, if the answer is to name
    /// it.
    fn on_esp_delete(&mut self, channel: &Channel, ctx: &mut Context<'_>, spi: u32) -> Option<u32> {
        let Some(child) = self.children.iter().find(|child| child.spi_out == spi) else {
            // It may be an SA that the peer has made in answer to a request whose response is still to come.
            if let Some(sent) = &mut self.sent {
                sent.note_deleted(spi);
            }
            return None;
        };
        let activity = self.work().delete_activity(child);
        let (id, spi_in) = (child.id, child.spi_in);
        if activity == ChildActivity::Deleting {
            self.close_outbound(channel, ctx, id);
            return None;
        }
        let own_reason = self.work().reason_to_delete(id).cloned();
        let bring_back = match own_reason {
            None => self.stood_in(channel, id),
            Some(_) => None,
        };
        let reason = match bring_back {
            Some(_) => Failure::Replaced,
            None => own_reason.unwrap_or(Failure::DeletedByPeer),
        };
        self.drop_child(channel, ctx, id, &reason);
        ctx.effects.extend(bring_back);
        match collision::on_child_delete_request(activity) {
            DeleteAnswer::WithDelete => Some(spi_in),
            DeleteAnswer::WithoutDelete => None,
        }
    }

    fn on_ike_delete(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        stem.respond(ctx, &[]);
        let theirs = self.sent.as_ref().and_then(Sent::crossed_rekey);
        match (collision::on_ike_delete_request(theirs.is_some()), theirs) {
            (IkeDelete::AdoptTheirs, Some(to)) => self.succeeded_by(stem.channel, ctx, to),
            _ => stem.ending.end(Failure::DeletedByPeer),
        }
    }

    /// Ends this SA, whose rekey crossed the peer's, in favour of the SA `to` that the peer has made.
    pub(crate) fn succeeded_by(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        to: IkeSaId,
    ) {
        if let Some(ours) = self.sent.take() {
            ctx.done(ours.request().0, Ok(()));
        }
        channel.abandon_request();
        self.replaced_by(channel, ctx, to);
        // A timer closes it after the children have moved. Nothing is sent on it any more.
        for task in self.queue.drain() {
            ctx.done(task.request().0, Ok(()));
        }
        self.life.set(TimerKey::Ike(Timer::RemoveReplaced), ctx.io.now.mono);
    }
}
