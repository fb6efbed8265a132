//! Identification payloads (RFC 7296 §3.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::codec::{DecodeError, Reader};
use crate::registry::IdType;

mod dn;
mod text;

pub use dn::DnError;
pub use text::IdParseError;

/// Longest identification data that is accepted, in octets.
pub const MAX_ID_LEN: usize = 2048;

/// The body of an IDi or IDr payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<'a> {
    /// ID type.
    pub kind: IdType,
    /// RESERVED. This end sends zero. It has no meaning, but AUTH covers it as received (RFC 7296 §2.15).
    pub reserved: [u8; 3],
    /// Identification data.
    pub data: &'a [u8],
}

/// An identity that owns its data, for configuration and events.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdData {
    /// ID type.
    pub kind: IdType,
    /// Identification data.
    pub data: Vec<u8>,
}

impl<'a> Id<'a> {
    /// Decodes the body of an ID payload, and checks that the data fits the type: addresses have
    /// their length, names are text without control characters, a DN is one DER SEQUENCE.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let kind = IdType(r.u8("ID payload")?);
        let reserved = r.array::<3>("ID payload")?;
        let data = r.take_rest();
        if data.len() > MAX_ID_LEN {
            return Err(DecodeError::Invalid("identity length"));
        }
        if kind == IdData::EAP {
            return Err(DecodeError::Invalid("identity type"));
        }
        check(kind, data).map_err(DecodeError::Invalid)?;
        Ok(Self { kind, reserved, data })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        out.extend_from_slice(&self.reserved);
        out.extend_from_slice(self.data);
    }

    /// A copy that owns its data.
    pub fn to_owned(&self) -> IdData {
        IdData { kind: self.kind, data: self.data.to_vec() }
    }
}

impl IdData {
    /// The type of an EAP identity, of those for private use. No peer can assert it in IDi or IDr.
    pub const EAP: IdType = IdType(255);

    /// An EAP identity, which EAP has authenticated.
    pub fn eap(identity: impl Into<Vec<u8>>) -> Self {
        Self { kind: Self::EAP, data: identity.into() }
    }

    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    pub fn ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { kind: IdType::IPV4_ADDR, data: v4.octets().to_vec() },
            IpAddr::V6(v6) => Self { kind: IdType::IPV6_ADDR, data: v6.octets().to_vec() },
        }
    }

    /// ID_FQDN.
    pub fn fqdn(name: impl Into<String>) -> Self {
        Self { kind: IdType::FQDN, data: name.into().into_bytes() }
    }

    /// ID_RFC822_ADDR.
    pub fn email(address: impl Into<String>) -> Self {
        Self { kind: IdType::RFC822_ADDR, data: address.into().into_bytes() }
    }

    /// ID_KEY_ID.
    pub fn keyid(octets: impl Into<Vec<u8>>) -> Self {
        Self { kind: IdType::KEY_ID, data: octets.into() }
    }

    /// The same identity as a payload body.
    #[inline]
    pub fn as_id(&self) -> Id<'_> {
        Id { kind: self.kind, reserved: [0; 3], data: &self.data }
    }

    /// The address, if the identity is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.kind {
            IdType::IPV4_ADDR => {
                <[u8; 4]>::try_from(&*self.data).ok().map(|a| Ipv4Addr::from(a).into())
            }
            IdType::IPV6_ADDR => {
                <[u8; 16]>::try_from(&*self.data).ok().map(|a| Ipv6Addr::from(a).into())
            }
            _ => None,
        }
    }

    /// True if both are the same identity: names compare without regard to ASCII case, distinguished
    /// names without regard to string types either (RFC 5280 §7.1), everything else octet by octet.
    pub fn matches(&self, other: Id<'_>) -> bool {
        let same = self.data == other.data;
        self.kind == other.kind
            && match self.kind {
                // Most peers write their name as it is configured, which is seen faster.
                IdType::FQDN | IdType::RFC822_ADDR => {
                    same || self.data.eq_ignore_ascii_case(other.data)
                }
                IdType::DER_ASN1_DN => dn::equal(&self.data, other.data),
                _ => same,
            }
    }

    /// The same form for all identities that [`matches`](Self::matches) accepts as equal. Distinguished names that
    /// differ in their string types stay different.
    pub fn folded(&self) -> Self {
        let mut id = self.clone();
        if matches!(id.kind, IdType::FQDN | IdType::RFC822_ADDR) {
            id.data.make_ascii_lowercase();
        }
        id
    }

    /// True for a distinguished name with `*` as a value: a pattern, not an identity to send.
    pub fn is_dn_pattern(&self) -> bool {
        self.kind == IdType::DER_ASN1_DN && dn::has_wildcard(&self.data)
    }

    /// As [`matches`](Self::matches). In a distinguished name a value `*` of `self` stands for every value of its
    /// type. `self` never comes from a peer.
    pub fn covers(&self, other: Id<'_>) -> bool {
        match self.kind {
            IdType::DER_ASN1_DN => other.kind == self.kind && dn::covers(&self.data, other.data),
            _ => self.matches(other),
        }
    }
}

