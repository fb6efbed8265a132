//! OCSP requests and responses (RFC 6960 §4). Requests have no nonce, so that responders may answer from a cache;
//! nextUpdate keeps responses fresh.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use der::Decode;
use der::asn1::GeneralizedTime;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::der::{
    self as asn1, Der, INTEGER, NULL, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context,
};

use super::{SKEW, SerialKey, Status};
use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::names::Comparisons;
use crate::path::check_validity;
use crate::signed::{Schemes, Signed};

/// A responder's answer about one certificate, verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OcspAnswer {
    issuer: Vec<u8>,
    issuer_spki: Vec<u8>,
    serial: Vec<u8>,
    /// The name of the one who signed it: of one responder's answers the newest counts. Its key may change daily.
    responder: Vec<u8>,
    /// The serial number of the certificate by which the issuer has delegated the signing, if it has.
    delegate: Option<SerialKey>,
    revoked: bool,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
}

impl OcspAnswer {
    pub fn is_about(&self, certificate: &Certificate, issuer: &Certificate) -> bool {
        self.serial == certificate.serial()
            && self.issuer == issuer.subject()
            && self.issuer_spki == issuer.spki()
    }

    /// The same for a serial number.
    pub fn is_about_serial(&self, serial: SerialKey, issuer: &Certificate) -> bool {
        SerialKey::of(&self.serial) == serial
            && self.issuer == issuer.subject()
            && self.issuer_spki == issuer.spki()
    }

    /// When the information was right.
    pub fn this_update(&self) -> SystemTime {
        self.this_update
    }

    /// True if both are of one responder, about one certificate.
    pub fn is_about_same(&self, other: &Self) -> bool {
        self.serial == other.serial
            && self.responder == other.responder
            && self.issuer == other.issuer
            && self.issuer_spki == other.issuer_spki
    }

    /// True if `self`, about the same certificate, is the better information: newer, or equally old and revoked.
    /// An attacker on the path to the responder may replay older answers. An answer from the future is no better.
    pub fn outranks(&self, other: &Self, now: SystemTime) -> bool {
        !self.is_from_future(now)
            && (self.this_update, self.revoked) > (other.this_update, other.revoked)
    }

    pub fn is_from_future(&self, now: SystemTime) -> bool {
        self.this_update > now + SKEW
    }

    /// The serial number of the responder's certificate, if the issuer of the certificate in question has issued it.
    pub fn delegate(&self) -> Option<SerialKey> {
        self.delegate
    }

    /// The age of the information.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.this_update).unwrap_or_default()
    }

    /// The time after which it is not current any more. From then on it counts only if it says revoked.
    //= https://www.rfc-editor.org/rfc/rfc6960#section-4.2.2.1
    //# If nextUpdate is not set, the responder is indicating that newer
    //# revocation information is available all the time.
    // So the answer was right at its thisUpdate, and is good for a day: there are responders that sign once a day.
    pub fn good_until(&self) -> SystemTime {
        self.next_update.unwrap_or(self.this_update + DEFAULT_LIFETIME)
    }

    /// As [`good_until`](Self::good_until), for an answer that this end sends: others may accept one without nextUpdate
    /// for a moment only.
    pub fn sent_until(&self, now: SystemTime) -> SystemTime {
        self.next_update.unwrap_or(now + BRIEF_LIFETIME)
    }

    pub fn is_revoked(&self) -> bool {
        self.revoked
    }

    pub fn status(&self, now: SystemTime) -> Status {
        match self.revoked {
            true => Status::Revoked,
            false if now < self.good_until() => Status::Good,
            false => Status::Unknown,
        }
    }
}

/// The OCSPRequest for `certificate` (RFC 6960 §4.1.1), unsigned.
pub(super) fn request(certificate: &Certificate, issuer: &Certificate) -> Vec<u8> {
    // OCSPRequest { TBSRequest { requestList { Request { CertID } } } }
    (0..4).fold(cert_id(certificate, issuer), |inner, _| wrap(SEQUENCE, &[&inner]))
}

/// The CertID of `certificate`, by SHA-1, which every responder supports.
pub(crate) fn cert_id(certificate: &Certificate, issuer: &Certificate) -> Vec<u8> {
    let hash = &SHA1_FOR_LEGACY_USE_ONLY;
    let key = SubjectPublicKeyInfo::parse(issuer.spki()).map(|spki| spki.key).unwrap_or_default();
    let mut id = wrap(SEQUENCE, &[&wrap(OBJECT_IDENTIFIER, &[ID_SHA1]), &[NULL, 0]]);
    //= https://www.rfc-editor.org/rfc/rfc6960#section-4.1.1
    //# The hash shall be calculated over the
    //# DER encoding of the issuer's name field in the certificate being
    //# checked.
    asn1::push(&mut id, OCTET_STRING, &[digest(hash, certificate.issuer()).as_ref()]);
    asn1::push(&mut id, OCTET_STRING, &[digest(hash, key).as_ref()]);
    asn1::push(&mut id, INTEGER, &[certificate.serial()]);
    wrap(SEQUENCE, &[&id])
}

