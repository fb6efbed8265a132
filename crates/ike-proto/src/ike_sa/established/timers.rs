//! The timers of an established IKE SA.

use std::time::{Duration, Instant};

use crate::child::{ChildSa, Phase};
use crate::event::{ChildSaId, Failure};
use crate::ike_sa::Core;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::plane::Query;
use crate::ike_sa::queue::{RETRY_AFTER, RETRY_SPREAD};
use crate::ike_sa::standby::STANDBY;
use crate::ike_sa::state::{Established, IkePhase, Retry, Task};
use crate::ike_sa::timer::{ChildTimer, Timer, TimerKey};

/// How long a hard limit waits for a peer that does not answer.
const SILENT_GRACE: Duration = Duration::from_secs(5);

impl Established {
    /// Keeps the time of the reauthentication: a resumption does not postpone it.
    pub(crate) fn keep_reauth_time(&mut self, core: &mut Core) {
        let resumed = self.identity.authenticated().resumed.as_ref();
        let ends_by = resumed.and_then(|resumed| resumed.ends_by);
        if let Some(by) = resumed.and_then(|resumed| resumed.reauth_by) {
            let armed = core.channel.timers.get(TimerKey::Ike(Timer::ReauthIke));
            core.channel
                .timers
                .set(TimerKey::Ike(Timer::ReauthIke), armed.map_or(by, |at| at.min(by)));
            self.await_reauthentication_by(core, by);
        }
        // It does not postpone the end of an authorization either.
        if let Some(by) = ends_by {
            let end = TimerKey::Ike(Timer::Authorization);
            let armed = core.channel.timers.get(end);
            core.channel.timers.set(end, armed.map_or(by, |at| at.min(by)));
        }
    }

    /// Handles a timer of an established SA.
    pub(crate) fn on_timer(&mut self, core: &mut Core, ctx: &mut Context<'_>, key: TimerKey) {
        match key {
            TimerKey::Ike(timer) => self.on_ike_timer(core, ctx, timer),
            TimerKey::Child(child, timer) => self.on_child_timer(core, ctx, child, timer),
        }
    }

    fn on_ike_timer(&mut self, core: &mut Core, ctx: &mut Context<'_>, timer: Timer) {
        let now = ctx.now.mono;
        let may_reauthenticate = self.may_reauthenticate(core);
        match timer {
            Timer::RekeyIke => {
                self.life.note_soft(now);
                self.queue.push(Task::RekeyIke { request: None, retry: Retry::default() });
            }
            Timer::ReauthIke if may_reauthenticate => {
                self.life.note_soft(now);
                self.life.note_renewing();
                ctx.effects.push_back(Effect::Reauthenticate(core.id));
            }
            Timer::ReauthIke => core.await_reauthentication(now),
            Timer::HardLifeIke | Timer::Authorization => self.on_life_over(core, ctx, timer),
            Timer::Dpd => self.on_dpd(core, ctx),
            Timer::RetryTemporaryFailure => {
                self.queue.take_due(now);
                self.queue.arm(core);
            }
            Timer::Ticket => self.renew_ticket(),
            Timer::Fallback => self.fall_back(core, ctx),
            Timer::Followup => self.answering.expire(core, ctx),
            Timer::DeleteOldIke => core.end(Failure::Replaced),
            Timer::Pace
            | Timer::Retransmit
            | Timer::HalfOpen
            | Timer::Reassembly
            | Timer::Exchange
            | Timer::Acknowledge
            | Timer::KeepAlive
            | Timer::Reopen
            | Timer::Forget
            // `pump` continues.
            | Timer::Unseen => {}
        }
    }

    /// Handles the hard limit of the IKE SA. A renewal in progress has until the end of the `grace`.
    fn on_life_over(&mut self, core: &mut Core, ctx: &mut Context<'_>, timer: Timer) {
        let rekeys = |task: &Task| matches!(task, Task::RekeyIke { .. });
        let renews = self.life.renews()
            || self.ours.as_ref().is_some_and(|ours| ours.ike().is_some())
            || self.queue.tasks().any(rekeys);
        let grace = self.life.soft_at().map(|soft| core.grace(ctx, soft));
        if let Some(until) = grace.filter(|until| renews && *until > ctx.now.mono) {
            return core.channel.timers.set(TimerKey::Ike(timer), until);
        }
        self.expire(core, ctx);
    }

