//! A new IKE SA takes the place of an old one with the same peer. The old one ends when the new one has its children.
//!
//! IKE_AUTH makes one child at the most. Each further child takes round trips of its own, with additional key exchanges
//! many. Until the new IKE SA has a child, the old one carries the traffic of that child.
//!
//! ```text
//!   reauthenticates                    the peer
//!   IKE_SA_INIT, IKE_AUTH ───────────▸                the new IKE SA and its first child
//!   CREATE_CHILD_SA, new IKE SA ─────▸                each further child
//!   INFORMATIONAL, old IKE SA ───────▸                Delete
//! ```
//!
//! The end that reauthenticates (RFC 7296 §2.8.3) deletes the old IKE SA when each child of it is up on the new IKE SA or
//! refused there. If nothing comes up for one schedule of retransmissions, it waits no longer. If the new IKE SA ends
//! before that, the old one stays. One that this end is deleting already, from an address that is gone, ends with it.
//!
//! The peer with `unique = "replace"` ends the old IKE SA by itself. It cannot know which children are still to come.
//! So it waits until the new IKE SA has all of them, or nothing has come up for [`PATIENCE`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::{Endpoint, Entries, Entry};
use crate::event::{Failure, IkeSaId, Now, RequestId};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Effect;
use crate::ike_sa::state::{State, Task};
use crate::wants::Sought;

/// How long `unique = "replace"` waits for the next child of the new IKE SA. charon waits 10 s for all of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many old IKE SAs wait for one new one at the most. Each input for the new one looks at all of them.
const MOST: usize = 8;

/// Which IKE SA makes the children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To {
    /// One of this shard.
    Here(IkeSaId),
    /// One of another shard.
    Elsewhere,
}

/// An old IKE SA that is to end.
struct Handover {
    /// The IKE SA that takes its place.
    to: To,
    /// Names of the children that this end has asked for on the new IKE SA. `None` if the peer asks for them.
    asked: Option<Vec<String>>,
    /// How many children the new IKE SA lacked when it was looked at last.
    lacks: usize,
    /// When the old IKE SA ends in any case.
    until: Instant,
}

/// Old IKE SAs that are to end. Each has one successor at the most: a peer may begin one after the other.
#[derive(Default)]
pub(super) struct Handovers {
    /// By the old IKE SA.
    all: BTreeMap<IkeSaId, Handover>,
    /// Each new IKE SA of this shard with the old ones that it takes the place of.
    of_new: BTreeSet<(IkeSaId, IkeSaId)>,
    /// When each old IKE SA is looked at again.
    due: BTreeSet<(Instant, IkeSaId)>,
    /// The deadline that is armed.
    armed: Option<Instant>,
    /// Old ones that are being deleted.
    leaving: Leaving,
}

/// Old IKE SAs that this end is deleting, each with the one of this shard that has taken its place.
#[derive(Default)]
struct Leaving {
    by_old: BTreeMap<IkeSaId, IkeSaId>,
    by_new: BTreeSet<(IkeSaId, IkeSaId)>,
}

impl Leaving {
    /// The old IKE SAs whose place `new` has taken.
    fn of(&self, new: IkeSaId) -> Vec<IkeSaId> {
        let range = (new, IkeSaId(0))..=(new, IkeSaId(u64::MAX));
        self.by_new.range(range).map(|(_, old)| *old).collect()
    }

    fn insert(&mut self, old: IkeSaId, new: IkeSaId) {
        self.remove(old);
        self.by_old.insert(old, new);
        self.by_new.insert((new, old));
    }

    fn remove(&mut self, old: IkeSaId) -> Option<IkeSaId> {
        let new = self.by_old.remove(&old)?;
        self.by_new.remove(&(new, old));
        Some(new)
    }

    /// `from` was rekeyed into `to`.
    fn rename(&mut self, from: IkeSaId, to: IkeSaId) {
        if let Some(new) = self.remove(from) {
            self.insert(to, new);
        }
        for old in self.of(from) {
            self.insert(old, to);
        }
    }
}

