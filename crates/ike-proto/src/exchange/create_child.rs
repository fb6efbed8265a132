//! CREATE_CHILD_SA (RFC 7296 §1.3) for new and rekeyed Child SAs; for the IKE SA see
//! [`rekey_ike`](super::rekey_ike).
//!
//! ```text
//!    HDR, SK {[N(REKEY_SA),] SA, Ni, [KEi,] TSi, TSr}  -->
//!                               <--  HDR, SK {SA, Nr, [KEr,] TSi, TSr}
//! ```

use super::child_offer::{OfferSpec, offer, usable_methods};
use super::child_sa::{ChildRequest, ReadyChild};
use super::followup::{OurOffer, TheirOffer};
use super::ppk::MixedPpk;
use super::ppk::create_child::NO_KEY;
use super::resource::Join;
use super::{Payloads, Refusal, mode, required, resource};
use crate::child::{ChildSa, Phase};
use crate::crypto::Secret;
use crate::dataplane::{Command, DataPlaneError};
use crate::event::{ChildSaId, Event, Failure};
use crate::ike_sa::collision::{
    self, AfterRekey, Answer, ChildActivity, Meanwhile, Nonces, RekeyResponse,
};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{
    ChildOffer, CrossedChild, Initiated, Reply, Responding, Retry, State, Task,
};
use crate::ike_sa::timer::{ChildTimer, TimerKey};
use crate::ike_sa::{IkeSa, notify};
use crate::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};

/// TEMPORARY_FAILURE is believed this often before it counts as a refusal.
const MAX_TEMPORARY_FAILURES: u8 = 10;
/// Children that a peer may make on one IKE SA, those that still decrypt after a rekey among them.
const MAX_CHILDREN: usize = 500;

impl IkeSa {
    // ---- initiator ----

    /// Sends a request to rekey `child`; `false` if there is nothing to rekey.
    pub(crate) fn send_rekey_child(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        request: Option<crate::event::RequestId>,
        retry: Retry,
    ) -> bool {
        let (id, path) = (self.id, self.path);
        let State::Established(established) = &self.state else { return false };
        let old = established
            .children
            .iter()
            .find(|old| old.id == child && old.phase == Phase::Installed);
        let Some(old) = old else { return false };
        let spec = OfferSpec {
            config: &old.config,
            rekeys: Some(old),
            joins: None,
            // RFC 7296 §2.9.2: no selectors of a packet here.
            packet: None,
            with_ke: true,
            ordinal: old.ordinal,
            request,
            retry,
        };
        let name = old.config.name.clone();
        match offer(ctx, id, path, &spec) {
            Ok(offer) => self.send_offer(ctx, offer),
            Err(failure) => {
                ctx.done(request, Err(failure.clone()));
                self.child_failed(ctx, &name, failure);
                self.rearm_rekey(ctx, child);
            }
        }
        true
    }

