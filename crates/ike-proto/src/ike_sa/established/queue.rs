//! The queue of requests: when each is sent, and what its response is for.

use crate::channel::Channel;
use crate::channel::probing::Probing;
use crate::child::{ChildSa, Phase};
use crate::dataplane::{Flow, Processing};
use crate::event::Failure;
use crate::exchange::Payloads;
use crate::exchange::config::Assigned;
use crate::exchange::followup::OurOffer;
use crate::exchange::parts::{Outcome, Parts, Started};
use crate::exchange::qcd::OwnToken;
use crate::exchange::redirect::RequestedRedirect;
use crate::exchange::requested_child::{NewChild, RequestedChild};
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::Work;
use crate::ike_sa::collision::{ChildActivity, IkeActivity, may_rekey_child, may_rekey_ike};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::path_probe::PathProbe;
use crate::ike_sa::pending::{Pending, What};
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::keys::epoch::Opened;
use crate::question::Exchange;
use crate::wants::Ended;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

impl Established {
    /// True if `packet`, which met a trap, needs no further child of this configuration: one takes it, one is asked for
    /// because of it, or no child can take it beside the virtual IPs `assigned`.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
    //# When narrowing is done, there may be several subsets that are
    //# acceptable but their union is not.  In this case, the responder
    //# arbitrarily chooses one of them, and MAY include an
    //# ADDITIONAL_TS_POSSIBLE notification in the response.
    pub(crate) fn serves(
        &self,
        assigned: &Assigned,
        name: &str,
        packet: Flow,
        trap: Option<&Processing>,
    ) -> bool {
        let virtual_ips = assigned.dynamic();
        let takes = |child: &ChildSa| {
            child.config.name == name
                && matches!(child.phase, Phase::Installing | Phase::Installed)
                && trap.is_none_or(|trap| child.is_marked_like(trap))
                && (child.takes(packet) || child.leaves_out(packet, &virtual_ips))
        };
        self.work().makes_for(name, packet) || self.children.iter().any(takes)
    }

    /// Sends the next queued request, if the window is free.
    pub(crate) fn pump(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        if self.queue.all().any(|task| matches!(task, Task::DeleteIke { .. })) {
            // A lost probe would hold the window until the retransmission timer, and a daemon that ends does not wait so long.
            Probing::fall_back(stem.channel, &mut ctx.io);
        }
        loop {
            let sent = self.sent.is_some() || stem.channel.window().outstanding().is_some();
            if !sent && self.queue.all().next().is_none() {
                // Nothing that was put off is wanted any more.
                self.queue.note_not_held();
            }
            if self.queue.is_empty() || sent || stem.ending.is_set() {
                return;
            }
            if self.life.awaits_sign() {
                // The request would overtake the answer that makes the SA at the peer, or that answer is lost.
                return;
            }
            if self.answering.is_in_auth() {
                // The initiator has no SA before its IKE_AUTH response.
                return;
            }
            let pending = stem.pending.get();
            let preparing = pending.is_some_and(Pending::is_preparing);
            let answering = pending.is_some_and(Pending::is_answering);
            let busy = self.answering.waits() || self.children.is_installing() || answering;
            let held = stem.channel.route().is_held();
            let makes_child =
                |task: &Task| matches!(task, Task::CreateChild { .. } | Task::RekeyChild { .. });
            // A probe delays nothing that waits.
            self.queue.prefer(|task| !matches!(task, Task::Probe { .. }));
            if held {
                self.queue.prefer(|task| !makes_child(task));
            }
            let waits = match self.queue.first() {
                // A child goes to no address that the peer has not proven (RFC 4555 §3.7).
                Some(task) if held && makes_child(task) => true,
                // The first of these is being prepared.
                Some(Task::CreateChild { .. } | Task::RekeyChild { .. }) => preparing,
                Some(Task::RekeyIke { .. }) => busy || preparing,
                Some(Task::DeleteChild { child, .. }) => self.children.is_being_replaced(*child),
                _ => false,
            };
            if waits {
                return;
            }
            let Some(task) = self.queue.pop() else {
                return debug_assert!(false, "a queue that is not empty has no first task");
            };
            let ready = stem.pending.take_ready(&task);
            if ready.is_empty() {
                self.start(stem, ctx, task);
                continue;
            }
            ctx.ids.exchanged = ready;
            self.start(stem, ctx, task);
            ctx.ids.exchanged.clear();
        }
    }

    /// Asks for `exchange`, which `task` needs.
    pub(crate) fn prepare(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        exchange: Exchange,
        task: Task,
    ) {
        self.queue.push_first(task);
        stem.put_off(ctx, exchange, What::Task);
    }

