//! The requirements of a connection on the CAs above its peer's certificate: `ca_id`, and `cert_policy` by the
//! certificate policies of the path (RFC 5280 §4.2.1.4).

use std::fmt;

use der::asn1::ObjectIdentifier;
use ike_proto::config::IdMatch;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::der::{Der, INTEGER, OBJECT_IDENTIFIER, SEQUENCE};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;

use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::hash_and_url::sha1;
use crate::path::Path;

/// A certificate policy: an object identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificatePolicy(ObjectIdentifier);

impl CertificatePolicy {
    /// Parses dotted form; `None` if `text` is not in that form.
    pub fn parse(text: &str) -> Option<Self> {
        ObjectIdentifier::new(text).ok().map(Self)
    }

    pub(crate) fn oid(self) -> ObjectIdentifier {
        self.0
    }
}

impl fmt::Display for CertificatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The policies of a certificate. Object identifiers are their content octets, of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    named: Vec<Vec<u8>>,
    /// Pairs of an issuer's policy and the equivalent policy of its subjects.
    mappings: Vec<(Vec<u8>, Vec<u8>)>,
    inhibit_mapping: Option<usize>,
    inhibit_any: Option<usize>,
}

impl Policies {
    /// Adds the extension `oid`, if it is about policies.
    pub fn add(&mut self, oid: ObjectIdentifier, value: &[u8]) -> Result<(), &'static str> {
        match oid {
            CERTIFICATE_POLICIES => {
                self.named = named(value).ok_or("certificatePolicies")?;
            }
            POLICY_MAPPINGS => self.mappings = mappings(value).ok_or("policyMappings")?,
            POLICY_CONSTRAINTS => {
                self.inhibit_mapping = inhibit_mapping(value).ok_or("policyConstraints")?;
            }
            INHIBIT_ANY_POLICY => {
                let mut outer = Der::new(value);
                let count = outer.content(INTEGER).ok_or("inhibitAnyPolicy")?;
                outer.end().ok_or("inhibitAnyPolicy")?;
                self.inhibit_any = Some(number(count));
            }
            _ => return Ok(()),
        }
        let most = self.named.len().max(self.mappings.len());
        if most > MAX_POLICIES { Err("too many policies") } else { Ok(()) }
    }

    fn has(&self, policy: &[u8]) -> bool {
        self.named.iter().any(|named| named == policy)
    }
}

/// SEQUENCE OF SEQUENCE with an OBJECT IDENTIFIER, and qualifiers, which are ignored.
fn named(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut outer = Der::new(value);
    let mut list = outer.nested(SEQUENCE)?;
    outer.end()?;
    let mut found = Vec::new();
    while !list.is_empty() {
        found.push(list.nested(SEQUENCE)?.content(OBJECT_IDENTIFIER)?.to_vec());
    }
    Some(found)
}

/// SEQUENCE OF SEQUENCE of two OBJECT IDENTIFIERs.
fn mappings(value: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut outer = Der::new(value);
    let mut list = outer.nested(SEQUENCE)?;
    outer.end()?;
    let mut found = Vec::new();
    while !list.is_empty() {
        let mut pair = list.nested(SEQUENCE)?;
        let issuers = pair.content(OBJECT_IDENTIFIER)?.to_vec();
        found.push((issuers, pair.content(OBJECT_IDENTIFIER)?.to_vec()));
        pair.end()?;
    }
    Some(found)
}

/// SEQUENCE of two INTEGERs with implicit tags. The first, requireExplicitPolicy, has no effect on a path that
/// must have a policy anyway.
fn inhibit_mapping(value: &[u8]) -> Option<Option<usize>> {
    let mut outer = Der::new(value);
    let mut constraints = outer.nested(SEQUENCE)?;
    outer.end()?;
    if constraints.peek() == Some(REQUIRE_EXPLICIT_POLICY) {
        constraints.content(REQUIRE_EXPLICIT_POLICY)?;
    }
    let mut found = None;
    if constraints.peek() == Some(INHIBIT_POLICY_MAPPING) {
        found = Some(number(constraints.content(INHIBIT_POLICY_MAPPING)?));
    }
    constraints.end()?;
    Some(found)
}

/// The content of an INTEGER that is not negative. A number that does not fit becomes the largest.
fn number(octets: &[u8]) -> usize {
    octets
        .iter()
        .fold(0, |all: usize, octet| all.saturating_mul(256).saturating_add(usize::from(*octet)))
}

