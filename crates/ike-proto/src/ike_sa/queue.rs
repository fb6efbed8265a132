//! The requests that an IKE SA is to send, and how long the peer has put them off.

use crate::config::ChildConfig;
use crate::exchange::sent::Retry;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::timer::{Timer, TimerKey};
use crate::dataplane::Flow;
use crate::event::{ChildSaId, Failure, RequestId};
use crate::ike_sa::Life;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::Task;
use crate::reason::PolicyReason;
use crate::wants::is_same_pair;
use crate::wire::registry::NotifyType;

/// The wait before a request is repeated after TEMPORARY_FAILURE, and the random part that is subtracted.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(6);
pub(crate) const RETRY_SPREAD: Duration = Duration::from_secs(4);

/// The time that a redirected client has to go.
const TIME_TO_GO: Duration = Duration::from_secs(30);
/// Between two probes of the path.
const BETWEEN_PROBES: Duration = Duration::from_secs(1);
/// How long the peer may answer TEMPORARY_FAILURE.
const PUT_OFF: Duration = Duration::from_secs(5 * 60);
/// How long traffic is not asked for again that the peer has refused, and how much of it is remembered.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(60);
const MOST_REFUSED: usize = 256;
/// How many pairs of the selectors of one child are remembered. A peer may grant hundreds of selectors at each end.
pub(crate) const MOST_PAIRS: usize = 16;
/// How long nothing more is logged about refused packets of a child.
const TOLD_FOR: Duration = Duration::from_secs(10);
/// After this time without another one, a TEMPORARY_FAILURE was a single one. A request that is put off is
/// repeated in less than a minute, unless the peer has done the same by itself meanwhile.
const FORGOTTEN: Duration = Duration::from_secs(3 * 60);

/// The tasks of this end that are not sent yet, in their order.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    /// What has to wait for the peer, if anything has.
    put_off: Option<Box<PutOff>>,
}

/// What has to wait for the peer, and why.
#[derive(Debug, Default)]
struct PutOff {
    /// Tasks to be repeated later.
    delayed: Vec<(Instant, Task)>,
    /// Since when the peer has answered only TEMPORARY_FAILURE, and when it last did.
    refused: Option<(Instant, Instant)>,
    /// Since when requests of this end have waited for exchanges that the peer has begun.
    held_since: Option<Instant>,
    /// The name of a child, and packets or selectors for which no further Child SA is requested until this time: the peer has
    /// refused it, or there are too many.
    unwelcome: VecDeque<(Instant, String, Flow)>,
    /// The children whose refused packets have been logged lately, and until when that counts.
    told: Vec<(Instant, String)>,
    /// When the path was probed last.
    probed: Option<Instant>,
}

impl Queue {
    /// A queue of these tasks.
    pub(crate) fn new(tasks: VecDeque<Task>) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// Queues a task. It is sent at the end of the input if the window is free.
    pub(crate) fn push(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    /// As [`push`](Self::push), before the tasks that wait already.
    pub(crate) fn push_first(&mut self, task: Task) {
        self.tasks.push_front(task);
    }

    /// Queues a probe of the path. It is sent [`BETWEEN_PROBES`] after the last one at the earliest.
    pub(crate) fn push_probe(&mut self, life: &mut Life, now: Instant, probe: Task) {
        let probed = self.put_off.as_deref().and_then(|it| it.probed);
        match probed.map(|at| at + BETWEEN_PROBES).filter(|at| *at > now) {
            Some(at) => {
                self.delay(at, probe);
                self.arm(life);
            }
            None => self.push(probe),
        }
    }

    /// Records that a probe is sent.
    pub(crate) fn note_probe(&mut self, now: Instant) {
        self.put_off.get_or_insert_default().probed = Some(now);
    }

    /// The next task.
    pub(crate) fn pop(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// As [`pop`](Self::pop). The task stays in the queue.
    pub(crate) fn first(&self) -> Option<&Task> {
        self.tasks.front()
    }

    /// True if no task can be sent now.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks that can be sent now.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter()
    }

    /// All tasks: those that can be sent now, and then those for later.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().chain(self.delayed())
    }

    /// All tasks of a queue whose SA has ended, as [`all`](Self::all).
    pub(crate) fn into_all(self) -> impl Iterator<Item = Task> {
        let delayed = self.put_off.into_iter().flat_map(|it| it.delayed);
        self.tasks.into_iter().chain(delayed.map(|(_, task)| task))
    }

