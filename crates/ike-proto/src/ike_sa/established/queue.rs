//! The queue of requests: when each is sent, and what its response is for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::child::{ChildSa, Phase};
use crate::config::ChildConfig;
use crate::dataplane::{Flow, Processing};
use crate::event::{Failure, RequestId};
use crate::exchange::Payloads;
use crate::exchange::child_offer::NoOffer;
use crate::exchange::child_offer::{OfferSpec, offer};
use crate::exchange::followup::OurOffer;
use crate::exchange::resource::Join;
use crate::ike_sa::collision::{ChildActivity, IkeActivity, may_rekey_child, may_rekey_ike};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::pending::{Pending, What};
use crate::ike_sa::state::{Established, IkePhase, Initiated, Retry, Task};
use crate::ike_sa::timer::{Timer, TimerKey};
use crate::ike_sa::{Core, PutOff};
use crate::keys::epoch::Opened;
use crate::question::Exchange;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// The wait before a request is repeated after TEMPORARY_FAILURE, and the random part that is subtracted.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(6);
pub(super) const RETRY_SPREAD: Duration = Duration::from_secs(4);

/// How long the peer may answer TEMPORARY_FAILURE.
const PUT_OFF: Duration = Duration::from_secs(5 * 60);
/// After this time without another one, a TEMPORARY_FAILURE was a single one. A request that is put off is
/// repeated in less than a minute, unless the peer has done the same by itself meanwhile.
const FORGOTTEN: Duration = Duration::from_secs(3 * 60);
/// Children of one configuration on one IKE SA that packets may request, if the peer wants one for each pair of
/// addresses.
const MAX_PAIRS: usize = 64;

/// The parts of a [`Task::CreateChild`].
struct NewChild {
    config: Arc<ChildConfig>,
    packet: Option<Flow>,
    request: Option<RequestId>,
    retry: Retry,
    join: Option<Join>,
}

impl Established {
    /// Queues a task. It is sent at the end of the input if the window is free.
    pub(crate) fn enqueue(&mut self, task: Task) {
        self.queue.push_back(task);
    }

    /// As [`enqueue`](Self::enqueue), before the tasks that wait already.
    pub(crate) fn enqueue_urgent(&mut self, task: Task) {
        self.queue.push_front(task);
    }

    /// True if `packet`, which met a trap, needs no further child of this configuration: one is being made, or
    /// there is one that accepts it or everything that the peer will accept.
    pub(crate) fn serves(&self, name: &str, packet: Flow, trap: Option<&Processing>) -> bool {
        let sent = self.ours.as_ref().and_then(Initiated::child);
        let asked = sent.is_some_and(|offer| offer.config.name == name);
        let delayed = self.delayed.iter().map(|(_, task)| task);
        let queued = (self.queue.iter().chain(delayed))
            .any(|task| matches!(task, Task::CreateChild { config, .. } if config.name == name));
        let there = self.children.iter().filter(|child| {
            child.config.name == name && matches!(child.phase, Phase::Installing | Phase::Installed)
        });
        // If a peer wants an SA for each pair of addresses, there can be another child for this pair.
        let enough = |child: &ChildSa| {
            trap.is_none_or(|trap| child.is_marked_like(trap))
                && (child.takes(packet) || !child.is_single_pair())
        };
        asked || queued || there.clone().any(enough) || there.count() >= MAX_PAIRS
    }