/// True if an OCSPResponse claims to be about `certificate`. No signature is verified.
pub(super) fn is_about(body: &[u8], certificate: &Certificate, issuer: &Certificate) -> bool {
    let signed = basic_response(body).flatten().and_then(Signed::parse);
    let Some((mut singles, _)) = signed.and_then(|signed| responses(signed.message)) else {
        return false;
    };
    while !singles.is_empty() {
        let Some(single) = singles.nested(SEQUENCE).and_then(Single::parse) else { return false };
        if single.is_about(certificate, issuer) {
            return true;
        }
    }
    false
}

/// The signers of answers that this end trusts, besides the issuer of the certificate in question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trusted<'a> {
    /// Trusted for every CA.
    pub responders: &'a [Arc<Certificate>],
    /// Signature schemes of the program.
    pub schemes: &'a Schemes,
}

/// Reads an OCSPResponse and takes its answer about `certificate`. The signature must be by `issuer`, by a
/// responder that `issuer` certified, or by one of the `trusted` responders.
pub(super) fn read(
    body: &[u8],
    certificate: &Certificate,
    issuer: &Certificate,
    trusted: Trusted<'_>,
    now: SystemTime,
) -> Result<OcspAnswer, LoadError> {
    let malformed = LoadError::Malformed("OCSP response");
    let basic = basic_response(body).ok_or(malformed)?.ok_or(LoadError::Nothing("answer"))?;
    let signed = Signed::parse(basic).ok_or(malformed)?;
    //= https://www.rfc-editor.org/rfc/rfc6960#section-4.2.2.2
    //# Matches a local configuration of OCSP signing authority for the
    //# certificate in question
    let Trusted { responders, schemes } = trusted;
    // No connection names the scheme of a responder. So it has a built-in key, or one of the CA's scheme, which the
    // connection names.
    let own = schemes.as_of(issuer.spki());
    let is_by = |one: &&Arc<Certificate>| {
        check_validity(one, now).is_ok() && signed.is_by(one.spki(), &own)
    };
    let responder = signer(&signed, issuer, schemes, now);
    let configured = || Some((responders.iter().find(is_by)?.subject().to_vec(), None));
    let responder = responder.or_else(configured).ok_or(LoadError::Signature)?;
    let (mut singles, understood) = responses(signed.message).ok_or(malformed)?;
    let mut worst: Option<Single<'_>> = None;
    while !singles.is_empty() {
        let mut single = singles.nested(SEQUENCE).and_then(Single::parse).ok_or(malformed)?;
        single.understood &= understood;
        if single.is_about(certificate, issuer)
            && worst.as_ref().is_none_or(|worst| single.outranks(worst))
        {
            worst = Some(single);
        }
    }
    let worst = worst.ok_or(LoadError::Irrelevant)?;
    worst.answer((certificate, issuer), responder, now)
}

/// The BasicOCSPResponse inside; `Some(None)` if the responder had no answer.
fn basic_response(body: &[u8]) -> Option<Option<&[u8]>> {
    let mut outer = Der::new(body);
    let mut response = outer.nested(SEQUENCE)?;
    outer.end()?;
    if response.content(ENUMERATED)? != [SUCCESSFUL] {
        return Some(None);
    }
    let mut explicit = response.nested(context(0))?;
    response.end()?;
    let mut bytes = explicit.nested(SEQUENCE)?;
    explicit.end()?;
    if bytes.content(OBJECT_IDENTIFIER)? != ID_PKIX_OCSP_BASIC {
        return None;
    }
    let basic = bytes.content(OCTET_STRING)?;
    bytes.end()?;
    Some(Some(basic))
}

/// The SingleResponses of ResponseData, and whether there is nothing critical beside them that this crate does not
/// know. The responder's name is ignored, because the signature decides.
fn responses(response_data: &[u8]) -> Option<(Der<'_>, bool)> {
    let mut data = Der::new(response_data).nested(SEQUENCE)?;
    if data.peek()? == context(0) {
        data.content(context(0))?; // version
    }
    match data.peek()? {
        name if name == context(1) || name == context(2) => data.content(name)?,
        _ => return None,
    };
    data.content(GENERALIZED_TIME)?; // producedAt
    let responses = data.nested(SEQUENCE)?;
    let understood = data.is_empty() || !has_critical(data.nested(context(1))?)?;
    data.end()?;
    Some((responses, understood))
}

