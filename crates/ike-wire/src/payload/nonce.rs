//! Nonce payload (RFC 7296 §3.9): 16 to 256 octets.

use crate::codec::DecodeError;

/// Shortest nonce, in octets.
pub const MIN_NONCE_LEN: usize = 16;
/// Longest nonce, in octets.
pub const MAX_NONCE_LEN: usize = 256;

/// Checks the body of a Nonce payload.
pub fn decode(body: &[u8]) -> Result<&[u8], DecodeError> {
    if (MIN_NONCE_LEN..=MAX_NONCE_LEN).contains(&body.len()) {
        Ok(body)
    } else {
        Err(DecodeError::Invalid("nonce length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn lengths() {
        for length in 0..=300 {
            let octets = vec![5; length];
            if (16..=256).contains(&length) {
                assert_round_trip(&Payload::Nonce(&octets), &octets);
            } else {
                assert_eq!(decode(&octets), Err(DecodeError::Invalid("nonce length")));
            }
        }
    }
}
