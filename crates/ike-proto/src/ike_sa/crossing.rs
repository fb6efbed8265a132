//! Both ends have begun the same SA at once, and there are two: the rule for which one stays.
//!
//! RFC 7296 §2.8.1 has a rule for rekeys only. The rule here is similar: both ends know its input, and find the
//! same SA redundant without a message about it.
//!
//! ```text
//!   A                                  B
//!   begins X ─────────────────╮ ╭───── begins Y
//!                              ╳
//!   X and Y are up  ◂─────────╯ ╰────▸ X and Y are up     both compare the SPIs: say X has the lowest
//!   packets leave by Y                                    its initiator, A, goes first
//!   Delete of X ────────────────────▸                     B does so later, should A not know the rule
//! ```
//!
//! [`doubles`] treats second children that have another cause.

pub(crate) mod doubles;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::doubles::Fate;
use super::collision::{ChildActivity, IkeActivity};
use super::context::Context;
use super::state::{Established, Task};
use crate::channel::Channel;
use crate::channel::timer::{ChildTimer, TimerKey};
use crate::child::{ChildSa, Phase};
use crate::config::{Action, ChildConfig, Unique};
use crate::dataplane::Command;
use crate::event::{ChildSaId, Failure};
use crate::ike_sa::{Carries, Children};
use crate::ike_sa::{Life, Seen};
use crate::wants::Sought;

/// How long a redundant SA of this end stays. Meanwhile the other end finishes its set-up, and deletes one of the
/// two itself if it has a rule of its own.
pub(crate) const OWN_STAYS: Duration = Duration::from_secs(1);
/// How long a redundant SA of the peer stays, which the peer should delete.
pub(crate) const THEIRS_STAYS: Duration = Duration::from_secs(15);
/// The wait before a redundant SA that cannot end yet is examined again.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);

/// How long after this end's child a peer may begin the same child because of its own start action. strongSwan
/// does so when it already has the child.
const LATE_START: Duration = Duration::from_secs(5);

/// How an SA was set up, as this end saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetUp {
    /// True if this end has begun it.
    pub(crate) ours: bool,
    /// When its first message was sent or received.
    pub(crate) began: Instant,
    /// When it was established.
    pub(crate) done: Instant,
}

/// True if different ends have begun two SAs, each before it knew of the other one. The peer's may be begun up to
/// `late` after that.
pub(crate) fn crosses(one: SetUp, other: SetUp, late: Duration) -> bool {
    let (ours, theirs) = if one.ours { (one, other) } else { (other, one) };
    ours.ours != theirs.ours && ours.began < theirs.done && theirs.began < ours.done + late
}

/// True if, of two SAs that crossed, the one with the SPIs `these` is redundant, and not the one with `those`: it
/// has the lowest of the four SPIs. If both have the lowest, the other two decide.
pub(crate) fn is_redundant<T: Ord>(these: (T, T), those: (T, T)) -> bool {
    let sorted = |(a, b): (T, T)| if a <= b { (a, b) } else { (b, a) };
    sorted(these) < sorted(those)
}

/// Whether an IKE SA carries everything that another one carries.
pub(crate) enum Cover {
    /// All of it.
    Whole,
    /// These children are to be made first.
    Lacks(Vec<Arc<ChildConfig>>),
    /// It is busy.
    Later,
    /// Never: it has the same children with other selectors, or fewer children.
    Never,
}

impl ChildSa {
    /// How the child was set up; `None` if it is not compared with others: it has replaced another child, or is
    /// one of several for the same traffic.
    fn set_up(&self) -> Option<SetUp> {
        let first = self.line == self.id && self.replaces.is_none();
        let comparable = first
            && self.phase == Phase::Installed
            && self.has_outbound()
            && self.cpu.is_none()
            && !self.processing.per_cpu;
        comparable.then_some(SetUp {
            ours: self.is_ours(),
            began: self.started,
            done: self.installed,
        })
    }

    /// True if `other`, which has a policy of its own, carries the same. This is [`Carries`] without a copy: a peer may
    /// have hundreds of children with hundreds of selectors, and what differs most often comes first.
    fn is_like(&self, other: &Self) -> bool {
        let single = |child: &Self| child.cpu.is_none() && !child.processing.per_cpu;
        self.id != other.id
            && self.policy != other.policy
            && single(self)
            && single(other)
            && self.mode == other.mode
            && self.config.name == other.config.name
            && self.is_marked_like(&other.processing)
            && self.local_ts == other.local_ts
            && self.remote_ts == other.remote_ts
    }

    /// True if `other` carries the same, and the two set-ups crossed.
    fn crosses(&self, other: &Self) -> bool {
        let late = match self.config.start_action {
            Action::Start => LATE_START,
            Action::None | Action::Trap => Duration::ZERO,
        };
        self.is_ours() != other.is_ours()
            && match (self.set_up(), other.set_up()) {
                (Some(one), Some(another)) => crosses(one, another, late),
                _ => false,
            }
            && self.is_like(other)
    }
}