/// One SingleResponse (RFC 6960 §4.2.1).
struct Single<'a> {
    hash: &'a [u8],
    issuer_name_hash: &'a [u8],
    issuer_key_hash: &'a [u8],
    serial: &'a [u8],
    /// Tag of CertStatus: good, revoked or unknown.
    status: u8,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    /// False if it has a critical extension, since this crate knows none. It may revoke nevertheless.
    understood: bool,
}

impl<'a> Single<'a> {
    fn parse(mut single: Der<'a>) -> Option<Self> {
        let mut id = single.nested(SEQUENCE)?;
        let hash = id.nested(SEQUENCE)?.content(OBJECT_IDENTIFIER)?;
        let issuer_name_hash = id.content(OCTET_STRING)?;
        let issuer_key_hash = id.content(OCTET_STRING)?;
        let serial = id.content(INTEGER)?;
        id.end()?;
        let status = single.peek()?;
        single.content(status)?;
        let this_update = time(&mut single)?;
        let mut next_update = None;
        if single.peek() == Some(context(0)) {
            let mut explicit = single.nested(context(0))?;
            next_update = Some(time(&mut explicit)?);
            explicit.end()?;
        }
        let understood = single.is_empty() || !has_critical(single.nested(context(1))?)?;
        single.end()?;
        Some(Self {
            hash,
            issuer_name_hash,
            issuer_key_hash,
            serial,
            status,
            this_update,
            next_update,
            understood,
        })
    }

    /// True if `self` is to be taken rather than `other`, about the same certificate in the same response: the worse
    /// of two statuses, and of two equal ones the newer.
    fn outranks(&self, other: &Self) -> bool {
        let rank = |single: &Self| match single.status {
            REVOKED => 2,
            GOOD if single.understood => 0,
            _ => 1,
        };
        (rank(self), self.this_update) > (rank(other), other.this_update)
    }

    fn is_about(&self, certificate: &Certificate, issuer: &Certificate) -> bool {
        let hash: &'static Algorithm = match self.hash {
            ID_SHA1 => &SHA1_FOR_LEGACY_USE_ONLY,
            ID_SHA256 => &SHA256,
            _ => return false,
        };
        let Some(spki) = SubjectPublicKeyInfo::parse(issuer.spki()) else { return false };
        let mut names = [certificate.issuer(), issuer.subject()].into_iter();
        self.serial == certificate.serial()
            && names.any(|name| self.issuer_name_hash == digest(hash, name).as_ref())
            && self.issuer_key_hash == digest(hash, spki.key).as_ref()
    }

    fn answer(
        &self,
        (certificate, issuer): (&Certificate, &Certificate),
        (responder, delegate): (Vec<u8>, Option<SerialKey>),
        now: SystemTime,
    ) -> Result<OcspAnswer, LoadError> {
        let revoked = match self.status {
            REVOKED => true,
            GOOD if !self.understood => {
                return Err(LoadError::Unsupported("a critical extension in it"));
            }
            GOOD => false,
            _ => return Err(LoadError::Nothing("answer about this certificate")),
        };
        let answer = OcspAnswer {
            issuer: issuer.subject().to_vec(),
            issuer_spki: issuer.spki().to_vec(),
            serial: certificate.serial().to_vec(),
            responder,
            delegate,
            revoked,
            this_update: self.this_update,
            next_update: self.next_update,
        };
        let current = !answer.is_from_future(now) && now < answer.good_until();
        if current || revoked { Ok(answer) } else { Err(LoadError::Stale) }
    }
}

/// The name of the one who signed: `issuer`, or one with a certificate in the response that `issuer` issued for OCSP
/// signing (RFC 6960 §4.2.2.2), with the serial number of that certificate.
fn signer(
    signed: &Signed<'_>,
    issuer: &Certificate,
    schemes: &Schemes,
    now: SystemTime,
) -> Option<(Vec<u8>, Option<SerialKey>)> {
    if signed.is_by(issuer.spki(), schemes) {
        return Some((issuer.subject().to_vec(), None));
    }
    let mut delegates = delegates(signed.rest)?.into_iter();
    let delegate =
        delegates.find_map(|delegate| signed.delegate(delegate, issuer, schemes, now))?;
    Some((delegate.subject().to_vec(), Some(SerialKey::of(delegate.serial()))))
}

