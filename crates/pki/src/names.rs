//! Name constraints of CAs (RFC 5280 §4.2.1.10), for every form of name that IKE and EAP use.
//!
//! rustls-webpki refuses every CA that has constraints on directory names (rustls/webpki#19), but RFC 5280 makes
//! that form mandatory.
//!
//! A constraint must not let through what it forbids. So a name that cannot be compared with a constraint of its form
//! for certain is not permitted by it, and is excluded by it. Names of other forms are not affected.

use der::asn1::ObjectIdentifier;
use ike_proto::wire::der::{Der, SEQUENCE, context};

use crate::certificate::Certificate;
use crate::dn;
use crate::error::PkiError;
use crate::general_name::GeneralName;
use hosts::{Host, Mailbox};

mod hosts;

/// The name constraints of one CA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameConstraints {
    permitted: Vec<Subtree>,
    excluded: Vec<Subtree>,
}

/// A GeneralSubtree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subtree {
    base: GeneralName,
    /// False if it has a minimum or a maximum, which this crate does not process.
    whole: bool,
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
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut outer = Der::new(value);
        let mut lists = outer.nested(SEQUENCE)?;
        outer.end()?;
        let permitted = subtrees(&mut lists, context(0))?;
        let excluded = subtrees(&mut lists, context(1))?;
        lists.end()?;
        Some(Self { permitted, excluded })
    }

    /// Checks every name of `certificate`.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
    //# Any name matching a restriction in the excludedSubtrees
    //# field is invalid regardless of information appearing in the
    //# permittedSubtrees.
    pub fn allow(&self, certificate: &Certificate, left: &mut Comparisons) -> Result<(), PkiError> {
        let outside = || PkiError::NameConstraints { subject: certificate.subject_text() };
        for name in names(certificate) {
            let (mut asked, mut within) = (false, false);
            for subtree in &self.permitted {
                left.one()?;
                if let Some(relation) = subtree.relation(&name) {
                    asked = true;
                    within |= relation == Relation::Within;
                }
            }
            for subtree in &self.excluded {
                left.one()?;
                if subtree.relation(&name).is_some_and(|relation| relation != Relation::Outside) {
                    return Err(outside());
                }
            }
            if asked && !within {
                return Err(outside());
            }
        }
        Ok(())
    }
}

/// GeneralSubtrees with `tag`, if they come next.
fn subtrees(lists: &mut Der<'_>, tag: u8) -> Option<Vec<Subtree>> {
    let mut subtrees = Vec::new();
    if lists.peek() != Some(tag) {
        return Some(subtrees);
    }
    let mut list = lists.nested(tag)?;
    while !list.is_empty() {
        subtrees.push(Subtree::read(&mut list)?);
    }
    Some(subtrees)
}

impl Subtree {
    //= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
    //# However, if an application encounters a critical name
    //# constraints extension that specifies other values for minimum or
    //# maximum for a name form that appears in a subsequent certificate, the
    //# application MUST either process these fields or reject the
    //# certificate.
    fn read(list: &mut Der<'_>) -> Option<Self> {
        let mut subtree = list.nested(SEQUENCE)?;
        let base = GeneralName::read(&mut subtree)?;
        let mut whole = true;
        if subtree.peek() == Some(MINIMUM) {
            whole = subtree.content(MINIMUM)? == [0];
        }
        if subtree.peek() == Some(MAXIMUM) {
            subtree.content(MAXIMUM)?;
            whole = false;
        }
        subtree.end()?;
        Some(Self { base, whole })
    }

    /// The relation of `name` to this subtree; `None` if they have different forms.
    fn relation(&self, name: &Named<'_>) -> Option<Relation> {
        let relation = match (name, &self.base) {
            (Named::Directory(name), GeneralName::Directory(base)) => {
                let within = dn::Name::read(base).zip(name.as_ref());
                within.and_then(|(base, name)| name.is_within(&base)).map(Relation::of)
            }
            (Named::Dns(name), GeneralName::Dns(base)) => {
                name.as_ref().and_then(|name| domain(name, base))
            }
            (Named::Email(name), GeneralName::Email(base)) => {
                name.as_ref().and_then(|name| mailbox(name, base))
            }
            (Named::Uri(name), GeneralName::Uri(base)) => {
                name.as_ref().and_then(|name| host(name, base))
            }
            (Named::Address(address), GeneralName::Address(base)) => network(address, base),
            (Named::Other(name), GeneralName::Other(base)) if name == base => None,
            _ => return None,
        };
        Some(relation.filter(|_| self.whole).unwrap_or(Relation::Unclear))
    }
}

impl Comparisons {
    fn one(&mut self) -> Result<(), PkiError> {
        let limit = PkiError::Limits { what: "comparisons of names", most: MAX_COMPARISONS };
        self.0 = self.0.checked_sub(1).ok_or(limit)?;
        Ok(())
    }
}

