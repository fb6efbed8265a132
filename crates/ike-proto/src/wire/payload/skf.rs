//! Encrypted and Authenticated Fragment payload (RFC 7383 §2.5), still sealed.

use crate::wire::registry::PayloadType;

/// The body of an SKF payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skf<'a> {
    /// Type of the first payload inside; NONE in every fragment but the first.
    pub first: PayloadType,
    /// Fragment number, from 1.
    pub number: u16,
    /// Total fragments, at least `number`.
    pub total: u16,
    /// Offset of `body` in the message.
    pub offset: usize,
    /// IV, ciphertext and ICV.
    pub body: &'a [u8],
}
