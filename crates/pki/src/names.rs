//! Name constraints of CAs (RFC 5280 §4.2.1.10), for every form of name that IKE and EAP use.
//!
//! rustls-webpki refuses every CA that has constraints on directory names (rustls/webpki#19), but RFC 5280 makes
//! that form mandatory.

use std::borrow::Cow;

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use ike_proto::wire::der::{Der, OBJECT_IDENTIFIER, SEQUENCE};
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;

use crate::certificate::Certificate;
use crate::error::PkiError;

/// The name constraints of one CA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameConstraints {
    permitted: Vec<GeneralName>,
    excluded: Vec<GeneralName>,
}

/// The comparisons left. A CA may have thousands of constraints, and a certificate thousands of names.
#[derive(Debug)]
pub(crate) struct Comparisons(usize);

impl Default for Comparisons {
    fn default() -> Self {
        Self(MAX_COMPARISONS)
    }
}

impl NameConstraints {
    /// id-ce-nameConstraints.
    pub const OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");

    /// Reads the value of the extension; `None` if it is malformed.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
    //# Within this profile, the minimum and maximum fields are not used with
    //# any name forms, thus, the minimum MUST be zero, and maximum MUST be
    //# absent.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let read = x509_cert::ext::pkix::NameConstraints::from_der(value).ok()?;
        let bases = |subtrees: Option<Vec<GeneralSubtree>>| -> Option<Vec<GeneralName>> {
            let subtrees = subtrees.into_iter().flatten();
            let usual = |one: GeneralSubtree| {
                (one.minimum == 0 && one.maximum.is_none()).then_some(one.base)
            };
            subtrees.map(usual).collect()
        };
        let (permitted, excluded) =
            (bases(read.permitted_subtrees)?, bases(read.excluded_subtrees)?);
        Some(Self { permitted, excluded })
    }

    /// Checks every name of `certificate`.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
    //# Any name matching a restriction in the excludedSubtrees
    //# field is invalid regardless of information appearing in the
    //# permittedSubtrees.
    pub fn allow(&self, certificate: &Certificate, left: &mut Comparisons) -> Result<(), PkiError> {
        let outside = || PkiError::NameConstraints { subject: certificate.subject_text() };
        for name in names(certificate).ok_or_else(outside)? {
            let (mut asked, mut within) = (false, false);
            for base in &self.permitted {
                left.one()?;
                if let Some(relation) = relation(&name, base) {
                    asked = true;
                    within |= relation == Relation::Within;
                }
            }
            for base in &self.excluded {
                left.one()?;
                if relation(&name, base).is_some_and(|relation| relation != Relation::Outside) {
                    return Err(outside());
                }
            }
            // A name with a wildcard also stands for excluded names.
            if asked && !within || self.excludes_some_of(&name) {
                return Err(outside());
            }
        }
        Ok(())
    }

    fn excludes_some_of(&self, name: &Named<'_>) -> bool {
        let Named::Dns(name) = name else { return false };
        let Some(parent) = name.strip_prefix("*.") else { return false };
        self.excluded.iter().any(|base| {
            matches!(base, GeneralName::DnsName(base) if is_in_domain(base.as_str(), parent))
        })
    }
}

impl Comparisons {
    fn one(&mut self) -> Result<(), PkiError> {
        self.0 = self.0.checked_sub(1).ok_or(PkiError::Limits)?;
        Ok(())
    }
}