/// Requirements on a path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// The identity that one of its CAs must have.
    pub ca: Option<&'a IdMatch>,
    /// Policies that must all be valid in it.
    pub policies: &'a [CertificatePolicy],
}

impl Wanted<'_> {
    /// True if there are no requirements.
    pub fn is_nothing(&self) -> bool {
        self.ca.is_none() && self.policies.is_empty()
    }

    /// The error for a key without certificate, if there are requirements.
    pub fn of_raw_key(&self) -> Result<(), PkiError> {
        if self.is_nothing() { Ok(()) } else { Err(PkiError::RawKeyWithoutCa) }
    }

    /// Checks the policies alone.
    pub fn policies_in(&self, path: &Path) -> Result<(), PkiError> {
        match self.policies.iter().find(|policy| !is_valid(path, policy.oid().as_bytes())) {
            None => Ok(()),
            Some(policy) => {
                let subject = path.certificates.first().map(|one| one.subject_text());
                let (subject, policy) = (subject.unwrap_or_default(), policy.to_string());
                Err(PkiError::CertificatePolicy { subject, policy })
            }
        }
    }
}

/// True if `ca` has the identity: as subject, in subjectAltName, or as a key ID of the certificate or key.
pub(crate) fn is_ca(ca: &Certificate, wanted: &IdMatch) -> bool {
    if let IdMatch::Exact(id) = wanted
        && id.kind == IdType::KEY_ID
    {
        return has_key_id(ca, id);
    }
    ca.identities().iter().any(|id| wanted.admits(id))
}

/// As in charon, a key ID is the hash of the certificate, its subjectKeyIdentifier, a hash of the public key with
/// or without its algorithm, or the serial number.
fn has_key_id(ca: &Certificate, id: &IdData) -> bool {
    let key = SubjectPublicKeyInfo::parse(ca.spki()).map(|spki| spki.key);
    ca.key_identifier() == Some(&*id.data)
        || ca.serial() == id.data
        || [Some(ca.der()), Some(ca.spki()), key]
            .into_iter()
            .flatten()
            .any(|of| sha1(of)[..] == *id.data)
}

/// True if the end entity has `policy`, and each CA above it has the policy too, or any policy, or maps one of its
/// own to it. A root without policies does not count (RFC 5280 §6.1: it is no part of the path).
fn is_valid(path: &Path, policy: &[u8]) -> bool {
    let Some((end_entity, _)) = path.certificates.split_first() else { return false };
    if !end_entity.policies().has(policy) {
        return false;
    }
    let issuers: Vec<&Policies> = path.links().map(|(_, issuer)| issuer.policies()).collect();
    let root = path.anchor.is_self_issued() && path.anchor.policies().named.is_empty();
    let asked = issuers.len() - usize::from(root);
    let mut policy = policy;
    for (index, issuer) in issuers.iter().enumerate().take(asked) {
        let above = issuers.get(index + 1..).unwrap_or_default();
        let any = !inhibited(above, |ca| ca.inhibit_any) && issuer.has(ANY_POLICY.as_bytes());
        let maps = !inhibited(above, |ca| ca.inhibit_mapping);
        let mut steps = 0;
        while !any && !issuer.has(policy) {
            let mapping = issuer.mappings.iter().find(|(_, subjects)| subjects == policy);
            match mapping {
                Some((issuers, _)) if maps && steps < MAX_MAPPINGS => policy = issuers,
                _ => return false,
            }
            steps += 1;
        }
    }
    true
}

/// True if one of the CAs above forbids something at this depth. `count` is the number of certificates below it
/// that may still have it.
fn inhibited(above: &[&Policies], count: impl Fn(&Policies) -> Option<usize>) -> bool {
    (1..).zip(above).any(|(below, ca)| count(ca).is_some_and(|count| below > count))
}

const CERTIFICATE_POLICIES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.32");
const ANY_POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.32.0");
const POLICY_MAPPINGS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.33");
const POLICY_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.36");
const INHIBIT_ANY_POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.54");
const REQUIRE_EXPLICIT_POLICY: u8 = 0x80;
const INHIBIT_POLICY_MAPPING: u8 = 0x81;

/// Most policies, and most mappings, of a certificate.
const MAX_POLICIES: usize = 64;
/// How often one CA's mappings are followed.
const MAX_MAPPINGS: usize = 7;
