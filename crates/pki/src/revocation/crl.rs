//! Certificate revocation lists (RFC 5280 §5).
//!
//! What a list revokes counts, whatever else is the matter with it. Its age, its scope and its extensions decide only
//! whether it may say that a certificate is good: [`Crl::reasons`], [`Crl::is_current`].

use std::fmt;
use std::io::Read;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use der::flagset::FlagSet;
use der::{Decode, Encode, oid::AssociatedOid};
use ike_proto::crypto::SchemeRegister;
use ike_proto::wire::der::SEQUENCE;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::{CertificateList, RevokedCert};
use x509_cert::ext::pkix::CrlReason;
use x509_cert::ext::pkix::crl::dp::{DistributionPoint, Reasons};
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName, GeneralNames};

use super::SKEW;
use crate::certificate::Certificate;
use crate::dn::{self, NameHash};
use crate::error::LoadError;
use crate::files;
use crate::issue::RevokedEntry;
use crate::signed::Schemes;
use crate::text::{self, Date};

mod proof;
mod read;
mod serials;

use read::{Head, Parts};
pub(super) use serials::Entry;
pub(crate) use serials::SerialKey;

/// A revocation list. Parsing does not verify the signature.
pub struct Crl {
    head: Head,
    proof: proof::Proof,
    /// Keys that did and did not make the signature, DER SubjectPublicKeyInfo. A long list takes its time to hash.
    judged: Mutex<Vec<(Vec<u8>, bool)>>,
}

impl Crl {
    /// Reads a list, PEM or DER.
    ///
    /// # Errors
    /// If it is no list, or one of more than [`MAX_LIST`] octets.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-6.2
    //# CRLs and ARLs MUST be Base64 encoded and appear between the following
    //# delimiters:
    //#
    //# -----BEGIN CRL-----
    //# -----END CRL-----
    // Other programs, and RFC 7468 §6, write `X509 CRL`.
    pub fn load(octets: &[u8]) -> Result<Self, LoadError> {
        Self::load_by(Schemes::default(), octets)
    }

