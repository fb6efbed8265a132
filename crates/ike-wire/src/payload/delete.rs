//! Delete payload (RFC 7296 §3.11).

use crate::codec::{DecodeError, Reader};
use crate::registry::ProtocolId;

/// The body of a Delete payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Protocol; an IKE SA deletes itself with no SPI.
    pub protocol: ProtocolId,
    /// SPIs of the sender's inbound SAs (AH, ESP).
    pub spis: Vec<u32>,
}

impl Delete {
    /// The delete of the IKE SA it is sent over.
    pub fn ike() -> Self {
        Self { protocol: ProtocolId::IKE, spis: Vec::new() }
    }

    /// The delete of ESP SAs, by the SPIs of the sender's inbound ones.
    pub fn esp(spis: Vec<u32>) -> Self {
        Self { protocol: ProtocolId::ESP, spis }
    }

    /// Decodes the body of a Delete payload: no SPI for IKE, any number of 4 octets each for AH and
    /// ESP.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let protocol = ProtocolId(r.u8("D payload")?);
        let spi_size = r.u8("D payload")?;
        let count = r.u16("D payload")?;
        let mut spis = Vec::new();
        match (protocol, spi_size) {
            //= https://www.rfc-editor.org/rfc/rfc7296#section-3.11
            //# It MUST be zero for IKE (SPI is in message header) or four for AH and ESP.
            (ProtocolId::IKE, 0) if count == 0 => {}
            (ProtocolId::AH | ProtocolId::ESP, SPI_LEN) => {
                if r.rest().len() != usize::from(count) * usize::from(SPI_LEN) {
                    return Err(DecodeError::Invalid("number of deleted SPIs"));
                }
                while !r.is_empty() {
                    spis.push(r.u32("deleted SPI")?);
                }
            }
            (ProtocolId::IKE | ProtocolId::AH | ProtocolId::ESP, _) => {
                return Err(DecodeError::Invalid("deleted SPI size"));
            }
            _ => return Err(DecodeError::Invalid("deleted protocol")),
        }
        r.all("D payload")?;
        Ok(Self { protocol, spis })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let spi_size = if self.protocol == ProtocolId::IKE { 0 } else { SPI_LEN };
        let count = u16::try_from(self.spis.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&[self.protocol.0, spi_size]);
        out.extend_from_slice(&count.to_be_bytes());
        for spi in &self.spis {
            out.extend_from_slice(&spi.to_be_bytes());
        }
    }
}

/// Octets of an AH or ESP SPI.
const SPI_LEN: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        assert_round_trip(&Payload::Delete(Delete::ike()), &[1, 0, 0, 0]);
        let delete = Delete::esp(vec![0x0102_0304, 0x0506_0708]);
        assert_round_trip(&Payload::Delete(delete), &[3, 4, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn size_count_and_protocol_must_fit() {
        let size = Err(DecodeError::Invalid("deleted SPI size"));
        let count = Err(DecodeError::Invalid("number of deleted SPIs"));
        assert_eq!(Delete::decode(&[3, 8, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]), size);
        assert_eq!(Delete::decode(&[3, 0, 0, 1]), size);
        assert_eq!(Delete::decode(&[1, 8, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]), size);
        assert_eq!(Delete::decode(&[1, 0, 0, 1]), size);
        assert_eq!(Delete::decode(&[3, 4, 0, 2, 1, 2, 3, 4]), count);
        assert_eq!(Delete::decode(&[3, 4, 0, 0, 1, 2, 3, 4]), count);
        assert_eq!(Delete::decode(&[3, 4, 0xff, 0xff]), count);
        assert_eq!(Delete::decode(&[1, 0, 0, 0, 1]), Err(DecodeError::Trailing("D payload")));
        assert_eq!(Delete::decode(&[9, 0, 0, 0]), Err(DecodeError::Invalid("deleted protocol")));
        assert_eq!(Delete::decode(&[3, 4, 0]), Err(DecodeError::Truncated("D payload")));
    }
}
