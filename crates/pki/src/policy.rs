//! What a connection asks of the CAs above its peer's certificate: `ca_id`, and `cert_policy` by the certificate
//! policies of the path (RFC 5280 §4.2.1.4).

use std::fmt;

use der::asn1::ObjectIdentifier;
use ike_proto::config::IdMatch;
use ike_proto::crypto::der::{Der, INTEGER, OBJECT_IDENTIFIER, SEQUENCE};
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
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
    /// Takes it in dotted form; `None` if `text` is none.
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

/// What a certificate says of policies. Object identifiers are the octets of their content, whatever size their
/// numbers have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    named: Vec<Vec<u8>>,
    /// The issuer's policy and that of its subjects which it takes for it.
    mappings: Vec<(Vec<u8>, Vec<u8>)>,
    inhibit_mapping: Option<usize>,
    inhibit_any: Option<usize>,
}

impl Policies {
    /// Adds what the extension `oid` says, if it is about policies.
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

/// SEQUENCE OF SEQUENCE with an OBJECT IDENTIFIER, and qualifiers, which are for people.
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

/// SEQUENCE of two INTEGERs with implicit tags; the first, requireExplicitPolicy, asks nothing of a path that a
/// policy is looked for in.
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

/// The content of an INTEGER that is not negative. One that is too large is large enough.
fn number(octets: &[u8]) -> usize {
    octets
        .iter()
        .fold(0, |all: usize, octet| all.saturating_mul(256).saturating_add(usize::from(*octet)))
}

/// What is asked of a path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// Whom one of its CAs must be.
    pub ca: Option<&'a IdMatch>,
    /// Policies that all must be valid in it.
    pub policies: &'a [CertificatePolicy],
}

impl Wanted<'_> {
    /// True if everything will do.
    pub fn is_nothing(&self) -> bool {
        self.ca.is_none() && self.policies.is_empty()
    }

    /// Why a key that has no certificate will not do.
    pub fn of_raw_key(&self) -> Result<(), PkiError> {
        if self.is_nothing() { Ok(()) } else { Err(PkiError::RawKeyWithoutCa) }
    }

    /// The policies alone.
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

/// True if `ca` has the identity: as subject, in subjectAltName, or a key ID that is one of the certificate or key.
pub(crate) fn is_ca(ca: &Certificate, wanted: &IdMatch) -> bool {
    if let IdMatch::Exact(id) = wanted
        && id.kind == IdType::KEY_ID
    {
        return has_key_id(ca, id);
    }
    ca.identities().iter().any(|id| wanted.admits(id))
}

/// As charon has it: the hash of the certificate, its subjectKeyIdentifier, a hash of the public key with or
/// without its algorithm, or the serial number.
fn has_key_id(ca: &Certificate, id: &IdData) -> bool {
    let key = SubjectPublicKeyInfo::parse(ca.spki()).map(|spki| spki.key);
    ca.key_identifier() == Some(&*id.data)
        || ca.serial() == id.data
        || [Some(ca.der()), Some(ca.spki()), key]
            .into_iter()
            .flatten()
            .any(|of| sha1(of)[..] == *id.data)
}

/// True if the end entity has `policy`, and each CA above it has it too, or any policy, or maps one of its own to
/// it. A root without policies does not count (RFC 5280 §6.1: it is no part of the path).
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

/// True if one of the CAs above forbids something so far below it: `count` certificates under it still may.
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