/// The mistake of `data` as an identity of type `kind`.
fn check(kind: IdType, data: &[u8]) -> Result<(), &'static str> {
    match kind {
        IdType::IPV4_ADDR if data.len() != 4 => Err("IPv4 identity"),
        IdType::IPV6_ADDR if data.len() != 16 => Err("IPv6 identity"),
        IdType::FQDN if !is_name(data) => Err("FQDN identity"),
        IdType::RFC822_ADDR if !is_name(data) => Err("e-mail identity"),
        IdType::DER_ASN1_DN if !is_der(data, Some(DER_SEQUENCE)) => Err("DN identity"),
        IdType::DER_ASN1_GN if !is_der(data, None) => Err("GeneralName identity"),
        IdType::KEY_ID if data.is_empty() => Err("key identity"),
        IdType::NULL if !data.is_empty() => Err("null identity"),
        _ => Ok(()),
    }
}

/// Text without terminators or other control characters (RFC 7296 §3.5), and not empty. UTF-8 is accepted in host
/// names too, because nothing here needs ASCII.
//= https://www.rfc-editor.org/rfc/rfc7296#section-3.5
//# The string MUST NOT contain any terminators (e.g., NULL, CR, etc.).
fn is_name(data: &[u8]) -> bool {
    !data.is_empty()
        && std::str::from_utf8(data).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// One DER value with the given tag and nothing after it. Its contents are not examined.
fn is_der(data: &[u8], tag: Option<u8>) -> bool {
    let mut r = Reader::new(data);
    let mut content_len = || -> Result<usize, DecodeError> {
        let found = r.u8("DER tag")?;
        if tag.is_some_and(|tag| tag != found) {
            return Err(DecodeError::Invalid("DER tag"));
        }
        Ok(match r.u8("DER length")? {
            short @ 0..=0x7f => usize::from(short),
            0x81 => usize::from(r.u8("DER length")?),
            0x82 => usize::from(r.u16("DER length")?),
            _ => return Err(DecodeError::Invalid("DER length")),
        })
    };
    content_len().is_ok_and(|len| len == r.rest().len())
}

const DER_SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    #[test]
    fn round_trip() {
        let id = Id { kind: IdType::FQDN, reserved: [0; 3], data: b"a.example" };
        let body = [&[2, 0, 0, 0], &b"a.example"[..]].concat();
        assert_round_trip(&Payload::IdI(id), &body);
        assert_round_trip(&Payload::IdR(id), &body);
        let null = Id { kind: IdType::NULL, reserved: [0; 3], data: &[] };
        assert_round_trip(&Payload::IdI(null), &[13, 0, 0, 0]);
        assert_eq!(id.to_owned().as_id(), id);
    }

    #[test]
    fn reserved_is_kept_without_meaning_and_a_short_body_refused() {
        let address = Id { kind: IdType::IPV4_ADDR, reserved: [9; 3], data: &[10, 0, 0, 1] };
        assert_eq!(Id::decode(&[1, 9, 9, 9, 10, 0, 0, 1]), Ok(address));
        assert!(IdData::ip([10, 0, 0, 1].into()).matches(address));
        assert_eq!(Id::decode(&[1, 9, 9]), Err(DecodeError::Truncated("ID payload")));
    }

    #[test]
    fn nobody_asserts_an_eap_identity() {
        let carol = IdData::eap(*b"carol");
        let mut body = Vec::new();
        carol.as_id().encode(&mut body);
        assert_eq!(Id::decode(&body), Err(DecodeError::Invalid("identity type")));
        assert_eq!(carol.to_string(), "eap:carol");
        assert_eq!(IdData::eap(*b"a b\n").to_string(), "eap:a\\x20b\\x0a");
        // What reads like one is a name.
        assert_ne!(IdData::parse("eap:carol").map(|id| id.kind), Ok(IdData::EAP));
        assert!(!carol.matches(IdData::keyid(*b"carol").as_id()));
    }

    #[test]
    fn names_match_without_regard_to_case_and_nothing_else_does() {
        let name = IdData::fqdn("Gate.Example.org");
        assert!(name.matches(IdData::fqdn("gate.example.ORG").as_id()));
        assert!(!name.matches(IdData::fqdn("gate.example.org.").as_id()));
        assert!(!name.matches(IdData::email("gate.example.org").as_id()));
        assert!(!IdData::keyid(*b"A").matches(IdData::keyid(*b"a").as_id()));
    }
}
