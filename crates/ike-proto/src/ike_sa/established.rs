//! An established IKE SA: its queue of requests, its children's lives, its timers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::IkeSa;
use super::collision::{ChildActivity, IkeActivity, may_rekey_child, may_rekey_ike};
use super::context::{Context, Effect};
use super::plane::Query;
use super::state::{Established, IkePhase, Initiated, Retry, State, Task};
use super::timer::{ChildTimer, Timer, TimerKey};
use crate::child::{ChildSa, Phase};
use crate::config::{Action, ChildConfig};
use crate::dataplane::{Command, Flow, PolicyId, Processing, SaId};
use crate::event::{ChildSaId, Event, Failure, RequestId};
use crate::exchange::Payloads;
use crate::exchange::child_offer::{OfferSpec, offer};
use crate::exchange::followup::{Chain, OurOffer};
use crate::exchange::resource::Join;
use crate::keys::epoch::Opened;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// Wait before a request that met TEMPORARY_FAILURE is made again, and what may be taken off it.
const RETRY_AFTER: Duration = Duration::from_secs(6);
const RETRY_SPREAD: Duration = Duration::from_secs(4);

/// How long TEMPORARY_FAILURE is taken for that.
const PUT_OFF: Duration = Duration::from_secs(5 * 60);
/// Children of one configuration that packets may ask for on one IKE SA, if the peer wants one for each
/// pair of addresses.
const MAX_PAIRS: usize = 64;

/// What is left of a child that was rekeyed: packets may be under way, from the peer, or in this host's
/// stack through the outbound SA that no policy names any more.
pub(crate) struct Lingering {
    pub(crate) child: ChildSaId,
    pub(crate) inbound: SaId,
    pub(crate) outbound: Option<SaId>,
    pub(crate) until: Instant,
}

impl Lingering {
    pub(crate) fn removals(&self) -> impl Iterator<Item = Command> + use<> {
        self.outbound.into_iter().chain([self.inbound]).map(Command::RemoveSa)
    }
}

impl Established {
    /// What this end is doing with the SA.
    pub(crate) fn ike_activity(&self) -> IkeActivity {
        let deleting = |task: &Task| matches!(task, Task::DeleteIke { .. });
        match (&self.ours, self.phase) {
            (Some(Initiated::DeleteIke { .. }), _) | (_, IkePhase::Closing) => IkeActivity::Closing,
            (_, IkePhase::Replaced(_) | IkePhase::Crossed(_)) => IkeActivity::Rekeyed,
            (Some(ours @ Initiated::Followup(_)), _) if ours.ike().is_some() => {
                IkeActivity::FollowUp
            }
            _ if self.queue.iter().any(deleting) => IkeActivity::Closing,
            // One rekey of the peer crosses ours; another would leave the first one's SA behind.
            (Some(Initiated::RekeyIke(offer)), _) if offer.crossed.is_some() => {
                IkeActivity::Rekeyed
            }
            (Some(Initiated::RekeyIke(_)), _) => IkeActivity::Rekeying,
            _ => IkeActivity::Idle,
        }
    }

    /// True while this end is creating, rekeying or closing a child.
    pub(crate) fn child_exchange(&self) -> bool {
        self.own_child_exchange() || self.theirs.iter().any(Chain::is_child)
    }

