//! Notify payload (RFC 7296 §3.10).

use super::sa::Spi;
use crate::wire::codec::{DecodeError, Reader};
use crate::wire::registry::{NotifyType, ProtocolId};

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
