//! Messages between the shards of one host.

use super::IkeSaId;
use crate::dataplane::SaId;

/// A message of one shard about an IKE SA, or an attempt at one, of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The peer has sent INITIAL_CONTACT since: it does not know this IKE SA any more.
    Forgotten,
    /// The peer has another IKE SA, and `unique` allows one.
    Replaced,
    /// The other IKE SA is new, and `unique = keep`. Answer [`Unwelcome`](Self::Unwelcome) if the peer of this IKE SA
    /// has another address.
    Newcomer(IkeSaId),
    /// This IKE SA ends, because the peer has one from another address, and `unique` keeps that.
    Unwelcome,
    /// This IKE SA is not the first of its identities any more.
    NotFirstContact,
    /// The IKE SA with these SPIs was resumed by a ticket. If this IKE SA has them, it ends.
    Resumed(u64, u64),
    /// This IKE SA crossed the other one, which both ends keep.
    Crossed(IkeSaId),
    /// This IKE SA crossed the other one, which waits to end. Answer [`Covered`](Self::Covered) once this IKE SA
    /// has all of its children.
    TakeOver(IkeSaId),
    /// There is another IKE SA between the same identities: one of them may be one too many.
    Another,
    /// The other IKE SA may be one too many. If this IKE SA may stand in for it, this is as
    /// [`TakeOver`](Self::TakeOver).
    StandIn(IkeSaId),
    /// This IKE SA may end: the other one has its children, and the peer has answered on the other one.
    Covered(IkeSaId),
    /// A child that this shard wants, and has no IKE SA for, is up on another shard. The number names no IKE SA, but the
    /// shard; this one names the child.
    ChildUp(u64),
    /// Another shard has installed the trap of such a child. The numbers are as those of [`ChildUp`](Self::ChildUp).
    ChildTrapped(u64),
    /// Another shard brings such a child up no more. The numbers are as those of [`ChildUp`](Self::ChildUp).
    ChildGivenUp(u64),
    /// The peer says, unprotected, that it does not have this outbound SA. The number names no IKE SA, but the shard.
    UnknownSpi(SaId),
}