    /// Sends the next queued request, if the window is free.
    pub(crate) fn pump(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        loop {
            let sent = self.ours.is_some() || core.channel.window.outstanding().is_some();
            if self.queue.is_empty() && !sent && self.delayed.is_empty() {
                // Nothing that was put off is wanted any more.
                PutOff::is_not_held(&mut self.put_off);
            }
            if self.queue.is_empty() || sent || core.is_ending() {
                return;
            }
            if core.channel.timers.get(TimerKey::Ike(Timer::Unseen)).is_some() {
                // The request would overtake the answer that makes the SA at the peer, or that answer is lost.
                return;
            }
            if self.responding.as_ref().is_some_and(|waiting| waiting.reply.auth.is_some()) {
                // The initiator has no SA before its IKE_AUTH response.
                return;
            }
            let pending = core.pending.as_deref();
            let preparing = pending.is_some_and(Pending::is_preparing);
            let answering = pending.is_some_and(Pending::is_answering);
            let busy = self.responding.is_some() || !self.installing.is_empty() || answering;
            let held = core.channel.mobike.as_ref().is_some_and(|mobike| mobike.held);
            let makes_child =
                |task: &Task| matches!(task, Task::CreateChild { .. } | Task::RekeyChild { .. });
            if held
                && let Some(at) = self.queue.iter().position(|task| !makes_child(task))
                && let Some(task) = self.queue.remove(at)
            {
                self.queue.push_front(task);
            }
            let waits = match self.queue.front() {
                // A child goes to no address that the peer has not proven (RFC 4555 §3.7).
                Some(task) if held && makes_child(task) => true,
                // The first of these is being prepared.
                Some(Task::CreateChild { .. } | Task::RekeyChild { .. }) => preparing,
                Some(Task::RekeyIke { .. }) => busy || preparing,
                Some(Task::DeleteChild { child, .. }) => self.is_being_replaced(*child),
                _ => false,
            };
            if waits {
                return;
            }
            let Some(task) = self.queue.pop_front() else { return };
            let ready = core.take_ready(&task);
            if ready.is_empty() {
                self.start(core, ctx, task);
                continue;
            }
            ctx.ids.exchanged = ready;
            self.start(core, ctx, task);
            ctx.ids.exchanged.clear();
        }
    }

    /// Asks for `exchange`, which `task` needs.
    pub(crate) fn prepare(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        exchange: Exchange,
        task: Task,
    ) {
        self.enqueue_urgent(task);
        core.put_off(ctx, exchange, What::Task);
    }