    /// The same but for what the peer has begun.
    pub(crate) fn own_child_exchange(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| {
            ours.child().is_some()
                || matches!(ours, Initiated::DeleteChild { .. } | Initiated::DeleteSpi)
        }) || !self.installing.is_empty()
    }

    /// True if the peer is rekeying the IKE SA, and its additional key exchanges are to come.
    fn is_being_rekeyed(&self) -> bool {
        !self.theirs.iter().all(Chain::is_child)
    }

    /// True if the peer is rekeying the child `old`, likewise.
    fn child_is_being_rekeyed(&self, old: ChildSaId) -> bool {
        self.theirs.iter().filter_map(Chain::child).any(|new| new.replaces == Some(old))
    }

    /// Why this end deletes `child`, if it does.
    pub(crate) fn reason_to_delete(&self, child: ChildSaId) -> Option<&Failure> {
        if let Some(Initiated::DeleteChild { child: id, reason, .. }) = &self.ours
            && *id == child
        {
            return Some(reason);
        }
        self.queue.iter().find_map(|task| match task {
            Task::DeleteChild { child: id, reason, .. } if *id == child => Some(reason),
            _ => None,
        })
    }

    /// True while the data plane is at work on what replaces `child` by our own rekey.
    fn is_being_replaced(&self, child: ChildSaId) -> bool {
        let new = self.children.iter().filter(|new| new.replaces == Some(child));
        let mut new = new.map(|new| new.id);
        new.any(|new| self.installing.iter().any(|(_, installing, _)| *installing == new))
    }

    /// Gives the room back of what is empty nearly always.
    pub(crate) fn trim(&mut self) {
        fn trim<T>(list: &mut Vec<T>) {
            if list.is_empty() && list.capacity() > 0 {
                *list = Vec::new();
            }
        }
        if self.queue.is_empty() && self.queue.capacity() > 0 {
            self.queue = VecDeque::new();
        }
        trim(&mut self.delayed);
        trim(&mut self.installing);
        trim(&mut self.lingering);
        trim(&mut self.queries);
        trim(&mut self.theirs);
        trim(&mut self.full);
    }

    /// The child of the peer's rekey of `old`, if it waits for the peer to use it.
    pub(crate) fn replacement_of(&self, old: ChildSaId) -> Option<ChildSaId> {
        let waits = |child: &&ChildSa| child.replaces == Some(old) && child.pending_out.is_some();
        self.children.iter().find(waits).map(|child| child.id)
    }

    /// As [`activity`](Self::activity) for a Delete of the peer: one of ours crosses it if it was sent,
    /// and is not to be sent any more if it was not.
    pub(crate) fn delete_activity(&self, child: &ChildSa) -> ChildActivity {
        match &self.ours {
            Some(Initiated::DeleteChild { child: id, .. }) if *id == child.id => {
                ChildActivity::Deleting
            }
            _ if child.phase == Phase::Rekeyed => ChildActivity::Rekeyed,
            _ => ChildActivity::Idle,
        }
    }

    /// True if the policy of `child` is to send by it: of those for one CPU each, only by one that takes
    /// the place of another by which it was, or if it is by none.
    pub(crate) fn routes(&self, child: &ChildSa) -> bool {
        let replaced = |old: &ChildSa| Some(old.id) == child.replaces && old.routed;
        child.cpu.is_none() || self.children.iter().any(replaced) || !self.is_routed(child.policy)
    }

    /// True if `policy` sends by a child that is there.
    fn is_routed(&self, policy: PolicyId) -> bool {
        self.children.iter().any(|child| child.policy == policy && child.routed)
    }

    /// As [`routes`](Self::routes); if so, those that the policy was sending by are not that any more.
    pub(crate) fn take_route(&mut self, child: &ChildSa) -> bool {
        let routes = self.routes(child);
        for other in self.children.iter_mut().filter(|other| other.policy == child.policy) {
            other.routed &= !routes;
        }
        routes
    }

    /// Which child the policy of `gone` is for without it: one of its line, else another that shares it.
    pub(crate) fn heir(&mut self, gone: &ChildSa) -> Option<&mut ChildSa> {
        let lives = |other: &ChildSa| {
            other.policy == gone.policy
                && other.id != gone.id
                && matches!(other.phase, Phase::Installing | Phase::Installed)
        };
        let rank =
            |other: &ChildSa| (other.line == gone.line, other.carries(), other.cpu.is_none());
        self.children.iter_mut().filter(|other| lives(other)).max_by_key(|other| rank(other))
    }

    /// What this end is doing with `child`.
    pub(crate) fn activity(&self, child: &ChildSa) -> ChildActivity {
        let queued = self
            .queue
            .iter()
            .any(|task| matches!(task, Task::DeleteChild { child: id, .. } if *id == child.id));
        match (&self.ours, child.phase) {
            (Some(Initiated::DeleteChild { child: id, .. }), _) if *id == child.id => {
                ChildActivity::Deleting
            }
            (_, Phase::Deleting) => ChildActivity::Deleting,
            _ if queued => ChildActivity::Deleting,
            // As for the IKE SA: the peer's rekey of it crosses ours once.
            (Some(Initiated::Child(offer)), _) if offer.rekeys == Some(child.id) => {
                match offer.crossed {
                    Some(_) => ChildActivity::Rekeyed,
                    None => ChildActivity::Rekeying,
                }
            }
            (Some(ours @ Initiated::Followup(_)), _)
                if ours.child().is_some_and(|offer| offer.rekeys == Some(child.id)) =>
            {
                ChildActivity::FollowUp
            }
            (_, Phase::Rekeyed) => ChildActivity::Rekeyed,
            // The peer's rekey stands ready; its Delete is still to come.
            _ if self.children.iter().any(|new| new.replaces == Some(child.id)) => {
                ChildActivity::Rekeyed
            }
            _ => ChildActivity::Idle,
        }
    }
}

