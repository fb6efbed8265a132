//! Configuration payload (RFC 7296 §3.15).

mod attribute;
mod dns;

use crate::codec::{DecodeError, Reader, patch_length};
use crate::registry::{CfgAttribute, CfgType};
pub use attribute::Attribute;
pub use dns::{DnssecTa, EncDigest, EncDns, domain};

/// The body of a CP payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config<'a> {
    /// CFG type.
    pub kind: CfgType,
    /// Attributes.
    pub attributes: Vec<ConfigAttribute<'a>>,
}

/// One configuration attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigAttribute<'a> {
    /// Attribute type, 15 bits.
    pub kind: CfgAttribute,
    /// Value.
    pub value: &'a [u8],
}

/// The most attributes that are read from one payload.
const MAX_ATTRIBUTES: usize = 256;
/// The reserved bit in front of the attribute type.
const RESERVED_BIT: u16 = 0x8000;

impl<'a> Config<'a> {
    /// Decodes the body of a CP payload.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let kind = CfgType(r.u8("CP payload")?);
        r.take(3, "CP payload")?; // RESERVED
        let mut attributes = Vec::new();
        while !r.is_empty() {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(DecodeError::TooMany("configuration attributes"));
            }
            let kind = CfgAttribute(r.u16("configuration attribute")? & !RESERVED_BIT);
            let length = usize::from(r.u16("configuration attribute")?);
            let value = r.take(length, "configuration attribute")?;
            attributes.push(ConfigAttribute { kind, value });
        }
        Ok(Self { kind, attributes })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.kind.0, 0, 0, 0]);
        for ConfigAttribute { kind, value } in &self.attributes {
            out.extend_from_slice(&(kind.0 & !RESERVED_BIT).to_be_bytes());
            let field = out.len();
            out.extend_from_slice(&[0; 2]);
            let start = out.len();
            out.extend_from_slice(value);
            patch_length(out, start, field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let attributes = vec![
            ConfigAttribute { kind: CfgAttribute::INTERNAL_IP4_ADDRESS, value: &[] },
            ConfigAttribute { kind: CfgAttribute::INTERNAL_IP4_DNS, value: &[10, 0, 0, 1] },
        ];
        let config = Config { kind: CfgType::REQUEST, attributes };
        let body = [1, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 4, 10, 0, 0, 1];
        assert_round_trip(&Payload::Config(config), &body);
    }

    #[test]
    fn reserved_bit_is_ignored_and_a_lying_length_refused() {
        let config = Config::decode(&[2, 9, 9, 9, 0x80, 1, 0, 0]).unwrap();
        assert_eq!(config.attributes[0].kind, CfgAttribute::INTERNAL_IP4_ADDRESS);
        let short = Config::decode(&[2, 0, 0, 0, 0, 1, 0, 5, 10, 0, 0, 1]);
        assert_eq!(short, Err(DecodeError::Truncated("configuration attribute")));
    }
}