    /// Asks for a child.
    pub(crate) fn send_offer(&mut self, ctx: &mut Context<'_>, mut offer: Box<ChildOffer>) {
        offer.ppks = self.ppks_for_create_child(ctx.config, &offer.nonce);
        if self.lacks_required_ppk(&offer.ppks) {
            return self.refuse_ppk(ctx, OurOffer::Child(offer), &[], NO_KEY, true);
        }
        let State::Established(established) = &self.state else { return };
        let old_spi = offer.rekeys.and_then(|id| {
            established.children.iter().find(|child| child.id == id).map(|child| child.spi_in)
        });
        let mut payloads = Vec::with_capacity(8);
        if let Some(spi) = old_spi {
            // RFC 7296 §1.3.3: the SPI this end expects in the headers of inbound packets.
            payloads.push(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, spi)));
        }
        payloads.extend(offer.payloads(true));
        self.request(ctx, ExchangeType::CREATE_CHILD_SA, &payloads);
        drop(payloads);
        if let State::Established(established) = &mut self.state {
            established.ours = Some(Initiated::Child(offer));
        }
    }

    /// The response to `offer`, from CREATE_CHILD_SA.
    pub(crate) fn on_child_response(
        &mut self,
        ctx: &mut Context<'_>,
        offer: Box<ChildOffer>,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_child_error(ctx, *offer, error);
        }
        let Ok(Some(nr)) = parsed.nonce() else {
            return self.discard_offer(ctx, *offer, payloads, NotifyType::INVALID_SYNTAX.into());
        };
        let (ni, nr) = (offer.nonce.clone(), nr.to_vec());
        match self.ppk_taken(&offer.ppks, &parsed) {
            Ok(ppk) => self.finish_offer(ctx, offer, payloads, (&ni, &nr), (additional, ppk)),
            Err(reason) => self.refuse_ppk(ctx, OurOffer::Child(offer), payloads, reason, false),
        }
    }

    /// Turns a response into a child and installs it. An error notify in IKE_AUTH leaves the IKE SA
    /// without a child.
    pub(crate) fn finish_offer(
        &mut self,
        ctx: &mut Context<'_>,
        offer: Box<ChildOffer>,
        payloads: &[Payload<'_>],
        nonces: (&[u8], &[u8]),
        (additional, ppk): (&[Secret], Option<MixedPpk>),
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_child_error(ctx, *offer, error);
        }
        let ready = match self.complete_child(ctx, &offer, &parsed, nonces, additional, ppk) {
            Ok(ready) => ready,
            Err(refusal) => return self.discard_offer(ctx, *offer, payloads, refusal),
        };
        if offer.rekeys.is_some() {
            self.finish_rekey(ctx, *offer, ready, nonces);
        } else if offer.deleted.contains(&ready.child.spi_out) {
            ctx.ids.esp.remove(&offer.spi_in);
            ctx.done(offer.request, Err(Failure::DeletedByPeer));
            self.child_failed(ctx, &offer.config.name, Failure::DeletedByPeer);
        } else {
            self.install(ctx, ready, offer.request);
        }
    }

    fn finish_rekey(
        &mut self,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        ready: ReadyChild,
        (i, r): (&[u8], &[u8]),
    ) {
        let created = RekeyResponse::Created(Nonces { i, r });
        match collision::after_rekey(created, self.meanwhile(&offer, Some(ready.child.spi_out))) {
            AfterRekey::DeleteNew => {
                let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
                if !ctx.ids.claim(outbound, spi_in) {
                    ctx.ids.esp.remove(&spi_in);
                    ctx.done(offer.request, Ok(()));
                    let State::Established(established) = &mut self.state else { return };
                    return established.queue.push_front(Task::DeleteSpi(spi_in));
                }
                // The peer keeps its own. Ours still decrypts until the delete is through.
                let (mut child, batch) = ready.install_inbound(true);
                child.half_closed |= child.pending_out.take().is_some();
                child.phase = Phase::Rekeyed;
                child.replaces = None;
                let id = child.id;
                ctx.data_plane(batch);
                let State::Established(established) = &mut self.state else { return };
                established.children.reserve_exact(1);
                established.children.push(child);
                established.queue.push_front(Task::DeleteChild {
                    child: id,
                    reason: Failure::Replaced,
                    request: None,
                });
                ctx.done(offer.request, Ok(()));
            }
            AfterRekey::DeleteOldOnly => {
                ctx.ids.esp.remove(&offer.spi_in);
                ctx.done(offer.request, Err(Failure::DeletedByPeer));
                if let (Some(child), State::Established(established)) =
                    (offer.rekeys, &mut self.state)
                {
                    let reason = Failure::DeletedByPeer;
                    let task = Task::DeleteChild { child, reason, request: None };
                    established.queue.push_front(task);
                }
            }
            _ => {
                // Nor does the peer go on with a rekey that has lost.
                self.drop_chains(ctx, |chain| {
                    chain.child().is_some_and(|new| new.replaces == offer.rekeys)
                });
                let crossed = offer.crossed.as_ref().and_then(|crossed| crossed.child);
                if let (Some(crossed), State::Established(established)) = (crossed, &mut self.state)
                    && let Some(theirs) =
                        established.children.iter_mut().find(|child| child.id == crossed)
                {
                    // Redundant: the peer deletes it.
                    theirs.phase = Phase::Rekeyed;
                    // Unless a packet has come by it already.
                    theirs.half_closed |= theirs.pending_out.take().is_some();
                    theirs.replaces = None;
                    self.timers.clear_child(crossed);
                }
                self.install(ctx, ready, offer.request);
            }
        }
    }

    /// What the peer did to the child that `offer` rekeys while the request was in flight.
    pub(crate) fn meanwhile<'a>(
        &self,
        offer: &'a ChildOffer,
        spi_out: Option<u32>,
    ) -> Meanwhile<'a> {
        if let Some(crossed) = &offer.crossed {
            let (i, r) = &crossed.nonces;
            return Meanwhile::RekeyedByPeer(Nonces { i, r });
        }
        if spi_out.is_some_and(|spi| offer.deleted.contains(&spi)) {
            return Meanwhile::NewDeleted;
        }
        let State::Established(established) = &self.state else { return Meanwhile::Nothing };
        let lives = |id| established.children.iter().any(|child| child.id == id);
        match offer.rekeys {
            Some(old) if !lives(old) => Meanwhile::OldDeleted,
            _ => Meanwhile::Nothing,
        }
    }

    /// Installs a child this end asked for.
    fn install(
        &mut self,
        ctx: &mut Context<'_>,
        ready: ReadyChild,
        request: Option<crate::event::RequestId>,
    ) {
        let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
        if !ctx.ids.claim(outbound, spi_in) {
            ctx.ids.esp.remove(&spi_in);
            let State::Established(established) = &mut self.state else { return };
            established.queue.push_front(Task::DeleteSpi(spi_in));
            ctx.done(request, Err(taken()));
            return self.child_failed(ctx, &ready.child.config.name, taken());
        }
        let State::Established(established) = &mut self.state else { return };
        let routed = established.take_route(&ready.child);
        let (child, batch) = ready.install_all(true, routed);
        let ticket = ctx.data_plane(batch);
        established.installing.push((ticket, child.id, request));
        established.children.reserve_exact(1);
        established.children.push(child);
    }

    /// The response is of no use, but the peer has an SA now: delete that.
    fn discard_offer(
        &mut self,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        payloads: &[Payload<'_>],
        refusal: Refusal,
    ) {
        ctx.ids.esp.remove(&offer.spi_in);
        let peer_has_one = matches!(Payloads(payloads).sa(), Ok(Some(_)));
        if peer_has_one && let State::Established(established) = &mut self.state {
            established.queue.push_front(Task::DeleteSpi(offer.spi_in));
        }
        // The next packet would have the same answer.
        if let Some(join) = offer.join {
            self.note_full(join.policy);
        }
        ctx.done(offer.request, Err(refusal.clone().into()));
        self.child_failed(ctx, &offer.config.name, refusal.into());
        if let Some(old) = offer.rekeys {
            self.rearm_rekey(ctx, old);
        }
    }

    pub(crate) fn on_child_error(
        &mut self,
        ctx: &mut Context<'_>,
        offer: ChildOffer,
        error: &Notify<'_>,
    ) {
        ctx.ids.esp.remove(&offer.spi_in);
        // A rekey of the peer that crossed this one has done the work.
        if offer.crossed.is_none()
            && let Some(method) = self.other_method(ctx, &offer, error)
        {
            let retry = Retry { method: Some(method), ..offer.retry };
            if let State::Established(established) = &mut self.state {
                established.queue.push_front(task_of(offer, retry));
            }
            return;
        }
        //= RFC 7296 §2.9
        //# The requestor is expected to respond by requesting an SA for only the
        //# specific traffic it is trying to forward.
        if error.kind == NotifyType::SINGLE_PAIR_REQUIRED
            && offer.packet.is_some()
            && !offer.retry.single_pair
        {
            let retry = Retry { single_pair: true, ..offer.retry };
            if let State::Established(established) = &mut self.state {
                established.queue.push_front(task_of(offer, retry));
            }
            return;
        }
        //= RFC 9611 §1
        //# When an IKEv2 peer is receiving more additional Child SAs for a
        //# single set of Traffic Selectors than it is willing to create, it can
        //# return an error notify of TS_MAX_QUEUE.
        if let Some(join) = offer.join
            && matches!(error.kind, NotifyType::TS_MAX_QUEUE | NotifyType::NO_ADDITIONAL_SAS)
        {
            self.note_full(join.policy);
        }
        let response = match error.kind {
            // RFC 9370 §2.2.4: the whole series since CREATE_CHILD_SA is to be made again.
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
                self.retry_later(ctx, task_of(offer, retry));
            }
            AfterRekey::Done => {
                self.watch_child(ctx, &offer);
                ctx.done(offer.request, Ok(()));
            }
            AfterRekey::CreateAnew => {
                if let Some(old) = offer.rekeys {
                    self.drop_child(ctx, old, &failure);
                }
                let State::Established(established) = &mut self.state else { return };
                let policy = offer.policy;
                // Where no other is left, a first one is made.
                let others = established.sharing(policy).next().is_some();
                let cpu = offer.heritage.and_then(|heritage| heritage.cpu).filter(|_| others);
                established.queue.push_back(Task::CreateChild {
                    config: offer.config,
                    packet: None,
                    request: offer.request,
                    retry: Retry::default(),
                    join: cpu.map(|cpu| Join { policy, cpu: Some(cpu) }),
                });
            }
            _ => {
                ctx.done(offer.request, Err(failure.clone()));
                self.child_failed(ctx, &offer.config.name, failure);
                if let Some(old) = offer.rekeys {
                    self.rearm_rekey(ctx, old);
                }
            }
        }
    }

    /// The method an INVALID_KE_PAYLOAD asks for, if it is one this end offered and has not tried.
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

    pub(crate) fn child_failed(&mut self, ctx: &mut Context<'_>, name: &str, reason: Failure) {
        ctx.event(Event::ChildFailed { ike: self.id, name: name.to_owned(), reason });
    }

    // ---- responder ----

    pub(crate) fn on_create_child_request(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) {
        let parsed = Payloads(payloads);
        let for_ike = match parsed.sa() {
            Ok(Some(sa)) => sa.proposals.iter().any(|p| p.protocol == ProtocolId::IKE),
            Ok(None) => return self.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
            Err(refusal) => return self.refuse(ctx, refusal),
        };
        let result = if for_ike {
            self.answer_rekey_ike(ctx, &parsed)
        } else {
            self.answer_create_child(ctx, &parsed)
        };
        if let Err(refusal) = result {
            self.refuse(ctx, refusal);
        }
    }

    fn answer_create_child(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> Result<(), Refusal> {
        let State::Established(established) = &self.state else { return Ok(()) };
        let ni = *required(payloads.nonce()?)?;
        let ike = established.ike_activity();
        let rekeys = payloads.notify(NotifyType::REKEY_SA);
        let (answer, old) = match rekeys {
            None => (collision::on_create_child_request(ike), None),
            Some(notify) => {
                let old = established.children.iter().find(|child| {
                    notify.protocol == ProtocolId::ESP && notify.spi == Spi::Esp(child.spi_out)
                });
                let unknown = match established.ours.as_ref().and_then(Initiated::child) {
                    Some(_) => ChildActivity::Unborn,
                    None => ChildActivity::Gone,
                };
                let activity = old.map_or(unknown, |old| established.activity(old));
                (collision::on_child_rekey_request(activity, ike), old)
            }
        };
        match answer {
            Answer::Accept => {}
            Answer::TemporaryFailure => return Err(NotifyType::TEMPORARY_FAILURE.into()),
            Answer::ChildSaNotFound => {
                self.respond_child_sa_not_found(ctx, rekeys);
                return Ok(());
            }
        }
        let old_id = old.map(|old| old.id);
        // Rekeying goes on where there is no room for more.
        let limit = if old_id.is_some() { 2 * MAX_CHILDREN } else { MAX_CHILDREN };
        if established.children.len() + established.lingering.len() >= limit {
            return Err(match resource::is_asked(payloads) {
                true => NotifyType::TS_MAX_QUEUE.into(),
                false => NotifyType::NO_ADDITIONAL_SAS.into(),
            });
        }
        if let Some(id) = old_id {
            // Who rekeys a child has it.
            self.activate(ctx, id);
        }
        let State::Established(established) = &self.state else { return Ok(()) };
        let old = old_id.and_then(|id| established.children.iter().find(|child| child.id == id));
        let nr = ctx.nonce();
        let (ppk, ppk_id) = self.ppk_for_request(ctx.config, payloads, ni)?.unzip();
        let request = ChildRequest { rekeys: old.map(|old| old.id), with_ke: true };
        let answered = self.answer_child(ctx, payloads, &request, old)?;
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
            let link = self.start_chain(ctx, what, shared, (ni, &nr), ppk);
            let mut payloads = reply.payloads();
            payloads.push(notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &link));
            self.respond(ctx, &payloads);
            self.note_crossed(old, None, ni, &nr);
            return Ok(());
        }
        let shared: Vec<_> = shared.iter().collect();
        let ready = self.keyed(ctx, answered.child, &shared, (ni, &nr), ppk)?;
        self.note_crossed(old, Some(new), ni, &nr);
        self.install_then_respond(ctx, ready, reply);
        Ok(())
    }

    /// Answers that the child of REKEY_SA is not there.
    fn respond_child_sa_not_found(&mut self, ctx: &mut Context<'_>, rekeys: Option<&Notify<'_>>) {
        //= RFC 7296 §2.25
        //# The SA that the
        //# initiator attempted to rekey is indicated by the SPI field in the
        //# Notify payload, which is copied from the SPI field in the REKEY_SA
        //# notification.
        if let Some(notify) = rekeys {
            let reply = Notify { kind: NotifyType::CHILD_SA_NOT_FOUND, data: &[], ..*notify };
            self.respond(ctx, &[Payload::Notify(reply)]);
        }
    }

    /// If this end is rekeying the same child, its response will have to choose.
    fn note_crossed(
        &mut self,
        old: Option<ChildSaId>,
        new: Option<ChildSaId>,
        ni: &[u8],
        nr: &[u8],
    ) {
        let State::Established(established) = &mut self.state else { return };
        if let (Some(old), Some(Initiated::Child(offer))) = (old, &mut established.ours)
            && offer.rekeys == Some(old)
        {
            offer.crossed = Some(CrossedChild { child: new, nonces: (ni.to_vec(), nr.to_vec()) });
        }
    }

    /// Hands a child to the data plane; the response leaves when it is installed.
    pub(crate) fn install_then_respond(
        &mut self,
        ctx: &mut Context<'_>,
        ready: ReadyChild,
        reply: Reply,
    ) {
        let (spi_in, outbound) = (ready.child.spi_in, ready.child.outbound());
        if !ctx.ids.claim(outbound, spi_in) {
            ctx.ids.esp.remove(&spi_in);
            let kind = self.no_room(&ready.child);
            return self.respond_without_child(
                ctx,
                &reply,
                kind,
                &ready.child.config.name,
                taken(),
            );
        }
        let State::Established(established) = &mut self.state else { return };
        let (child, batch) = if ready.child.replaces.is_some() {
            ready.install_inbound(false)
        } else {
            let routed = established.take_route(&ready.child);
            ready.install_all(false, routed)
        };
        let ticket = ctx.data_plane(batch);
        established.responding = Some(Box::new(Responding { ticket, child: child.id, reply }));
        established.children.reserve_exact(1);
        established.children.push(child);
    }

    /// The data plane has installed, or refused, the child of a request that waits for its answer.
    pub(crate) fn on_responding_completed(
        &mut self,
        ctx: &mut Context<'_>,
        responding: Responding,
        result: Result<(), DataPlaneError>,
    ) {
        let Responding { child, reply, .. } = responding;
        match result {
            Ok(()) => {
                self.respond(ctx, &reply.payloads());
                self.child_installed(ctx, child);
            }
            Err(error) => {
                let State::Established(established) = &self.state else { return };
                let failed = established.children.iter().find(|failed| failed.id == child);
                let kind =
                    failed.map_or(NotifyType::NO_ADDITIONAL_SAS, |failed| self.no_room(failed));
                let name = self.remove_failed(ctx, child);
                let failure = Failure::DataPlane(error.0);
                self.respond_without_child(ctx, &reply, kind, &name, failure);
            }
        }
    }

    /// Answers that the child of a request cannot be, by an error of this `kind`.
    fn respond_without_child(
        &mut self,
        ctx: &mut Context<'_>,
        reply: &Reply,
        kind: NotifyType,
        name: &str,
        reason: Failure,
    ) {
        let refusal = notify(kind, &[]);
        match &reply.auth {
            Some(auth) => {
                let mut payloads = auth.payloads();
                payloads.extend(reply.ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
                payloads.push(refusal);
                self.respond(ctx, &payloads);
            }
            None => self.respond(ctx, &[refusal]),
        }
        self.child_failed(ctx, name, reason);
    }

    /// Takes back what a failed installation may have left. Returns the child's name.
    pub(crate) fn remove_failed(&mut self, ctx: &mut Context<'_>, id: ChildSaId) -> String {
        let State::Established(established) = &mut self.state else { return String::new() };
        if let Some(offer) = established.ours.as_mut().and_then(Initiated::child_mut)
            && offer.crossed.as_ref().is_some_and(|crossed| crossed.child == Some(id))
        {
            offer.crossed = None;
        }
        let Some(index) = established.children.iter().position(|child| child.id == id) else {
            return String::new();
        };
        let child = established.children.swap_remove(index);
        self.timers.clear(TimerKey::Child(id, ChildTimer::RekeyChild));
        ctx.ids.esp.remove(&child.spi_in);
        let mut batch =
            vec![Command::RemoveSa(child.outbound()), Command::RemoveSa(child.inbound())];
        match established.heir(&child) {
            None => batch.insert(0, Command::RemovePolicy(child.policy)),
            Some(other) if other.carries() && child.routed => {
                other.routed = true;
                ctx.change(vec![other.install_policy()], vec![other.id], Vec::new());
            }
            Some(_) => {}
        }
        ctx.data_plane(batch);
        child.config.name.clone()
    }
}

/// The peer chose an SPI that another child has at its address.
fn taken() -> Failure {
    Failure::Refused(NotifyType::NO_ADDITIONAL_SAS)
}

/// The task that makes `offer` again.
fn task_of(offer: ChildOffer, retry: Retry) -> Task {
    match offer.rekeys {
        Some(child) => Task::RekeyChild { child, request: offer.request, retry },
        None => {
            let ChildOffer { config, packet, request, join, .. } = offer;
            Task::CreateChild { config, packet, request, retry, join }
        }
    }
}

/// What the answer to a request for `child` says in front of SA.
pub(crate) fn answer_notifies(child: &ChildSa) -> Vec<Payload<'static>> {
    let mode = mode::payload(child.mode, &child.config.processing);
    // Whether a rekeyed one is for a CPU goes without saying (RFC 9611 §3).
    let resource = child.processing.per_cpu && child.replaces.is_none();
    mode.into_iter().chain(resource.then(|| resource::payload(&[]))).collect()
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
