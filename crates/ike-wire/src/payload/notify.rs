//! Notify payload (RFC 7296 §3.10).

use super::sa::Spi;
use crate::codec::{DecodeError, Reader};
use crate::registry::{NotifyType, ProtocolId};

/// The body of a Notify payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// Protocol of the SPI; [`ProtocolId::NONE`] without one.
    pub protocol: ProtocolId,
    /// SPI the notify is about.
    pub spi: Spi,
    /// Notify message type.
    pub kind: NotifyType,
    /// Notification data.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// A notify about no SPI.
    #[inline]
    pub fn new(kind: NotifyType, data: &'a [u8]) -> Self {
        Self { protocol: ProtocolId::NONE, spi: Spi::None, kind, data }
    }

    /// A notify about the ESP SA `spi`.
    pub fn esp(kind: NotifyType, spi: u32) -> Self {
        Self { protocol: ProtocolId::ESP, spi: Spi::Esp(spi), kind, data: &[] }
    }
}

impl<'a> Notify<'a> {
    /// Decodes the body of a Notify payload. The SPI has 0, 4 or 8 octets, 4 where the protocol is
    /// AH or ESP.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let protocol = ProtocolId(r.u8("N payload")?);
        let spi_size = r.u8("N payload")?;
        let kind = NotifyType(r.u16("N payload")?);
        let spi = match (spi_size, protocol) {
            (0, _) => Spi::None,
            (4, _) => Spi::Esp(r.u32("notify SPI")?),
            (8, protocol) if protocol != ProtocolId::AH && protocol != ProtocolId::ESP => {
                Spi::Ike(r.u64("notify SPI")?)
            }
            _ => return Err(DecodeError::Invalid("notify SPI size")),
        };
        Ok(Self { protocol, spi, kind, data: r.take_rest() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.protocol.0, self.spi.len()]);
        out.extend_from_slice(&self.kind.0.to_be_bytes());
        self.spi.encode(out);
        out.extend_from_slice(self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let cookie = Notify::new(NotifyType::COOKIE, &[1, 2, 3]);
        assert_round_trip(&Payload::Notify(cookie), &[0, 0, 0x40, 0x06, 1, 2, 3]);
        let rekey = Notify::esp(NotifyType::REKEY_SA, 0x0102_0304);
        assert_round_trip(&Payload::Notify(rekey), &[3, 4, 0x40, 0x09, 1, 2, 3, 4]);
        let ike = Notify { protocol: ProtocolId::IKE, spi: Spi::Ike(1), ..cookie };
        let body = [1, 8, 0x40, 0x06, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3];
        assert_round_trip(&Payload::Notify(ike), &body);
    }

    #[test]
    fn spi_size_must_fit() {
        let size = Err(DecodeError::Invalid("notify SPI size"));
        assert_eq!(Notify::decode(&[3, 8, 0x40, 9, 1, 2, 3, 4, 5, 6, 7, 8]), size);
        assert_eq!(Notify::decode(&[0, 16, 0x40, 9, 1, 2, 3, 4, 5, 6, 7, 8]), size);
        let short = Notify::decode(&[3, 4, 0x40, 9, 1, 2, 3]);
        assert_eq!(short, Err(DecodeError::Truncated("notify SPI")));
        assert_eq!(Notify::decode(&[0, 0, 0]), Err(DecodeError::Truncated("N payload")));
    }
}