impl Handovers {
    /// The old IKE SAs that `ike` takes the place of.
    fn of(&self, ike: IkeSaId) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let range = (ike, IkeSaId(0))..=(ike, IkeSaId(u64::MAX));
        self.of_new.range(range).map(|(_, old)| *old)
    }

    /// The old IKE SAs of those handovers that `ike` takes part in.
    fn with(&self, ike: IkeSaId) -> Vec<IkeSaId> {
        self.of(ike).chain(self.is_old(ike).then_some(ike)).collect()
    }

    /// True if another one takes the place of `ike`.
    pub(super) fn is_old(&self, ike: IkeSaId) -> bool {
        self.all.contains_key(&ike)
    }

    fn insert(&mut self, old: IkeSaId, handover: Handover) {
        self.remove(old);
        if let To::Here(ike) = handover.to {
            self.of_new.insert((ike, old));
        }
        self.due.insert((handover.until, old));
        self.all.insert(old, handover);
    }

    fn remove(&mut self, old: IkeSaId) -> Option<Handover> {
        let handover = self.all.remove(&old)?;
        if let To::Here(ike) = handover.to {
            self.of_new.remove(&(ike, old));
        }
        self.due.remove(&(handover.until, old));
        Some(handover)
    }

    /// The new IKE SA of `old` still lacks so many children.
    fn wait(&mut self, old: IkeSaId, lacks: usize, until: Instant) {
        let Some(handover) = self.all.get_mut(&old) else {
            return debug_assert!(false, "a handover waits that is not there");
        };
        self.due.remove(&(handover.until, old));
        (handover.lacks, handover.until) = (lacks, until);
        self.due.insert((until, old));
    }
}

impl Endpoint {
    /// `ike`, which is up, takes the place of `old`: this end has begun it for that.
    pub(super) fn hand_over(&mut self, now: Now, ike: IkeSaId, old: IkeSaId) {
        let asked = self.established(ike).map(IkeSa::names_of_children);
        // What `old` was to take over itself has been asked for on `old`, and so on `ike`. Until `ike` has it, the oldest
        // one carries it.
        let before: Vec<_> = self.handovers.of(old).collect();
        for old in before.into_iter().chain([old]) {
            let useless = self.established(old).is_none_or(|old| self.is_stranded(old));
            self.begin_handover(now, To::Here(ike), old, asked.clone());
            if useless {
                self.end_handover(now, old);
            }
        }
    }

    /// An operator ends `ike`. The IKE SAs whose place it takes end with it, or they would stay instead. Returns them.
    pub(super) fn end_with(&mut self, now: Now, ike: IkeSaId) -> Vec<IkeSaId> {
        let before: Vec<_> = self.handovers.of(ike).collect();
        let mut all = Vec::new();
        for old in before {
            self.forget_handover(now, old);
            all.extend(self.line_from(old));
        }
        all
    }

    /// `unique` lets an IKE SA that the peer has begun take the place of `old`.
    pub(super) fn replace(&mut self, now: Now, new: To, old: IkeSaId) {
        self.begin_handover(now, new, old, None);
    }

    fn begin_handover(&mut self, now: Now, to: To, old: IkeSaId, asked: Option<Vec<String>>) {
        let mut handover = Handover { to, asked, lacks: usize::MAX, until: now.mono };
        if let Some(Handover { asked: None, lacks, until, .. }) = self.handovers.all.get(&old)
            && handover.asked.is_none()
        {
            // A peer that begins one IKE SA after the other does not keep the old one up.
            (handover.lacks, handover.until) = (*lacks, *until);
        }
        self.forget_handover(now, old);
        self.handovers.insert(old, handover);
        self.arm_handovers();
        self.look_at_handover(now, old);
        let waiting: Vec<_> = match to {
            To::Here(ike) => self.handovers.of(ike).collect(),
            To::Elsewhere => Vec::new(),
        };
        for oldest in waiting.iter().take(waiting.len().saturating_sub(MOST)) {
            self.end_handover(now, *oldest);
        }
    }

    /// The IKE SA, if it is established.
    pub(super) fn established(&self, ike: IkeSaId) -> Option<&IkeSa> {
        established(&self.entries, ike)
    }

    /// Something of `ike` may have changed.
    pub(super) fn look_at_handovers(&mut self, now: Now, ike: IkeSaId) {
        for old in self.handovers.with(ike) {
            self.look_at_handover(now, old);
        }
    }

    /// Looks at those that are due.
    pub(super) fn run_handovers(&mut self, now: Now) {
        if let Some(at) = self.handovers.armed.take() {
            self.deadlines.remove(&(at, Deadline::Handovers));
        }
        let due = self.handovers.due.iter().take_while(|(at, _)| *at <= now.mono);
        let due: Vec<_> = due.map(|(_, old)| *old).collect();
        for old in due {
            self.look_at_handover(now, old);
        }
        self.arm_handovers();
    }