    fn start(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, task: Task) {
        let alive = self.phase == IkePhase::Alive;
        let rekeyed = match &task {
            Task::CreateChild { .. } => self.answering.rekeys_ike(),
            Task::RekeyChild { child, .. } => {
                self.answering.rekeys_ike() || self.answering.rekeys_child(*child)
            }
            Task::RekeyIke { .. } => !self.answering.has_no_chain(),
            _ => false,
        };
        if alive && rekeyed && self.work().ike_activity(self.phase) == IkeActivity::Idle {
            // The peer would answer TEMPORARY_FAILURE, and does not if it gives up its exchange. This time counts
            // as if the peer had answered. A peer that begins one exchange after the other puts this end off for
            // just as long.
            self.queue.note_held(ctx.io.now.mono);
            return self.queue.retry_later(&mut self.life, ctx, task);
        }
        if let Task::CreateChild { config, packet, request, join: None, .. } = &task
            && alive
            && !ctx.wants.has_several(&stem.channel.connection().name, &config.name)
        {
            // The peer may have made it, or have begun to, while the task waited.
            let there = match packet {
                None => self.has_whole(config),
                Some(packet) => {
                    let trap = ctx.ids.numbers.trapped(stem.channel.connection(), config);
                    let assigned = stem.peer.assigned();
                    self.has_one_for(assigned, &config.name, *packet, trap.as_deref())
                }
            };
            if there {
                return ctx.done(*request, Ok(()));
            }
            // A packet does not wait for the peer. If two children cross, the rule for that ends one.
            if packet.is_none()
                && self.answering.chains().any(|chain| chain.makes(&config.name, ctx.io.now.mono))
            {
                // As above: a peer that begins one chain after the other does not put this end off for ever.
                self.queue.note_held(ctx.io.now.mono);
                return self.queue.retry_later(&mut self.life, ctx, task);
            }
        }
        match task {
            Task::CreateChild { config, packet, request, retry, join } if alive => {
                let new = NewChild { config, packet, request, retry, join };
                self.start_child(stem, ctx, new);
            }
            Task::RekeyChild { child, request, retry } if alive => {
                let ike = self.work().ike_activity(self.phase);
                let found = self.children.get(child);
                let activity = found.map_or(ChildActivity::Gone, |other| {
                    self.work().activity(other, &self.children)
                });
                if !may_rekey_child(activity, ike) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                if found.is_some_and(|other| other.pending_out.is_some()) {
                    // The peer has made the child, and may not know yet that it exists.
                    let task = Task::RekeyChild { child, request, retry };
                    return self.queue.retry_later(&mut self.life, ctx, task);
                }
                let parts = &mut self.parts(stem, ctx);
                let started = RequestedChild::request_rekey(parts, child, request, retry);
                self.on_started(stem, ctx, started);
            }
            Task::RekeyIke { request, retry } if alive => {
                if !may_rekey_ike(self.work().ike_activity(self.phase), self.child_exchange()) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                self.send_rekey_ike(stem, ctx, request, retry);
            }
            Task::CreateChild { request, config, .. } => {
                // The IKE SA of the child is about to end.
                let ended =
                    Ended::of(stem.channel, Some(&config.name), &Failure::NotFound, false, None);
                ctx.effects.push_back(Effect::Ended(Box::new(ended)));
                ctx.done(request, Err(Failure::NotFound));
            }
            Task::RekeyChild { request, .. } | Task::RekeyIke { request, .. } => {
                ctx.done(request, Err(Failure::NotFound))
            }
            Task::DeleteChild { child, reason, request } => {
                let found = self.children.get_mut(child);
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
                    self.queue.push_first(Task::DeleteChild { child: new, reason, request });
                }
                self.send_delete_child(
                    stem,
                    ctx,
                    spi,
                    Sent::DeleteChild { child, reason, request },
                );
            }
            Task::DeleteSpi(spi) => self.send_delete_child(stem, ctx, spi, Sent::DeleteSpi),
            Task::DeleteIke { reason, request } => self.send_delete_ike(stem, ctx, reason, request),
            Task::Liveness => self.send_liveness(stem, ctx),
            Task::Token => {
                let started = OwnToken::request(stem, ctx);
                self.on_started(stem, ctx, started);
            }
            Task::AuthLifetime => self.send_auth_lifetime(stem, ctx),
            Task::InvalidSpi(spi) => self.send_invalid_spi(stem, ctx, spi),
            Task::Probe { child, octets } => {
                PathProbe::new(child, octets).send(self, stem, ctx);
            }
            Task::RequestTicket => self.send_ticket_request(stem, ctx),
            Task::Mobility(what) => self.send_mobility(stem, ctx, what),
            Task::Redirect { to, request } => {
                let started = RequestedRedirect::request(stem, ctx, to, request);
                self.on_started(stem, ctx, started);
            }
        }
    }

    fn start_child(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, new: NewChild) {
        if let Some(packet) = new.packet.filter(|_| new.join.is_none())
            && self.children.is_full_of(&new.config)
        {
            let name = (&*stem.channel.connection().name, &*new.config.name);
            self.queue.note_refused(ctx.io.now.mono, name, packet);
            return ctx.done(new.request, Err(Failure::Refused(NotifyType::NO_ADDITIONAL_SAS)));
        }
        let join = new.join.or_else(|| self.children.headless(&new.config, new.packet));
        let ordinal = join.map_or(0, |join| self.places().unused_ordinal(join.policy));
        let started = RequestedChild::request(&mut self.parts(stem, ctx), new, join, ordinal);
        self.on_started(stem, ctx, started);
    }

    /// What this end is doing on the SA.
    pub(crate) fn work(&self) -> Work<'_> {
        Work::new(self.sent.as_ref(), &self.queue)
    }

    /// The parts for the exchange of a child.
    pub(crate) fn parts<'a, 'c>(
        &'a mut self,
        stem: &'a mut Stem<'_>,
        ctx: &'a mut Context<'c>,
    ) -> Parts<'a, 'c> {
        let Self { identity, children, queue, life, .. } = self;
        let Stem { channel, peer, ending, .. } = stem;
        Parts { channel, peer, ending, identity, children, queue, life, ctx }
    }

    fn on_started(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, started: Started) {
        match started {
            Started::Not => {}
            Started::Sent(sent) => self.sent = Some(sent),
            Started::Ask(exchange, task) => self.prepare(stem, ctx, exchange, task),
        }
    }

    /// Acts on what a response leaves to the SA.
    pub(crate) fn conclude(&mut self, channel: &Channel, ctx: &mut Context<'_>, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            // The peer does not continue a rekey that has lost either.
            Outcome::Won(old) => self.answering.drop_chains(&mut self.life, ctx, |chain| {
                chain.child().is_some_and(|new| new.replaces == old)
            }),
            Outcome::Anew(offer, failure) => {
                if let Some(old) = offer.rekeys() {
                    self.drop_child(channel, ctx, old, &failure);
                }
                self.queue.push(offer.anew(&self.children));
            }
            Outcome::Leaves => self.queue.let_leave(&mut self.life, ctx),
        }
    }

    pub(crate) fn on_response(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        if Payloads(payloads).notify(NotifyType::INVALID_SYNTAX).is_some() {
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.3
            //# this
            //# error notification is considered fatal in both peers, meaning that
            //# the IKE SA is deleted without needing an explicit Delete payload.
            return stem.ending.end(Failure::Peer(NotifyType::INVALID_SYNTAX));
        }
        self.note_put_off(ctx, payloads);
        match self.sent.take() {
            Some(Sent::Child(offer)) => {
                self.on_offer_response(stem, ctx, OurOffer::Child(offer), payloads, opened);
            }
            Some(Sent::RekeyIke(offer)) => {
                self.on_offer_response(stem, ctx, OurOffer::Ike(offer), payloads, opened);
            }
            Some(Sent::Followup(followup)) => {
                self.on_followup_response(stem, ctx, *followup, payloads, opened);
            }
            Some(Sent::DeleteChild { child, reason, request }) => {
                self.on_child_deleted(stem.channel, ctx, child, &reason, request);
            }
            Some(Sent::DeleteIke { reason, request }) => {
                ctx.done(request, Ok(()));
                stem.ending.end(reason);
            }
            Some(Sent::TicketRequest) => {
                self.take_ticket(stem.seen(), ctx, &Payloads(payloads), false)
            }
            Some(Sent::Liveness) => {
                stem.peer.take_token(stem.channel, payloads);
                self.on_mapping_seen(stem.channel, payloads);
            }
            Some(Sent::Mobility(sent)) => {
                stem.peer.take_token(stem.channel, payloads);
                self.on_mobility_response(stem.channel, ctx, &sent, payloads);
            }
            Some(Sent::Redirect(redirect)) => {
                let outcome = redirect.on_response(ctx);
                self.conclude(stem.channel, ctx, outcome);
            }
            Some(Sent::Probe { child, octets }) => {
                PathProbe::new(child, octets).on_response(self, stem, ctx);
            }
            Some(Sent::DeleteSpi) | None => {}
        }
    }

    /// Records how long the peer has been putting off requests of this end.
    fn note_put_off(&mut self, ctx: &Context<'_>, payloads: &[Payload<'_>]) {
        let offers = |ours: &Sent| ours.child().is_some() || ours.ike().is_some();
        if !self.sent.as_ref().is_some_and(offers) {
            return;
        }
        self.queue.note_not_held();
        let payloads = Payloads(payloads);
        if payloads.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE).is_some() {
            // The last exchange of the chain will show it.
            return;
        }
        let put_off = payloads.notify(NotifyType::TEMPORARY_FAILURE).is_some();
        self.queue.note_answered(ctx.io.now.mono, put_off);
    }
}