impl IkeSa {
    /// Queues a task; it is sent at the end of the input if the window is free.
    pub(crate) fn enqueue(&mut self, task: Task) {
        if let State::Established(established) = &mut self.state {
            established.queue.push_back(task);
        }
    }

    /// As [`enqueue`](Self::enqueue), in front of what waits already.
    pub(crate) fn enqueue_urgent(&mut self, task: Task) {
        if let State::Established(established) = &mut self.state {
            established.queue.push_front(task);
        }
    }

    /// True if `packet`, met by a trap, needs no further child of this configuration: one is being made, or there is one
    /// that takes it or all that the peer wants to take.
    pub(crate) fn serves(&self, name: &str, packet: Flow, trap: &Processing) -> bool {
        let State::Established(established) = &self.state else { return false };
        let sent = established.ours.as_ref().and_then(Initiated::child);
        let asked = sent.is_some_and(|offer| offer.config.name == name);
        let delayed = established.delayed.iter().map(|(_, task)| task);
        let queued = (established.queue.iter().chain(delayed))
            .any(|task| matches!(task, Task::CreateChild { config, .. } if config.name == name));
        let there = established.children.iter().filter(|child| {
            child.config.name == name && matches!(child.phase, Phase::Installing | Phase::Installed)
        });
        // Of a peer that wants an SA for each pair of addresses there is another for this pair.
        let enough = |child: &ChildSa| {
            child.is_marked_like(trap) && (child.takes(packet) || !child.is_single_pair())
        };
        asked || queued || there.clone().any(enough) || there.count() >= MAX_PAIRS
    }

    /// Sends the next queued request, if the window is free.
    pub(super) fn pump(&mut self, ctx: &mut Context<'_>) {
        while let State::Established(established) = &mut self.state {
            if established.ours.is_some() || self.window.outstanding().is_some() {
                return;
            }
            if established.responding.as_ref().is_some_and(|waiting| waiting.reply.auth.is_some()) {
                // To the initiator there is no SA before its IKE_AUTH response.
                return;
            }
            let busy = established.responding.is_some() || !established.installing.is_empty();
            let waits = match established.queue.front() {
                Some(Task::RekeyIke { .. }) => busy,
                Some(Task::DeleteChild { child, .. }) => established.is_being_replaced(*child),
                _ => false,
            };
            if waits {
                return;
            }
            let Some(task) = established.queue.pop_front() else { return };
            self.start(ctx, task);
        }
    }

