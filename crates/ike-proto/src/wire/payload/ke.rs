//! Key Exchange payload (RFC 7296 §3.4).

use crate::wire::registry::KeMethodId;

/// The body of a KE payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ke<'a> {
    /// Key exchange method.
    pub method: KeMethodId,
    /// Key Exchange Data.
    pub data: &'a [u8],
}
