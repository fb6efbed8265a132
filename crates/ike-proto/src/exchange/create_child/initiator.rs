//! Requests for a child, and their responses.

use super::taken;
use crate::child::Phase;
use crate::crypto::Secret;
use crate::event::{ChildSaId, Failure};
use crate::exchange::child_offer::NoOffer;
use crate::exchange::child_offer::{OfferSpec, offer, usable_methods};
use crate::exchange::child_sa::{KeyMaterial, ReadyChild};
use crate::exchange::followup::OurOffer;
use crate::exchange::ppk::create_child::NO_KEY;
use crate::exchange::resource::Join;
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::Core;
use crate::ike_sa::collision::{self, AfterRekey, Meanwhile, RekeyResponse};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ChildOffer, Established, Initiated, Retry, Task};
use crate::keys::Nonces;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// How many TEMPORARY_FAILURE responses are accepted before they count as a refusal.
const MAX_TEMPORARY_FAILURES: u8 = 10;

impl Established {
    /// Sends a request to rekey `child`. `false` if there is nothing to rekey.
    pub(crate) fn send_rekey_child(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        request: Option<crate::event::RequestId>,
        retry: Retry,
    ) -> bool {
        let (id, path) = (core.id, core.channel.path);
        let old = self.children.iter().find(|old| old.id == child && old.phase == Phase::Installed);
        let Some(old) = old else { return false };
        let spec = OfferSpec {
            config: &old.config,
            rekeys: Some(old),
            joins: None,
            dynamic: core.dynamic(),
            // RFC 7296 §2.9.2: no selectors of a packet here.
            packet: None,
            ike_method: Some(core.channel.session.selected.ke),
            ordinal: old.ordinal,
            request,
            retry,
        };
        let name = old.config.name.clone();
        match offer(ctx, id, path, &spec) {
            Ok(offer) => self.send_offer(core, ctx, offer),
            Err(NoOffer::Ask(exchange)) => {
                self.prepare(core, ctx, exchange, Task::RekeyChild { child, request, retry });
            }
            Err(NoOffer::Failed(failure)) => {
                ctx.done(request, Err(failure.clone()));
                core.child_failed(ctx, &name, failure);
                self.rearm_rekey(core, ctx, child);
            }
        }
        true
    }

