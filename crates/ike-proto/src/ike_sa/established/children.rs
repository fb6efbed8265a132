//! The lives of children: in the data plane, rekeyed, in use, gone.

use std::sync::Arc;

use crate::channel::Channel;
use crate::channel::timer::{ChildTimer, TimerKey};
use crate::child::{ChildSa, Limit, Phase};
use crate::dataplane::Command;
use crate::event::{ChildSaId, Event, Failure};
use crate::exchange::sent::Retry;
use crate::ike_sa::children::Activated;
use crate::ike_sa::collision::ChildActivity;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::plane::Query;
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::ike_sa::work::Work;
use crate::wants::Ended;
use crate::wants::aftermath::{End, Wishes, after};

impl Established {
    /// Handles that a child is in the data plane. Its lifetime begins.
    pub(crate) fn child_installed(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        let ike = channel.link().id();
        let Some(child) = self.children.get_mut(id) else {
            return tracing::debug!(?ike, child = ?id, "installed child has ended meanwhile");
        };
        if child.phase != Phase::Installing {
            // The child was given up while the data plane was at work.
            return;
        }
        child.phase = Phase::Installed;
        child.installed = ctx.io.now.mono;
        child.setup_time = ctx.io.now.mono.saturating_duration_since(child.started);
        let config = child.config.clone();
        let (replaces, pending) = (child.replaces, child.pending_out.is_some());
        if !config.rekey_time.is_zero() {
            child.rekey_at =
                Some(ctx.io.now.mono + ctx.jittered(config.rekey_time, config.rand_time));
        }
        if !config.life_time.is_zero() {
            child.expires_at = Some(ctx.io.now.mono + config.life_time);
        }
        self.life.begin_child(child, ctx.io.now.mono);
        let policy = child.policy;
        match replaces {
            None => {
                ctx.io.event(Event::ChildUp { ike, child: id });
                ctx.tell_carried(channel.connection(), &config.name);
                if self.children.is_crowded(id) {
                    self.query(ctx, Query::Room(id));
                }
            }
            // The peer's Delete will show that it uses the new SA, unless there is nothing to delete.
            Some(old) if pending => {
                if self.children.get(old).is_none() {
                    self.activate(channel, ctx, id);
                }
            }
            Some(old) => {
                child.replaces = None;
                ctx.io.event(Event::ChildRekeyed { ike, old, new: id });
                if self.children.get(old).is_none() {
                    // Its end has had the child started again, and its traffic kept in.
                    ctx.tell_carried(channel.connection(), &config.name);
                }
                self.retire(ctx, old, id);
            }
        }
        if !pending && !self.children.is_routed(policy) {
            // The SA by which the policy was sending ended while the data plane was at work.
            self.children.route(ctx, id);
        }
        self.life.end_redundant(ctx, self.children.crossed_by(channel, id).into_iter().collect());
        self.life.look_for_doubles(ctx, self.children.doubles_of(id));
    }

    /// Handles that traffic has moved from `old` to `new`: deletes `old` at both ends.
    fn retire(&mut self, ctx: &mut Context<'_>, old: ChildSaId, new: ChildSaId) {
        if self.children.retire(old) {
            self.life.clear_child(old);
            for request in self.queue.hand_over_child(old, new) {
                ctx.done(request, Ok(()));
            }
            let reason = Failure::Replaced;
            self.queue.push_first(Task::DeleteChild { child: old, reason, request: None });
        }
    }

    /// Starts to send by a child that the peer rekeyed, because the peer uses the new SA (RFC 7296 §2.8).
    pub(crate) fn activate(&mut self, channel: &Channel, ctx: &mut Context<'_>, id: ChildSaId) {
        if let Some(Activated { replaced: old, batch }) = self.children.activate(id) {
            ctx.change(batch, vec![id], Vec::new());
            ctx.io.event(Event::ChildRekeyed { ike: channel.link().id(), old, new: id });
            // Without its outbound SA it was none.
            self.life.look_for_doubles(ctx, self.children.doubles_of(id));
        }
    }

    /// Removes a child that the peer no longer has. Its replacement, if there is one, takes over.
    pub(crate) fn drop_child(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        reason: &Failure,
    ) {
        if let Some(new) = self.children.replacement_of(id) {
            self.activate(channel, ctx, new);
        }
        let ike = channel.link().id();
        let Some(child) = self.children.remove(id) else {
            return tracing::debug!(?ike, child = ?id, "child: not dropped, because it has already ended");
        };
        self.life.clear_child(id);
        // The peer's rekey of it ends with it. The peer may not continue that rekey, and nothing waits for it.
        self.answering.drop_chains(&mut self.life, ctx, |chain| {
            chain.child().is_some_and(|new| new.replaces == Some(id))
        });
        if child.phase == Phase::Installed && *reason == Failure::DeletedByPeer {
            self.go_back(channel, ctx, &child);
        }
        // Another child may have replaced this one, or this one was to replace another; or it serves the same
        // policy for another CPU.
        let heir = self.children.heir(&child);
        let (shared, in_line) = heir.map_or((false, false), |heir| (true, heir.line == child.line));
        // The policy may have named this child already.
        if let Some(heir) = heir.filter(|heir| heir.carries() && child.routed).map(|heir| heir.id) {
            self.children.route(ctx, heir);
        }
        // A peer that counted it has room for another child.
        self.children.note_room(child.policy);
        if child.phase == Phase::Rekeyed || in_line {
            return self.children.linger(&mut self.life, ctx, &child, reason);
        }
        if child.phase == Phase::Deleting && *reason == Failure::Replaced {
            self.children.note_stand_in(&mut self.life, ctx, &child);
        }
        ctx.ids.esp.remove(&child.spi_in);
        let mut batch =
            vec![Command::RemoveSa(child.outbound()), Command::RemoveSa(child.inbound())];
        let held =
            (!shared && ctx.holds(channel.connection(), &child, reason)).then_some(child.policy);
        match held {
            // In a batch of its own: only batches of removals are repeated until they succeed.
            Some(_) => ctx.change(vec![child.hold_policy()], Vec::new(), Vec::new()),
            None if shared => {}
            None => batch.insert(0, Command::RemovePolicy(child.policy)),
        }
        ctx.data_plane(batch);
        let name = child.config.name.clone();
        ctx.io.event(Event::ChildDown {
            ike,
            child: id,
            name: name.clone(),
            reason: reason.clone(),
        });
        //= https://www.rfc-editor.org/rfc/rfc9611#section-6
        //# bringing the deleted per-CPU Child SA up again
        //# immediately after receiving the Delete Notify might cause an infinite
        //# loop between the peers.
        // Of several children of this name the last one counts: as long as another exists, nothing follows.
        let ended = Ended::of(channel, Some(&name), reason, true, held);
        ctx.effects.push_back(Effect::Ended(Box::new(ended)));
    }

