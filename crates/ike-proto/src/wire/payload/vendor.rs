//! Vendor ID payload (RFC 7296 §3.12): an opaque string.

use crate::wire::codec::DecodeError;

/// Checks the body of a Vendor ID payload; any octets will do, but there must be some.
pub fn decode(body: &[u8]) -> Result<&[u8], DecodeError> {
    if body.is_empty() { Err(DecodeError::Truncated("vendor ID")) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        assert_round_trip(&Payload::Vendor(b"vendor"), b"vendor");
        assert_eq!(decode(&[]), Err(DecodeError::Truncated("vendor ID")));
    }
}
