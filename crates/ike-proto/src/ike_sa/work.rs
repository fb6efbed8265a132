//! What this end is doing on an established IKE SA: the request in flight, and those that are to follow.

use crate::child::{ChildSa, Join, Phase};
use crate::config::ChildConfig;
use crate::dataplane::{Flow, PolicyId};
use crate::event::{ChildSaId, Failure};
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::sent::Sent;
use crate::ike_sa::collision::{ChildActivity, IkeActivity};
use crate::ike_sa::state::{IkePhase, Task};
use crate::ike_sa::{Children, Queue};
use crate::wants::is_asked_for;

/// Questions that need both what was sent and the queue.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    sent: Option<&'a Sent>,
    queue: &'a Queue,
}

impl<'a> Work<'a> {
    /// The view of these two.
    pub(crate) fn new(sent: Option<&'a Sent>, queue: &'a Queue) -> Self {
        Self { sent, queue }
    }

    /// True if no request is in flight, and none is to follow.
    pub(crate) fn is_none(self) -> bool {
        self.sent.is_none() && self.queue.is_empty()
    }

    /// The child that is requested, by CREATE_CHILD_SA or the exchanges after it.
    fn sent_child(self) -> Option<&'a RequestedChild> {
        self.sent.and_then(Sent::child)
    }

    /// What this end is doing with the SA.
    pub(crate) fn ike_activity(self, phase: IkePhase) -> IkeActivity {
        let deleting = |task: &Task| matches!(task, Task::DeleteIke { .. });
        match (self.sent, phase) {
            (Some(Sent::DeleteIke { .. }), _) | (_, IkePhase::Closing) => IkeActivity::Closing,
            (_, IkePhase::Replaced(_) | IkePhase::Crossed(_)) => IkeActivity::Rekeyed,
            // What the rekey makes is deleted as well.
            _ if self.queue.tasks().any(deleting) => IkeActivity::Closing,
            (Some(ours @ Sent::Followup(_)), _) if ours.ike().is_some() => IkeActivity::FollowUp,
            // One rekey of the peer crosses ours. A second one would leave the SA of the first behind.
            (Some(Sent::RekeyIke(offer)), _) if offer.crossed.is_some() => IkeActivity::Rekeyed,
            (Some(Sent::RekeyIke(_)), _) => IkeActivity::Rekeying,
            _ => IkeActivity::Idle,
        }
    }

    /// True while this end is creating, rekeying or closing a child by an exchange of its own.
    pub(crate) fn own_child_exchange(self, children: &Children) -> bool {
        self.sent.is_some_and(|ours| {
            ours.child().is_some() || matches!(ours, Sent::DeleteChild { .. } | Sent::DeleteSpi)
        }) || children.is_installing()
    }

    /// True if the peer may have a child that does not exist at this end: the response to a request of this end is
    /// still to come, or this end could not use the child and is about to delete it at the peer.
    pub(crate) fn peer_may_have_more(self) -> bool {
        self.sent.is_some_and(|ours| ours.child().is_some() || matches!(ours, Sent::DeleteSpi))
            || self.queue.tasks().any(|task| matches!(task, Task::DeleteSpi(_)))
    }

    /// Why this end deletes `child`, if it does.
    pub(crate) fn reason_to_delete(self, child: ChildSaId) -> Option<&'a Failure> {
        if let Some(Sent::DeleteChild { child: id, reason, .. }) = self.sent
            && *id == child
        {
            return Some(reason);
        }
        self.queue.tasks().find_map(|task| match task {
            Task::DeleteChild { child: id, reason, .. } if *id == child => Some(reason),
            _ => None,
        })
    }

    /// As [`activity`](Self::activity), for a Delete by the peer. A Delete of ours crosses it if it was sent. If
    /// it was not sent, it is not sent any more.
    pub(crate) fn delete_activity(self, child: &ChildSa) -> ChildActivity {
        match self.sent {
            Some(Sent::DeleteChild { child: id, .. }) if *id == child.id => ChildActivity::Deleting,
            _ if child.phase == Phase::Rekeyed => ChildActivity::Rekeyed,
            _ => ChildActivity::Idle,
        }
    }

    /// What this end is doing with `child`.
    pub(crate) fn activity(self, child: &ChildSa, children: &Children) -> ChildActivity {
        let queued = self
            .queue
            .tasks()
            .any(|task| matches!(task, Task::DeleteChild { child: id, .. } if *id == child.id));
        match (self.sent, child.phase) {
            (Some(Sent::DeleteChild { child: id, .. }), _) if *id == child.id => {
                ChildActivity::Deleting
            }
            (_, Phase::Deleting) => ChildActivity::Deleting,
            _ if queued => ChildActivity::Deleting,
            // As for the IKE SA: the peer's rekey of the child crosses ours once.
            (Some(Sent::Child(offer)), _) if offer.rekeys() == Some(child.id) => {
                match offer.is_crossed() {
                    true => ChildActivity::Rekeyed,
                    false => ChildActivity::Rekeying,
                }
            }
            (Some(ours @ Sent::Followup(_)), _)
                if ours.child().is_some_and(|offer| offer.rekeys() == Some(child.id)) =>
            {
                ChildActivity::FollowUp
            }
            (_, Phase::Rekeyed) => ChildActivity::Rekeyed,
            // The peer's rekey is ready. Its Delete is still to come.
            _ if children.iter().any(|new| new.replaces == Some(child.id)) => {
                ChildActivity::Rekeyed
            }
            _ => ChildActivity::Idle,
        }
    }

    // ---- children that this end requests ----

    /// True if this end asks for a child `name` for `packet`, now or later.
    pub(crate) fn makes_for(self, name: &str, packet: Flow) -> bool {
        let sent = self.sent_child().filter(|offer| {
            offer.rekeys().is_none() && offer.join().is_none() && offer.config().name == name
        });
        let of_task = |task: &'a Task| match task {
            Task::CreateChild { config, packet, join: None, .. } if config.name == name => {
                Some(*packet)
            }
            _ => None,
        };
        let queued = self.queue.all().filter_map(of_task);
        is_asked_for(packet, sent.map(RequestedChild::packet).into_iter().chain(queued))
    }

    /// True if this end rekeys the child `id`, now or later.
    pub(crate) fn rekeys(self, id: ChildSaId) -> bool {
        let is_it = |task: &Task| matches!(task, Task::RekeyChild { child, .. } if *child == id);
        self.queue.all().any(is_it)
            || self.sent_child().is_some_and(|offer| offer.rekeys() == Some(id))
    }

    /// The configurations of children that this end requests, now or later. `rekeys` says whether rekeys count.
    pub(crate) fn requested(self, rekeys: bool) -> impl Iterator<Item = &'a ChildConfig> {
        let makes = self.queue.all().filter_map(|task| match task {
            Task::CreateChild { config, .. } => Some(&**config),
            _ => None,
        });
        let sent = self.sent_child().filter(move |offer| rekeys || offer.rekeys().is_none());
        makes.chain(sent.map(|offer| &**offer.config()))
    }

    /// The places for one CPU each that this end has requested of the peer, or is about to request.
    pub(crate) fn asked(self, policy: PolicyId) -> impl Iterator<Item = Join> {
        let of_task = |task: &Task| match task {
            Task::CreateChild { join, .. } => *join,
            _ => None,
        };
        let sent = self.sent_child().and_then(RequestedChild::join);
        let all = sent.into_iter().chain(self.queue.all().filter_map(of_task));
        all.filter(move |join| join.policy == policy)
    }
}