    fn start(&mut self, ctx: &mut Context<'_>, task: Task) {
        let State::Established(established) = &mut self.state else { return };
        let alive = established.phase == IkePhase::Alive;
        let rekeyed = match &task {
            Task::CreateChild { .. } => established.is_being_rekeyed(),
            Task::RekeyChild { child, .. } => {
                established.is_being_rekeyed() || established.child_is_being_rekeyed(*child)
            }
            Task::RekeyIke { .. } => !established.theirs.is_empty(),
            _ => false,
        };
        if alive && rekeyed && established.ike_activity() == IkeActivity::Idle {
            // The peer would say TEMPORARY_FAILURE, and does not if it gives up.
            return self.retry_later(ctx, task);
        }
        match task {
            Task::CreateChild { config, packet, request, retry, join } if alive => {
                self.start_child(ctx, config, packet, request, retry, join);
            }
            Task::RekeyChild { child, request, retry } if alive => {
                let ike = established.ike_activity();
                let found = established.children.iter().find(|other| other.id == child);
                let activity =
                    found.map_or(ChildActivity::Gone, |other| established.activity(other));
                if !may_rekey_child(activity, ike) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                if found.is_some_and(|other| other.pending_out.is_some()) {
                    // The peer made it and may not know yet that it exists.
                    let task = Task::RekeyChild { child, request, retry };
                    return self.retry_later(ctx, task);
                }
                if !self.send_rekey_child(ctx, child, request, retry) {
                    ctx.done(request, Err(Failure::NotFound));
                }
            }
            Task::RekeyIke { request, retry } if alive => {
                if !may_rekey_ike(established.ike_activity(), established.child_exchange()) {
                    return ctx.done(request, Err(Failure::NotFound));
                }
                self.send_rekey_ike(ctx, request, retry);
            }
            Task::CreateChild { request, .. }
            | Task::RekeyChild { request, .. }
            | Task::RekeyIke { request, .. } => ctx.done(request, Err(Failure::NotFound)),
            Task::DeleteChild { child, reason, request } => {
                let found = established.children.iter_mut().find(|other| other.id == child);
                // Gone by itself since the task was queued.
                let Some(found) = found else { return ctx.done(request, Ok(())) };
                if found.phase != Phase::Rekeyed {
                    found.phase = Phase::Deleting;
                }
                let spi = found.spi_in;
                // What the peer has just made to replace it goes as well.
                let new = established.children.iter().find(|new| new.replaces == Some(child));
                if let Some(new) = new.map(|new| new.id).filter(|_| reason == Failure::Terminated) {
                    let (reason, request) = (reason.clone(), None);
                    established.queue.push_front(Task::DeleteChild { child: new, reason, request });
                }
                self.send_delete_child(ctx, spi, Initiated::DeleteChild { child, reason, request });
            }
            Task::DeleteSpi(spi) => self.send_delete_child(ctx, spi, Initiated::DeleteSpi),
            Task::DeleteIke { reason, request } => self.send_delete_ike(ctx, reason, request),
            Task::Liveness => self.send_liveness(ctx),
        }
    }

    fn start_child(
        &mut self,
        ctx: &mut Context<'_>,
        config: Arc<ChildConfig>,
        packet: Option<Flow>,
        request: Option<RequestId>,
        retry: Retry,
        join: Option<Join>,
    ) {
        let State::Established(established) = &self.state else { return };
        let join = join.or_else(|| established.headless(&config.name, packet));
        let other = join.map(|join| (join, established.sharing(join.policy).next()));
        let joins = match other {
            None => None,
            Some((join, Some(other))) => Some((other, join)),
            // They have all gone meanwhile: the next packet asks for a new first one.
            Some((_, None)) => return ctx.done(request, Err(Failure::NotFound)),
        };
        let ordinal = joins.map_or(0, |(other, _)| established.unused_ordinal(other.policy));
        let spec = OfferSpec {
            config: &config,
            rekeys: None,
            joins,
            packet,
            with_ke: true,
            ordinal,
            request,
            retry,
        };
        match offer(ctx, self.id, self.path, &spec) {
            Ok(offer) => self.send_offer(ctx, offer),
            Err(failure) => {
                ctx.done(request, Err(failure.clone()));
                self.child_failed(ctx, &config.name, failure);
            }
        }
    }

