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
use crate::event::{ChildSaId, Failure};
use crate::exchange::auth::rounds::Authenticated;
use crate::exchange::followup::Answering;
use crate::ike_sa::Children;
use crate::ike_sa::Identity;
use crate::ike_sa::Queue;
use crate::ike_sa::collision::{ChildActivity, IkeActivity};
use crate::ike_sa::life::Life;
use crate::ike_sa::state::{Established, IkePhase, Initiated, Task};

impl Established {
    /// The state of an SA whose ends have authenticated each other by `now`, with the requests to be sent.
    pub(crate) fn new(authenticated: Authenticated, tasks: VecDeque<Task>, now: Instant) -> Self {
        Self::of(Identity::new(authenticated, now), Queue::new(tasks))
    }

    /// The state of the SA that replaces this one by a rekey. It has no children yet.
    pub(crate) fn rekeyed(&self, now: Instant) -> Self {
        Self { life: self.life.rekeyed(), ..Self::of(self.identity.rekeyed(now), Queue::default()) }
    }

    fn of(identity: Identity, queue: Queue) -> Self {
        Self {
            identity,
            children: Children::default(),
            ours: None,
            queue,
            phase: IkePhase::Alive,
            queries: Vec::new(),
            answering: Answering::default(),
            life: Life::default(),
        }
    }

    /// What this end is doing with the SA.
    pub(crate) fn ike_activity(&self) -> IkeActivity {
        let deleting = |task: &Task| matches!(task, Task::DeleteIke { .. });
        match (&self.ours, self.phase) {
            (Some(Initiated::DeleteIke { .. }), _) | (_, IkePhase::Closing) => IkeActivity::Closing,
            (_, IkePhase::Replaced(_) | IkePhase::Crossed(_)) => IkeActivity::Rekeyed,
            // What the rekey makes is deleted as well.
            _ if self.queue.tasks().any(deleting) => IkeActivity::Closing,
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
        let theirs = self.answering.coming_spi();
        [ours.unwrap_or_default(), theirs.unwrap_or_default()]
    }

    /// True while this end is creating, rekeying or closing a child.
    pub(crate) fn child_exchange(&self) -> bool {
        self.own_child_exchange() || self.answering.children().next().is_some()
    }

    /// The same without exchanges that the peer has begun.
    pub(crate) fn own_child_exchange(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| {
            ours.child().is_some()
                || matches!(ours, Initiated::DeleteChild { .. } | Initiated::DeleteSpi)
        }) || self.children.is_installing()
    }

    /// True if the peer may have a child that does not exist at this end: the response to a request of this end is
    /// still to come, or this end could not use the child and is about to delete it at the peer.
    pub(crate) fn peer_may_have_more(&self) -> bool {
        self.ours
            .as_ref()
            .is_some_and(|ours| ours.child().is_some() || matches!(ours, Initiated::DeleteSpi))
            || self.queue.tasks().any(|task| matches!(task, Task::DeleteSpi(_)))
    }

    /// Why this end deletes `child`, if it does.
    pub(crate) fn reason_to_delete(&self, child: ChildSaId) -> Option<&Failure> {
        if let Some(Initiated::DeleteChild { child: id, reason, .. }) = &self.ours
            && *id == child
        {
            return Some(reason);
        }
        self.queue.tasks().find_map(|task| match task {
            Task::DeleteChild { child: id, reason, .. } if *id == child => Some(reason),
            _ => None,
        })
    }

    /// Frees the capacity of collections that are nearly always empty.
    pub(crate) fn trim(&mut self) {
        self.queue.trim();
        self.children.trim();
        if self.queries.is_empty() && self.queries.capacity() > 0 {
            self.queries = Vec::new();
        }
        self.answering.trim();
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

    /// What this end is doing with `child`.
    pub(crate) fn activity(&self, child: &ChildSa) -> ChildActivity {
        let queued = self
            .queue
            .tasks()
            .any(|task| matches!(task, Task::DeleteChild { child: id, .. } if *id == child.id));
        match (&self.ours, child.phase) {
            (Some(Initiated::DeleteChild { child: id, .. }), _) if *id == child.id => {
                ChildActivity::Deleting
            }
            (_, Phase::Deleting) => ChildActivity::Deleting,
            _ if queued => ChildActivity::Deleting,
            // As for the IKE SA: the peer's rekey of the child crosses ours once.
            (Some(Initiated::Child(offer)), _) if offer.rekeys() == Some(child.id) => {
                match offer.is_crossed() {
                    true => ChildActivity::Rekeyed,
                    false => ChildActivity::Rekeying,
                }
            }
            (Some(ours @ Initiated::Followup(_)), _)
                if ours.child().is_some_and(|offer| offer.rekeys() == Some(child.id)) =>
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
