//! Notify payload (RFC 7296 §3.10).

use super::sa::Spi;
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
