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
    /// One of this IKE SA and another one with the same peer may be redundant.
    Redundancy(Redundancy),
    /// What another shard does with a child that this shard wants, and has no IKE SA for. The IKE SA number that
    /// comes with the notice names the shard instead. The number in the notice names the child.
    Child(u64, ChildElsewhere),
    /// The peer says, unprotected, that it does not have this outbound SA. The number names no IKE SA, but the shard.
    UnknownSpi(SaId),
}

/// What happens to one of two IKE SAs with the same peer, so that one of them stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redundancy {
    /// This IKE SA crossed the other one, which both ends keep.
    Crossed(IkeSaId),
    /// This IKE SA crossed the other one, which waits to end. Answer [`Covered`](Self::Covered) once this IKE SA has all
    /// of its children.
    TakeOver(IkeSaId),
    /// There is another IKE SA between the same identities: one of them may be one too many.
    Another,
    /// The other IKE SA may be one too many. If this IKE SA may stand in for it, this is as
    /// [`TakeOver`](Self::TakeOver).
    StandIn(IkeSaId),
    /// This IKE SA may end: another one has its children, and the peer has answered on that one.
    Covered,
}

/// What another shard does with a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildElsewhere {
    /// It is up there.
    Up,
    /// Its trap is installed there.
    Trapped,
    /// It is not brought up there any more.
    GivenUp,
}
