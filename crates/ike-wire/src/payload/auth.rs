//! Authentication payload (RFC 7296 §3.8).

use crate::codec::{DecodeError, Reader};
use crate::registry::AuthMethod;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let auth = Auth { method: AuthMethod::PSK, data: &[9; 3] };
        assert_round_trip(&Payload::Auth(auth), &[2, 0, 0, 0, 9, 9, 9]);
    }

    #[test]
    fn reserved_is_ignored_and_a_short_body_refused() {
        let auth = Auth { method: AuthMethod::DIGITAL_SIGNATURE, data: &[] };
        assert_eq!(Auth::decode(&[14, 1, 2, 3]), Ok(auth));
        assert_eq!(Auth::decode(&[14, 1, 2]), Err(DecodeError::Truncated("AUTH payload")));
    }
}
