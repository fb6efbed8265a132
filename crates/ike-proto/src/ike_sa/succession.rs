//! What a rekeyed IKE SA hands to its successor (RFC 7296 §2.8). Children are moved, never copied, so that two SAs
//! can never own the same child.

use std::collections::VecDeque;
use std::time::Instant;

use super::context::Context;
use super::state::{Established, IkePhase, Task};
use crate::channel::timer::{ChildTimer, Timer, TimerKey};
use crate::channel::{Channel, Whereabouts};
use crate::child::ChildSa;
use crate::ike_sa::children::Lingering;

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
    pub(crate) fn release_children(&mut self, channel: &Channel) -> Inheritance {
        let stays = |task: &Task| matches!(task, Task::Liveness | Task::Token);
        let (tasks, delayed) = self.queue.release(stays);
        let (children, lingering) = self.children.release();
        for child in &children {
            self.life.clear_child(child.id);
        }
        for old in &lingering {
            self.life.clear_child(old.child);
        }
        self.life.clear(TimerKey::Ike(Timer::RetryTemporaryFailure));
        let whereabouts = channel.route().whereabouts();
        Inheritance { children, lingering, tasks, delayed, whereabouts }
    }

    /// Takes over what another SA has released.
    pub(crate) fn inherit(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        estate: Inheritance,
    ) {
        let Inheritance { children, lingering, tasks, delayed, whereabouts } = estate;
        let (id, now) = (channel.link().id(), ctx.io.now.mono);
        if matches!(self.phase, IkePhase::Crossed(_)) {
            self.phase = IkePhase::Alive;
        }
        for child in &children {
            self.life.begin_child(child, now);
            ctx.ids.esp.hand_over(child.spi_in, (id, child.id));
        }
        for old in &lingering {
            self.life.set(TimerKey::Child(old.child, ChildTimer::DeleteRekeyed), old.until);
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
        self.queue.arm(&mut self.life);
        self.take_whereabouts(channel, ctx, whereabouts);
        self.show_successor(channel);
        self.gather_children(channel, ctx);
        self.children.judge_crossings(channel, &mut self.life, ctx);
    }

    /// Handles that the successor is gone: takes the released children back, to end with them.
    pub(crate) fn disown(
        &mut self,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        estate: Inheritance,
    ) {
        self.inherit(channel, ctx, estate);
        self.phase = IkePhase::Closing;
        self.life.set(TimerKey::Ike(Timer::RemoveReplaced), ctx.io.now.mono);
    }
}

fn later(delayed: Vec<(Instant, Task)>) -> impl Iterator<Item = (Option<Instant>, Task)> {
    delayed.into_iter().map(|(at, task)| (Some(at), task))
}
