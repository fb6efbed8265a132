//! Certificate revocation lists (RFC 5280 §5). rustls-webpki reads the entries. It refuses delta lists, indirect
//! lists and unknown critical extensions.
//!
//! A list may have hundreds of thousands of entries. A fetched list is therefore parsed only after its signature
//! has been verified. For each entry, only the position of its serial number in the list is kept.

use std::fmt;
use std::time::SystemTime;

use der::{Decode, oid::AssociatedOid};
use ike_proto::wire::der::{Der, INTEGER, SEQUENCE};
use webpki::{BorrowedCertRevocationList, CertRevocationList};
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::{CertificateList, RevokedCert};
use x509_cert::ext::pkix::crl::IssuingDistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralNames};
use x509_cert::ext::pkix::{CrlNumber, CrlReason};
use x509_cert::time::Time;

use super::SKEW;
use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::files;
use crate::issue::RevokedEntry;
use crate::signed::Signed;
use crate::text;

/// A revocation list. Parsing does not verify the signature.
pub struct Crl {
    der: Vec<u8>,
    issuer: Vec<u8>,
    this_update: SystemTime,
    next_update: SystemTime,
    scope: Option<IssuingDistributionPoint>,
    /// Positions of the serial numbers in `der`, in their order.
    serials: Vec<(u32, u16)>,
}

impl Crl {
    /// Reads a list, PEM or DER.
    ///
    /// # Errors
    /// If it is no list, or an unsupported one: delta and indirect lists, version 1.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-6.2
    //# CRLs and ARLs MUST be Base64 encoded and appear between the following
    //# delimiters:
    //#
    //# -----BEGIN CRL-----
    //# -----END CRL-----
    // Other programs, and RFC 7468 §6, write `X509 CRL`.
    pub fn load(octets: &[u8]) -> Result<Self, LoadError> {
        let found = files::one(octets, "X509 CRL");
        Self::from_der(found.or_else(|why| files::one(octets, "CRL").map_err(|_| why))?)
    }

    /// As [`load`](Self::load), but verifies first that `ca` signed the list.
    pub(super) fn fetched(octets: &[u8], ca: &Certificate) -> Result<Self, LoadError> {
        let found = files::one(octets, "X509 CRL");
        let der = found.or_else(|why| files::one(octets, "CRL").map_err(|_| why))?;
        let (issuer, ..) = header(&der).ok_or(LoadError::Malformed("revocation list"))?;
        if !is_signed(&der, &issuer, ca) {
            return Err(LoadError::Signature);
        }
        Self::from_der(der)
    }

    fn from_der(der: Vec<u8>) -> Result<Self, LoadError> {
        let malformed = LoadError::Malformed("revocation list");
        let unfit = |why| match why {
            webpki::Error::UnsupportedDeltaCrl
            | webpki::Error::UnsupportedIndirectCrl
            | webpki::Error::UnsupportedCrlVersion
            | webpki::Error::UnsupportedRevocationReasonsPartitioning
            | webpki::Error::UnsupportedCrlIssuingDistributionPoint
            | webpki::Error::UnsupportedCriticalExtension => {
                LoadError::Unsupported("this kind of revocation list")
            }
            _ => malformed,
        };
        let entries = BorrowedCertRevocationList::from_der(&der).map_err(unfit)?;
        let mut serials = Vec::new();
        for entry in &entries {
            let serial = entry.map_err(unfit)?.serial_number;
            // The serial number is a part of `der`.
            let start = (serial.as_ptr() as usize).wrapping_sub(der.as_ptr() as usize);
            let (Ok(start), Ok(length)) = (u32::try_from(start), u16::try_from(serial.len()))
            else {
                return Err(malformed);
            };
            serials.push((start, length));
        }
        serials.sort_by_key(|place| at(&der, *place));
        serials.shrink_to_fit();
        let entries = CertRevocationList::Borrowed(entries);
        let (issuer, this_update, next_update) = header(&der).ok_or(malformed)?;
        let scope = entries
            .issuing_distribution_point()
            .map(IssuingDistributionPoint::from_der)
            .transpose()
            .map_err(|_| malformed)?;
        drop(entries);
        Ok(Self { der, issuer, this_update, next_update, scope, serials })
    }

    /// The issuer as text. Safe in a log line.
    pub fn issuer_text(&self) -> String {
        text::name(&self.issuer)
    }

    /// When it was made.
    pub fn this_update(&self) -> SystemTime {
        self.this_update
    }

    /// When the next one is due.
    pub fn next_update(&self) -> SystemTime {
        self.next_update
    }

