//! Responses to requests for a child.

use super::taken;
use crate::channel::timer::{ChildTimer, TimerKey};
use crate::child::ChildSa;
use crate::dataplane::{Command, DataPlaneError};
use crate::event::{ChildSaId, Failure};
use crate::exchange::child_sa::KeyMaterial;
use crate::exchange::child_sa::{ChildRequest, ReadyChild};
use crate::exchange::create_child::child_failed;
use crate::exchange::followup::TheirOffer;
use crate::exchange::followup::{Reply, Responding};
use crate::exchange::key_exchange::Halt;
use crate::exchange::ppk::create_child::ChildPpks;
use crate::exchange::{Payloads, mode, required, resource, tfc};
use crate::ike_sa::Stem;
use crate::ike_sa::collision::{self, Answer, ChildActivity};
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::Established;
use crate::keys::Nonces;
use crate::keys::epoch::Opened;
use crate::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use crate::wire::registry::ExchangeType;
use crate::wire::registry::{NotifyType, ProtocolId};

/// Children that a peer may make on one IKE SA, those included that still decrypt after a rekey.
const MAX_CHILDREN: usize = 500;

impl Established {
    pub(crate) fn on_create_child_request(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let parsed = Payloads(payloads);
        let for_ike = match parsed.sa() {
            Ok(Some(sa)) => sa.proposals.iter().any(|p| p.protocol == ProtocolId::IKE),
            Ok(None) => return stem.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
            Err(refusal) => return stem.refuse(ctx, refusal),
        };
        let rekeys_child = !for_ike && parsed.notify(NotifyType::REKEY_SA).is_some();
        if !rekeys_child && self.queue.is_leaving() {
            return stem.refuse(ctx, NotifyType::NO_ADDITIONAL_SAS.into());
        }
        let result = if for_ike {
            self.answer_rekey_ike(stem, ctx, &parsed)
        } else {
            self.answer_create_child(stem, ctx, &parsed)
        };
        match result {
            Ok(()) => {}
            Err(Halt::Refuse(refusal)) => stem.refuse(ctx, refusal),
            Err(Halt::Ask(exchange)) => {
                let what = What::Request(ExchangeType::CREATE_CHILD_SA, opened.clone());
                stem.put_off(ctx, exchange, what);
            }
        }
    }