    /// As [`load`](Self::load), and keeps a long list, too: for [`revoked`](Self::revoked). The list may be signed by any
    /// scheme of `register`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_whole(register: &SchemeRegister, octets: &[u8]) -> Result<Self, LoadError> {
        Self::of_file(octets, Schemes::of(register), MAX_LIST)
    }

    /// As [`load`](Self::load). The list may be signed by any of `schemes`.
    pub(super) fn load_by(schemes: Schemes, octets: &[u8]) -> Result<Self, LoadError> {
        Self::of_file(octets, schemes, MAX_WHOLE)
    }

    fn of_file(octets: &[u8], schemes: Schemes, whole: usize) -> Result<Self, LoadError> {
        if octets.first() == Some(&SEQUENCE) {
            return Self::read(octets, schemes, whole);
        }
        let found = files::one(octets, "X509 CRL");
        let der = found.or_else(|why| files::one(octets, "CRL").map_err(|_| why))?;
        Self::read(der.as_slice(), schemes, whole)
    }

    /// Reads a list, PEM or DER, as a stream. Of a long one in DER the serial numbers alone are kept.
    ///
    /// # Errors
    /// As [`load`](Self::load), or if the stream breaks off.
    pub fn from_stream(from: impl Read) -> Result<Self, LoadError> {
        Self::stream_by(Schemes::default(), from)
    }

    /// As [`from_stream`](Self::from_stream). The list may be signed by any of `schemes`.
    pub(super) fn stream_by(schemes: Schemes, mut from: impl Read) -> Result<Self, LoadError> {
        let mut first = [0];
        let broken = |_| LoadError::Nothing("whole revocation list");
        from.read_exact(&mut first).map_err(broken)?;
        if first == [SEQUENCE] {
            return Self::read(first.as_slice().chain(from), schemes, MAX_WHOLE);
        }
        let mut pem = first.to_vec();
        from.take(MAX_PEM).read_to_end(&mut pem).map_err(broken)?;
        Self::load_by(schemes, &pem)
    }

    fn read(from: impl Read, schemes: Schemes, whole: usize) -> Result<Self, LoadError> {
        let Parts { head, proof } = read::read(from, schemes, MAX_LIST as u64, whole)?;
        Ok(Self { head, proof, judged: Mutex::default() })
    }

    /// The issuer: a DER Name.
    pub fn issuer(&self) -> &[u8] {
        &self.head.issuer
    }

    /// The issuer as text. Safe in a log line.
    pub fn issuer_text(&self) -> String {
        text::name(&self.head.issuer)
    }

    /// When it was made.
    pub fn this_update(&self) -> SystemTime {
        self.head.this_update
    }

    /// When the next one is due. A list need not say it, although RFC 5280 §5.1.2.5 demands it.
    pub fn next_update(&self) -> Option<SystemTime> {
        self.head.next_update
    }

    /// The DER encoding; `None` for a long list, which is not kept.
    pub fn der(&self) -> Option<&[u8]> {
        self.proof.der()
    }

    /// The signature. With the issuer it tells a list from every other one.
    pub fn signature(&self) -> &[u8] {
        &self.proof.signature
    }

    /// True if both are the same list, with the same signature.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.head.issuer == other.head.issuer && self.proof.signature == other.proof.signature
    }

    /// How many entries it has.
    pub fn count(&self) -> usize {
        self.head.serials.count()
    }

    /// Octets of memory that it takes.
    pub fn octets(&self) -> usize {
        self.head.serials.octets() + self.proof.octets()
    }

    /// The cRLNumber, if it has one of at most 64 bits (RFC 5280 §5.2.3).
    pub fn number(&self) -> Option<u64> {
        let octets = self.head.extensions.number.as_ref()?;
        (octets.len() <= 8).then(|| octets.iter().fold(0, |n, octet| n << 8 | u64::from(*octet)))
    }

    /// The certificates on it, with date and reason.
    ///
    /// # Errors
    /// If an entry has a serial number of more than 20 octets, or the list is long and was not
    /// [loaded whole](Self::load_whole).
    pub fn revoked(&self) -> Result<Vec<RevokedEntry>, LoadError> {
        let der = self.der().ok_or(LONG)?;
        let list = CertificateList::<Rfc5280>::from_der(der);
        let list = list.map_err(|_| LoadError::Malformed("revocation list"))?;
        let entries = list.tbs_cert_list.revoked_certificates.unwrap_or_default();
        Ok(entries.iter().map(entry).collect())
    }

    /// True if `ca` signed it and may sign revocation lists.
    pub fn is_signed_by(&self, ca: &Certificate) -> bool {
        dn::same(&self.head.issuer, ca.subject()) && ca.may_sign_crls() && self.is_by(ca.spki())
    }

    /// True if this key, DER SubjectPublicKeyInfo, made the signature.
    pub(super) fn is_by(&self, spki: &[u8]) -> bool {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, is_by)) = judged.iter().find(|(key, _)| key == spki) {
            return *is_by;
        }
        let is_by = self.proof.is_by(spki);
        if judged.len() < MAX_JUDGED {
            judged.push((spki.to_vec(), is_by));
        }
        is_by
    }

    /// True if the list revokes `certificate`, by an entry for its issuer.
    pub fn revokes(&self, certificate: &Certificate) -> bool {
        self.entry(certificate) == Some(Entry::Revoked)
    }

    /// What the list says about `certificate`, by an entry for its issuer.
    pub(super) fn entry(&self, certificate: &Certificate) -> Option<Entry> {
        self.entry_of(certificate.issuer(), SerialKey::of(certificate.serial()))
    }

    /// What the list says about the certificate of `issuer`, a DER Name, with this serial number.
    pub(super) fn entry_of(&self, issuer: &[u8], serial: SerialKey) -> Option<Entry> {
        self.head.serials.find(issuer, serial)
    }

    /// True if the list revokes the certificate of its own issuer with this serial number.
    pub(crate) fn revokes_serial(&self, serial: SerialKey) -> bool {
        self.entry_of(&self.head.issuer, serial) == Some(Entry::Revoked)
    }

    /// A hash of the issuer's name.
    pub(crate) fn issuer_hash(&self) -> NameHash {
        NameHash::of(&self.head.issuer)
    }

    /// The list in words that are safe in a log line. A CA may make several lists at one time, for other URLs.
    pub(crate) fn describe(&self) -> String {
        let issuer = self.issuer_text();
        let mut text =
            format!("the revocation list of {issuer:?} of {}", Date(self.head.this_update));
        if let Some(url) = self.own_url() {
            text.push_str(&format!(" for {:?}", url.chars().take(MAX_URL).collect::<String>()));
        }
        text
    }

    /// The URL in its issuingDistributionPoint, if there is one.
    fn own_url(&self) -> Option<&str> {
        let point = self.head.extensions.point.as_ref()?.distribution_point.as_ref()?;
        let DistributionPointName::FullName(names) = point else { return None };
        names.iter().find_map(|name| match name {
            GeneralName::UniformResourceIdentifier(url) => Some(url.as_str()),
            _ => None,
        })
    }

    /// True if `certificate` names the issuer of the list: as its issuer, or, for an indirect list, as the cRLIssuer
    /// of a distribution point (RFC 5280 §6.3.3 (b)). Without indirectCRL it may revoke, but call nothing good.
    pub(super) fn is_for(&self, certificate: &Certificate) -> bool {
        dn::same(&self.head.issuer, certificate.issuer())
            || certificate.crl_points().iter().any(|point| self.is_cited_by(point))
    }

    /// True if `point` says that the issuer of the list makes lists for it.
    fn is_cited_by(&self, point: &DistributionPoint) -> bool {
        point.crl_issuer.iter().flatten().any(|name| match name {
            GeneralName::DirectoryName(name) => {
                name.to_der().is_ok_and(|name| dn::same(&name, &self.head.issuer))
            }
            _ => false,
        })
    }

    /// True for a list that is about attribute certificates alone (RFC 5280 §5.2.5), which says nothing here.
    pub(super) fn is_of_attributes(&self) -> bool {
        let scope = &self.head.extensions.point;
        scope.as_ref().is_some_and(|scope| scope.only_contains_attribute_certs)
    }

    /// True for a delta list (RFC 5280 §5.2.4).
    pub(super) fn is_delta(&self) -> bool {
        self.head.extensions.base.is_some()
    }

    /// True if nothing in it is beyond this crate: neither its version nor a critical extension.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-5.2
    //# If a CRL contains a critical extension
    //# that the application cannot process, then the application MUST NOT
    //# use that CRL to determine the status of certificates.
    // That it calls a certificate revoked is reason enough to refuse it all the same.
    pub fn is_understood(&self) -> bool {
        self.head.understood
    }

    /// The reasons of revocation for which the list answers about `certificate`: none if the certificate is outside of
    /// its scope, so that one partition of a CA's lists cannot stand for another (RFC 5280 §6.3.3 (b) and (d)).
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.1.3.13
    //# IKE implementations MUST support
    //# validating that the contents of CRLDistributionPoints match those of
    //# the IssuingDistributionPoint to prevent CRL substitution when the
    //# issuing CA is using them.
    pub(super) fn reasons(&self, certificate: &Certificate) -> FlagSet<Reasons> {
        let none = FlagSet::default();
        if !self.is_understood() || self.is_of_attributes() || !self.is_for(certificate) {
            return none;
        }
        let own = dn::same(&self.head.issuer, certificate.issuer());
        let scope = self.head.extensions.point.as_ref();
        if !own && !scope.is_some_and(|scope| scope.indirect_crl) {
            return none;
        }
        let Some(scope) = scope else { return all_reasons() };
        let other_kind = match certificate.is_ca() {
            true => scope.only_contains_user_certs,
            false => scope.only_contains_ca_certs,
        };
        if other_kind {
            return none;
        }
        let reasons = scope.only_some_reasons.unwrap_or_else(all_reasons);
        let Some(place) = self.names(scope.distribution_point.as_ref()) else {
            return if own { reasons } else { self.cited_reasons(certificate) & reasons };
        };
        let mut answered = none;
        for point in certificate.crl_points() {
            let by_other = point.crl_issuer.is_some();
            if by_other != self.is_cited_by(point) || !(own || by_other) {
                continue;
            }
            // Without a name, the point has the name of the one who makes its lists.
            let names = self.names(point.distribution_point.as_ref());
            let names = names.or_else(|| point.crl_issuer.clone());
            if names.is_some_and(|names| names.iter().any(|name| place.contains(name))) {
                answered |= point.reasons.unwrap_or_else(all_reasons) & reasons;
            }
        }
        answered
    }

    /// The reasons of the distribution points that name the issuer of the list.
    fn cited_reasons(&self, certificate: &Certificate) -> FlagSet<Reasons> {
        let points = certificate.crl_points().iter().filter(|point| self.is_cited_by(point));
        points
            .fold(FlagSet::default(), |all, point| all | point.reasons.unwrap_or_else(all_reasons))
    }

    /// The full names of a distribution point: a relative one is below the issuer of the list.
    fn names(&self, point: Option<&DistributionPointName>) -> Option<GeneralNames> {
        match point? {
            DistributionPointName::FullName(names) => Some(names.clone()),
            DistributionPointName::NameRelativeToCRLIssuer(part) => {
                let mut name = x509_cert::name::RdnSequence::from_der(&self.head.issuer).ok()?;
                name.push(part.clone());
                let name = x509_cert::name::Name::from_der(&name.to_der().ok()?).ok()?;
                Some(vec![GeneralName::DirectoryName(name)])
            }
        }
    }

    /// True if the list says that it is the one of a distribution point of `certificate`.
    pub(super) fn is_of_point_of(&self, certificate: &Certificate) -> bool {
        let scope = self.head.extensions.point.as_ref();
        let place = scope.and_then(|scope| self.names(scope.distribution_point.as_ref()));
        let mut points = certificate.crl_points().iter();
        place.is_some_and(|place| {
            points.any(|point| {
                let names = self.names(point.distribution_point.as_ref()).unwrap_or_default();
                names.iter().any(|name| place.contains(name))
            })
        })
    }

    pub(super) fn is_from_future(&self, now: SystemTime) -> bool {
        self.head.this_update > now + SKEW
    }

    /// True between thisUpdate and nextUpdate. A list that does not say when it ends is never current.
    pub(super) fn is_current(&self, now: SystemTime) -> bool {
        !self.is_from_future(now) && self.head.next_update.is_some_and(|next| now < next)
    }

    /// True if a newer list was due.
    pub(super) fn is_outdated(&self, now: SystemTime) -> bool {
        self.head.next_update.is_some_and(|next| next <= now)
    }

    /// True if both are of one issuer and one scope, so that the newer one says all that there is to say.
    pub(super) fn is_of_same_scope(&self, other: &Self) -> bool {
        dn::same(&self.head.issuer, &other.head.issuer)
            && self.head.extensions.scope == other.head.extensions.scope
    }

    /// True if `self` was made after `other`: at a later time, or at the same with a higher number.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let (own, others) = (&self.head, &other.head);
        let number = length_first(own.extensions.number.as_ref());
        let others_number = length_first(others.extensions.number.as_ref());
        (own.this_update, number) > (others.this_update, others_number)
    }

    /// True if `self`, a complete list, ends what `older`, of the same CA, says: it is of the same scope, newer, and
    /// not from the future.
    // RFC 4945 §5.2.2.4.1: a delta list never takes the place of its base.
    pub(super) fn supersedes(&self, older: &Self, now: SystemTime) -> bool {
        !self.is_delta()
            && !self.is_from_future(now)
            && self.is_of_same_scope(older)
            && (self.is_understood() || !older.is_understood())
            && self.is_newer_than(older)
    }

    /// True if `self`, a delta list, brings `base`, a complete list of the same CA, up to date.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-5.2.4
    //# (c)  The CRL number of the complete CRL is equal to or greater
    //# than the BaseCRLNumber specified in the delta CRL.  That is,
    //# the complete CRL contains (at a minimum) all the revocation
    //# information held by the referenced base CRL.
    pub(super) fn updates(&self, base: &Self, now: SystemTime) -> bool {
        let (own, others) = (&self.head.extensions, &base.head.extensions);
        let from = length_first(own.base.as_ref());
        let to = length_first(own.number.as_ref());
        let complete = length_first(others.number.as_ref());
        !base.is_delta()
            && !self.is_from_future(now)
            && self.is_understood()
            && self.is_of_same_scope(base)
            && from.is_some()
            && from <= complete
            && complete < to
    }
}

