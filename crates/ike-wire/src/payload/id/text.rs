//! Identities as text, by the rules of swanctl.conf(5).

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::dn::{self, DnError};
use super::{IdData, MAX_ID_LEN, check};
use crate::registry::IdType;

/// Why a string is not an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdParseError {
    /// Nothing there.
    Empty,
    /// `%any`: a pattern, not an identity.
    Any,
    /// The text looks like a distinguished name and is not one.
    DistinguishedName(DnError),
    /// A type prefix that names no identity this implementation sends.
    Type,
    /// A `#` that no even number of hexadecimal digits follows.
    Hex,
    /// The text after a type prefix does not fit the type. Says what was expected.
    Invalid(&'static str),
    /// More than [`MAX_ID_LEN`] octets.
    TooLong,
}

impl fmt::Display for IdParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty identity"),
            Self::Any => f.write_str("%any is not an identity"),
            Self::DistinguishedName(why) => write!(f, "{why}"),
            Self::Type => f.write_str("general names are not supported as identities"),
            Self::Hex => f.write_str("expected an even number of hexadecimal digits after `#`"),
            Self::Invalid(what) => write!(f, "not a valid {what}"),
            Self::TooLong => write!(f, "identity over {MAX_ID_LEN} octets"),
        }
    }
}

impl std::error::Error for IdParseError {}

impl IdData {
    /// Parses an identity as swanctl.conf(5) describes it.
    ///
    /// A prefix (`ipv4:`, `ipv6:`, `fqdn:`, `email:`, `rfc822:`, `userfqdn:`, `keyid:`, `asn1dn:`)
    /// gives the type, a `#` after it means hexadecimal octets. Without one, an IP address is an
    /// address, `@#hex` a key ID, `@@name` an e-mail address, `@name` an FQDN, text with a `=` a
    /// distinguished name such as `C=CH, O=strongSwan, CN=moon`, `user@domain` an e-mail address, and
    /// anything else an FQDN.
    pub fn parse(text: &str) -> Result<Self, IdParseError> {
        let id = parse(text.trim())?;
        if id.data.len() > MAX_ID_LEN {
            return Err(IdParseError::TooLong);
        }
        check(id.kind, &id.data).map_err(IdParseError::Invalid)?;
        Ok(id)
    }

    /// The text of a distinguished name, as `Display` shows it. It is empty if the name is not well-formed.
    pub fn distinguished_name(&self) -> String {
        match self.to_string() {
            name if name.starts_with('{') => String::new(),
            name => name,
        }
    }
}

fn parse(text: &str) -> Result<IdData, IdParseError> {
    match text {
        "" => return Err(IdParseError::Empty),
        "%any" | "%any6" | "0.0.0.0" | "::" | "*" => return Err(IdParseError::Any),
        _ => {}
    }
    if let Some((prefix, rest)) = text.split_once(':') {
        let known = PREFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(prefix));
        if let Some((_, kind)) = known {
            return typed(*kind, rest);
        }
        if GN_PREFIXES.iter().any(|name| name.eq_ignore_ascii_case(prefix)) {
            return Err(IdParseError::Type);
        }
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IdData::ip(address));
    }
    if let Some(rest) = text.strip_prefix('@') {
        return if let Some(digits) = rest.strip_prefix('#') {
            Ok(IdData::keyid(hex(digits)?))
        } else if let Some(address) = rest.strip_prefix('@') {
            Ok(IdData::email(address))
        } else {
            Ok(IdData::fqdn(rest))
        };
    }
    if text.contains('=') {
        return typed(IdType::DER_ASN1_DN, text);
    }
    Ok(if text.contains('@') { IdData::email(text) } else { IdData::fqdn(text) })
}

fn typed(kind: IdType, rest: &str) -> Result<IdData, IdParseError> {
    if let Some(digits) = rest.strip_prefix('#') {
        return Ok(IdData { kind, data: hex(digits)? });
    }
    match kind {
        IdType::IPV4_ADDR => rest
            .parse::<Ipv4Addr>()
            .map(|address| IdData::ip(address.into()))
            .map_err(|_| IdParseError::Invalid("IPv4 address")),
        IdType::IPV6_ADDR => rest
            .parse::<Ipv6Addr>()
            .map(|address| IdData::ip(address.into()))
            .map_err(|_| IdParseError::Invalid("IPv6 address")),
        IdType::DER_ASN1_DN => {
            let data = dn::encode(rest).map_err(IdParseError::DistinguishedName)?;
            Ok(IdData { kind, data })
        }
        kind => Ok(IdData { kind, data: rest.as_bytes().to_vec() }),
    }
}

/// Octets of hexadecimal digits; colons between octets are allowed.
fn hex(digits: &str) -> Result<Vec<u8>, IdParseError> {
    let nibbles: Vec<u8> = digits
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(IdParseError::Hex))
        .collect::<Result<_, _>>()?;
    let pairs = nibbles.chunks_exact(2);
    if nibbles.is_empty() || !pairs.remainder().is_empty() {
        return Err(IdParseError::Hex);
    }
    Ok(pairs.map(|pair| pair.iter().fold(0, |octet, nibble| octet << 4 | nibble)).collect())
}

impl fmt::Display for IdData {
    /// Printable ASCII only, whatever the peer sent: octets outside it are escaped, opaque types are
    /// hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address() {
            return write!(f, "{address}");
        }
        if self.kind == IdType::DER_ASN1_DN
            && let Some(result) = dn::display(&self.data, f)
        {
            return result;
        }
        match self.kind {
            IdType::FQDN | IdType::RFC822_ADDR => escaped(f, &self.data),
            IdType::NULL => f.write_str("%null"),
            Self::EAP => {
                f.write_str("eap:")?;
                escaped(f, &self.data)
            }
            IdType::KEY_ID => {
                f.write_str("@#")?;
                hexadecimal(f, &self.data)
            }
            kind => {
                write!(f, "{{{kind}}}:#")?;
                hexadecimal(f, &self.data)
            }
        }
    }
}

