//! What an exchange of an established IKE SA may use, and what it leaves to the SA.

use crate::channel::Channel;
use crate::event::{ChildSaId, Failure};
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::sent::Sent;
use crate::ike_sa::state::Task;
use crate::ike_sa::{Children, Context, Ending, Identity, Life, Peer, Queue};
use crate::question::Exchange;

/// The parts of an established IKE SA that the exchange of a child may use, and no others.
pub(crate) struct Parts<'a, 'c> {
    pub(crate) channel: &'a mut Channel,
    pub(crate) peer: &'a Peer,
    pub(crate) ending: &'a mut Ending,
    pub(crate) identity: &'a Identity,
    pub(crate) children: &'a mut Children,
    pub(crate) queue: &'a mut Queue,
    pub(crate) life: &'a mut Life,
    pub(crate) ctx: &'a mut Context<'c>,
}

impl Parts<'_, '_> {
    /// Repeats `task` after a while.
    pub(crate) fn retry_later(&mut self, task: Task) {
        self.queue.retry_later(self.life, self.ctx, task);
    }

    /// Sets the rekey timer of `child` again after a failed rekey.
    pub(crate) fn rearm_rekey(&mut self, child: ChildSaId) {
        self.children.rearm_rekey(self.life, self.ctx, child);
    }
}

/// What has become of a request that was to be sent.
#[must_use]
pub(crate) enum Started {
    /// Nothing was sent. The command that waited has its answer.
    Not,
    /// It is in flight.
    Sent(Sent),
    /// This key exchange has to be done first. The task is then started again.
    Ask(Exchange, Task),
}

/// What follows from a response, and needs more of the SA than the [`Parts`].
#[must_use]
pub(crate) enum Outcome {
    Done,
    /// What the peer has begun to replace this child does not go on.
    Won(Option<ChildSaId>),
    /// The child is gone at the peer: it ends for this reason, and another takes its place.
    Anew(Box<RequestedChild>, Failure),
    /// The client has been redirected, and gets the time to go.
    Leaves,
}
