//! Delete payload (RFC 7296 §3.11).

use crate::wire::registry::ProtocolId;

/// The body of a Delete payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Protocol; an IKE SA deletes itself with no SPI.
    pub protocol: ProtocolId,
    /// SPIs of the sender's inbound SAs (AH, ESP).
    pub spis: Vec<u32>,
}