impl Crl {
    /// True if `self`, a delta list, takes back what `older`, a list of the same CA, says of the certificates that it
    /// removes.
    pub(super) fn lifts(&self, older: &Self, now: SystemTime) -> bool {
        self.updates(older, now) || older.is_delta() && self.follows(older, now)
    }

    /// True if `self`, a delta list, has all that `older`, a delta list of the same CA, says.
    pub(super) fn covers(&self, older: &Self, now: SystemTime) -> bool {
        let base = length_first(self.head.extensions.base.as_ref());
        let others = length_first(older.head.extensions.base.as_ref());
        older.is_delta() && self.follows(older, now) && base <= others
    }

    fn follows(&self, older: &Self, now: SystemTime) -> bool {
        self.is_delta()
            && !self.is_from_future(now)
            && self.is_understood()
            && self.is_of_same_scope(older)
            && self.is_newer_than(older)
    }

    /// True if `other` says the same, although it may have been signed again.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        self.is_of_same_scope(other)
            && self.head.extensions.base == other.head.extensions.base
            && self.head.extensions.number == other.head.extensions.number
            && self.head.understood == other.head.understood
            && self.head.this_update == other.head.this_update
            && self.head.next_update == other.head.next_update
            && self.head.serials == other.head.serials
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Crl").field(&self.issuer_text()).finish()
    }
}

