//! Authentication payload (RFC 7296 §3.8).

use crate::wire::registry::AuthMethod;

/// The body of an AUTH payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Authentication method.
    pub method: AuthMethod,
    /// Authentication data.
    pub data: &'a [u8],
}
