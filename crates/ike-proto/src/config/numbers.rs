//! `%unique` and `%unique-dir`: numbers that are chosen when an SA is made.

/// How a number is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `%unique`: one number, the same for both directions if both have it.
    Pair,
    /// `%unique-dir`: one of its own for the direction.
    Direction,
}

/// `if_id_in` or `if_id_out` of a connection, for children without their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterfaceId {
    /// This number; 0 for none.
    Fixed(u32),
    /// A number that no other IKE SA has. It is kept across rekeys.
    Unique(Scope),
}

impl Default for InterfaceId {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// The numbers of a child's [`Processing`](crate::dataplane::Processing) that are chosen when a child is made, and
/// kept across rekeys. A chosen number replaces the value there; the masks of marks stay. A child for a trap's
/// packet has the numbers of the trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct UniqueNumbers {
    /// `mark_in`.
    pub mark_in: Option<Scope>,
    /// `mark_out`.
    pub mark_out: Option<Scope>,
    /// `if_id_in`.
    pub if_id_in: Option<Scope>,
    /// `if_id_out`.
    pub if_id_out: Option<Scope>,
    /// `set_mark_in = %same`: the value of `mark_in`, chosen or not.
    pub set_mark_in_same: bool,
    /// `set_mark_out = %same`: that of `mark_out`.
    pub set_mark_out_same: bool,
}