/// Of two children that crossed, the one that is redundant, and whether this end has begun it.
fn redundant_of(one: &ChildSa, other: &ChildSa) -> (ChildSaId, bool) {
    let spis = |child: &ChildSa| (child.spi_in, child.spi_out);
    let redundant = if is_redundant(spis(one), spis(other)) { one } else { other };
    (redundant.id, redundant.is_ours())
}

impl Established {
    /// Ends a child that is redundant. The other one carries the same, and stays.
    pub(crate) fn end_crossed_child(
        &mut self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        let Some(child) = self.children.get(id) else {
            return tracing::debug!(?id, "timer of a child that is gone");
        };
        let spis = |child: &ChildSa| (child.spi_in, child.spi_out);
        let one_stays = seen.channel.connection().unique != Unique::Never;
        let yields = |other: &ChildSa| {
            one_stays
                && child.crosses(other)
                && is_redundant(spis(child), spis(other))
                && self.work().reason_to_delete(other.id).is_none()
        };
        // If it does not yield, the peer has ended the other one, or one of the two has been replaced.
        let fate = match self.children.iter().any(yields) {
            true => Fate::Ends,
            false => Fate::of(seen.channel, ctx, self, child),
        };
        let busy = self.work().ike_activity(self.phase) != IkeActivity::Idle
            || self.work().activity(child, &self.children) != ChildActivity::Idle;
        let policy = child.policy;
        let again = match fate {
            Fate::Stays => return,
            Fate::Waits(wait) => Some(wait),
            Fate::AsksFirst => {
                self.ask_for_life();
                Some(doubles::THEIRS_FIRST)
            }
            Fate::Ends if busy => Some(AGAIN),
            Fate::Ends => None,
        };
        if let Some(wait) = again {
            let key = TimerKey::Child(id, ChildTimer::Crossing);
            return self.life.set(key, ctx.io.now.mono + wait);
        }
        self.queue.push_first(Task::DeleteChild {
            child: id,
            reason: Failure::Replaced,
            request: None,
        });
        // Packets leave by the other child from now on. The peer may remove this child's inbound SA before its
        // answer comes.
        ctx.data_plane(vec![Command::RemovePolicy(policy)]);
    }

    /// What the children of this SA carry; `None` while that is changing.
    pub(crate) fn carried(&self) -> Option<Vec<Carries>> {
        let makes = |task: &Task| {
            matches!(
                task,
                Task::CreateChild { .. } | Task::RekeyChild { .. } | Task::RekeyIke { .. }
            )
        };
        let settled = self.work().ike_activity(self.phase) == IkeActivity::Idle
            && !self.child_exchange()
            && !self.answering.waits()
            && !self.queue.all().any(makes)
            && self.children.iter().all(|child| child.phase == Phase::Installed);
        if !settled {
            return None;
        }
        let mut all: Vec<Carries> = Vec::with_capacity(self.children.iter().len());
        for carries in self.children.iter().map(Carries::of) {
            if !carries.is_per_cpu() || !all.contains(&carries) {
                all.push(carries);
            }
        }
        Some(all)
    }

    /// Whether the children of this SA can replace `wanted`.
    pub(crate) fn covers(&self, channel: &Channel, wanted: &[Carries]) -> Cover {
        let Some(mut left) = self.carried() else { return Cover::Later };
        let mut lacks = Vec::new();
        for one in wanted {
            if let Some(at) = left.iter().position(|other| other == one) {
                left.swap_remove(at);
                continue;
            }
            let there = self.children.iter().any(|child| child.config.name == one.name());
            match channel.connection().child(one.name()) {
                Some(config) if !there => lacks.push(Arc::clone(config)),
                _ => return Cover::Never,
            }
        }
        if lacks.is_empty() { Cover::Whole } else { Cover::Lacks(lacks) }
    }

    /// Checks that the peer is alive, unless an answer is due anyway.
    pub(crate) fn ask_for_life(&mut self) {
        if self.work().is_none() {
            self.queue.push(Task::Liveness);
        }
    }

    /// Ends an IKE SA that crossed another one, whose children carry everything that its own carry.
    pub(crate) fn end_crossed(&mut self, ctx: &mut Context<'_>) {
        let batch: Vec<_> =
            self.children.unroute().into_iter().map(Command::RemovePolicy).collect();
        self.queue.push_first(Task::DeleteIke { reason: Failure::Replaced, request: None });
        // The order is that for a single child.
        if !batch.is_empty() {
            ctx.data_plane(batch);
        }
    }

