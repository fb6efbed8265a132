//! The lives of children: in the data plane, rekeyed, in use, gone.

use super::Lingering;
use super::queue::{RETRY_AFTER, RETRY_SPREAD};
use super::timers::arm_child;

use crate::child::{ChildSa, Phase};
use crate::config::Action;
use crate::dataplane::Command;
use crate::event::{ChildSaId, Event, Failure};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{State, Task};
use crate::ike_sa::timer::{ChildTimer, TimerKey};

impl IkeSa {
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
            // The peer will tell by its Delete when it uses the new SA, unless there is nothing to delete.
            Some(old) if pending => {
                if !established.children.iter().any(|child| child.id == old) {
                    self.activate(ctx, id);
                }
            }
            Some(old) => {
                child.replaces = None;
                ctx.event(Event::ChildRekeyed { ike, old, new: id });
                self.retire(ctx, old, id);
            }
        }
        let State::Established(established) = &self.state else { return };
        if !pending && !established.is_routed(policy) {
            // That by which the policy was sending went while the data plane was at work.
            self.route(ctx, id);
        }
        self.judge_crossing(ctx, id);
    }

    /// Tells the policy of `child` to send by it.
    fn route(&mut self, ctx: &mut Context<'_>, child: ChildSaId) {
        let State::Established(established) = &mut self.state else { return };
        if let Some(child) = established.children.iter_mut().find(|other| other.id == child) {
            child.routed = true;
            ctx.change(vec![child.install_policy()], vec![child.id], Vec::new());
        }
    }

    /// Traffic left `old` for `new`: deletes `old` at both ends.
    fn retire(&mut self, ctx: &mut Context<'_>, old: ChildSaId, new: ChildSaId) {
        let State::Established(established) = &mut self.state else { return };
        let Some(child) = established.children.iter_mut().find(|child| child.id == old) else {
            return;
        };
        child.phase = Phase::Rekeyed;
        self.timers.clear_child(old);
        // An operator who ends the old child means the traffic, which `new` carries now. Any other reason is a
        // fact about the old SA alone: its lifetime, its counters, its state in the data plane.
        let queue = std::mem::take(&mut established.queue);
        for mut task in queue {
            match &mut task {
                Task::DeleteChild { child, reason: Failure::Terminated, .. } if *child == old => {
                    *child = new;
                }
                Task::DeleteChild { child, request, .. } if *child == old => {
                    ctx.done(*request, Ok(()));
                    continue;
                }
                _ => {}
            }
            established.queue.push_back(task);
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
        if child.phase == Phase::Installing {
            // `child_installed` will see whether there is anything to wait for.
            return;
        }
        let (Some(spec), Some(old)) = (child.pending_out.take(), child.replaces.take()) else {
            return;
        };
        if child.phase != Phase::Installed {
            // Replaced, or on its way out, before the peer used it.
            child.half_closed = true;
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
    pub(crate) fn act(&self, ctx: &mut Context<'_>, action: Action, name: &str) {
        let (connection, child) = (self.connection.name.clone(), name.to_owned());
        let path = self.path;
        match action {
            Action::None => {}
            Action::Start => ctx.effects.push_back(Effect::Restart { connection, child, path }),
            Action::Trap => ctx.effects.push_back(Effect::Trap { connection, child, path }),
        }
    }
}