    /// The peer has deleted `new`, which it has used, and not the child that `new` replaced: it could not install `new`
    /// completely, and goes on with the old child. So does this end.
    fn go_back(&mut self, channel: &Channel, ctx: &mut Context<'_>, new: &ChildSa) {
        let work = Work::new(self.sent.as_ref(), &self.queue);
        let deletes = |id| work.reason_to_delete(id).is_some();
        if let Some((old, reached)) = self.children.go_back(new, deletes) {
            let id = old.id;
            self.life.begin_child(old, ctx.io.now.mono);
            ctx.io.event(Event::ChildRekeyed { ike: channel.link().id(), old: new.id, new: id });
            match reached {
                Some(Limit::Hard) => self.expire_child(channel, ctx, id),
                Some(Limit::Soft) => self.queue_rekey(id),
                None => {}
            }
        }
    }

    /// Handles that an SA of a child has reached a soft limit in the data plane.
    pub(crate) fn on_soft_limit(&mut self, id: ChildSaId) {
        if self.children.reach(id, Limit::Soft) {
            self.queue_rekey(id);
        }
    }

    /// Queues a rekey of a child, unless one is queued already or under way. Each of the two SAs of a child has limits
    /// of its own.
    pub(super) fn queue_rekey(&mut self, id: ChildSaId) {
        if !self.work().rekeys(id) {
            let retry = Retry::default();
            self.queue.push(Task::RekeyChild { child: id, request: None, retry });
        }
    }

    /// Handles the hard limit of a child. A rekey that this end has only just begun, for example after a suspend,
    /// has one retransmission schedule to end.
    pub(crate) fn on_child_life_over(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        let Some(child) = self.children.get(id) else {
            return tracing::debug!(?id, "timer of a child that is gone");
        };
        if child.phase == Phase::Rekeyed {
            // It needs no renewal.
            return self.expire_child(channel, ctx, id);
        }
        let rekeys = |task: &Task| matches!(task, Task::RekeyChild { child, .. } if *child == id);
        let renews = self.queue.tasks().any(rekeys)
            || !matches!(self.work().activity(child, &self.children), ChildActivity::Idle);
        let grace = child.soft_at.filter(|_| renews).map(|soft| {
            (soft, super::timers::grace(ctx.lookup.schedule(), channel.last_heard(), soft))
        });
        match grace {
            Some((_, until)) if until > ctx.io.now.mono => {
                self.life.set(TimerKey::Child(id, ChildTimer::HardLifeChild), until);
            }
            // If the peer has not sent anything since, the IKE SA is of no use to a wanted child: a new one is
            // begun.
            Some((soft, _))
                if channel.last_heard() <= soft && self.holds_or_starts(channel, ctx, child) =>
            {
                self.expire(channel, ctx)
            }
            _ => self.expire_child(channel, ctx, id),
        }
    }

    /// Ends a child that has reached a hard limit. No packet leaves by it any more. A wanted child is started
    /// again first. One that the peer has replaced ends as well, if the peer has not deleted it by then.
    pub(crate) fn expire_child(&mut self, channel: &Channel, ctx: &mut Context<'_>, id: ChildSaId) {
        let in_use = self.children.reach(id, Limit::Hard);
        if self.work().reason_to_delete(id).is_some() {
            return;
        }
        if !in_use && self.children.get(id).is_some() {
            let reason = Failure::Expired;
            return self.queue.push(Task::DeleteChild { child: id, reason, request: None });
        }
        let installed = self.children.get(id).filter(|child| child.phase == Phase::Installed);
        let Some(child) = installed else {
            return tracing::debug!(child = ?id, "child: expired, and is not in use");
        };
        let rekeyed = !matches!(self.work().activity(child, &self.children), ChildActivity::Idle);
        let anew = !rekeyed && child.cpu.is_none() && self.holds_or_starts(channel, ctx, child);
        let config = Arc::clone(&child.config);
        if !rekeyed {
            self.children.stop_sending(ctx, id);
        }
        if anew {
            self.queue.push(Task::CreateChild {
                config,
                packet: None,
                request: None,
                retry: Retry::default(),
                join: None,
            });
        }
        self.queue.push(Task::DeleteChild { child: id, reason: Failure::Expired, request: None });
    }

    fn holds_or_starts(&self, channel: &Channel, ctx: &Context<'_>, child: &ChildSa) -> bool {
        let wanted = ctx.wants.has(&channel.connection().name, &child.config.name);
        let wishes = Wishes::of(channel.connection(), Some(&child.config), wanted, 0);
        self.phase == IkePhase::Alive && after(End::Lifetime, wishes).starts()
    }
}