/// The certificates in a BasicOCSPResponse.
fn delegates(mut rest: Der<'_>) -> Option<Vec<&[u8]>> {
    let mut explicit = rest.nested(context(0))?;
    rest.end()?;
    let mut list = explicit.nested(SEQUENCE)?;
    explicit.end()?;
    let mut certificates = Vec::new();
    while !list.is_empty() && certificates.len() < MAX_DELEGATES {
        certificates.push(list.element(SEQUENCE)?);
    }
    Some(certificates)
}

impl Signed<'_> {
    //= https://www.rfc-editor.org/rfc/rfc6960#section-4.2.2.2
    //# Includes a value of id-kp-OCSPSigning in an extended key usage
    //# extension and is issued by the CA that issued the certificate in
    //# question as stated above.
    fn delegate(
        &self,
        delegate: &[u8],
        issuer: &Certificate,
        schemes: &Schemes,
        now: SystemTime,
    ) -> Option<Certificate> {
        let delegate = Certificate::from_der(delegate).ok()?;
        let own = schemes.as_of(issuer.spki());
        let good = delegate.names_as_issuer(issuer)
            && delegate.check_form().is_ok()
            && !delegate.asks_too_much()
            && !delegate.is_ca()
            && delegate.may_sign_ocsp()
            && check_validity(&delegate, now).is_ok()
            && issuer.name_constraints().is_none_or(|constraints| {
                constraints.allow(&delegate, &mut Comparisons::default()).is_ok()
            })
            && Signed::parse(delegate.der())
                .is_some_and(|signed| signed.is_by(issuer.spki(), schemes))
            && self.is_by(delegate.spki(), &own);
        good.then_some(delegate)
    }
}

fn time(r: &mut Der<'_>) -> Option<SystemTime> {
    let time = r.element(GENERALIZED_TIME)?;
    Some(GeneralizedTime::from_der(time).ok()?.to_system_time())
}

/// True if one of the extensions in `explicit` is critical, since this crate knows none.
fn has_critical(mut explicit: Der<'_>) -> Option<bool> {
    let mut list = explicit.nested(SEQUENCE)?;
    explicit.end()?;
    let mut critical = false;
    while !list.is_empty() {
        let mut extension = list.nested(SEQUENCE)?;
        extension.content(OBJECT_IDENTIFIER)?;
        if extension.peek()? == BOOLEAN {
            critical |= extension.content(BOOLEAN)? != [0];
        }
        extension.content(OCTET_STRING)?;
        extension.end()?;
    }
    Some(critical)
}

fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    asn1::push(&mut out, tag, parts);
    out
}

/// Lifetime of an answer without nextUpdate.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The same, of an answer that this end sends.
const BRIEF_LIFETIME: Duration = Duration::from_secs(30);
/// Most responder certificates examined.
const MAX_DELEGATES: usize = 4;

const BOOLEAN: u8 = 0x01;
pub(crate) const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;
const SUCCESSFUL: u8 = 0;
/// CertStatus (RFC 6960 §4.2.1): good \[0\] NULL, revoked \[1\] RevokedInfo.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

const ID_SHA1: &[u8] = &[0x2b, 14, 3, 2, 26];
const ID_SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
pub(crate) const ID_PKIX_OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

#[cfg(test)]
mod tests {
    use super::super::{Asked, RevocationStore, Signer};
    use super::*;
    use crate::files;

    /// A good answer, whoever gave it, does not outweigh a list that has the certificate.
    #[test]
    fn revoked_by_one_source_is_revoked() {
        let fixture = |name: &str| {
            std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
        };
        let certificate = |name| files::load_certificates(&fixture(name)).unwrap().remove(0);
        let (certificate, issuer) = (certificate("revoked.pem"), certificate("root.pem"));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_906_502_400);
        let good = OcspAnswer {
            issuer: issuer.subject().to_vec(),
            issuer_spki: issuer.spki().to_vec(),
            serial: certificate.serial().to_vec(),
            responder: Vec::new(),
            delegate: None,
            revoked: false,
            this_update: now,
            next_update: None,
        };
        let mut store = RevocationStore::default();
        store.responses.take(good, now).unwrap();
        let signers = [Signer::of(Arc::new(issuer.clone()))];
        let asked = Asked { certificate: &certificate, signers: &signers, urls: &[], now };
        assert_eq!(store.status(&issuer, asked, Default::default()), Status::Good);
        store.add_crl(&fixture("root.crl")).unwrap();
        assert_eq!(store.status(&issuer, asked, Default::default()), Status::Revoked);
    }
}
