//! What a rekeyed IKE SA hands to its successor (RFC 7296 §2.8). Children are moved, never copied, so that two SAs
//! can never own the same child.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Core;
use super::context::Context;
use super::established::arm_child;
use super::mobility::Whereabouts;
use super::state::{Established, IkePhase, Task};
use super::timer::{ChildTimer, Timer, TimerKey};
use crate::child::ChildSa;
use crate::ike_sa::children::Lingering;

/// How long requests on an SA that the peer's rekey has made wait for a sign that the peer has it. A peer sends
/// its Delete of the old SA at once. The time is longer than that of the first retransmission of its request, in
/// case our answer is lost.
const UNSEEN: Duration = Duration::from_secs(3);

/// Children, the rest of former ones, and the tasks for them.
#[derive(Default)]
pub(crate) struct Inheritance {
    children: Vec<ChildSa>,
    lingering: Vec<Lingering>,
    tasks: VecDeque<Task>,
    delayed: Vec<(Instant, Task)>,
    whereabouts: Option<Whereabouts>,
}

impl Established {
    /// Releases the children and the tasks for them. What was to end this SA goes with them: an operator means the
    /// connection, another IKE SA takes the place of all that comes of this one, and children that differ at the two ends
    /// still do.
    pub(crate) fn release_children(&mut self, core: &mut Core) -> Inheritance {
        let stays = |task: &Task| matches!(task, Task::Liveness | Task::Token);
        let (tasks, delayed) = self.queue.release(stays);
        let (children, lingering) = self.children.release();
        for child in &children {
            core.channel.timers.clear_child(child.id);
        }
        for old in &lingering {
            core.channel.timers.clear_child(old.child);
        }
        core.channel.timers.clear(TimerKey::Ike(Timer::RetryTemporaryFailure));
        let whereabouts = core.whereabouts();
        Inheritance { children, lingering, tasks, delayed, whereabouts }
    }

    /// Takes over what another SA has released.
    pub(crate) fn inherit(&mut self, core: &mut Core, ctx: &mut Context<'_>, estate: Inheritance) {
        let Inheritance { children, lingering, tasks, delayed, whereabouts } = estate;
        let (id, now) = (core.id, ctx.now.mono);
        if matches!(self.phase, IkePhase::Crossed(_)) {
            self.phase = IkePhase::Alive;
        }
        for child in &children {
            arm_child(&mut core.channel.timers, child, now);
            ctx.ids.esp.hand_over(child.spi_in, (id, child.id));
        }
        for old in &lingering {
            core.channel
                .timers
                .set(TimerKey::Child(old.child, ChildTimer::DeleteRekeyed), old.until);
            ctx.ids.esp.hand_over(old.inbound.spi, (id, old.child));
        }
        self.children.take_over(children, lingering);
        for (at, task) in tasks.into_iter().map(|task| (None, task)).chain(later(delayed)) {
            match (at, task) {
                // The IKE SA has just been rekeyed.
                (_, Task::RekeyIke { request, .. }) => ctx.done(request, Ok(())),
                // The rekey that has put it off is over.
                (Some(_), task @ Task::CreateChild { .. }) => self.queue.push(task),
                (None, task) => self.queue.push(task),
                (Some(at), task) => self.queue.delay(at, task),
            }
        }
        self.queue.arm(core);
        self.take_whereabouts(core, ctx, whereabouts);
        self.show_successor(core);
        self.gather_children(core, ctx);
        self.judge_crossings(core, ctx);
    }

    /// Handles that the successor is gone: takes the released children back, to end with them.
    pub(crate) fn disown(&mut self, core: &mut Core, ctx: &mut Context<'_>, estate: Inheritance) {
        self.inherit(core, ctx, estate);
        self.phase = IkePhase::Closing;
        core.channel.timers.set(TimerKey::Ike(Timer::DeleteOldIke), ctx.now.mono);
    }
}

impl Core {
    /// Waits for the peer: it has begun the rekey that makes this SA, and does not have the SA before our answer.
    /// Requests of this end wait for a sign, which is a message on this SA or the Delete of the SA that is
    /// replaced.
    pub(crate) fn await_sign(&mut self, now: Instant) {
        self.channel.timers.set(TimerKey::Ike(Timer::Unseen), now + UNSEEN);
    }

    /// Handles a sign that the peer has this SA.
    pub(crate) fn is_seen(&mut self) {
        self.channel.timers.clear(TimerKey::Ike(Timer::Unseen));
    }
}

fn later(delayed: Vec<(Instant, Task)>) -> impl Iterator<Item = (Option<Instant>, Task)> {
    delayed.into_iter().map(|(at, task)| (Some(at), task))
}
