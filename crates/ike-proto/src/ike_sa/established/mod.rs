//! An established IKE SA: its activities. Its queue of requests, its children and its timers are in the other
//! files of this folder.

mod carrying;
mod children;
mod queue;
mod timers;

use std::collections::VecDeque;
use std::time::Instant;

use crate::exchange::auth::rounds::Authenticated;
use crate::exchange::followup::Answering;
use crate::exchange::sent::Sent;
use crate::ike_sa::Children;
use crate::ike_sa::Identity;
use crate::ike_sa::Queue;
use crate::ike_sa::life::Life;
use crate::ike_sa::state::{Established, IkePhase, Task};

/// The SPIs of two successors that an IKE SA may get: by this end's rekey, and by the peer's.
pub(crate) type ComingSpis = [Option<u64>; 2];

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
            sent: None,
            queue,
            phase: IkePhase::Alive,
            queries: Vec::new(),
            answering: Answering::default(),
            life: Life::default(),
        }
    }

    /// SPIs that this end has told the peer for a successor of this SA that is not made yet.
    pub(crate) fn coming_spis(&self) -> ComingSpis {
        let ours = self.sent.as_ref().and_then(Sent::ike).map(|offer| offer.spi);
        [ours, self.answering.coming_spi()]
    }

    /// True while this end is creating, rekeying or closing a child.
    pub(crate) fn child_exchange(&self) -> bool {
        self.work().own_child_exchange(&self.children) || self.answering.children().next().is_some()
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
}