    pub(super) fn on_established_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        if Payloads(payloads).notify(NotifyType::INVALID_SYNTAX).is_some() {
            //= RFC 7296 §2.21.3
            //# this
            //# error notification is considered fatal in both peers, meaning that
            //# the IKE SA is deleted without needing an explicit Delete payload.
            return self.close(ctx, Failure::Peer(NotifyType::INVALID_SYNTAX));
        }
        self.note_put_off(ctx, payloads);
        let State::Established(established) = &mut self.state else { return };
        match established.ours.take() {
            Some(Initiated::Child(offer)) => {
                self.on_offer_response(ctx, OurOffer::Child(offer), payloads, opened);
            }
            Some(Initiated::RekeyIke(offer)) => {
                self.on_offer_response(ctx, OurOffer::Ike(offer), payloads, opened);
            }
            Some(Initiated::Followup(followup)) => {
                self.on_followup_response(ctx, *followup, payloads);
            }
            Some(Initiated::DeleteChild { child, reason, request }) => {
                self.on_child_deleted(ctx, child, &reason, request);
            }
            Some(Initiated::DeleteIke { reason, request }) => {
                ctx.done(request, Ok(()));
                self.close(ctx, reason);
            }
            Some(Initiated::DeleteSpi | Initiated::Liveness) | None => {}
        }
    }

    /// Counts how long the peer has been putting off what this end asks for.
    fn note_put_off(&mut self, ctx: &Context<'_>, payloads: &[Payload<'_>]) {
        let State::Established(established) = &mut self.state else { return };
        let offers = |ours: &Initiated| ours.child().is_some() || ours.ike().is_some();
        if !established.ours.as_ref().is_some_and(offers) {
            return;
        }
        let put_off = Payloads(payloads).notify(NotifyType::TEMPORARY_FAILURE).is_some();
        let now = ctx.now.mono;
        self.put_off_since = put_off.then(|| self.put_off_since.unwrap_or(now));
        //= RFC 7296 §2.25
        //# If a peer continues to
        //# receive TEMPORARY_FAILURE on the same IKE SA after several minutes,
        //# it SHOULD conclude that the state information is out of sync and
        //# close the IKE SA.
        if self.put_off_since.is_some_and(|since| now >= since + PUT_OFF) {
            let reason = Failure::Peer(NotifyType::TEMPORARY_FAILURE);
            established.queue.push_front(Task::DeleteIke { reason, request: None });
        }
    }

    /// Makes `task` again after a while.
    pub(crate) fn retry_later(&mut self, ctx: &mut Context<'_>, task: Task) {
        let at = ctx.now.mono + ctx.jittered(RETRY_AFTER, RETRY_SPREAD);
        let State::Established(established) = &mut self.state else { return };
        established.delayed.push((at, task));
        let first = established.delayed.iter().map(|(at, _)| *at).min();
        self.timers.set_or_clear(TimerKey::Ike(Timer::RetryTemporaryFailure), first);
    }

    // ---- children ----

    /// A child is in the data plane: it lives from here.
    pub(crate) fn child_installed(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let ike = self.id;
        let State::Established(established) = &mut self.state else { return };
        let Some(child) = established.children.iter_mut().find(|child| child.id == id) else {
            return;
        };
        if child.phase != Phase::Installing {
            // Given up while the data plane was at work.
            return;
        }
        child.phase = Phase::Installed;
        child.installed = ctx.now.mono;
        child.setup_time = ctx.now.mono.saturating_duration_since(child.started);
        let config = child.config.clone();
        let (replaces, pending) = (child.replaces, child.pending_out.is_some());
        if !config.rekey_time.is_zero() {
            child.rekey_at = Some(ctx.now.mono + ctx.jittered(config.rekey_time, config.rand_time));
        }
        if !config.life_time.is_zero() {
            child.expires_at = Some(ctx.now.mono + config.life_time);
        }
        arm_child(&mut self.timers, child, ctx.now.mono);
        let policy = child.policy;
        match replaces {
            None => ctx.event(Event::ChildUp { ike, child: id }),
            // The peer will tell by its Delete when it uses the new SA.
            Some(_) if pending => {}
            Some(old) => {
                child.replaces = None;
                ctx.event(Event::ChildRekeyed { ike, old, new: id });
                self.retire(old, id);
            }
        }
        let State::Established(established) = &self.state else { return };
        if !pending && !established.is_routed(policy) {
            // That by which the policy was sending went while the data plane was at work.
            self.route(ctx, id);
        }
    }

    /// Tells the policy of `child` to send by it.
    fn route(&mut self, ctx: &mut Context<'_>, child: ChildSaId) {
        let State::Established(established) = &mut self.state else { return };
        if let Some(child) = established.children.iter_mut().find(|other| other.id == child) {
            child.routed = true;
            ctx.change(vec![child.install_policy()], vec![child.id], Vec::new());
        }
    }

    /// Traffic left `old` for `new`: deletes it at both ends.
    fn retire(&mut self, old: ChildSaId, new: ChildSaId) {
        let State::Established(established) = &mut self.state else { return };
        let Some(child) = established.children.iter_mut().find(|child| child.id == old) else {
            return;
        };
        child.phase = Phase::Rekeyed;
        self.timers.clear_child(old);
        // Whoever wants the old child gone means the one in its place.
        for task in &mut established.queue {
            match task {
                Task::DeleteChild { child, .. } if *child == old => *child = new,
                _ => {}
            }
        }
        let reason = Failure::Replaced;
        established.queue.push_front(Task::DeleteChild { child: old, reason, request: None });
    }

    /// Starts to send through a child the peer rekeyed: it uses the new SA (RFC 7296 §2.8).
    pub(crate) fn activate(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let ike = self.id;
        let State::Established(established) = &mut self.state else { return };
        let Some(child) = established.children.iter().find(|child| child.id == id) else { return };
        let routed = established.routes(child);
        let Some(child) = established.children.iter_mut().find(|child| child.id == id) else {
            return;
        };
        let (Some(spec), Some(old)) = (child.pending_out.take(), child.replaces.take()) else {
            return;
        };
        if child.phase != Phase::Installed {
            // Replaced, or on its way out, before the peer used it.
            return;
        }
        child.routed = routed;
        let mut batch = vec![Command::InstallSa(spec)];
        batch.extend(routed.then(|| child.install_policy()));
        if let Some(old) = established.children.iter_mut().find(|child| child.id == old) {
            old.phase = Phase::Rekeyed;
            old.routed = false;
        }
        ctx.change(batch, vec![id], Vec::new());
        ctx.event(Event::ChildRekeyed { ike, old, new: id });
    }

    /// Forgets a child that the peer no longer has. Its replacement, if there is one, takes over.
    pub(crate) fn drop_child(&mut self, ctx: &mut Context<'_>, id: ChildSaId, reason: &Failure) {
        let State::Established(established) = &mut self.state else { return };
        if let Some(new) = established.replacement_of(id) {
            self.activate(ctx, new);
        }
        let ike = self.id;
        let State::Established(established) = &mut self.state else { return };
        let Some(index) = established.children.iter().position(|child| child.id == id) else {
            return;
        };
        let child = established.children.remove(index);
        established.children.shrink_to_fit();
        self.timers.clear_child(id);
        // Another child may have replaced this one, or this one was to replace it; or it serves the same
        // policy for another CPU.
        let heir = established.heir(&child);
        let (shared, in_line) =
            heir.as_ref().map_or((false, false), |heir| (true, heir.line == child.line));
        // The policy may have named this child already.
        if let Some(heir) = heir.filter(|heir| heir.carries() && child.routed) {
            heir.routed = true;
            ctx.data_plane(vec![heir.install_policy()]);
        }
        // A peer that counted it has room again.
        established.full.retain(|policy| *policy != child.policy);
        if child.phase == Phase::Rekeyed || in_line {
            return self.linger(ctx, &child);
        }
        ctx.ids.esp.remove(&child.spi_in);
        let mut batch =
            vec![Command::RemoveSa(child.outbound()), Command::RemoveSa(child.inbound())];
        if !shared {
            batch.insert(0, Command::RemovePolicy(child.policy));
        }
        ctx.data_plane(batch);
        let name = child.config.name.clone();
        ctx.event(Event::ChildDown { ike, child: id, name: name.clone(), reason: reason.clone() });
        let action = match reason {
            //= RFC 9611 §6
            //# bringing the deleted per-CPU Child SA up again
            //# immediately after receiving the Delete Notify might cause an infinite
            //# loop between the peers.
            Failure::DeletedByPeer if child.cpu.is_none() => child.config.close_action,
            _ => Action::None,
        };
        self.act(ctx, action, &name);
    }

    /// Nothing is sent through it any more, but packets may be under way.
    fn linger(&mut self, ctx: &mut Context<'_>, child: &ChildSa) {
        let State::Established(established) = &mut self.state else { return };
        let until = ctx.now.mono + ctx.config.delete_rekeyed_delay;
        let outbound = child.has_outbound().then(|| child.outbound());
        let (id, inbound) = (child.id, child.inbound());
        established.lingering.push(Lingering { child: id, inbound, outbound, until });
        self.timers.set(TimerKey::Child(id, ChildTimer::DeleteRekeyed), until);
    }

    /// Sets the rekey timer of `child` again after a rekey that failed.
    pub(crate) fn rearm_rekey(&mut self, ctx: &mut Context<'_>, child: ChildSaId) {
        let at = ctx.now.mono + ctx.jittered(RETRY_AFTER * 5, RETRY_SPREAD);
        self.timers.set(TimerKey::Child(child, ChildTimer::RekeyChild), at);
    }

    /// Does what `close_action` or `dpd_action` says for the child `name`.
    pub(super) fn act(&self, ctx: &mut Context<'_>, action: Action, name: &str) {
        let (connection, child) = (self.connection.name.clone(), name.to_owned());
        let path = self.path;
        match action {
            Action::None => {}
            Action::Start => ctx.effects.push_back(Effect::Restart { connection, child, path }),
            Action::Trap => ctx.effects.push_back(Effect::Trap { connection, child, path }),
        }
    }

    // ---- timers ----

    /// Arms what an established SA wakes for.
    pub(crate) fn arm_lifetimes(&mut self, ctx: &mut Context<'_>) {
        let connection = self.connection.clone();
        let now = ctx.now.mono;
        self.timers.clear(TimerKey::Ike(Timer::HalfOpen));
        let mut longest = Duration::ZERO;
        for (timer, time) in
            [(Timer::RekeyIke, connection.rekey_time), (Timer::ReauthIke, connection.reauth_time)]
        {
            if !time.is_zero() {
                longest = longest.max(time);
                let at = now + ctx.jittered(time, connection.rand_time);
                self.timers.set(TimerKey::Ike(timer), at);
            }
        }
        if !longest.is_zero() {
            let at = now + longest + connection.over_time;
            self.timers.set(TimerKey::Ike(Timer::HardLifeIke), at);
        }
        if !connection.dpd_delay.is_zero() {
            self.timers.set(TimerKey::Ike(Timer::Dpd), now + connection.dpd_delay);
        }
    }

    pub(super) fn on_ike_timer(&mut self, ctx: &mut Context<'_>, timer: Timer) {
        let now = ctx.now.mono;
        let State::Established(established) = &mut self.state else { return };
        match timer {
            Timer::RekeyIke => {
                self.enqueue(Task::RekeyIke { request: None, retry: Retry::default() });
            }
            Timer::ReauthIke => ctx.effects.push_back(Effect::Reauthenticate(self.id)),
            Timer::HardLifeIke => {
                established.phase = IkePhase::Closing;
                let task = Task::DeleteIke { reason: Failure::Expired, request: None };
                established.queue.push_front(task);
            }
            Timer::Dpd => self.on_dpd(ctx),
            Timer::RetryTemporaryFailure => {
                let (due, later): (Vec<_>, Vec<_>) =
                    established.delayed.drain(..).partition(|(at, _)| *at <= now);
                established.queue.extend(due.into_iter().map(|(_, task)| task));
                let next = later.iter().map(|(at, _)| *at).min();
                established.delayed = later;
                self.timers.set_or_clear(TimerKey::Ike(Timer::RetryTemporaryFailure), next);
            }
            Timer::Followup => self.expire_chains(ctx),
            Timer::DeleteOldIke => self.close(ctx, Failure::Replaced),
            Timer::Pace
            | Timer::Retransmit
            | Timer::HalfOpen
            | Timer::Reassembly
            | Timer::Acknowledge
            | Timer::KeepAlive
            | Timer::Reopen
            | Timer::Forget => {}
        }
    }

    fn on_dpd(&mut self, ctx: &mut Context<'_>) {
        let delay = self.connection.dpd_delay;
        let due = self.last_heard + delay;
        if due > ctx.now.mono {
            return self.timers.set(TimerKey::Ike(Timer::Dpd), due);
        }
        if self.window.outstanding().is_some() {
            // The request in flight is a liveness check of its own.
            return self.timers.set(TimerKey::Ike(Timer::Dpd), ctx.now.mono + delay);
        }
        self.query(ctx, Query::Liveness);
    }

    pub(super) fn on_child_timer(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        timer: ChildTimer,
    ) {
        match timer {
            ChildTimer::RekeyChild => {
                self.enqueue(Task::RekeyChild { child, request: None, retry: Retry::default() })
            }
            ChildTimer::HardLifeChild => {
                self.enqueue(Task::DeleteChild { child, reason: Failure::Expired, request: None })
            }
            ChildTimer::Inactivity => self.query(ctx, Query::Inactivity(child)),
            ChildTimer::DeleteRekeyed => {
                let State::Established(established) = &mut self.state else { return };
                let gone: Vec<_> =
                    established.lingering.extract_if(.., |old| old.child == child).collect();
                for old in gone {
                    ctx.ids.esp.remove(&old.inbound.spi);
                    ctx.data_plane(old.removals().collect());
                }
            }
        }
    }
}

/// Arms what a child wakes its IKE SA for.
pub(super) fn arm_child(timers: &mut super::timer::TimerTable, child: &ChildSa, now: Instant) {
    if child.phase != Phase::Installed {
        return;
    }
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::RekeyChild), child.rekey_at);
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::HardLifeChild), child.expires_at);
    let inactivity = child.config.inactivity;
    let at = (!inactivity.is_zero()).then(|| now + inactivity);
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::Inactivity), at);
}
