//! Key Exchange payload (RFC 7296 §3.4).

use crate::codec::{DecodeError, Reader};
use crate::registry::KeMethodId;

/// The body of a KE payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ke<'a> {
    /// Key exchange method.
    pub method: KeMethodId,
    /// Key Exchange Data.
    pub data: &'a [u8],
}

impl<'a> Ke<'a> {
    /// Decodes the body of a KE payload. Whether the length fits the method is for the method to
    /// say.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let method = KeMethodId(r.u16("KE payload")?);
        r.u16("KE payload")?; // RESERVED
        Ok(Self { method, data: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.method.0.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let ke = Ke { method: KeMethodId::CURVE_25519, data: &[1, 2, 3] };
        assert_round_trip(&Payload::Ke(ke), &[0, 31, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn reserved_is_ignored_and_a_short_body_refused() {
        let ke = Ke::decode(&[0, 36, 0xff, 0xff]);
        assert_eq!(ke, Ok(Ke { method: KeMethodId::ML_KEM_768, data: &[] }));
        assert_eq!(Ke::decode(&[0, 36, 0]), Err(DecodeError::Truncated("KE payload")));
    }
}