    fn start(&mut self, core: &mut Core, ctx: &mut Context<'_>, task: Task) {
        let alive = self.phase == IkePhase::Alive;
        let rekeyed = match &task {
            Task::CreateChild { .. } => self.is_being_rekeyed(),
            Task::RekeyChild { child, .. } => {
                self.is_being_rekeyed() || self.child_is_being_rekeyed(*child)
            }
            Task::RekeyIke { .. } => !self.theirs.is_empty(),
            _ => false,
        };
        if alive && rekeyed && self.ike_activity() == IkeActivity::Idle {
            // The peer would answer TEMPORARY_FAILURE, and does not if it gives up its exchange. This time counts
            // as if the peer had answered. A peer that begins one exchange after the other puts this end off for
            // just as long.
            let held = &mut self.put_off.get_or_insert_default().held_since;
            let since = *held.get_or_insert(ctx.now.mono);
            self.is_put_off(ctx.now.mono, since);
            return self.retry_later(core, ctx, task);
        }
        if let Task::CreateChild { config, packet, request, join: None, .. } = &task
            && alive
            && !ctx.wants.has_several(&core.connection.name, &config.name)
        {
            // The peer may have made it, or have begun to, while the task waited.
            let there = match packet {
                None => self.has_whole(config),
                Some(packet) => {
                    let trap = ctx.ids.numbers.trapped(&core.connection, config);
                    self.has_one_for(&config.name, *packet, trap.as_deref())
                }
            };
            if there {
                return ctx.done(*request, Ok(()));
            }
            // A packet does not wait for the peer. If two children cross, the rule for that ends one.
            if packet.is_none()
                && self.theirs.iter().any(|chain| chain.makes(&config.name, ctx.now.mono))
            {
                // As above: a peer that begins one chain after the other does not put this end off for ever.
                let held = &mut self.put_off.get_or_insert_default().held_since;
                let since = *held.get_or_insert(ctx.now.mono);
                self.is_put_off(ctx.now.mono, since);
                return self.retry_later(core, ctx, task);
            }
        }
        match task {
            Task::CreateChild { config, packet, request, retry, join } if alive => {
                let new = NewChild { config, packet, request, retry, join };
                self.start_child(core, ctx, new);
            }
            Task::RekeyChild { child, request, retry } if alive => {
                let ike = self.ike_activity();
                let found = self.children.iter().find(|other| other.id == child);
                let activity = found.map_or(ChildActivity::Gone, |other| self.activity(other));
                if !may_rekey_child(activity, ike) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                if found.is_some_and(|other| other.pending_out.is_some()) {
                    // The peer has made the child, and may not know yet that it exists.
                    let task = Task::RekeyChild { child, request, retry };
                    return self.retry_later(core, ctx, task);
                }
                if !self.send_rekey_child(core, ctx, child, request, retry) {
                    ctx.done(request, Err(Failure::NotFound));
                }
            }
            Task::RekeyIke { request, retry } if alive => {
                if !may_rekey_ike(self.ike_activity(), self.child_exchange()) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                self.send_rekey_ike(core, ctx, request, retry);
            }
            Task::CreateChild { request, config, .. } => {
                // The IKE SA of the child is about to end.
                let ended = core.ending(Some(&config.name), &Failure::NotFound, false, None);
                ctx.effects.push_back(Effect::Ended(Box::new(ended)));
                ctx.done(request, Err(Failure::NotFound));
            }
            Task::RekeyChild { request, .. } | Task::RekeyIke { request, .. } => {
                ctx.done(request, Err(Failure::NotFound))
            }
            Task::DeleteChild { child, reason, request } => {
                let found = self.children.iter_mut().find(|other| other.id == child);
                // The child has ended by itself since the task was queued.
                let Some(found) = found else { return ctx.done(request, Ok(())) };
                if found.phase != Phase::Rekeyed {
                    found.phase = Phase::Deleting;
                }
                let spi = found.spi_in;
                // The child that the peer has just made to replace it is deleted as well.
                let new = self.children.iter().find(|new| new.replaces == Some(child));
                if let Some(new) = new.map(|new| new.id).filter(|_| reason == Failure::Terminated) {
                    let (reason, request) = (reason.clone(), None);
                    self.queue.push_front(Task::DeleteChild { child: new, reason, request });
                }
                self.send_delete_child(
                    core,
                    ctx,
                    spi,
                    Initiated::DeleteChild { child, reason, request },
                );
            }
            Task::DeleteSpi(spi) => self.send_delete_child(core, ctx, spi, Initiated::DeleteSpi),
            Task::DeleteIke { reason, request } => self.send_delete_ike(core, ctx, reason, request),
            Task::Liveness => self.send_liveness(core, ctx),
            Task::Token => self.send_token(core, ctx),
            Task::AuthLifetime => self.send_auth_lifetime(core, ctx),
            Task::InvalidSpi(spi) => self.send_invalid_spi(core, ctx, spi),
            Task::RequestTicket => self.send_ticket_request(core, ctx),
            Task::Mobility(what) => self.send_mobility(core, ctx, what),
            Task::Redirect { to, request } => self.send_redirect(core, ctx, to, request),
        }
    }

    fn start_child(&mut self, core: &mut Core, ctx: &mut Context<'_>, new: NewChild) {
        let NewChild { config, packet, request, retry, join: asked } = new;
        let join = asked.or_else(|| self.headless(&config.name, packet));
        let other = join.map(|join| (join, self.sharing(join.policy).next()));
        let joins = match other {
            None => None,
            Some((join, Some(other))) => Some((other, join)),
            // All of them have ended meanwhile. The next packet requests a new first child.
            Some((_, None)) => return ctx.done(request, Err(Failure::NotFound)),
        };
        let ordinal = joins.map_or(0, |(other, _)| self.unused_ordinal(other.policy));
        let spec = OfferSpec {
            config: &config,
            rekeys: None,
            joins,
            dynamic: core.dynamic(),
            packet,
            ike_method: Some(core.channel.session.selected.ke),
            ordinal,
            request,
            retry,
        };
        match offer(ctx, core.id, core.channel.path, &spec) {
            Ok(offer) => self.send_offer(core, ctx, offer),
            Err(NoOffer::Ask(exchange)) => {
                let task = Task::CreateChild { config, packet, request, retry, join: asked };
                self.prepare(core, ctx, exchange, task);
            }
            Err(NoOffer::Failed(failure)) => {
                ctx.done(request, Err(failure.clone()));
                core.child_failed(ctx, &config.name, failure);
            }
        }
    }