    fn arm_handovers(&mut self) {
        let next = self.handovers.due.first().map(|(at, _)| *at);
        if next == self.handovers.armed {
            return;
        }
        if let Some(old) = std::mem::replace(&mut self.handovers.armed, next) {
            self.deadlines.remove(&(old, Deadline::Handovers));
        }
        self.deadlines.extend(next.map(|at| (at, Deadline::Handovers)));
    }

    fn look_at_handover(&mut self, now: Now, old: IkeSaId) {
        self.ask_for_missing(now, old);
        let Some(handover) = self.handovers.all.get(&old) else {
            return tracing::debug!(ike = ?old, "handover: has ended while another one was examined");
        };
        let new = match handover.to {
            To::Here(ike) => self.established(ike),
            To::Elsewhere => None,
        };
        let gone = new.is_none() && handover.to != To::Elsewhere;
        let Some(sa) = self.established(old).filter(|old| old.carries(Sought::Sa) && !gone) else {
            self.forget_handover(now, old);
            return;
        };
        if new.is_some_and(|new| !new.carries(Sought::Sa)) {
            // It is about to end itself. When it has, the old one stays (`leave_handovers`).
            let (lacks, until) = (handover.lacks, handover.until.max(now.mono + PATIENCE));
            self.handovers.wait(old, lacks, until);
            return self.arm_handovers();
        }
        let is_there = |name: &str| {
            // What this end does not ask for any more was refused.
            let refused =
                |new: &IkeSa| handover.asked.is_some() && !new.carries(Sought::Named(name));
            // A peer may have several of one name, each for a part of the traffic.
            let all =
                |new: &IkeSa| handover.asked.is_some() || new.count_up(name) >= sa.count_up(name);
            // The peer may not have the SAs of a child that it has just asked for.
            let is_in_use = |new: &IkeSa| {
                new.has_up(Sought::Named(name)) && all(new) && !new.is_on_standby(name)
            };
            new.is_some_and(|new| is_in_use(new) || refused(new))
        };
        // A child that this end is making on the old IKE SA would be up there for a moment.
        let counts = |name: &str| match handover.asked {
            Some(_) => sa.carries(Sought::Named(name)),
            None => sa.has_up(Sought::Named(name)),
        };
        let names = sa.names_of_children().into_iter();
        let lacks = names.filter(|name| counts(name) && !is_there(name)).count();
        let first = handover.lacks == usize::MAX;
        // IKE_AUTH has made a child for an IKE SA of another shard, too.
        let elsewhere = handover.to == To::Elsewhere;
        let lacks = if elsewhere { lacks.saturating_sub(1) } else { lacks };
        let patience = match handover.asked {
            Some(_) => self.lookup.schedule(),
            None => PATIENCE,
        };
        let late = !first && handover.until <= now.mono;
        let less = lacks < handover.lacks;
        if lacks == 0 || (late && !less) {
            return self.end_handover(now, old);
        }
        if less {
            self.handovers.wait(old, lacks, now.mono + patience);
            self.arm_handovers();
        }
    }

    /// A reauthentication began with the children that the old IKE SA had then. This end asks for those that have come
    /// since.
    fn ask_for_missing(&mut self, now: Now, old: IkeSaId) {
        let entries = &self.entries;
        if let Some(Handover { to: To::Here(ike), asked: Some(asked), .. }) =
            self.handovers.all.get_mut(&old)
            && let Some((new, sa)) = established(entries, *ike).zip(established(entries, old))
        {
            let ike = *ike;
            let lacks = |name: &String| {
                sa.carries(Sought::Named(name))
                    && !asked.contains(name)
                    && !new.carries(Sought::Named(name))
            };
            let names: Vec<_> = sa.names_of_children().into_iter().filter(lacks).collect();
            if !names.is_empty() {
                let connection = new.channel.connection();
                let configs = names.iter().filter_map(|name| connection.child(name).cloned());
                let configs = configs.collect();
                asked.extend(names);
                self.with_sa(now, ike, |sa, _| sa.make_missing(configs));
            }
        }
    }