    fn answer_create_child(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> Result<(), Halt> {
        if stem.channel.route().is_held() {
            // A child goes to no address that the peer has not proven (RFC 4555 §3.7).
            return Err(NotifyType::TEMPORARY_FAILURE.into());
        }
        let ni = *required(payloads.nonce()?)?;
        let ike = self.work().ike_activity(self.phase);
        let rekeys = payloads.notify(NotifyType::REKEY_SA);
        if rekeys.is_some_and(|notify| !names_child(notify)) {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let (answer, old) = match rekeys {
            None => (collision::on_create_child_request(ike), None),
            Some(notify) => {
                let old = self.children.iter().find(|child| {
                    notify.protocol == ProtocolId::ESP && notify.spi == Spi::Esp(child.spi_out)
                });
                let unknown = match self.work().peer_may_have_more() {
                    true => ChildActivity::Unborn,
                    false => ChildActivity::Gone,
                };
                let activity = old.map_or(unknown, |old| self.work().activity(old, &self.children));
                (collision::on_child_rekey_request(activity, ike), old)
            }
        };
        match answer {
            Answer::Accept => {}
            Answer::TemporaryFailure => return Err(NotifyType::TEMPORARY_FAILURE.into()),
            Answer::ChildSaNotFound => {
                //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
                //# The SA that the
                //# initiator attempted to rekey is indicated by the SPI field in the
                //# Notify payload, which is copied from the SPI field in the REKEY_SA
                //# notification.
                if let Some(notify) = rekeys {
                    let reply =
                        Notify { kind: NotifyType::CHILD_SA_NOT_FOUND, data: &[], ..*notify };
                    stem.respond(ctx, &[Payload::Notify(reply)]);
                }
                return Ok(());
            }
        }
        let old_id = old.map(|old| old.id);
        // A rekey is possible even if there is no room for more.
        let limit = if old_id.is_some() { 2 * MAX_CHILDREN } else { MAX_CHILDREN };
        if self.children.count_all() >= limit {
            return Err(match resource::is_asked(payloads) {
                true => NotifyType::TS_MAX_QUEUE.into(),
                false => NotifyType::NO_ADDITIONAL_SAS.into(),
            });
        }
        if let Some(id) = old_id {
            // A peer that rekeys a child has it.
            self.activate(stem.channel, ctx, id);
        }
        let old = old_id.and_then(|id| self.children.get(id));
        let nr = ctx.nonce();
        let nonces = Nonces { i: ni, r: &nr };
        let (ppk, ppk_id) =
            ChildPpks::of(stem.channel).for_request(ctx.io.config, payloads, ni)?.unzip();
        let request = ChildRequest { rekeys: old.map(|old| old.id), with_ke: true };
        let answered = self.answer_child(stem.seen(), ctx, payloads, &request, old)?;
        let child = &answered.child;
        let reply = Reply {
            auth: None,
            proposal: Some(child.selected.to_wire(Spi::Esp(child.spi_in))),
            ke: answered.ke,
            nonce: Some(nr.to_vec()),
            ts_i: child.remote_ts.clone(),
            ts_r: child.local_ts.clone(),
            notifies: answer_notifies(child),
            ppk: ppk_id,
        };
        let (old, new) = (request.rekeys, child.id);
        let shared: Vec<_> = answered.shared.into_iter().collect();
        if child.selected.additional().next().is_some() {
            let what = TheirOffer::Child(Box::new(answered.child));
            let link = self.answering.start_chain(stem.channel, ctx, what, shared, nonces, ppk);
            self.answering.arm(&mut self.life);
            let mut payloads = reply.payloads();
            payloads.push(notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &link));
            stem.respond(ctx, &payloads);
            if let (Some(old), Some(sent)) = (old, &mut self.sent) {
                sent.note_crossed(old, None, nonces);
            }
            return Ok(());
        }
        let shared: Vec<_> = shared.iter().collect();
        let ready = ReadyChild::keyed(
            stem.channel,
            &self.children,
            ctx,
            answered.child,
            KeyMaterial { shared: &shared, nonces, ppk },
        )?;
        if let (Some(old), Some(sent)) = (old, &mut self.sent) {
            sent.note_crossed(old, Some(new), nonces);
        }
        self.install_then_respond(stem, ctx, ready, reply);
        Ok(())
    }

    /// Hands a child to the data plane. The response is sent when the child is installed.
    pub(crate) fn install_then_respond(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut ready: ReadyChild,
        reply: Reply,
    ) {
        let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
        if !ctx.ids.claim(outbound, spi_in) {
            ctx.ids.esp.remove(&spi_in);
            let kind = self.children.no_room(&ready.child);
            return reply.refuse_child(stem, ctx, kind, &ready.child.config.name, taken());
        }
        // A peer that rekeys a child has shown that it has the child.
        ready.child.standby = ready.child.replaces.is_none()
            && self.children.has_company(stem.channel, ctx, &self.identity, &ready.child);
        let schedule = ctx.lookup.schedule();
        let (child, batch) = if ready.child.replaces.is_some() {
            ready.install_inbound(false, schedule)
        } else {
            let routed = self.children.take_route(&ready.child);
            ready.install_all(false, routed, schedule)
        };
        let ticket = ctx.data_plane(batch);
        self.answering.wait(Responding { ticket, child: child.id, reply });
        self.children.add(child);
    }

    /// Handles the data plane's answer about the child of a waiting request.
    pub(crate) fn on_responding_completed(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        responding: Responding,
        result: Result<(), DataPlaneError>,
    ) {
        let Responding { child, reply, .. } = responding;
        match result {
            Ok(()) => {
                stem.respond(ctx, &reply.payloads());
                // Without an answer the peer has no child, and the SA ends.
                if !stem.ending.is_set() {
                    self.child_installed(stem.channel, ctx, child);
                }
            }
            Err(error) => {
                let failed = self.children.get(child);
                let kind = failed
                    .map_or(NotifyType::NO_ADDITIONAL_SAS, |failed| self.children.no_room(failed));
                let name = self.remove_failed(ctx, child);
                let failure = Failure::DataPlane(error.0);
                reply.refuse_child(stem, ctx, kind, &name, failure);
            }
        }
    }

    /// Removes what a failed installation may have left. Returns the child's name.
    pub(crate) fn remove_failed(&mut self, ctx: &mut Context<'_>, id: ChildSaId) -> String {
        if let Some(sent) = &mut self.sent {
            sent.uncross_child(id);
        }
        let Some(child) = self.children.remove_failed(id) else { return String::new() };
        self.life.clear(TimerKey::Child(id, ChildTimer::RekeyChild));
        ctx.ids.esp.remove(&child.spi_in);
        let mut batch =
            vec![Command::RemoveSa(child.outbound()), Command::RemoveSa(child.inbound())];
        match self.children.heir(&child).map(|other| (other.id, other.carries())) {
            None => batch.insert(0, Command::RemovePolicy(child.policy)),
            Some((other, true)) if child.routed => self.children.route(ctx, other),
            Some(_) => {}
        }
        ctx.data_plane(batch);
        child.config.name.clone()
    }
}

impl Reply {
    /// Answers a request that its child is not possible, by an error of this `kind`.
    pub(crate) fn refuse_child(
        &self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        kind: NotifyType,
        name: &str,
        reason: Failure,
    ) {
        let refusal = notify(kind, &[]);
        match &self.auth {
            Some(auth) => {
                let mut payloads = auth.payloads();
                payloads.extend(self.ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
                payloads.push(refusal);
                stem.respond(ctx, &payloads);
            }
            None => stem.respond(ctx, &[refusal]),
        }
        child_failed(ctx, stem.channel, name, reason);
    }
}

/// True if `notify` names a Child SA correctly, so that its protocol and SPI may be sent back.
fn names_child(notify: &Notify<'_>) -> bool {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.10
    //# For notifications concerning Child SAs, this
    //# field MUST contain either (2) to indicate AH or (3) to indicate
    //# ESP.
    matches!(notify.protocol, ProtocolId::AH | ProtocolId::ESP) && matches!(notify.spi, Spi::Esp(_))
}

/// The notifies before SA in the answer to a request for `child`.
pub(crate) fn answer_notifies(child: &ChildSa) -> Vec<Payload<'static>> {
    let mode = mode::payload(child.mode, &child.config.processing);
    // For a rekeyed child nothing is said (RFC 9611 §3).
    let resource = child.processing.per_cpu && child.replaces.is_none();
    let resource = resource.then(|| resource::payload(&[]));
    mode.into_iter().chain(tfc::payload(child.mode)).chain(resource).collect()
}

impl Reply {
    fn payloads(&self) -> Vec<Payload<'_>> {
        let mut payloads = match &self.auth {
            Some(auth) => auth.payloads(),
            None => Vec::new(),
        };
        payloads.extend(self.notifies.iter().cloned());
        if let Some(proposal) = &self.proposal {
            payloads.push(Payload::Sa(Sa { proposals: vec![proposal.clone()] }));
        }
        if let Some(nonce) = &self.nonce {
            payloads.push(Payload::Nonce(nonce));
        }
        if let Some((method, data)) = &self.ke {
            payloads.push(Payload::Ke(Ke { method: *method, data }));
        }
        if self.proposal.is_some() {
            payloads.push(Payload::TsI(self.ts_i.clone()));
            payloads.push(Payload::TsR(self.ts_r.clone()));
        }
        payloads.extend(self.ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads
    }
}
