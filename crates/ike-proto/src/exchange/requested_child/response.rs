//! What becomes of the response to a request for a child.

use super::{RequestedChild, usable_methods};
use crate::child::{ChildSa, Heritage, Join, Phase};
use crate::crypto::Secret;
use crate::event::{Failure, RequestId};
use crate::exchange::child_sa::{KeyMaterial, ReadyChild};
use crate::exchange::create_child::{child_failed, taken};
use crate::exchange::parts::{Outcome, Parts};
use crate::exchange::ppk::create_child::ChildPpks;
use crate::exchange::sent::Retry;
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::Children;
use crate::ike_sa::collision::{self, AfterRekey, RekeyResponse};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::Task;
use crate::keys::Nonces;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{KeMethodId, NotifyType};

/// How many TEMPORARY_FAILURE responses are accepted before they count as a refusal.
const MAX_TEMPORARY_FAILURES: u8 = 10;

impl RequestedChild {
    /// Handles the CREATE_CHILD_SA response.
    pub(crate) fn on_response(
        self: Box<Self>,
        parts: &mut Parts<'_, '_>,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) -> Outcome {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_error(parts, error);
        }
        let Ok(Some(nr)) = parsed.nonce() else {
            return self.discard(parts, payloads, NotifyType::INVALID_SYNTAX.into());
        };
        let ni = self.nonce.clone();
        let shared: Vec<_> = additional.iter().collect();
        match ChildPpks::of(parts.channel).taken(&self.ppks, &parsed) {
            Ok(ppk) => {
                let nonces = Nonces { i: &ni, r: nr };
                let material = KeyMaterial { shared: &shared, nonces, ppk };
                self.finish(parts, payloads, material)
            }
            Err(reason) => {
                self.refuse_ppk(parts, reason, false);
                Outcome::Done
            }
        }
    }

    /// Makes a child from a response, and installs it. An error notify in IKE_AUTH leaves the IKE SA without a
    /// child.
    pub(crate) fn finish(
        self: Box<Self>,
        parts: &mut Parts<'_, '_>,
        payloads: &[Payload<'_>],
        material: KeyMaterial<'_>,
    ) -> Outcome {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_error(parts, error);
        }
        let nonces = material.nonces;
        let ready = match self.complete(parts, &parsed, material) {
            Ok(ready) => ready,
            Err(refusal) => return self.discard(parts, payloads, refusal),
        };
        if self.rekeys.is_some() {
            return self.finish_rekey(parts, ready, nonces);
        }
        if let Some(packet) = self.packet.filter(|packet| !ready.child.takes(*packet)) {
            let new = &ready.child;
            if !new.leaves_out(packet, &parts.peer.assigned().dynamic()) {
                let name = (&*parts.channel.connection().name, &*self.config.name);
                parts.queue.note_refused(parts.ctx.io.now.mono, name, packet);
            }
            let is_same = |there: &ChildSa| {
                there.config.name == new.config.name
                    && matches!(there.phase, Phase::Installing | Phase::Installed)
                    && (&there.local_ts, &there.remote_ts) == (&new.local_ts, &new.remote_ts)
            };
            if let Some(there) = parts.children.iter().find(|there| is_same(there)) {
                // What the peer grants is there already. Until the Delete the peer may send by the new one: its packets pass
                // the policy of the other one.
                let Heritage { processing, lease, .. } = there.heritage_beside(None, 0);
                let child = ChildSa { policy: there.policy, processing, lease, ..ready.child };
                let failure = Failure::Peer(NotifyType::TS_UNACCEPTABLE);
                self.lose(parts, ReadyChild { child, ..ready }, Err(failure));
                return Outcome::Done;
            }
        }
        if self.deleted.contains(&ready.child.spi_out) {
            let Parts { channel, ctx, .. } = parts;
            ctx.ids.esp.remove(&self.spi_in);
            ctx.done(self.request, Err(Failure::DeletedByPeer));
            child_failed(ctx, channel, &self.config.name, Failure::DeletedByPeer);
        } else {
            install(parts, ready, self.request);
        }
        Outcome::Done
    }

    fn finish_rekey(
        self: Box<Self>,
        parts: &mut Parts<'_, '_>,
        ready: ReadyChild,
        nonces: Nonces<'_>,
    ) -> Outcome {
        let created = RekeyResponse::Created(nonces);
        let meanwhile = self.meanwhile(parts.children, Some(ready.child.spi_out));
        match collision::after_rekey(created, meanwhile) {
            AfterRekey::DeleteNew => self.lose(parts, ready, Ok(())),
            AfterRekey::DeleteOldOnly => {
                let Parts { queue, ctx, .. } = parts;
                ctx.ids.esp.remove(&self.spi_in);
                ctx.done(self.request, Err(Failure::DeletedByPeer));
                if let Some(child) = self.rekeys {
                    let reason = Failure::DeletedByPeer;
                    queue.push_first(Task::DeleteChild { child, reason, request: None });
                }
            }
            // The peer has deleted what lost against its own child.
            AfterRekey::Done => {
                self.watch(parts);
                parts.ctx.ids.esp.remove(&self.spi_in);
                parts.ctx.done(self.request, Ok(()));
            }
            _ => {
                let crossed = self.crossed.as_ref().and_then(|crossed| crossed.child);
                if let Some(crossed) = crossed
                    && let Some(theirs) = parts.children.get_mut(crossed)
                {
                    // It is redundant, and the peer deletes it.
                    theirs.phase = Phase::Rekeyed;
                    // Unless a packet has come by it already.
                    theirs.half_closed |= theirs.pending_out.take().is_some();
                    theirs.replaces = None;
                    let (now, life) = (parts.ctx.io.now.mono, theirs.config.life_time);
                    if !life.is_zero() {
                        theirs.expires_at.get_or_insert(now + life);
                    }
                    parts.life.clear_child(crossed);
                    parts.life.begin_child(theirs, now);
                }
                install(parts, ready, self.request);
                return Outcome::Won(self.rekeys);
            }
        }
        Outcome::Done
    }

    /// Deletes the new child, because another child is there in its place, for example by the peer's rekey of the same child.
    /// A command that waits for the new child gets `result`.
    fn lose(&self, parts: &mut Parts<'_, '_>, ready: ReadyChild, result: Result<(), Failure>) {
        self.watch(parts);
        let Parts { children, queue, ctx, .. } = parts;
        let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
        ctx.done(self.request, result);
        if !ctx.ids.claim(outbound, spi_in) {
            ctx.ids.esp.remove(&spi_in);
            return queue.push_first(Task::DeleteSpi(spi_in));
        }
        // The peer keeps the other child. Ours still decrypts until it is deleted.
        let (mut child, batch) = ready.install_inbound(true, ctx.lookup.schedule());
        child.half_closed |= child.pending_out.take().is_some();
        child.phase = Phase::Rekeyed;
        child.replaces = None;
        let id = child.id;
        ctx.data_plane(batch);
        children.add(child);
        let reason = Failure::Replaced;
        queue.push_first(Task::DeleteChild { child: id, reason, request: None });
    }

    /// Handles that the peer's rekey of the same child replaces this one. The timer ends with the child that is
    /// replaced.
    pub(crate) fn watch(&self, parts: &mut Parts<'_, '_>) {
        let crossed = self.crossed.as_ref();
        if let Some(old) = self.rekeys.filter(|_| crossed.is_some_and(|c| c.child.is_none())) {
            parts.rearm_rekey(old);
        }
    }

    /// Handles that the peer continues no rekey of this child that it makes itself: this one does not go on.
    pub(crate) fn withdraw(&self, parts: &mut Parts<'_, '_>) {
        parts.ctx.ids.esp.remove(&self.spi_in);
        self.watch(parts);
    }

    /// Handles a response that cannot be used, although the peer has an SA now: deletes that SA.
    fn discard(
        self: Box<Self>,
        parts: &mut Parts<'_, '_>,
        payloads: &[Payload<'_>],
        refusal: Refusal,
    ) -> Outcome {
        parts.ctx.ids.esp.remove(&self.spi_in);
        let peer_has_one = matches!(Payloads(payloads).sa(), Ok(Some(_)));
        if peer_has_one {
            parts.queue.push_first(Task::DeleteSpi(self.spi_in));
        }
        // The next packet would get the same answer.
        if let Some(join) = self.join {
            parts.children.note_full(join.policy);
        }
        self.fail(parts, refusal.into());
        Outcome::Done
    }

    /// Gives up the SA of a response that is valid except that its PPK is not ours. `chained` if no SA is made yet,
    /// because additional key exchanges were to come, or because no SA was requested.
    pub(crate) fn refuse_ppk(&self, parts: &mut Parts<'_, '_>, reason: Failure, chained: bool) {
        parts.ctx.ids.esp.remove(&self.spi_in);
        //= https://www.rfc-editor.org/rfc/rfc9867#section-3.2
        //# If this is inappropriate for the initiator, it can
        //# immediately delete this SA.
        if !chained {
            parts.queue.push_first(Task::DeleteSpi(self.spi_in));
        }
        self.fail(parts, reason);
    }

    /// Tells that there is no child. A child that was to be replaced is rekeyed later.
    fn fail(&self, parts: &mut Parts<'_, '_>, failure: Failure) {
        parts.ctx.done(self.request, Err(failure.clone()));
        child_failed(parts.ctx, parts.channel, &self.config.name, failure);
        if let Some(old) = self.rekeys {
            parts.rearm_rekey(old);
        }
    }

    /// Handles an error notify in place of a child.
    pub(crate) fn on_error(
        self: Box<Self>,
        parts: &mut Parts<'_, '_>,
        error: &Notify<'_>,
    ) -> Outcome {
        parts.ctx.ids.esp.remove(&self.spi_in);
        // A rekey of the peer that crossed this one has done the work.
        if self.crossed.is_none()
            && let Some(method) = self.other_method(parts.ctx, error)
        {
            let retry = Retry { method: Some(method), ..self.retry };
            parts.queue.push_first(self.again(retry));
            return Outcome::Done;
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
        //# The requestor is expected to respond by requesting an SA for only the
        //# specific traffic it is trying to forward.
        if error.kind == NotifyType::SINGLE_PAIR_REQUIRED
            && self.packet.is_some()
            && !self.retry.single_pair
        {
            let retry = Retry { single_pair: true, ..self.retry };
            parts.queue.push_first(self.again(retry));
            return Outcome::Done;
        }
        //= https://www.rfc-editor.org/rfc/rfc9611#section-1
        //# When an IKEv2 peer is receiving more additional Child SAs for a
        //# single set of Traffic Selectors than it is willing to create, it can
        //# return an error notify of TS_MAX_QUEUE.
        if let Some(join) = self.join
            && matches!(error.kind, NotifyType::TS_MAX_QUEUE | NotifyType::NO_ADDITIONAL_SAS)
        {
            parts.children.note_full(join.policy);
        }
        let refuses = [
            NotifyType::TS_UNACCEPTABLE,
            NotifyType::NO_ADDITIONAL_SAS,
            NotifyType::SINGLE_PAIR_REQUIRED,
        ];
        // Without a further child for a CPU the packet leaves by the others.
        let alone = self.join.is_none();
        if let Some(packet) = self.packet.filter(|_| alone && refuses.contains(&error.kind)) {
            let name = (&*parts.channel.connection().name, &*self.config.name);
            parts.queue.note_refused(parts.ctx.io.now.mono, name, packet);
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
        let after = match (self.rekeys, response) {
            (Some(_), _) => collision::after_rekey(response, self.meanwhile(parts.children, None)),
            (None, RekeyResponse::TemporaryFailure) => AfterRekey::RetryLater,
            (None, _) => AfterRekey::KeepOld,
        };
        match after {
            AfterRekey::RetryLater if self.retry.temporary_failures < MAX_TEMPORARY_FAILURES => {
                let temporary_failures = self.retry.temporary_failures + 1;
                let retry = Retry { temporary_failures, ..self.retry };
                parts.retry_later(self.again(retry));
            }
            AfterRekey::Done => {
                self.watch(parts);
                parts.ctx.done(self.request, Ok(()));
            }
            AfterRekey::CreateAnew => return Outcome::Anew(self, failure),
            _ => self.fail(parts, failure),
        }
        Outcome::Done
    }

    /// The method in an INVALID_KE_PAYLOAD, if this end offered it and has not tried it.
    fn other_method(&self, ctx: &Context<'_>, error: &Notify<'_>) -> Option<KeMethodId> {
        if error.kind != NotifyType::INVALID_KE_PAYLOAD || self.retry.method.is_some() {
            return None;
        }
        let method = KeMethodId(u16::from_be_bytes(error.data.try_into().ok()?));
        let tried = self.ke.as_ref().map(|(method, _)| *method);
        (Some(method) != tried && usable_methods(ctx, &self.config.esp_proposals).contains(&method))
            .then_some(method)
    }

    /// The task that repeats the request.
    fn again(self, retry: Retry) -> Task {
        let Self { config, packet, request, rekeys, join, .. } = self;
        match rekeys {
            Some(child) => Task::RekeyChild { child, request, retry },
            None => Task::CreateChild { config, packet, request, retry, join },
        }
    }

    /// The task for a child in place of the one that was to be rekeyed, and that is gone.
    pub(crate) fn anew(self, children: &Children) -> Task {
        let Self { config, request, policy, heritage, .. } = self;
        // If no other child is left, a first one is made.
        let others = children.sharing(policy).next().is_some();
        let cpu = heritage.and_then(|heritage| heritage.cpu).filter(|_| others);
        let join = cpu.map(|cpu| Join { policy, cpu: Some(cpu) });
        Task::CreateChild { config, packet: None, request, retry: Retry::default(), join }
    }
}

/// Installs a child that this end has requested.
fn install(parts: &mut Parts<'_, '_>, ready: ReadyChild, request: Option<RequestId>) {
    let Parts { channel, children, queue, ctx, .. } = &mut *parts;
    let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
    if !ctx.ids.claim(outbound, spi_in) {
        ctx.ids.esp.remove(&spi_in);
        queue.push_first(Task::DeleteSpi(spi_in));
        ctx.done(request, Err(taken()));
        child_failed(ctx, channel, &ready.child.config.name, taken());
        if let Some(old) = ready.child.replaces {
            parts.rearm_rekey(old);
        }
        return;
    }
    let routed = children.take_route(&ready.child);
    let (child, batch) = ready.install_all(true, routed, ctx.lookup.schedule());
    let ticket = ctx.data_plane(batch);
    children.add_installing(child, ticket, request);
}