    /// True if there is such a child for all CPUs, or if either end is making one.
    pub(crate) fn has_or_makes(&self, sought: Sought<'_>) -> bool {
        if self.work().ike_activity(self.phase) == IkeActivity::Closing {
            return false;
        }
        let is = |child: &ChildSa| {
            sought.is(&child.config)
                && child.cpu.is_none()
                && matches!(child.phase, Phase::Installing | Phase::Installed)
                && self.work().activity(child, &self.children) != ChildActivity::Deleting
        };
        self.children.iter().any(is)
            || self.answering.children().any(is)
            || self.work().requested(true).any(|config| sought.is(config))
    }
}

impl Life {
    /// Sets when each of these children, which crossed others, is to end. With each, whether this end has begun it.
    pub(super) fn end_redundant(&mut self, ctx: &Context<'_>, redundant: Vec<(ChildSaId, bool)>) {
        for (id, ours) in redundant {
            let stays = if ours { OWN_STAYS } else { THEIRS_STAYS };
            self.set(TimerKey::Child(id, ChildTimer::Crossing), ctx.io.now.mono + stays);
        }
    }
}

impl Children {
    /// If the child `id`, which is installed, has crossed another child of this IKE SA: the redundant one, and whether
    /// this end has begun it.
    pub(super) fn crossed_by(&self, channel: &Channel, id: ChildSaId) -> Option<(ChildSaId, bool)> {
        let child = self.get(id).filter(|_| channel.connection().unique != Unique::Never)?;
        let other = self.iter().find(|other| child.crosses(other))?;
        Some(redundant_of(child, other))
    }

    /// As [`crossed_by`](Self::crossed_by) and [`doubles_of`](Self::doubles_of), for all children, which
    /// belonged to another IKE SA until now. The peer decides how many of them it has, and this end how many of them
    /// are its own: each of these is compared with those of its name.
    pub(crate) fn judge_crossings(&self, channel: &Channel, life: &mut Life, ctx: &Context<'_>) {
        let mut names: BTreeMap<&str, Vec<&ChildSa>> = BTreeMap::new();
        for child in self.iter() {
            names.entry(&child.config.name).or_default().push(child);
        }
        let (mut redundant, mut doubles) = (Vec::new(), Vec::new());
        for named in names.values().filter(|named| named.len() > 1) {
            for own in named.iter().filter(|child| child.is_ours()) {
                let crossing = named.iter().filter(|other| own.crosses(other));
                redundant.extend(crossing.map(|other| redundant_of(own, other)));
                if named.iter().any(|other| own.doubles(other)) {
                    doubles.push(own.id);
                }
            }
        }
        if channel.connection().unique != Unique::Never {
            life.end_redundant(ctx, redundant);
        }
        life.look_for_doubles(ctx, doubles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(start: Instant, ours: bool, began: u64, done: u64) -> SetUp {
        let at = |ms| start + Duration::from_millis(ms);
        SetUp { ours, began: at(began), done: at(done) }
    }

    /// Fault: in `crosses`, leave out one of the two comparisons of times.
    #[test]
    fn only_what_two_ends_begin_in_ignorance_crosses() {
        #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
        let start = Instant::now();
        let of = |ours, began, done| set_up(start, ours, began, done);
        let none = Duration::ZERO;
        assert!(crosses(of(true, 0, 20), of(false, 10, 30), none));
        assert!(crosses(of(false, 0, 20), of(true, 10, 30), none));
        assert!(crosses(of(true, 0, 90), of(false, 10, 30), none), "one within the other");
        assert!(!crosses(of(true, 0, 20), of(true, 10, 30), none), "one end alone");
        assert!(!crosses(of(false, 0, 20), of(false, 10, 30), none), "the other alone");
        assert!(!crosses(of(true, 0, 20), of(false, 21, 30), none), "the peer knew ours");
        assert!(!crosses(of(false, 0, 20), of(true, 21, 30), none), "this end knew theirs");
        let late = Duration::from_millis(5);
        assert!(crosses(of(true, 0, 20), of(false, 21, 30), late), "the peer may be late");
        assert!(!crosses(of(true, 0, 20), of(false, 26, 30), late));
        assert!(!crosses(of(false, 0, 20), of(true, 21, 30), late), "this end is never");
    }

    /// Fault: in `is_redundant`, compare the pairs as they are.
    #[test]
    fn both_ends_find_the_same_one_redundant() {
        let spis = [1_u32, 2, 3, 4];
        for a in spis {
            for b in spis {
                for c in spis {
                    for d in spis {
                        let one = is_redundant((a, b), (c, d));
                        // The other end has inbound for outbound.
                        assert_eq!(one, is_redundant((b, a), (d, c)));
                        assert_eq!(one, is_redundant((a, b), (d, c)));
                        let same = (a, b) == (c, d) || (a, b) == (d, c);
                        assert_eq!(
                            one != is_redundant((c, d), (a, b)),
                            !same,
                            "exactly one of two"
                        );
                    }
                }
            }
        }
        assert!(is_redundant((9, 1), (2, 8)), "the lowest is in the first");
        assert!(is_redundant((1, 3), (9, 1)), "the lowest is in both");
    }
}
