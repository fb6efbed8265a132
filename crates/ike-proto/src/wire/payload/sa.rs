//! Security Association payload (RFC 7296 §3.3).

use crate::wire::registry::{ProtocolId, TransformType};

/// SPI of a proposal: 0 octets (a first IKE SA), 4 (AH, ESP) or 8 (IKE rekey).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Spi {
    /// No SPI.
    #[default]
    None,
    /// SPI of AH or ESP.
    Esp(u32),
    /// SPI of an IKE SA.
    Ike(u64),
}

/// The body of an SA payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sa {
    /// Proposals in the sender's order of preference.
    pub proposals: Vec<Proposal>,
}

/// One proposal substructure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Proposal number, from 1.
    pub number: u8,
    /// Protocol.
    pub protocol: ProtocolId,
    /// SPI.
    pub spi: Spi,
    /// Transforms.
    pub transforms: Vec<Transform>,
}

/// One transform substructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transform {
    /// Transform type.
    pub kind: TransformType,
    /// Transform ID in the registry of its type.
    pub id: u16,
    /// Key Length attribute in bits.
    pub key_bits: Option<u16>,
    /// True if an attribute not known here is present; such a transform must not be chosen
    /// (RFC 7296 §3.3.6).
    pub unknown_attribute: bool,
}
