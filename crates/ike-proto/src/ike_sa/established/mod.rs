//! An established IKE SA: its activities. Its queue of requests, its children and its timers are in the other
//! files of this folder.

mod carrying;
mod children;
mod queue;
mod timers;

pub(super) use timers::arm_child;

use std::collections::VecDeque;
use std::time::Instant;

use crate::child::{ChildSa, Phase};
use crate::dataplane::{Command, PolicyId, SaId};
use crate::event::{ChildSaId, Failure};
use crate::exchange::followup::Chain;
use crate::ike_sa::collision::{ChildActivity, IkeActivity};
use crate::ike_sa::state::{Established, IkePhase, Initiated, Task};

/// The rest of a rekeyed child. Packets may still be in flight from the peer, or in this host's stack on their way
/// to the outbound SA, which no policy names any more.
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
            // What the rekey makes is deleted as well.
            _ if self.queue.iter().any(deleting) => IkeActivity::Closing,
            (Some(ours @ Initiated::Followup(_)), _) if ours.ike().is_some() => {
                IkeActivity::FollowUp
            }
            // One rekey of the peer crosses ours. A second one would leave the SA of the first behind.
            (Some(Initiated::RekeyIke(offer)), _) if offer.crossed.is_some() => {
                IkeActivity::Rekeyed
            }
            (Some(Initiated::RekeyIke(_)), _) => IkeActivity::Rekeying,
            _ => IkeActivity::Idle,
        }
    }

    /// SPIs that this end has told the peer for a successor of this SA that is not made yet: by its own rekey, and
    /// by the peer's. Zero for none.
    pub(crate) fn coming_spis(&self) -> [u64; 2] {
        let ours = self.ours.as_ref().and_then(Initiated::ike).map(|offer| offer.spi);
        let theirs = self.theirs.iter().find_map(Chain::ike_spi);
        [ours.unwrap_or_default(), theirs.unwrap_or_default()]
    }

    /// True while this end is creating, rekeying or closing a child.
    pub(crate) fn child_exchange(&self) -> bool {
        self.own_child_exchange() || self.theirs.iter().any(Chain::is_child)
    }

    /// The same without exchanges that the peer has begun.
    pub(crate) fn own_child_exchange(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| {
            ours.child().is_some()
                || matches!(ours, Initiated::DeleteChild { .. } | Initiated::DeleteSpi)
        }) || !self.installing.is_empty()
    }

    /// True if the peer may have a child that does not exist at this end: the response to a request of this end is
    /// still to come, or this end could not use the child and is about to delete it at the peer.
    pub(crate) fn peer_may_have_more(&self) -> bool {
        self.ours
            .as_ref()
            .is_some_and(|ours| ours.child().is_some() || matches!(ours, Initiated::DeleteSpi))
            || self.queue.iter().any(|task| matches!(task, Task::DeleteSpi(_)))
    }

    /// True if the peer is rekeying the IKE SA, and its additional key exchanges are still to come.
    pub(super) fn is_being_rekeyed(&self) -> bool {
        !self.theirs.iter().all(Chain::is_child)
    }

    /// True if the peer is rekeying the child `old`, and its additional key exchanges are still to come.
    pub(super) fn child_is_being_rekeyed(&self, old: ChildSaId) -> bool {
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

    /// True while the data plane is at work on the replacement of `child` by our own rekey.
    pub(super) fn is_being_replaced(&self, child: ChildSaId) -> bool {
        let new = self.children.iter().filter(|new| new.replaces == Some(child));
        let mut new = new.map(|new| new.id);
        new.any(|new| self.installing.iter().any(|(_, installing, _)| *installing == new))
    }

    /// Frees the capacity of collections that are nearly always empty.
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

    /// As [`activity`](Self::activity), for a Delete by the peer. A Delete of ours crosses it if it was sent. If
    /// it was not sent, it is not sent any more.
    pub(crate) fn delete_activity(&self, child: &ChildSa) -> ChildActivity {
        match &self.ours {
            Some(Initiated::DeleteChild { child: id, .. }) if *id == child.id => {
                ChildActivity::Deleting
            }
            _ if child.phase == Phase::Rekeyed => ChildActivity::Rekeyed,
            _ => ChildActivity::Idle,
        }
    }

    /// True if the policy of `child` is to send by it. A child for one CPU gets the policy only if it replaces the
    /// child by which the policy was sending, or if the policy sends by none.
    pub(crate) fn routes(&self, child: &ChildSa) -> bool {
        let replaced = |old: &ChildSa| Some(old.id) == child.replaces && old.routed;
        child.cpu.is_none() || self.children.iter().any(replaced) || !self.is_routed(child.policy)
    }

    /// True if `policy` sends by an existing child.
    pub(crate) fn is_routed(&self, policy: PolicyId) -> bool {
        self.children.iter().any(|child| child.policy == policy && child.routed)
    }

    /// As [`routes`](Self::routes). If so, the policy no longer sends by the others.
    pub(crate) fn take_route(&mut self, child: &ChildSa) -> bool {
        let routes = self.routes(child);
        for other in self.children.iter_mut().filter(|other| other.policy == child.policy) {
            other.routed &= !routes;
        }
        routes
    }

    /// The child to which the policy of `gone` belongs without it: one of its line, otherwise another that shares
    /// the policy.
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
            // As for the IKE SA: the peer's rekey of the child crosses ours once.
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
            // The peer's rekey is ready. Its Delete is still to come.
            _ if self.children.iter().any(|new| new.replaces == Some(child.id)) => {
                ChildActivity::Rekeyed
            }
            _ => ChildActivity::Idle,
        }
    }
}