    /// The old IKE SA ends: the new one has what it carries, or will not get it.
    fn end_handover(&mut self, now: Now, old: IkeSaId) {
        let to = self.handovers.all.get(&old).map(|handover| handover.to);
        if !self.forget_handover(now, old) {
            return;
        }
        let routes = match to {
            Some(To::Here(new)) => self.established(new).map(IkeSa::routes).unwrap_or_default(),
            Some(To::Elsewhere) | None => Vec::new(),
        };
        for ike in self.line_from(old) {
            if let Some(To::Here(new)) = to
                && self.established(ike).is_some()
            {
                self.handovers.leaving.insert(ike, new);
            }
            self.with_sa(now, ike, |sa, ctx| sa.send_by_others(ctx, &routes));
            let task = Task::DeleteIke { reason: Failure::Replaced, request: None };
            self.with_sa(now, ike, |sa, _| sa.push_first(task));
        }
    }

    /// False if there was none.
    fn forget_handover(&mut self, now: Now, old: IkeSaId) -> bool {
        let Some(forgotten) = self.handovers.remove(old) else { return false };
        self.arm_handovers();
        if let (To::Here(ike), Some(_)) = (forgotten.to, forgotten.asked)
            && self.handovers.of(ike).next().is_none()
        {
            self.with_sa(now, ike, |sa, _| sa.peer.set_reauthenticates(None));
        }
        true
    }

    /// The IKE SA is over. An old one whose successor is over stays, and is reauthenticated again if that is due.
    pub(super) fn leave_handovers(&mut self, now: Now, ike: IkeSaId) {
        for old in self.handovers.with(ike) {
            let asks = self.handovers.all.get(&old).is_some_and(|it| it.asked.is_some());
            self.forget_handover(now, old);
            if asks && old != ike {
                self.with_sa(now, old, |sa, ctx| {
                    sa.when_established(|established, _| {
                        established.rearm_reauth(ctx, Duration::ZERO)
                    });
                });
            }
        }
        self.handovers.leaving.remove(ike);
        for old in self.handovers.leaving.of(ike) {
            self.handovers.leaving.remove(old);
            // Not even its Delete leaves from an address that is gone. Its policies would only come before the traps.
            if self.established(old).is_some_and(|sa| self.is_stranded(sa)) {
                self.with_sa(now, old, |sa, ctx| sa.close(ctx, Failure::Replaced));
            }
        }
    }

    /// `from` was rekeyed into `to`.
    pub(super) fn move_handovers(&mut self, now: Now, from: IkeSaId, to: IkeSaId) {
        self.handovers.leaving.rename(from, to);
        for key in self.handovers.with(from) {
            let Some(handover) = self.handovers.remove(key) else {
                tracing::debug!(ike = ?key, "handover: has ended while another one was examined");
                continue;
            };
            let asks = handover.asked.is_some();
            let renamed = |ike: IkeSaId| if ike == from { to } else { ike };
            let new = match handover.to {
                To::Here(ike) => To::Here(renamed(ike)),
                To::Elsewhere => To::Elsewhere,
            };
            let old = renamed(key);
            self.handovers.insert(old, Handover { to: new, ..handover });
            if asks && new == To::Here(to) {
                self.with_sa(now, from, |sa, _| sa.peer.set_reauthenticates(None));
                self.with_sa(now, to, |sa, _| sa.peer.set_reauthenticates(Some(old)));
            }
            self.look_at_handover(now, old);
        }
    }

    /// True if an IKE SA that has taken the place of `ike` is up; `request` has what it asks for.
    pub(super) fn is_reauthenticated(&mut self, ike: IkeSaId, request: Option<RequestId>) -> bool {
        let replacing = self.index.replacing(ike).into_iter();
        let mut up = replacing.filter(|new| self.established(*new).is_some());
        if up.next().is_none() {
            return false;
        }
        if let Some(request) = request {
            self.done(request, Ok(()));
        }
        true
    }

    /// Has the handovers of `ike` looked at when the input is done.
    pub(super) fn note_handover(&mut self, ike: IkeSaId) {
        let all = &self.handovers;
        if !all.all.is_empty() && (all.is_old(ike) || all.of(ike).next().is_some()) {
            self.effects.push_back(Effect::HandOver(ike));
        }
    }
}

fn established(entries: &Entries, ike: IkeSaId) -> Option<&IkeSa> {
    match entries.get(&ike).map(|slot| &slot.entry) {
        Some(Entry::Sa(sa)) if matches!(sa.state, State::Established(_)) => Some(sa),
        _ => None,
    }
}
