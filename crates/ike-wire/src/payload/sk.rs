//! Encrypted and Authenticated payload (RFC 7296 §3.14), still sealed.

use crate::registry::PayloadType;

/// The body of an SK payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sk<'a> {
    /// Type of the first payload inside.
    pub first: PayloadType,
    /// Offset of `body` in the message. The octets before it are authenticated as received.
    pub offset: usize,
    /// IV, ciphertext and ICV.
    pub body: &'a [u8],
}

impl<'a> Sk<'a> {
    /// The body of an SK payload whose generic header names `first`; it begins `offset` octets into
    /// the message.
    pub fn decode(first: PayloadType, body: &'a [u8], offset: usize) -> Self {
        Self { first, offset, body }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let sk = Sk { first: PayloadType::ID_I, offset: 0, body: &[1, 2, 3] };
        assert_round_trip(&Payload::Sk(sk), &[1, 2, 3]);
    }
}