/// A name of a certificate. `None` is a name of that form that this crate cannot read.
#[derive(Debug)]
enum Named<'a> {
    Directory(Option<dn::Name<'a>>),
    Dns(Option<Domain<'a>>),
    Email(Option<Mailbox<'a>>),
    Uri(Option<Host<'a>>),
    Address(&'a [u8]),
    /// A form that is not compared, by its tag.
    Other(u8),
}

/// A dNSName.
#[derive(Debug)]
struct Domain<'a> {
    /// It begins with `*.`, which is no part of `host`.
    wildcard: bool,
    host: Host<'a>,
}

/// The relation of a name to a constraint of its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Within,
    Outside,
    /// Cannot be decided for certain: the name is not permitted, and may be excluded.
    Unclear,
}

impl Relation {
    fn of(within: bool) -> Self {
        if within { Self::Within } else { Self::Outside }
    }
}

/// All names of `certificate`.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# Restrictions of the form directoryName MUST be applied to the subject
//# field in the certificate (when the certificate includes a non-empty
//# subject field) and to any names of type directoryName in the
//# subjectAltName extension.
fn names(certificate: &Certificate) -> Vec<Named<'_>> {
    let mut all = Vec::new();
    if certificate.has_subject() {
        let subject = dn::Name::read(certificate.subject());
        // The subject's e-mail addresses count even if a subjectAltName has some. This is stricter than §4.2.1.10,
        // as in OpenSSL.
        match &subject {
            Some(subject) => {
                let emails = subject.emails().map(|email| email.and_then(Mailbox::read));
                all.extend(emails.map(Named::Email));
            }
            None => all.push(Named::Email(None)),
        }
        all.push(Named::Directory(subject));
    }
    all.extend(certificate.alternative_names().iter().map(|name| match name {
        GeneralName::Directory(name) => Named::Directory(dn::Name::read(name)),
        GeneralName::Dns(name) => Named::Dns(Domain::read(name)),
        GeneralName::Email(name) => Named::Email(Mailbox::read(name)),
        GeneralName::Uri(uri) => Named::Uri(Host::of_uri(uri)),
        GeneralName::Address(octets) => Named::Address(octets),
        GeneralName::Other(tag) => Named::Other(*tag),
    }));
    all
}

impl<'a> Domain<'a> {
    fn read(name: &'a str) -> Option<Self> {
        let host = name.strip_prefix("*.");
        let wildcard = host.is_some();
        Some(Self { wildcard, host: Host::read(host.unwrap_or(name))? })
    }
}

/// The relation of a dNSName to a constraint. A leading period means the names below a domain, as in OpenSSL.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# Any DNS
//# name that can be constructed by simply adding zero or more labels to
//# the left-hand side of the name satisfies the name constraint.
fn domain(name: &Domain<'_>, base: &str) -> Option<Relation> {
    if base.is_empty() {
        return Some(Relation::Within);
    }
    let below = base.strip_prefix('.');
    let base = Host::read(below.unwrap_or(base))?;
    let host = &name.host;
    // `*.example.com` stands for names below example.com alone.
    let within = host.is_below(&base) || host.is(&base) && (name.wildcard || below.is_none());
    // A name with a wildcard also stands for names that a deeper constraint means.
    let some = name.wildcard && base.is_below(host);
    Some(if some { Relation::Unclear } else { Relation::of(within) })
}

/// The relation of an e-mail address to a constraint: a mailbox, a host, or the hosts of a domain.
fn mailbox(name: &Mailbox<'_>, base: &str) -> Option<Relation> {
    if base.contains('@') {
        return Some(name.relation(&Mailbox::read(base)?));
    }
    host(name.host(), base)
}

/// `base` is a host, or with a leading period the names below a domain.
fn host(host: &Host<'_>, base: &str) -> Option<Relation> {
    Some(Relation::of(match base.strip_prefix('.') {
        Some(domain) => host.is_below(&Host::read(domain)?),
        None => host.is(&Host::read(base)?),
    }))
}

//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# For IPv4
//# addresses, the iPAddress field of GeneralName MUST contain eight (8)
//# octets, encoded in the style of RFC 4632 (CIDR) to represent an
//# address range [RFC4632].  For IPv6 addresses, the iPAddress field
//# MUST contain 32 octets similarly encoded.
fn network(address: &[u8], base: &[u8]) -> Option<Relation> {
    if !matches!(base.len(), 8 | 32) || !matches!(address.len(), 4 | 16) {
        return None;
    }
    let (network, mask) = base.split_at(base.len() / 2);
    let ones: u32 = mask.iter().map(|octet| octet.count_ones()).sum();
    let leading = mask.iter().take_while(|octet| **octet == 0xff).count();
    let next = mask.get(leading).map_or(0, |octet| octet.leading_ones());
    if ones as usize != leading * 8 + next as usize {
        return None;
    }
    let same = network.len() == address.len()
        && address.iter().zip(network).zip(mask).all(|((a, n), m)| a & m == n & m);
    Some(Relation::of(same))
}

/// Most comparisons for one path.
const MAX_COMPARISONS: usize = 100_000;

const MINIMUM: u8 = 0x80;
const MAXIMUM: u8 = 0x81;

#[cfg(test)]
mod tests {
    use super::Relation::{Outside, Unclear, Within};
    use super::*;

    /// The relation of a name to a constraint of its form.
    fn relation(name: GeneralName, base: GeneralName) -> Relation {
        let name = match &name {
            GeneralName::Dns(name) => Named::Dns(Domain::read(name)),
            GeneralName::Email(name) => Named::Email(Mailbox::read(name)),
            GeneralName::Uri(name) => Named::Uri(Host::of_uri(name)),
            GeneralName::Address(name) => Named::Address(name),
            other => panic!("{other:?}"),
        };
        Subtree { base, whole: true }.relation(&name).expect("one form")
    }

    /// Fault: in `Host::read`, strip every period at the end.
    #[test]
    fn domains_are_within_what_they_say() {
        for (name, base, expected) in [
            ("host.example.com", "example.com", Within),
            ("Example.COM", "example.com", Within),
            ("example.com.", "example.com", Within),
            ("example.com", "example.com.", Within),
            ("notexample.com", "example.com", Outside),
            ("example.com", ".example.com", Outside),
            ("a.b.example.com", ".example.com", Within),
            ("com", "example.com", Outside),
            ("anything", "", Within),
            ("*.example.com", "example.com", Within),
            ("*.example.com", ".example.com", Within),
            ("*.example.com", "host.example.com", Unclear),
            ("*.example.com", "example.org", Outside),
            (".example.com", "example.com", Unclear),
            ("gw.example.com..", "example.com", Unclear),
            ("gw.other.org", ".", Unclear),
            ("gw.other.org", "..", Unclear),
            ("gw.other.org", "*.example.com", Unclear),
        ] {
            let (of, to) = (GeneralName::Dns(name.to_owned()), GeneralName::Dns(base.to_owned()));
            assert_eq!(relation(of, to), expected, "{name} {base}");
        }
    }

    /// Fault: in `Mailbox::relation`, compare the local parts with case alone.
    #[test]
    fn mailboxes_are_within_what_they_say() {
        for (name, base, expected) in [
            ("root@example.com", "root@example.com", Within),
            ("root@example.com", "root@EXAMPLE.com", Within),
            ("Root@example.com", "root@example.com", Unclear),
            ("admin@example.com", "root@example.com", Outside),
            ("root@example.org", "root@example.com", Outside),
            ("\"root\"@example.com", "root@example.com", Within),
            ("root@EXAMPLE.com", "example.com", Within),
            ("root@example.com.", "example.com", Within),
            ("root@host.example.com", "example.com", Outside),
            ("root@host.example.com", ".example.com", Within),
            ("root@example.com", ".example.com", Outside),
            ("a@b@host.example.com", ".example.com", Unclear),
            ("a@b@host.example.com", "example.org", Unclear),
            ("root@example.com", "@example.com", Unclear),
            ("root@example.com", "", Unclear),
            ("root@example.com", "foo@x@example.com", Unclear),
        ] {
            let (of, to) =
                (GeneralName::Email(name.to_owned()), GeneralName::Email(base.to_owned()));
            assert_eq!(relation(of, to), expected, "{name} {base}");
        }
        for (name, base, expected) in [
            ("http://host.example.com/x", ".example.com", Within),
            ("http://host.example.com./x", "host.example.com", Within),
            ("http://example.com/x", ".example.com", Outside),
            ("urn:x", "example.com", Unclear),
            ("http://example.com/", "", Unclear),
            ("http://example.com/", "http://example.com/", Unclear),
        ] {
            let (of, to) = (GeneralName::Uri(name.to_owned()), GeneralName::Uri(base.to_owned()));
            assert_eq!(relation(of, to), expected, "{name} {base}");
        }
    }

    /// Fault: in `network`, leave out the check of the mask.
    #[test]
    fn addresses_are_within_their_network_and_no_other_family() {
        let net = [192, 0, 2, 0, 255, 255, 255, 0];
        let within = |address: &[u8], base: &[u8]| {
            relation(GeneralName::Address(address.to_vec()), GeneralName::Address(base.to_vec()))
        };
        assert_eq!(within(&[192, 0, 2, 9], &net), Within);
        assert_eq!(within(&[192, 0, 3, 9], &net), Outside);
        assert_eq!(within(&[0; 16], &net), Outside);
        assert_eq!(within(&[192, 0, 2, 9], &net[..7]), Unclear);
        assert_eq!(within(&[192, 0, 2], &net), Unclear);
        assert_eq!(within(&[192, 0, 2, 9], &[192, 0, 0, 9, 255, 255, 0, 255]), Unclear);
        assert_eq!(within(&[192, 0, 2, 9], &[192, 0, 0, 0, 255, 240, 0, 0]), Within);
        assert_eq!(within(&[192, 0, 2, 9], &[0; 8]), Within);
    }
}