/// A name of a certificate.
#[derive(Debug)]
enum Named<'a> {
    /// A DER Name.
    Directory(Cow<'a, [u8]>),
    Dns(&'a str),
    Email(Cow<'a, str>),
    Uri(&'a str),
    Address(&'a [u8]),
    /// A form of name that is not compared.
    Other(&'a GeneralName),
}

/// The relation of a name to a constraint of its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Within,
    Outside,
    /// Cannot be decided: the name is not permitted, and may be excluded.
    Unclear,
}

/// All names of `certificate`; `None` if its subject cannot be read.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# Restrictions of the form directoryName MUST be applied to the subject
//# field in the certificate (when the certificate includes a non-empty
//# subject field) and to any names of type directoryName in the
//# subjectAltName extension.
fn names(certificate: &Certificate) -> Option<Vec<Named<'_>>> {
    let mut all = Vec::new();
    if certificate.has_subject() {
        let subject = rdns(certificate.subject())?;
        all.push(Named::Directory(Cow::Borrowed(certificate.subject())));
        // The subject's e-mail addresses count even if a subjectAltName has some. This is stricter than §4.2.1.10,
        // as in OpenSSL.
        let emails = subject.iter().flatten().filter(|attribute| attribute.oid == EMAIL_ADDRESS);
        all.extend(emails.map(|email| Named::Email(email.text().unwrap_or(Cow::Borrowed("")))));
    }
    for name in certificate.alternative_names() {
        all.push(match name {
            GeneralName::DirectoryName(name) => Named::Directory(Cow::Owned(name.to_der().ok()?)),
            GeneralName::DnsName(name) => Named::Dns(name.as_str()),
            GeneralName::Rfc822Name(name) => Named::Email(Cow::Borrowed(name.as_str())),
            GeneralName::UniformResourceIdentifier(uri) => Named::Uri(uri.as_str()),
            GeneralName::IpAddress(octets) => Named::Address(octets.as_bytes()),
            other => Named::Other(other),
        });
    }
    Some(all)
}

/// The relation of `name` to `base`; `None` if they have different forms.
fn relation(name: &Named<'_>, base: &GeneralName) -> Option<Relation> {
    let of = |within| if within { Relation::Within } else { Relation::Outside };
    Some(match (name, base) {
        (Named::Directory(name), GeneralName::DirectoryName(base)) => {
            let base = base.to_der().ok();
            match base.as_deref().and_then(rdns).zip(rdns(name)) {
                Some((base, name)) => of(is_in_subtree(&name, &base)),
                None => Relation::Unclear,
            }
        }
        (Named::Dns(name), GeneralName::DnsName(base)) => of(is_in_domain(name, base.as_str())),
        (Named::Email(name), GeneralName::Rfc822Name(base)) => {
            mailbox(name).map_or(Relation::Unclear, |name| of(is_mailbox(name, base.as_str())))
        }
        (Named::Uri(uri), GeneralName::UniformResourceIdentifier(base)) => {
            host(uri).map_or(Relation::Unclear, |host| of(is_host(host, base.as_str())))
        }
        (Named::Address(address), GeneralName::IpAddress(base)) => {
            is_in_network(address, base.as_bytes())
        }
        // This crate does not interpret otherName constraints.
        (Named::Other(name), base)
            if std::mem::discriminant(*name) == std::mem::discriminant(base) =>
        {
            Relation::Unclear
        }
        _ => return None,
    })
}

/// One attribute of a distinguished name.
#[derive(Debug)]
struct Attribute<'a> {
    /// Content of the OBJECT IDENTIFIER.
    oid: &'a [u8],
    tag: u8,
    value: &'a [u8],
}

/// The relative distinguished names of a DER Name.
fn rdns(name: &[u8]) -> Option<Vec<Vec<Attribute<'_>>>> {
    let mut outer = Der::new(name);
    let mut name = outer.nested(SEQUENCE)?;
    outer.end()?;
    let mut all = Vec::new();
    while !name.is_empty() {
        let mut set = name.nested(SET)?;
        let mut rdn = Vec::new();
        while !set.is_empty() {
            let mut pair = set.nested(SEQUENCE)?;
            let oid = pair.content(OBJECT_IDENTIFIER)?;
            let tag = pair.peek()?;
            let value = pair.content(tag)?;
            pair.end()?;
            rdn.push(Attribute { oid, tag, value });
        }
        if rdn.is_empty() || rdn.len() > MAX_ATTRIBUTES || all.len() == MAX_RDNS {
            return None;
        }
        all.push(rdn);
    }
    Some(all)
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-7.1
//# A distinguished name DN1 is within the subtree defined by the
//# distinguished name DN2 if DN1 contains at least as many RDNs as DN2,
//# and DN1 and DN2 are a match when trailing RDNs in DN1 are ignored.
fn is_in_subtree(name: &[Vec<Attribute<'_>>], base: &[Vec<Attribute<'_>>]) -> bool {
    name.len() >= base.len() && base.iter().zip(name).all(|(base, name)| is_same_rdn(base, name))
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-7.1
//# Two relative distinguished names
//# RDN1 and RDN2 match if they have the same number of naming attributes
//# and for each naming attribute in RDN1 there is a matching naming
//# attribute in RDN2.
fn is_same_rdn(a: &[Attribute<'_>], b: &[Attribute<'_>]) -> bool {
    a.len() == b.len() && a.iter().all(|a| b.iter().any(|b| a.is_same(b)))
}

impl<'a> Attribute<'a> {
    fn is_same(&self, other: &Self) -> bool {
        let text = || Some(folded(&self.text()?) == folded(&other.text()?));
        let octets = || self.tag == other.tag && self.value == other.value;
        self.oid == other.oid && text().unwrap_or_else(octets)
    }

    /// The value as text, if it is of a string type.
    fn text(&self) -> Option<Cow<'a, str>> {
        match self.tag {
            UTF8_STRING | NUMERIC_STRING | PRINTABLE_STRING | IA5_STRING | VISIBLE_STRING => {
                std::str::from_utf8(self.value).ok().map(Cow::Borrowed)
            }
            // Latin-1, which is what certificates use in practice.
            TELETEX_STRING => Some(self.value.iter().copied().map(char::from).collect()),
            BMP_STRING => {
                let (units, rest) = self.value.as_chunks::<2>();
                let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
                let text: Result<String, _> = char::decode_utf16(units).collect();
                text.ok().filter(|_| rest.is_empty()).map(Cow::Owned)
            }
            _ => None,
        }
    }
}

/// Text as caseIgnoreMatch compares it: case is ignored, a run of spaces counts as one, and spaces at the ends do
/// not count (RFC 4518 §2.6.1).
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# Any DNS
//# name that can be constructed by simply adding zero or more labels to
//# the left-hand side of the name satisfies the name constraint.
fn is_in_domain(name: &str, base: &str) -> bool {
    let (name, base) = (name.trim_end_matches('.'), base.trim_end_matches('.'));
    match base.strip_prefix('.') {
        Some(domain) => is_below(name, domain),
        None => base.is_empty() || name.eq_ignore_ascii_case(base) || is_below(name, base),
    }
}

/// True if `name` is a name below `domain`.
fn is_below(name: &str, domain: &str) -> bool {
    let Some(at) = name.len().checked_sub(domain.len() + 1) else { return false };
    let (label, tail) = (name.as_bytes().get(..at), name.as_bytes().get(at..));
    label.is_some_and(|label| !label.is_empty())
        && tail
            .and_then(|tail| tail.strip_prefix(b"."))
            .is_some_and(|tail| tail.eq_ignore_ascii_case(domain.as_bytes()))
}

/// A mailbox and its host; `None` if it is no e-mail address.
fn mailbox(address: &str) -> Option<(&str, &str)> {
    address.rsplit_once('@').filter(|(local, host)| !local.is_empty() && !host.is_empty())
}

/// The mailbox of a constraint is compared with case, the host without.
fn is_mailbox((local, at): (&str, &str), base: &str) -> bool {
    match base.rsplit_once('@') {
        Some((mailbox, host)) => local == mailbox && at.eq_ignore_ascii_case(host),
        None => is_host(at, base),
    }
}

/// `base` is a host, or with a leading period the names below a domain.
fn is_host(host: &str, base: &str) -> bool {
    match base.strip_prefix('.') {
        Some(domain) => is_below(host, domain),
        None => host.eq_ignore_ascii_case(base),
    }
}

/// The host of a URI; `None` if it has none, or has an address.
fn host(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    (!address && !host.is_empty()).then_some(host)
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# For IPv4
//# addresses, the iPAddress field of GeneralName MUST contain eight (8)
//# octets, encoded in the style of RFC 4632 (CIDR) to represent an
//# address range [RFC4632].  For IPv6 addresses, the iPAddress field
//# MUST contain 32 octets similarly encoded.
fn is_in_network(address: &[u8], base: &[u8]) -> Relation {
    if !matches!(base.len(), 8 | 32) || !matches!(address.len(), 4 | 16) {
        return Relation::Unclear;
    }
    let (network, mask) = base.split_at(base.len() / 2);
    let same = network.len() == address.len()
        && address.iter().zip(network).zip(mask).all(|((a, n), m)| a & m == n & m);
    if same { Relation::Within } else { Relation::Outside }
}

/// Most comparisons for one path.
const MAX_COMPARISONS: usize = 100_000;
/// Most attributes of a relative distinguished name, and most of these in a name.
const MAX_ATTRIBUTES: usize = 32;
const MAX_RDNS: usize = 64;

const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;
const BMP_STRING: u8 = 0x1e;
/// 1.2.840.113549.1.9.1
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_hosts_and_mailboxes_are_within_what_they_say() {
        for (name, base, within) in [
            ("host.example.com", "example.com", true),
            ("Example.COM", "example.com", true),
            ("example.com.", "example.com", true),
            ("notexample.com", "example.com", false),
            (".example.com", "example.com", false),
            ("example.com", ".example.com", false),
            ("a.b.example.com", ".example.com", true),
            ("com", "example.com", false),
            ("anything", "", true),
        ] {
            assert_eq!(is_in_domain(name, base), within, "{name} {base}");
        }
        for (name, base, within) in [
            ("root@example.com", "root@example.com", true),
            ("Root@example.com", "root@example.com", false),
            ("root@EXAMPLE.com", "example.com", true),
            ("root@host.example.com", "example.com", false),
            ("root@host.example.com", ".example.com", true),
            ("a@b@host.example.com", ".example.com", true),
        ] {
            assert_eq!(is_mailbox(mailbox(name).unwrap(), base), within, "{name} {base}");
        }
        assert_eq!(mailbox("@example.com"), None);
        assert_eq!(host("http://user@host.example.com:80/x"), Some("host.example.com"));
        for none in ["urn:x", "http:///x", "http://192.0.2.1/", "http://[::1]/"] {
            assert_eq!(host(none), None, "{none}");
        }
    }

    #[test]
    fn addresses_are_within_their_network_and_no_other_family() {
        let net = [192, 0, 2, 0, 255, 255, 255, 0];
        assert_eq!(is_in_network(&[192, 0, 2, 9], &net), Relation::Within);
        assert_eq!(is_in_network(&[192, 0, 3, 9], &net), Relation::Outside);
        assert_eq!(is_in_network(&[0; 16], &net), Relation::Outside);
        assert_eq!(is_in_network(&[192, 0, 2, 9], &net[..7]), Relation::Unclear);
        assert_eq!(is_in_network(&[192, 0, 2], &net), Relation::Unclear);
    }

    #[test]
    fn names_compare_without_regard_to_case_spaces_and_string_type() {
        let attribute = |tag, value| Attribute { oid: &[0x55, 4, 10], tag, value };
        let one = attribute(UTF8_STRING, b"Acme  Corp ");
        assert!(one.is_same(&attribute(PRINTABLE_STRING, b"ACME corp")));
        assert!(one.is_same(&attribute(BMP_STRING, b"\0a\0c\0m\0e\0 \0C\0o\0r\0p")));
        assert!(!one.is_same(&attribute(UTF8_STRING, b"AcmeCorp")));
        assert!(
            !one.is_same(&Attribute { oid: &[0x55, 4, 3], ..attribute(UTF8_STRING, b"acme corp") })
        );
        // What is no text is the same octet by octet.
        assert!(attribute(4, b"A").is_same(&attribute(4, b"A")));
        assert!(!attribute(4, b"A").is_same(&attribute(4, b"a")));
    }
}
