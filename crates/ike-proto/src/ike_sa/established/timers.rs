//! The timers of an established IKE SA.

use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::channel::timer::{ChildTimer, Timer, TimerKey};
use crate::event::{ChildSaId, Failure};
use crate::exchange::rekey_ike::REPLACED_LINGERS;
use crate::exchange::sent::Retry;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::plane::Query;
use crate::ike_sa::queue::{RETRY_AFTER, RETRY_SPREAD};
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::ike_sa::{Seen, Stem};
use crate::wants::Ended;

/// How long a hard limit waits for a peer that does not answer.
const SILENT_GRACE: Duration = Duration::from_secs(5);

impl Established {
    /// Keeps the time of the reauthentication: a resumption does not postpone it.
    pub(crate) fn keep_reauth_time(&mut self, seen: Seen<'_>) {
        let resumed = self.identity.authenticated().resumed.as_ref();
        let ends_by = resumed.and_then(|resumed| resumed.ends_by);
        if let Some(by) = resumed.and_then(|resumed| resumed.reauth_by) {
            let armed = self.life.at(TimerKey::Ike(Timer::ReauthIke));
            self.life.set(TimerKey::Ike(Timer::ReauthIke), armed.map_or(by, |at| at.min(by)));
            if !self.identity.may_reauthenticate(seen) {
                self.life.end_after(seen.channel.connection(), by);
            }
        }
        // It does not postpone the end of an authorization either.
        if let Some(by) = ends_by {
            let end = TimerKey::Ike(Timer::Authorization);
            let armed = self.life.at(end);
            self.life.set(end, armed.map_or(by, |at| at.min(by)));
        }
    }

    /// Handles a timer of an established SA.
    pub(crate) fn on_timer(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, key: TimerKey) {
        match key {
            TimerKey::Ike(timer) => self.on_ike_timer(stem, ctx, timer),
            TimerKey::Child(child, timer) => self.on_child_timer(stem.seen(), ctx, child, timer),
        }
    }

    fn on_ike_timer(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, timer: Timer) {
        let now = ctx.io.now.mono;
        let may_reauthenticate = self.identity.may_reauthenticate(stem.seen());
        match timer {
            Timer::RekeyIke => {
                self.life.note_soft(now);
                self.queue.push(Task::RekeyIke { request: None, retry: Retry::default() });
            }
            Timer::ReauthIke if may_reauthenticate => {
                self.life.note_soft(now);
                self.life.note_renewing();
                ctx.effects.push_back(Effect::Reauthenticate(stem.channel.link().id()));
            }
            Timer::ReauthIke => self.life.await_reauthentication(stem.channel.connection(), now),
            Timer::HardLifeIke | Timer::Authorization => self.on_life_over(stem.channel, ctx, timer),
            Timer::Dpd => self.on_dpd(stem.channel, ctx),
            Timer::RetryTemporaryFailure => {
                self.queue.take_due(now);
                self.queue.arm(&mut self.life);
            }
            Timer::Ticket => self.renew_ticket(),
            Timer::Fallback => self.fall_back(stem.channel, ctx),
            Timer::Followup => self.answering.expire(&mut self.life, ctx),
            Timer::DeleteReplaced => {
                let task = Task::DeleteIke { reason: Failure::Replaced, request: None };
                self.queue.push_first(task);
                self.life.set(TimerKey::Ike(Timer::RemoveReplaced), now + REPLACED_LINGERS);
            }
            Timer::RemoveReplaced => stem.ending.end(Failure::Replaced),
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
    fn on_life_over(&mut self, channel: &Channel, ctx: &mut Context<'_>, timer: Timer) {
        let rekeys = |task: &Task| matches!(task, Task::RekeyIke { .. });
        let renews = self.life.renews()
            || self.sent.as_ref().is_some_and(|ours| ours.ike().is_some())
            || self.queue.tasks().any(rekeys);
        let grace = self
            .life
            .soft_at()
            .map(|soft| grace(ctx.lookup.schedule(), channel.last_heard(), soft));
        if let Some(until) = grace.filter(|until| renews && *until > ctx.io.now.mono) {
            return self.life.set(TimerKey::Ike(timer), until);
        }
        self.expire(channel, ctx);
    }

    /// Ends the IKE SA because of a hard limit. Wanted children are started again at the same time as the Delete.
    pub(super) fn expire(&mut self, channel: &Channel, ctx: &mut Context<'_>) {
        if self.phase == IkePhase::Alive {
            for name in self.names_of_children() {
                let ended = Ended::of(channel, Some(&name), &Failure::Expired, true, None);
                ctx.effects.push_back(Effect::Ended(Box::new(ended)));
            }
            let ended = Ended::of(channel, None, &Failure::Expired, true, None);
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
    pub(crate) fn rearm_reauth(&mut self, ctx: &mut Context<'_>, wait: Duration) {
        let due = self.life.end_renewal();
        if due && self.phase == IkePhase::Alive {
            let wait = wait.max(ctx.jittered(RETRY_AFTER * 5, RETRY_SPREAD));
            self.life.set(TimerKey::Ike(Timer::ReauthIke), ctx.io.now.mono + wait);
        }
    }

    fn on_dpd(&mut self, channel: &Channel, ctx: &mut Context<'_>) {
        let delay = channel.connection().dpd_delay;
        if self.may_be_lost_behind_nat(channel, ctx.io.now.mono) {
            // Answers to other requests do not show it.
            return self.query(ctx, Query::Liveness);
        }
        let due = channel.last_heard() + delay;
        if due > ctx.io.now.mono {
            return self.life.set(TimerKey::Ike(Timer::Dpd), due);
        }
        if channel.window().outstanding().is_some() {
            // The request in flight is a liveness check as well.
            return self.life.set(TimerKey::Ike(Timer::Dpd), ctx.io.now.mono + delay);
        }
        self.query(ctx, Query::Liveness);
    }

    fn on_child_timer(
        &mut self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        timer: ChildTimer,
    ) {
        match timer {
            ChildTimer::RekeyChild => {
                if let Some(child) = self.children.get_mut(child) {
                    child.soft_at.get_or_insert(ctx.io.now.mono);
                }
                self.queue_rekey(child);
            }
            ChildTimer::HardLifeChild => self.on_child_life_over(seen.channel, ctx, child),
            ChildTimer::Inactivity => self.query(ctx, Query::Inactivity(child)),
            ChildTimer::Crossing => self.end_crossed_child(seen, ctx, child),
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

/// Until when a hard limit waits for the renewal that began at `soft`: for one retransmission schedule,
/// because a host may have been suspended. A peer that has been silent since then may have lost the SA.
pub(super) fn grace(schedule: Duration, heard: Instant, soft: Instant) -> Instant {
    soft + if heard > soft { schedule } else { schedule.min(SILENT_GRACE) }
}
