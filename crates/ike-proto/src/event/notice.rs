//! What shards of one host tell each other.

use super::IkeSaId;
use crate::dataplane::SaId;

/// What one shard has to say of an IKE SA, or an attempt at one, of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Its peer has said INITIAL_CONTACT since: it knows nothing of this SA any more.
    Forgotten,
    /// Its peer has another one, and `unique` wants a single one.
    Replaced,
    /// It is not the first of its identities any more.
    NotFirstContact,
    /// The IKE SA with these SPIs was resumed: it is over, if it is that one.
    Resumed(u64, u64),
    /// It crossed this other one, which both ends keep.
    Crossed(IkeSaId),
    /// It crossed this other one, which waits to end: say [`Covered`](Self::Covered) if all of its children are here.
    TakeOver(IkeSaId),
    /// It may end: this other one has its children, and its peer has shown that it has that one.
    Covered(IkeSaId),
    /// The peer of this outbound SA says, unprotected, that it has none such. The number is not of an IKE SA, but of
    /// the shard.
    UnknownSpi(SaId),
}