impl fmt::Debug for IdData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind)
    }
}

fn escaped(f: &mut fmt::Formatter<'_>, octets: &[u8]) -> fmt::Result {
    octets.iter().try_for_each(|octet| match octet {
        b'"' | b'\'' | b'\\' | b'`' | b'$' => write!(f, "\\x{octet:02x}"),
        // A space would let an identity pass for several fields of a log line.
        0x21..=0x7e => f.write_char(char::from(*octet)),
        octet => write!(f, "\\x{octet:02x}"),
    })
}

fn hexadecimal(f: &mut fmt::Formatter<'_>, octets: &[u8]) -> fmt::Result {
    octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
}

const PREFIXES: &[(&str, IdType)] = &[
    ("ipv4", IdType::IPV4_ADDR),
    ("ipv6", IdType::IPV6_ADDR),
    ("fqdn", IdType::FQDN),
    ("dns", IdType::FQDN),
    ("email", IdType::RFC822_ADDR),
    ("rfc822", IdType::RFC822_ADDR),
    ("userfqdn", IdType::RFC822_ADDR),
    ("keyid", IdType::KEY_ID),
    ("asn1dn", IdType::DER_ASN1_DN),
];

/// Prefixes of general names, which RFC 4945 §3.1.6 forbids to send.
const GN_PREFIXES: &[&str] = &["asn1gn", "xmppaddr"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_types_strongswan_gives_them() {
        let v4 = IdData::ip(Ipv4Addr::new(192, 0, 2, 1).into());
        let v6 = IdData::ip("2001:db8::1".parse::<Ipv6Addr>().unwrap().into());
        let data = dn::encode("C=CH,CN=moon").unwrap();
        let dn = IdData { kind: IdType::DER_ASN1_DN, data };
        for (text, expected, printed) in [
            ("192.0.2.1", v4.clone(), "192.0.2.1"),
            ("ipv4:192.0.2.1", v4.clone(), "192.0.2.1"),
            ("ipv4:#c0000201", v4, "192.0.2.1"),
            ("2001:db8::1", v6.clone(), "2001:db8::1"),
            ("ipv6:2001:db8::1", v6, "2001:db8::1"),
            ("moon.strongswan.org", IdData::fqdn("moon.strongswan.org"), "moon.strongswan.org"),
            ("@moon", IdData::fqdn("moon"), "moon"),
            ("fqdn:192.0.2.1", IdData::fqdn("192.0.2.1"), "192.0.2.1"),
            ("carol@strongswan.org", IdData::email("carol@strongswan.org"), "carol@strongswan.org"),
            ("@@carol@x.org", IdData::email("carol@x.org"), "carol@x.org"),
            ("email:tester", IdData::email("tester"), "tester"),
            ("@#71270432", IdData::keyid([0x71, 0x27, 0x04, 0x32]), "@#71270432"),
            ("@#71:27:04:32", IdData::keyid([0x71, 0x27, 0x04, 0x32]), "@#71270432"),
            ("keyid:foo", IdData::keyid(*b"foo"), "@#666f6f"),
            ("keyid:#0a0b", IdData::keyid([10, 11]), "@#0a0b"),
            ("C=CH, CN=moon", dn.clone(), "C=CH, CN=moon"),
            ("asn1dn:/C=CH/CN=moon", dn, "C=CH, CN=moon"),
        ] {
            assert_eq!(IdData::parse(text), Ok(expected.clone()), "{text}");
            assert_eq!(expected.to_string(), printed);
        }
    }

    #[test]
    fn what_is_not_an_identity_is_refused() {
        for (text, error) in [
            ("", IdParseError::Empty),
            ("  ", IdParseError::Empty),
            ("%any", IdParseError::Any),
            ("%any6", IdParseError::Any),
            ("C=CH, O=strongSwan, CN", IdParseError::DistinguishedName(DnError::NoValue)),
            ("asn1dn:moon", IdParseError::DistinguishedName(DnError::NoValue)),
            ("asn1dn:#3001", IdParseError::Invalid("DN identity")),
            ("asn1gn:#3000", IdParseError::Type),
            ("@#123", IdParseError::Hex),
            ("@#zz", IdParseError::Hex),
            ("@#", IdParseError::Hex),
            ("ipv4:2001:db8::1", IdParseError::Invalid("IPv4 address")),
            ("ipv6:192.0.2.1", IdParseError::Invalid("IPv6 address")),
            ("ipv4:#c00002", IdParseError::Invalid("IPv4 identity")),
            ("fqdn:#00", IdParseError::Invalid("FQDN identity")),
            ("fqdn:", IdParseError::Invalid("FQDN identity")),
            ("a\nb", IdParseError::Invalid("FQDN identity")),
        ] {
            assert_eq!(IdData::parse(text), Err(error), "{text}");
        }
        let long = "a".repeat(MAX_ID_LEN + 1);
        assert_eq!(IdData::parse(&long), Err(IdParseError::TooLong));
    }

    #[test]
    fn octets_that_do_not_print_are_escaped() {
        let id = IdData::fqdn("a\u{1b}[31m\"$(x)\u{e9}");
        assert_eq!(id.to_string(), r"a\x1b[31m\x22\x24(x)\xc3\xa9");
        let dn = IdData { kind: IdType::DER_ASN1_DN, data: vec![0x30, 0] };
        assert_eq!(dn.to_string(), "{ID_DER_ASN1_DN}:#3000");
    }
}
