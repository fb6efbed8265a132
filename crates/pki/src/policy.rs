//! Certificate policies of a path (RFC 5280 §6.1), and the requirements of a connection on the CAs above its peer's
//! certificate: `ca_id` and `cert_policy`.

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

mod tree;

/// A certificate policy: an object identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificatePolicy(ObjectIdentifier);

impl CertificatePolicy {
    /// Parses dotted form; `None` if `text` is not in that form.
    pub fn parse(text: &str) -> Option<Self> {
        ObjectIdentifier::new(text).ok().map(Self)
    }
}

impl fmt::Display for CertificatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The extensions of a certificate that are about policies. Object identifiers are their content octets, of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    named: Vec<Vec<u8>>,
    /// Pairs of an issuer's policy and the equivalent policy of its subjects.
    mappings: Vec<(Vec<u8>, Vec<u8>)>,
    require_explicit: Option<usize>,
    inhibit_mapping: Option<usize>,
    inhibit_any: Option<usize>,
}

impl Policies {
    /// Adds the extension `oid`, if it is about policies. Yields false if the extension is not one of these, or has a
    /// part that this crate cannot interpret.
    pub fn add(&mut self, oid: ObjectIdentifier, value: &[u8]) -> Result<bool, &'static str> {
        let mut understood = true;
        match oid {
            CERTIFICATE_POLICIES => {
                (self.named, understood) = named(value).ok_or("certificatePolicies")?;
            }
            POLICY_MAPPINGS => self.mappings = mappings(value).ok_or("policyMappings")?,
            POLICY_CONSTRAINTS => {
                (self.require_explicit, self.inhibit_mapping) =
                    constraints(value).ok_or("policyConstraints")?;
            }
            INHIBIT_ANY_POLICY => {
                let mut outer = Der::new(value);
                self.inhibit_any = Some(skip_certs(&mut outer, INTEGER).ok_or("inhibitAnyPolicy")?);
                outer.end().ok_or("inhibitAnyPolicy")?;
            }
            _ => return Ok(false),
        }
        let most = self.named.len().max(self.mappings.len());
        if most > MAX_POLICIES { Err("more than 64 policies") } else { Ok(understood) }
    }
}

/// SEQUENCE OF SEQUENCE with an OBJECT IDENTIFIER and qualifiers. The second is true if all qualifiers are of known
/// types.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.4
//# If this extension is
//# critical, the path validation software MUST be able to interpret this
//# extension (including the optional qualifier), or MUST reject the
//# certificate.
fn named(value: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
    let mut outer = Der::new(value);
    let mut list = outer.nested(SEQUENCE)?;
    outer.end()?;
    let (mut found, mut understood) = (Vec::new(), true);
    while !list.is_empty() {
        let mut policy = list.nested(SEQUENCE)?;
        found.push(policy.content(OBJECT_IDENTIFIER)?.to_vec());
        understood &= policy.is_empty() || has_known_qualifiers(policy) == Some(true);
    }
    Some((found, understood))
}

/// A pointer to a practice statement asks for nothing, and a notice is for a user to read. Neither has one here.
fn has_known_qualifiers(mut policy: Der<'_>) -> Option<bool> {
    let mut list = policy.nested(SEQUENCE)?;
    policy.end()?;
    let mut known = true;
    while !list.is_empty() {
        let kind = list.nested(SEQUENCE)?.content(OBJECT_IDENTIFIER)?;
        known &= kind == ID_QT_CPS.as_bytes() || kind == ID_QT_UNOTICE.as_bytes();
    }
    Some(known)
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

/// requireExplicitPolicy and inhibitPolicyMapping: SEQUENCE of two INTEGERs with implicit tags.
fn constraints(value: &[u8]) -> Option<(Option<usize>, Option<usize>)> {
    let mut outer = Der::new(value);
    let mut constraints = outer.nested(SEQUENCE)?;
    outer.end()?;
    let mut next = |tag| match constraints.peek() == Some(tag) {
        true => skip_certs(&mut constraints, tag).map(Some),
        false => Some(None),
    };
    let found = (next(REQUIRE_EXPLICIT_POLICY)?, next(INHIBIT_POLICY_MAPPING)?);
    constraints.end()?;
    Some(found)
}

/// An INTEGER that is not negative. A number that does not fit becomes the largest.
fn skip_certs(reader: &mut Der<'_>, tag: u8) -> Option<usize> {
    let octets = reader.content(tag)?;
    if octets.first().is_none_or(|first| *first >= 0x80) {
        return None;
    }
    let digit =
        |all: usize, octet: &u8| all.saturating_mul(256).saturating_add(usize::from(*octet));
    Some(octets.iter().fold(0, digit))
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

    /// Checks the policies alone: those that CAs of `path` require, and those of `cert_policy`.
    pub fn policies_in(&self, path: &Path) -> Result<(), PkiError> {
        let wanted: Vec<&[u8]> = self.policies.iter().map(|policy| policy.0.as_bytes()).collect();
        let valid = tree::valid(path, &wanted)?;
        match self.policies.iter().enumerate().find(|(index, _)| !valid.contains(index)) {
            None => Ok(()),
            Some((_, policy)) => {
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

const CERTIFICATE_POLICIES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.32");
const ANY_POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.32.0");
const POLICY_MAPPINGS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.33");
const POLICY_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.36");
const INHIBIT_ANY_POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.54");
const REQUIRE_EXPLICIT_POLICY: u8 = 0x80;
const INHIBIT_POLICY_MAPPING: u8 = 0x81;

const ID_QT_CPS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.2.1");
const ID_QT_UNOTICE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.2.2");

/// Most policies, and most mappings, of a certificate.
const MAX_POLICIES: usize = 64;