    /// Sends the request for a child.
    pub(crate) fn send_offer(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        mut offer: Box<ChildOffer>,
    ) {
        offer.ppks = core.ppks_for_create_child(ctx.config, &offer.nonce);
        if core.lacks_required_ppk(&offer.ppks) {
            return self.refuse_ppk(core, ctx, OurOffer::Child(offer), &[], NO_KEY, true);
        }
        let old_spi = offer.rekeys.and_then(|id| self.children.get(id).map(|child| child.spi_in));
        let mut payloads = Vec::with_capacity(8);
        if let Some(spi) = old_spi {
            // RFC 7296 §1.3.3: the SPI this end expects in the headers of inbound packets.
            payloads.push(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, spi)));
        }
        payloads.extend(offer.payloads(true));
        let sent = core.request(ctx, ExchangeType::CREATE_CHILD_SA, &payloads);
        sent.unwrap_or_else(|unsent| unsent.end(core));
        drop(payloads);
        self.ours = Some(Initiated::Child(offer));
    }

    /// Handles the CREATE_CHILD_SA response to `offer`.
    pub(crate) fn on_child_response(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        offer: Box<ChildOffer>,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_child_error(core, ctx, *offer, error);
        }
        let Ok(Some(nr)) = parsed.nonce() else {
            return self.discard_offer(
                core,
                ctx,
                *offer,
                payloads,
                NotifyType::INVALID_SYNTAX.into(),
            );
        };
        let ni = offer.nonce.clone();
        let shared: Vec<_> = additional.iter().collect();
        match core.ppk_taken(&offer.ppks, &parsed) {
            Ok(ppk) => {
                let nonces = Nonces { i: &ni, r: nr };
                let material = KeyMaterial { shared: &shared, nonces, ppk };
                self.finish_offer(core, ctx, offer, payloads, material);
            }
            Err(reason) => {
                self.refuse_ppk(core, ctx, OurOffer::Child(offer), payloads, reason, false)
            }
        }
    }

    /// Makes a child from a response, and installs it. An error notify in IKE_AUTH leaves the IKE SA without a
    /// child.
    pub(crate) fn finish_offer(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        offer: Box<ChildOffer>,
        payloads: &[Payload<'_>],
        material: KeyMaterial<'_>,
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_child_error(core, ctx, *offer, error);
        }
        let nonces = material.nonces;
        let ready = match self.complete_child(core, ctx, &offer, &parsed, material) {
            Ok(ready) => ready,
            Err(refusal) => return self.discard_offer(core, ctx, *offer, payloads, refusal),
        };
        if offer.rekeys.is_some() {
            self.finish_rekey(core, ctx, *offer, ready, nonces);
        } else if offer.deleted.contains(&ready.child.spi_out) {
            ctx.ids.esp.remove(&offer.spi_in);
            ctx.done(offer.request, Err(Failure::DeletedByPeer));
            core.child_failed(ctx, &offer.config.name, Failure::DeletedByPeer);
        } else {
            self.install(core, ctx, ready, offer.request);
        }
    }

    fn finish_rekey(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        ready: ReadyChild,
        nonces: Nonces<'_>,
    ) {
        let created = RekeyResponse::Created(nonces);
        match collision::after_rekey(created, self.meanwhile(&offer, Some(ready.child.spi_out))) {
            AfterRekey::DeleteNew => {
                self.watch_child(core, ctx, &offer);
                let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
                if !ctx.ids.claim(outbound, spi_in) {
                    ctx.ids.esp.remove(&spi_in);
                    ctx.done(offer.request, Ok(()));
                    return self.queue.push_first(Task::DeleteSpi(spi_in));
                }
                // The peer keeps its own child. Ours still decrypts until it is deleted.
                let (mut child, batch) = ready.install_inbound(true, ctx.lookup.schedule());
                child.half_closed |= child.pending_out.take().is_some();
                child.phase = Phase::Rekeyed;
                child.replaces = None;
                let id = child.id;
                ctx.data_plane(batch);
                self.children.add(child);
                self.queue.push_first(Task::DeleteChild {
                    child: id,
                    reason: Failure::Replaced,
                    request: None,
                });
                ctx.done(offer.request, Ok(()));
            }
            AfterRekey::DeleteOldOnly => {
                ctx.ids.esp.remove(&offer.spi_in);
                ctx.done(offer.request, Err(Failure::DeletedByPeer));
                if let Some(child) = offer.rekeys {
                    let reason = Failure::DeletedByPeer;
                    let task = Task::DeleteChild { child, reason, request: None };
                    self.queue.push_first(task);
                }
            }
            // The peer has deleted what lost against its own child.
            AfterRekey::Done => {
                self.watch_child(core, ctx, &offer);
                ctx.ids.esp.remove(&offer.spi_in);
                ctx.done(offer.request, Ok(()));
            }
            _ => {
                // The peer does not continue a rekey that has lost either.
                self.drop_chains(core, ctx, |chain| {
                    chain.child().is_some_and(|new| new.replaces == offer.rekeys)
                });
                let crossed = offer.crossed.as_ref().and_then(|crossed| crossed.child);
                if let Some(crossed) = crossed
                    && let Some(theirs) = self.children.get_mut(crossed)
                {
                    // It is redundant, and the peer deletes it.
                    theirs.phase = Phase::Rekeyed;
                    // Unless a packet has come by it already.
                    theirs.half_closed |= theirs.pending_out.take().is_some();
                    theirs.replaces = None;
                    core.channel.timers.clear_child(crossed);
                }
                self.install(core, ctx, ready, offer.request);
            }
        }
    }

    /// What the peer has done with the child that `offer` rekeys while the request was in flight.
    pub(crate) fn meanwhile<'a>(
        &self,
        offer: &'a ChildOffer,
        spi_out: Option<u32>,
    ) -> Meanwhile<'a> {
        let theirs = offer.crossed.as_ref().map(|crossed| crossed.nonces.borrow());
        if spi_out.is_some_and(|spi| offer.deleted.contains(&spi)) {
            return Meanwhile::NewDeleted(theirs);
        }
        if let Some(theirs) = theirs {
            return Meanwhile::RekeyedByPeer(theirs);
        }
        let lives = |id| self.children.get(id).is_some();
        match offer.rekeys {
            Some(old) if !lives(old) => Meanwhile::OldDeleted,
            _ => Meanwhile::Nothing,
        }
    }

    /// Installs a child that this end has requested.
    fn install(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        ready: ReadyChild,
        request: Option<crate::event::RequestId>,
    ) {
        let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
        if !ctx.ids.claim(outbound, spi_in) {
            ctx.ids.esp.remove(&spi_in);
            self.queue.push_first(Task::DeleteSpi(spi_in));
            ctx.done(request, Err(taken()));
            core.child_failed(ctx, &ready.child.config.name, taken());
            if let Some(old) = ready.child.replaces {
                self.rearm_rekey(core, ctx, old);
            }
            return;
        }
        let routed = self.children.take_route(&ready.child);
        let (child, batch) = ready.install_all(true, routed, ctx.lookup.schedule());
        let ticket = ctx.data_plane(batch);
        self.children.add_installing(child, ticket, request);
    }

    /// Handles a response that cannot be used, although the peer has an SA now: deletes that SA.
    fn discard_offer(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        payloads: &[Payload<'_>],
        refusal: Refusal,
    ) {
        ctx.ids.esp.remove(&offer.spi_in);
        let peer_has_one = matches!(Payloads(payloads).sa(), Ok(Some(_)));
        if peer_has_one {
            self.queue.push_first(Task::DeleteSpi(offer.spi_in));
        }
        // The next packet would get the same answer.
        if let Some(join) = offer.join {
            self.children.note_full(join.policy);
        }
        ctx.done(offer.request, Err(refusal.clone().into()));
        core.child_failed(ctx, &offer.config.name, refusal.into());
        if let Some(old) = offer.rekeys {
            self.rearm_rekey(core, ctx, old);
        }
    }

    pub(crate) fn on_child_error(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        error: &Notify<'_>,
    ) {
        ctx.ids.esp.remove(&offer.spi_in);
        // A rekey of the peer that crossed this one has done the work.
        if offer.crossed.is_none()
            && let Some(method) = core.other_method(ctx, &offer, error)
        {
            let retry = Retry { method: Some(method), ..offer.retry };
            self.queue.push_first(task_of(offer, retry));
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
        //# The requestor is expected to respond by requesting an SA for only the
        //# specific traffic it is trying to forward.
        if error.kind == NotifyType::SINGLE_PAIR_REQUIRED
            && offer.packet.is_some()
            && !offer.retry.single_pair
        {
            let retry = Retry { single_pair: true, ..offer.retry };
            self.queue.push_first(task_of(offer, retry));
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc9611#section-1
        //# When an IKEv2 peer is receiving more additional Child SAs for a
        //# single set of Traffic Selectors than it is willing to create, it can
        //# return an error notify of TS_MAX_QUEUE.
        if let Some(join) = offer.join
            && matches!(error.kind, NotifyType::TS_MAX_QUEUE | NotifyType::NO_ADDITIONAL_SAS)
        {
            self.children.note_full(join.policy);
        }
        let response = match error.kind {
            // RFC 9370 §2.2.4: the whole series since CREATE_CHILD_SA is to be repeated.
            NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND => {
                RekeyResponse::TemporaryFailure
            }
            NotifyType::CHILD_SA_NOT_FOUND => RekeyResponse::ChildSaNotFound,
            _ => RekeyResponse::Refused,
        };
        let failure = Failure::Peer(error.kind);
        let after = match (offer.rekeys, response) {
            (Some(_), _) => collision::after_rekey(response, self.meanwhile(&offer, None)),
            (None, RekeyResponse::TemporaryFailure) => AfterRekey::RetryLater,
            (None, _) => AfterRekey::KeepOld,
        };
        match after {
            AfterRekey::RetryLater if offer.retry.temporary_failures < MAX_TEMPORARY_FAILURES => {
                let temporary_failures = offer.retry.temporary_failures + 1;
                let retry = Retry { temporary_failures, ..offer.retry };
                self.retry_later(core, ctx, task_of(offer, retry));
            }
            AfterRekey::Done => {
                self.watch_child(core, ctx, &offer);
                ctx.done(offer.request, Ok(()));
            }
            AfterRekey::CreateAnew => {
                if let Some(old) = offer.rekeys {
                    self.drop_child(core, ctx, old, &failure);
                }
                let policy = offer.policy;
                // If no other child is left, a first one is made.
                let others = self.children.sharing(policy).next().is_some();
                let cpu = offer.heritage.and_then(|heritage| heritage.cpu).filter(|_| others);
                self.queue.push(Task::CreateChild {
                    config: offer.config,
                    packet: None,
                    request: offer.request,
                    retry: Retry::default(),
                    join: cpu.map(|cpu| Join { policy, cpu: Some(cpu) }),
                });
            }
            _ => {
                ctx.done(offer.request, Err(failure.clone()));
                core.child_failed(ctx, &offer.config.name, failure);
                if let Some(old) = offer.rekeys {
                    self.rearm_rekey(core, ctx, old);
                }
            }
        }
    }
}

impl Core {
    /// The method in an INVALID_KE_PAYLOAD, if this end offered it and has not tried it.
    fn other_method(
        &self,
        ctx: &Context<'_>,
        offer: &ChildOffer,
        error: &Notify<'_>,
    ) -> Option<KeMethodId> {
        if error.kind != NotifyType::INVALID_KE_PAYLOAD || offer.retry.method.is_some() {
            return None;
        }
        let method = KeMethodId(u16::from_be_bytes(error.data.try_into().ok()?));
        let tried = offer.ke.as_ref().map(|(method, _)| *method);
        (Some(method) != tried
            && usable_methods(ctx, &offer.config.esp_proposals).contains(&method))
        .then_some(method)
    }
}

/// The task that repeats `offer`.
fn task_of(offer: ChildOffer, retry: Retry) -> Task {
    match offer.rekeys {
        Some(child) => Task::RekeyChild { child, request: offer.request, retry },
        None => {
            let ChildOffer { config, packet, request, join, .. } = offer;
            Task::CreateChild { config, packet, request, retry, join }
        }
    }
}