    pub(crate) fn on_response(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        if Payloads(payloads).notify(NotifyType::INVALID_SYNTAX).is_some() {
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.3
            //# this
            //# error notification is considered fatal in both peers, meaning that
            //# the IKE SA is deleted without needing an explicit Delete payload.
            return core.end(Failure::Peer(NotifyType::INVALID_SYNTAX));
        }
        self.note_put_off(ctx, payloads);
        match self.ours.take() {
            Some(Initiated::Child(offer)) => {
                self.on_offer_response(core, ctx, OurOffer::Child(offer), payloads, opened);
            }
            Some(Initiated::RekeyIke(offer)) => {
                self.on_offer_response(core, ctx, OurOffer::Ike(offer), payloads, opened);
            }
            Some(Initiated::Followup(followup)) => {
                self.on_followup_response(core, ctx, *followup, payloads, opened);
            }
            Some(Initiated::DeleteChild { child, reason, request }) => {
                self.on_child_deleted(core, ctx, child, &reason, request);
            }
            Some(Initiated::DeleteIke { reason, request }) => {
                ctx.done(request, Ok(()));
                core.end(reason);
            }
            Some(Initiated::TicketRequest) => {
                self.take_ticket(core, ctx, &Payloads(payloads), false)
            }
            Some(Initiated::Liveness) => {
                core.take_token(payloads);
                self.on_mapping_seen(core, payloads);
            }
            Some(Initiated::Mobility(sent)) => {
                core.take_token(payloads);
                self.on_mobility_response(core, ctx, &sent, payloads);
            }
            Some(Initiated::Redirect(request)) => {
                ctx.done(request, Ok(()));
                self.let_leave(core, ctx);
            }
            Some(Initiated::DeleteSpi) | None => {}
        }
    }

    /// Records how long the peer has been putting off requests of this end.
    fn note_put_off(&mut self, ctx: &Context<'_>, payloads: &[Payload<'_>]) {
        let offers = |ours: &Initiated| ours.child().is_some() || ours.ike().is_some();
        if !self.ours.as_ref().is_some_and(offers) {
            return;
        }
        PutOff::is_not_held(&mut self.put_off);
        let payloads = Payloads(payloads);
        if payloads.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE).is_some() {
            // The last exchange of the chain will show it.
            return;
        }
        let put_off = payloads.notify(NotifyType::TEMPORARY_FAILURE).is_some();
        if put_off {
            let now = ctx.now.mono;
            let refused = &mut self.put_off.get_or_insert_default().refused;
            let before = refused.filter(|(_, last)| now < *last + FORGOTTEN);
            let since = before.map_or(now, |(since, _)| since);
            *refused = Some((since, now));
            self.is_put_off(now, since);
        } else {
            self.put_off = None;
        }
    }

    /// Records that requests of this end have to wait for the peer.
    fn is_put_off(&mut self, now: Instant, since: Instant) {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
        //# If a peer continues to
        //# receive TEMPORARY_FAILURE on the same IKE SA after several minutes,
        //# it SHOULD conclude that the state information is out of sync and
        //# close the IKE SA.
        if now >= since + PUT_OFF {
            let reason = Failure::Peer(NotifyType::TEMPORARY_FAILURE);
            self.enqueue_urgent(Task::DeleteIke { reason, request: None });
        }
    }

    /// Repeats `task` after a while.
    pub(crate) fn retry_later(&mut self, core: &mut Core, ctx: &mut Context<'_>, task: Task) {
        let at = ctx.now.mono + ctx.jittered(RETRY_AFTER, RETRY_SPREAD);
        self.delayed.push((at, task));
        let first = self.delayed.iter().map(|(at, _)| *at).min();
        core.channel.timers.set_or_clear(TimerKey::Ike(Timer::RetryTemporaryFailure), first);
    }
}
