//! The IKE header (RFC 7296 §3.1).

use super::codec::{DecodeError, Reader};
use super::registry::{ExchangeType, PayloadType};

/// Octets of the IKE header.
pub const HEADER_LEN: usize = 28;

/// Flags octet of the header (RFC 7296 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// I: sent by the original initiator of the IKE SA.
    pub initiator: bool,
    /// V: the sender could speak a higher major version.
    pub version: bool,
    /// R: a response.
    pub response: bool,
}

/// The header of every IKE message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Initiator's SPI. It is 0 only in a message that [`is_outside`](Self::is_outside) an IKE SA.
    pub spi_i: u64,
    /// Responder's SPI, 0 in the first request.
    pub spi_r: u64,
    /// Type of the first payload.
    pub next_payload: PayloadType,
    /// Minor version (major is always 2 here; another is [`DecodeError::Version`]).
    pub minor_version: u8,
    /// Exchange type.
    pub exchange: ExchangeType,
    /// Flags.
    pub flags: Flags,
    /// Message ID.
    pub message_id: u32,
    /// Length of the whole message in octets, header included.
    pub length: u32,
}

const INITIATOR: u8 = 0x08;
const VERSION: u8 = 0x10;
const RESPONSE: u8 = 0x20;
/// Major version 2 in the version octet.
const MAJOR_2: u8 = 2;

impl Flags {
    /// Decodes the flags octet; reserved bits are ignored.
    pub fn decode(octet: u8) -> Self {
        Self {
            initiator: octet & INITIATOR != 0,
            version: octet & VERSION != 0,
            response: octet & RESPONSE != 0,
        }
    }

    /// The flags octet, reserved bits zero.
    pub fn encode(self) -> u8 {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        bit(self.initiator, INITIATOR) | bit(self.version, VERSION) | bit(self.response, RESPONSE)
    }
}

impl Header {
    /// Decodes the first [`HEADER_LEN`] octets of `datagram`.
    ///
    /// The length field is not compared with the datagram: a peer of another version is answered
    /// from the header alone. [`DecodeError::Version`] if the major version is not 2.
    #[inline]
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let (header, version) = Self::read(datagram)?;
        if version >> 4 != MAJOR_2 {
            return Err(DecodeError::Version(version));
        }
        Ok(header)
    }

    /// The header of a datagram that [`decode`](Self::decode) may refuse because of its version. An answer has to
    /// repeat it. `None` if the datagram is too short.
    #[inline]
    pub fn peek(datagram: &[u8]) -> Option<Self> {
        Self::read(datagram).ok().map(|(header, _)| header)
    }

    /// True for an INFORMATIONAL request without SPIs: it is of no IKE SA and never to be (RFC 7296 §1.5).
    pub fn is_outside(&self) -> bool {
        (self.spi_i, self.spi_r) == (0, 0)
            && self.exchange == ExchangeType::INFORMATIONAL
            && !self.flags.response
    }

    #[inline]
    fn read(datagram: &[u8]) -> Result<(Self, u8), DecodeError> {
        let mut r = Reader::new(datagram);
        let spi_i = r.u64("IKE header")?;
        let spi_r = r.u64("IKE header")?;
        let next_payload = PayloadType(r.u8("IKE header")?);
        let version = r.u8("IKE header")?;
        let exchange = ExchangeType(r.u8("IKE header")?);
        let flags = Flags::decode(r.u8("IKE header")?);
        let message_id = r.u32("IKE header")?;
        let length = r.u32("IKE header")?;
        let minor_version = version & 0x0f;
        let header =
            Self { spi_i, spi_r, next_payload, minor_version, exchange, flags, message_id, length };
        Ok((header, version))
    }

    /// Appends the [`HEADER_LEN`] octets of the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { spi_i, spi_r, next_payload, minor_version, exchange, flags, message_id, length } =
            self;
        out.extend_from_slice(&spi_i.to_be_bytes());
        out.extend_from_slice(&spi_r.to_be_bytes());
        out.push(next_payload.0);
        out.push(MAJOR_2 << 4 | (minor_version & 0x0f));
        out.push(exchange.0);
        out.push(flags.encode());
        out.extend_from_slice(&message_id.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let header = Header {
            spi_i: 0x0102_0304_0506_0708,
            spi_r: 0x1112_1314_1516_1718,
            next_payload: PayloadType::SK,
            minor_version: 1,
            exchange: ExchangeType::CREATE_CHILD_SA,
            flags: Flags { initiator: true, version: false, response: true },
            message_id: 0x2122_2324,
            length: 0x0001_0203,
        };
        let octets = [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
            0x17, 0x18, 46, 0x21, 36, 0x28, 0x21, 0x22, 0x23, 0x24, 0x00, 0x01, 0x02, 0x03,
        ];
        let mut encoded = Vec::new();
        header.encode(&mut encoded);
        assert_eq!(encoded, octets);
        assert_eq!(Header::decode(&octets), Ok(header));
    }

    /// Everything else needs an initiator's SPI to be answered by.
    #[test]
    fn only_a_request_outside_of_an_ike_sa_has_no_spis() {
        let flags = Flags { initiator: true, version: false, response: false };
        let outside = Header {
            spi_i: 0,
            spi_r: 0,
            next_payload: PayloadType::NONE,
            minor_version: 0,
            exchange: ExchangeType::INFORMATIONAL,
            flags,
            message_id: 0,
            length: 28,
        };
        let sa_init = Header { exchange: ExchangeType::IKE_SA_INIT, ..outside };
        let answer = Header { flags: Flags { response: true, ..flags }, ..outside };
        let of_one = Header { spi_r: 7, ..outside };
        let decodes = |header: Header| {
            let mut octets = Vec::new();
            header.encode(&mut octets);
            crate::Message::decode(&octets).is_ok()
        };
        assert!(decodes(outside));
        assert!(![sa_init, answer, of_one].into_iter().any(decodes));
    }

    #[test]
    fn reserved_flags_are_ignored() {
        for octet in 0..=u8::MAX {
            let flags = Flags::decode(octet);
            assert_eq!(flags.encode(), octet & 0x38);
        }
    }
}