/// Two numbers without leading zeros compare as these do.
fn length_first(number: Option<&Vec<u8>>) -> Option<(usize, &[u8])> {
    number.map(|octets| (octets.len(), octets.as_slice()))
}

/// All that a certificate can be revoked for (RFC 5280 §6.3.1).
pub(super) fn all_reasons() -> FlagSet<Reasons> {
    FlagSet::full() - Reasons::Unused
}

fn entry(revoked: &RevokedCert) -> RevokedEntry {
    let mut extensions = revoked.crl_entry_extensions.iter().flatten();
    let reason = extensions.find(|extension| extension.extn_id == CrlReason::OID);
    RevokedEntry {
        serial: revoked.serial_number.as_bytes().to_vec(),
        at: revoked.revocation_date.to_system_time(),
        reason: reason.and_then(|reason| CrlReason::from_der(reason.extn_value.as_bytes()).ok()),
    }
}

/// Most characters of a list's URL in a log line.
const MAX_URL: usize = 128;
const LONG: LoadError = LoadError::TooLong { what: "revocation list to print", most: MAX_WHOLE };
/// Most octets of a list: public CAs have lists of 100 MB.
pub const MAX_LIST: usize = 100 * 1024 * 1024;
/// Most octets of a list that is kept whole, if its signature can be verified without.
const MAX_WHOLE: usize = 1 << 20;
/// Most octets of a list in PEM that is fetched. RFC 5280 §4.2.1.13 demands DER.
const MAX_PEM: u64 = 16 * 1024 * 1024;
/// Most keys whose verdict about the signature is remembered.
const MAX_JUDGED: usize = 64;
