//! Authentication payload (RFC 7296 §3.8).

use crate::wire::codec::{DecodeError, Reader};
use crate::wire::registry::AuthMethod;

/// The body of an AUTH payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Authentication method.
    pub method: AuthMethod,
    /// Authentication data.
    pub data: &'a [u8],
}

impl<'a> Auth<'a> {
    /// Decodes the body of an AUTH payload.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let method = AuthMethod(r.u8("AUTH payload")?);
        r.take(3, "AUTH payload")?; // RESERVED
        Ok(Self { method, data: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.method.0, 0, 0, 0]);
        out.extend_from_slice(self.data);
    }
}
