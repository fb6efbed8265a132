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
    /// Initiator's SPI, never 0.
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
