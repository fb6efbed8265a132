//! Encrypted and Authenticated Fragment payload (RFC 7383 §2.5), still sealed.

use crate::codec::{DecodeError, Reader};
use crate::registry::PayloadType;

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

/// Octets of fragment number and total in front of the sealed body.
pub const SKF_HEADER_LEN: usize = 4;

impl<'a> Skf<'a> {
    /// Decodes the body of an SKF payload whose generic header names `first`; it begins `offset`
    /// octets into the message. Fragment numbers count from 1 and do not exceed the total.
    pub fn decode(first: PayloadType, body: &'a [u8], offset: usize) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let number = r.u16("SKF payload")?;
        let total = r.u16("SKF payload")?;
        //= https://www.rfc-editor.org/rfc/rfc7383#section-2.6
        //# check that the Fragment Number and the Total Fragments fields contain non-zero
        //# values
        if number == 0 || number > total {
            return Err(DecodeError::Invalid("fragment number"));
        }
        // The type says something in the first fragment only (RFC 7383 §2.5).
        let first = if number == 1 { first } else { PayloadType::NONE };
        Ok(Self { first, number, total, offset: offset + SKF_HEADER_LEN, body: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.total.to_be_bytes());
        out.extend_from_slice(self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let offset = SKF_HEADER_LEN;
        let one = Skf { first: PayloadType::ID_I, number: 1, total: 2, offset, body: &[8; 2] };
        assert_round_trip(&Payload::Skf(one), &[0, 1, 0, 2, 8, 8]);
        let two = Skf { first: PayloadType::NONE, number: 2, ..one };
        assert_round_trip(&Payload::Skf(two), &[0, 2, 0, 2, 8, 8]);
    }
}