    /// The DER encoding.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The cRLNumber, if it has one of at most 64 bits (RFC 5280 §5.2.3).
    pub fn number(&self) -> Option<u64> {
        let list = CertificateList::<Rfc5280>::from_der(&self.der).ok()?;
        let extensions = list.tbs_cert_list.crl_extensions?;
        let number = extensions.iter().find(|extension| extension.extn_id == CrlNumber::OID)?;
        let number = CrlNumber::from_der(number.extn_value.as_bytes()).ok()?;
        let octets = number.0.as_bytes();
        (octets.len() <= 8).then(|| octets.iter().fold(0, |n, octet| n << 8 | u64::from(*octet)))
    }

    /// The certificates on it.
    ///
    /// # Errors
    /// If an entry has a serial number of more than 20 octets.
    pub fn revoked(&self) -> Result<Vec<RevokedEntry>, LoadError> {
        let list = CertificateList::<Rfc5280>::from_der(&self.der);
        let list = list.map_err(|_| LoadError::Malformed("revocation list"))?;
        let entries = list.tbs_cert_list.revoked_certificates.unwrap_or_default();
        Ok(entries.iter().map(entry).collect())
    }

    /// True if `ca` signed it and may sign revocation lists.
    pub fn is_signed_by(&self, ca: &Certificate) -> bool {
        is_signed(&self.der, &self.issuer, ca)
    }

    /// True if `certificate` is on it.
    pub fn revokes(&self, certificate: &Certificate) -> bool {
        let serial = certificate.serial();
        self.serials.binary_search_by_key(&serial, |place| at(&self.der, *place)).is_ok()
    }

    /// True if the list answers for `certificate`: same issuer, and within the scope of the
    /// issuingDistributionPoint, so that one partition of a CA's lists cannot stand for another.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.1.3.13
    //# IKE implementations MUST support
    //# validating that the contents of CRLDistributionPoints match those of
    //# the IssuingDistributionPoint to prevent CRL substitution when the
    //# issuing CA is using them.
    pub(super) fn is_about(&self, certificate: &Certificate) -> bool {
        if self.issuer != certificate.issuer() {
            return false;
        }
        let Some(scope) = &self.scope else { return true };
        let kind = if certificate.is_ca() {
            !scope.only_contains_user_certs
        } else {
            !scope.only_contains_ca_certs
        };
        let whole = scope.only_some_reasons.is_none() && !scope.indirect_crl;
        let in_scope = kind && whole && !scope.only_contains_attribute_certs;
        let place = match &scope.distribution_point {
            None => true,
            Some(DistributionPointName::FullName(names)) => shares_name(certificate, names),
            Some(DistributionPointName::NameRelativeToCRLIssuer(_)) => false,
        };
        in_scope && place
    }

    pub(super) fn is_from_future(&self, now: SystemTime) -> bool {
        self.this_update > now + SKEW
    }

    pub(super) fn is_current(&self, now: SystemTime) -> bool {
        !self.is_from_future(now) && now < self.next_update
    }

    /// True if `newer` makes this list superfluous: same issuer and scope, not older.
    pub(super) fn is_replaced_by(&self, newer: &Self) -> bool {
        self.issuer == newer.issuer
            && self.scope == newer.scope
            && self.this_update <= newer.this_update
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Crl").field(&self.issuer_text()).finish()
    }
}

/// The serial number at this position.
fn at(der: &[u8], (start, length): (u32, u16)) -> &[u8] {
    let start = start as usize;
    der.get(start..start + usize::from(length)).unwrap_or_default()
}

/// True if `ca` is the issuer, signed the list, and may sign such lists.
fn is_signed(der: &[u8], issuer: &[u8], ca: &Certificate) -> bool {
    issuer == ca.subject()
        && ca.may_sign_crls()
        && Signed::parse(der).is_some_and(|signed| signed.is_by(ca.spki()))
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

fn shares_name(certificate: &Certificate, names: &GeneralNames) -> bool {
    certificate.crl_points().iter().any(|point| match &point.distribution_point {
        Some(DistributionPointName::FullName(own)) => own.iter().any(|name| names.contains(name)),
        _ => false,
    })
}

/// Issuer, thisUpdate and nextUpdate of a TBSCertList (RFC 5280 §5.1).
fn header(der: &[u8]) -> Option<(Vec<u8>, SystemTime, SystemTime)> {
    let mut tbs = Der::new(Signed::parse(der)?.message).nested(SEQUENCE)?;
    tbs.content(INTEGER)?;
    tbs.element(SEQUENCE)?;
    let issuer = tbs.element(SEQUENCE)?.to_vec();
    let mut time = || {
        let tag = tbs.peek()?;
        Some(Time::from_der(tbs.element(tag)?).ok()?.to_system_time())
    };
    Some((issuer, time()?, time()?))
}
