//! Identification payloads (RFC 7296 §3.5).

use crate::wire::registry::IdType;

/// The body of an IDi or IDr payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<'a> {
    /// ID type.
    pub kind: IdType,
    /// Identification data.
    pub data: &'a [u8],
}

/// An identity that owns its data: what configuration holds and events carry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdData {
    /// ID type.
    pub kind: IdType,
    /// Identification data.
    pub data: Vec<u8>,
}
