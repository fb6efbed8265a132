//! What an endpoint does when a time has come.

use crate::event::IkeSaId;

/// What is due. Of what is due at one time, the first in this order goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    /// Removals and traps to be repeated, SAs that may be redundant, closed SAs to be forgotten.
    Housekeeping,
    /// A timer of this IKE SA or attempt.
    Sa(IkeSaId),
    /// IKE SAs that wait for the children of another one.
    Handovers,
    /// Children to be started again.
    Starts,
}