    /// Ends the IKE SA because of a hard limit. Wanted children are started again at the same time as the Delete.
    pub(super) fn expire(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        if self.phase == IkePhase::Alive {
            for name in self.names_of_children() {
                let ended = core.ending(Some(&name), &Failure::Expired, true, None);
                ctx.effects.push_back(Effect::Ended(Box::new(ended)));
            }
            let ended = core.ending(None, &Failure::Expired, true, None);
            ctx.effects.push_back(Effect::Ended(Box::new(ended)));
        }
        // The end of an SA whose rekey crossed another one matters to that one: the phase says so.
        if self.phase == IkePhase::Alive {
            self.phase = IkePhase::Closing;
        }
        let task = Task::DeleteIke { reason: Failure::Expired, request: None };
        self.queue.push_first(task);
    }

    /// Handles a failed reauthentication: it is repeated while there is time, after at least `wait`.
    pub(crate) fn rearm_reauth(&mut self, core: &mut Core, ctx: &mut Context<'_>, wait: Duration) {
        let due = self.life.end_renewal();
        if due && self.phase == IkePhase::Alive {
            let wait = wait.max(ctx.jittered(RETRY_AFTER * 5, RETRY_SPREAD));
            core.channel.timers.set(TimerKey::Ike(Timer::ReauthIke), ctx.now.mono + wait);
        }
    }

    fn on_dpd(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        let delay = core.connection.dpd_delay;
        if self.may_be_lost_behind_nat(core, ctx.now.mono) {
            // Answers to other requests do not show it.
            return self.query(ctx, Query::Liveness);
        }
        let due = core.channel.last_heard + delay;
        if due > ctx.now.mono {
            return core.channel.timers.set(TimerKey::Ike(Timer::Dpd), due);
        }
        if core.channel.window.outstanding().is_some() {
            // The request in flight is a liveness check as well.
            return core.channel.timers.set(TimerKey::Ike(Timer::Dpd), ctx.now.mono + delay);
        }
        self.query(ctx, Query::Liveness);
    }

    fn on_child_timer(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        timer: ChildTimer,
    ) {
        match timer {
            ChildTimer::RekeyChild => {
                if let Some(child) = self.children.get_mut(child) {
                    child.soft_at.get_or_insert(ctx.now.mono);
                }
                self.queue_rekey(child);
            }
            ChildTimer::HardLifeChild => self.on_child_life_over(core, ctx, child),
            ChildTimer::Inactivity => self.query(ctx, Query::Inactivity(child)),
            ChildTimer::Crossing => self.end_crossed_child(core, ctx, child),
            ChildTimer::Standby => self.children.end_standby(ctx, child),
            // What counts is whether it is armed.
            ChildTimer::StandsIn => {}
            ChildTimer::DeleteRekeyed => {
                for old in self.children.take_lingering(child) {
                    ctx.ids.esp.remove(&old.inbound.spi);
                    ctx.data_plane(old.removals().collect());
                }
            }
        }
    }
}

impl Core {
    /// Sets the timers of an established SA.
    pub(crate) fn arm_lifetimes(&mut self, ctx: &mut Context<'_>) {
        let connection = self.connection.clone();
        let now = ctx.now.mono;
        self.channel.timers.clear(TimerKey::Ike(Timer::HalfOpen));
        let mut longest = Duration::ZERO;
        for (timer, time) in
            [(Timer::RekeyIke, connection.rekey_time), (Timer::ReauthIke, connection.reauth_time)]
        {
            if !time.is_zero() {
                longest = longest.max(time);
                let at = now + ctx.jittered(time, connection.rand_time);
                self.channel.timers.set(TimerKey::Ike(timer), at);
            }
        }
        if !longest.is_zero() {
            let at = now + longest + connection.over_time;
            self.channel.timers.set(TimerKey::Ike(Timer::HardLifeIke), at);
        }
        if !connection.dpd_delay.is_zero() {
            self.channel.timers.set(TimerKey::Ike(Timer::Dpd), now + connection.dpd_delay);
        }
    }

    /// Until when a hard limit waits for the renewal that began at `soft`: for one retransmission schedule,
    /// because a host may have been suspended. A peer that has been silent since then may have lost the SA.
    pub(super) fn grace(&self, ctx: &Context<'_>, soft: Instant) -> Instant {
        let schedule = ctx.lookup.schedule();
        soft + if self.channel.last_heard > soft { schedule } else { schedule.min(SILENT_GRACE) }
    }
}

/// Sets the timers of a child.
pub(crate) fn arm_child(
    timers: &mut crate::ike_sa::timer::TimerTable,
    child: &ChildSa,
    now: Instant,
) {
    if child.phase != Phase::Installed {
        return;
    }
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::RekeyChild), child.rekey_at);
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::HardLifeChild), child.expires_at);
    let inactivity = child.config.inactivity;
    let at = (!inactivity.is_zero()).then(|| now + inactivity);
    timers.set_or_clear(TimerKey::Child(child.id, ChildTimer::Inactivity), at);
    if child.standby {
        timers.set(TimerKey::Child(child.id, ChildTimer::Standby), now + STANDBY);
    }
}