    /// Removes the tasks that can be sent now.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Task> {
        self.tasks.drain(..)
    }

    /// Removes the tasks that can be sent now and are `needless`.
    pub(crate) fn drop_needless(&mut self, needless: impl Fn(&Task) -> bool) {
        self.tasks.retain(|task| !needless(task));
    }

    /// Makes the first task that `may_go` the next one.
    pub(crate) fn prefer(&mut self, may_go: impl Fn(&Task) -> bool) {
        if let Some(at) = self.tasks.iter().position(may_go)
            && let Some(task) = self.tasks.remove(at)
        {
            self.tasks.push_front(task);
        }
    }

    /// True if this end makes the child `wanted` by itself, by a task. `request` waits for it from now on.
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        let delayed = self.put_off.iter_mut().flat_map(|it| &mut it.delayed);
        let mut all = self.tasks.iter_mut().chain(delayed.map(|(_, task)| task));
        all.any(|task| task.is_joined_by(wanted, request))
    }

    /// Handles that the traffic of `old` has moved to `new`, and that `old` is deleted in any case. Returns the commands
    /// that this ends.
    pub(crate) fn hand_over_child(
        &mut self,
        old: ChildSaId,
        new: ChildSaId,
    ) -> Vec<Option<RequestId>> {
        let mut ended = Vec::new();
        // If an operator ends the old child, the command is about the traffic, which `new` carries now. Any other
        // reason is about the old SA alone: its lifetime, its counters, its state in the data plane.
        self.tasks.retain_mut(|task| match task {
            Task::DeleteChild { child, reason: Failure::Terminated, .. } if *child == old => {
                *child = new;
                true
            }
            Task::DeleteChild { child, request, .. } if *child == old => {
                ended.push(*request);
                false
            }
            _ => true,
        });
        ended
    }

    /// Releases all tasks but those that can be sent now and `stay`.
    pub(crate) fn release(
        &mut self,
        stay: impl Fn(&Task) -> bool,
    ) -> (VecDeque<Task>, Vec<(Instant, Task)>) {
        let (kept, tasks) = self.tasks.drain(..).partition(stay);
        self.tasks = kept;
        (tasks, self.take_delayed())
    }

    /// Handles that the peer has not proven its address.
    pub(crate) fn give_up_unproven(&mut self) {
        let reason = Failure::Policy(PolicyReason::AddressUnproven);
        self.push_first(Task::DeleteIke { reason, request: None });
    }

    /// Deletes a child at both ends, because a change to it has failed while it was in use.
    pub(crate) fn give_up_child(&mut self, child: ChildSaId, reason: Failure) {
        self.push_first(Task::DeleteChild { child, reason, request: None });
    }

    /// Gateway: true while a client that was redirected in IKE_AUTH has not gone.
    pub(crate) fn is_leaving(&self) -> bool {
        let ends = |task: &Task| matches!(task, Task::DeleteIke { .. });
        self.delayed().any(ends)
    }

    /// Gives the redirected client the time to go.
    pub(crate) fn let_leave(&mut self, life: &mut Life, ctx: &mut Context<'_>) {
        let task = Task::DeleteIke { reason: Failure::Replaced, request: None };
        self.delay(ctx.io.now.mono + TIME_TO_GO, task);
        self.arm(life);
    }

    /// Requests the children of the other IKE SA, which is to end.
    pub(crate) fn make_missing(&mut self, lacks: Vec<Arc<ChildConfig>>) {
        for config in lacks {
            self.push(Task::CreateChild {
                config,
                packet: None,
                request: None,
                retry: Retry::default(),
                join: None,
            });
        }
    }

    // ---- later ----

    /// Queues a task that can be sent at this time.
    pub(crate) fn delay(&mut self, at: Instant, task: Task) {
        self.put_off.get_or_insert_default().delayed.push((at, task));
    }

    /// Repeats `task` after a while.
    pub(crate) fn retry_later(&mut self, life: &mut Life, ctx: &mut Context<'_>, task: Task) {
        self.delay(ctx.io.now.mono + ctx.jittered(RETRY_AFTER, RETRY_SPREAD), task);
        self.arm(life);
    }

    /// Sets the timer of the tasks for later.
    pub(crate) fn arm(&self, life: &mut Life) {
        let key = TimerKey::Ike(Timer::RetryTemporaryFailure);
        life.set_or_clear(key, self.next_due());
    }

    /// The tasks for later.
    pub(crate) fn delayed(&self) -> impl Iterator<Item = &Task> {
        self.put_off.iter().flat_map(|it| &it.delayed).map(|(_, task)| task)
    }

    /// When the first of the tasks for later can be sent.
    fn next_due(&self) -> Option<Instant> {
        self.put_off.as_deref()?.delayed.iter().map(|(at, _)| *at).min()
    }

    /// Removes the tasks for later.
    fn take_delayed(&mut self) -> Vec<(Instant, Task)> {
        self.put_off.as_deref_mut().map(|it| std::mem::take(&mut it.delayed)).unwrap_or_default()
    }

    /// Queues the tasks for later that can be sent by `now`.
    pub(crate) fn take_due(&mut self, now: Instant) {
        for (at, task) in self.take_delayed() {
            match at <= now {
                true => self.tasks.push_back(task),
                false => self.delay(at, task),
            }
        }
    }

    // ---- put off ----

    /// Records that a request waits for an exchange that the peer has begun.
    pub(crate) fn note_held(&mut self, now: Instant) {
        let held = &mut self.put_off.get_or_insert_default().held_since;
        let since = *held.get_or_insert(now);
        self.give_up_on_delay(now, since);
    }

    /// Records that no request waits for exchanges of the peer.
    pub(crate) fn note_not_held(&mut self) {
        if let Some(put_off) = self.put_off.as_deref_mut() {
            put_off.held_since = None;
        }
    }

    /// Records the peer's answer to a request; with true if it was TEMPORARY_FAILURE.
    pub(crate) fn note_answered(&mut self, now: Instant, temporary_failure: bool) {
        if temporary_failure {
            let refused = &mut self.put_off.get_or_insert_default().refused;
            let before = refused.filter(|(_, last)| now < *last + FORGOTTEN);
            let since = before.map_or(now, |(since, _)| since);
            *refused = Some((since, now));
            self.give_up_on_delay(now, since);
        } else if let Some(put_off) = self.put_off.as_deref_mut() {
            (put_off.refused, put_off.held_since) = (None, None);
        }
    }

    /// True while a request waits for an exchange that the peer has begun.
    pub(crate) fn is_held(&self) -> bool {
        self.put_off.as_deref().is_some_and(|it| it.held_since.is_some())
    }

    /// When the peer last answered TEMPORARY_FAILURE, if it has answered nothing else since.
    pub(crate) fn last_refused(&self) -> Option<Instant> {
        let refused = self.put_off.as_deref().and_then(|put_off| put_off.refused);
        refused.map(|(_, last)| last)
    }

    /// Records that there will be no child of this connection and name that takes `packet`.
    pub(crate) fn note_refused(
        &mut self,
        now: Instant,
        (connection, name): (&str, &str),
        packet: Flow,
    ) {
        let (local, remote) = (packet.local, packet.remote);
        let told = &mut self.put_off.get_or_insert_default().told;
        told.retain(|(until, _)| *until > now);
        if !told.iter().any(|(_, of)| of == name) {
            tracing::warn!(%connection, child = name, %local, %remote, "child: the packet gets no Child SA, because the peer refuses it or there are too many; packets between these addresses are dropped, and ask again after 60 s");
            told.push((now + TOLD_FOR, name.to_owned()));
        }
        self.remember_refused(now, name, packet);
    }

    /// Records that no child `name` is to be asked for because of `packet`, or of packets between its selectors.
    pub(crate) fn remember_refused(&mut self, now: Instant, name: &str, packet: Flow) {
        let unwelcome = &mut self.put_off.get_or_insert_default().unwelcome;
        unwelcome.retain(|(until, ..)| *until > now);
        unwelcome.truncate(MOST_REFUSED - 1);
        unwelcome.push_front((now + REFUSED_FOR, name.to_owned(), packet));
    }

    /// True if the peer has refused such packets of the child `name` lately.
    pub(crate) fn has_refused(&self, now: Instant, name: &str, packet: Flow) -> bool {
        let is_in = |other: Flow| {
            other.local.contains(&packet.local) && other.remote.contains(&packet.remote)
        };
        let mut unwelcome = self.put_off.iter().flat_map(|it| &it.unwelcome);
        unwelcome.any(|(until, of, other)| {
            *until > now && of == name && (is_same_pair(*other, packet) || is_in(*other))
        })
    }

    /// Ends the SA if requests of this end have had to wait for the peer for too long.
    fn give_up_on_delay(&mut self, now: Instant, since: Instant) {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
        //# If a peer continues to
        //# receive TEMPORARY_FAILURE on the same IKE SA after several minutes,
        //# it SHOULD conclude that the state information is out of sync and
        //# close the IKE SA.
        if now >= since + PUT_OFF {
            let reason = Failure::Peer(NotifyType::TEMPORARY_FAILURE);
            self.push_first(Task::DeleteIke { reason, request: None });
        }
    }

    /// Frees the capacity of collections that are nearly always empty.
    pub(crate) fn trim(&mut self) {
        if self.tasks.is_empty() && self.tasks.capacity() > 0 {
            self.tasks = VecDeque::new();
        }
        self.put_off.take_if(|it| {
            it.delayed.is_empty()
                && it.refused.is_none()
                && it.held_since.is_none()
                && it.unwelcome.is_empty()
                && it.probed.is_none()
        });
    }
}
