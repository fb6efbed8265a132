//! From an end-entity certificate to a trusted CA (RFC 5280 §6), by rustls-webpki, with what IKE adds:
//! key usages, the extended key usage of RFC 4945, CA constraints, the CA's own validity.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, Error, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath,
};

use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::policy::{self, Wanted};
use crate::signed::Signed;
use crate::verified::Verified;

/// Which extended key usages a certificate for IKE may have, besides none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExtendedKeyUsagePolicy {
    /// ipsecIKE or anyExtendedKeyUsage (RFC 4945 §5.1.3.12).
    #[default]
    Ike,
    /// serverAuth, clientAuth and the three withdrawn IPsec usages too, for CAs that know no other.
    IkeOrTls,
}

/// A validated path: every signature, validity, constraint and usage is in order. Revocation is not
/// part of it.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    /// The end entity first, then its issuer, and so on.
    pub certificates: Vec<Arc<Certificate>>,
    /// The trusted CA that issued the last of them.
    pub anchor: Arc<Certificate>,
}

impl Path {
    /// Each certificate with its issuer.
    pub fn links(&self) -> impl Iterator<Item = (&Arc<Certificate>, &Arc<Certificate>)> {
        let issuers = self.certificates.iter().skip(1).chain([&self.anchor]);
        self.certificates.iter().zip(issuers)
    }

    /// When the first certificate of the path expires.
    pub fn not_after(&self) -> SystemTime {
        let all = self.certificates.iter().chain([&self.anchor]);
        all.map(|certificate| certificate.not_after()).min().unwrap_or(UNIX_EPOCH)
    }
}

/// What a path is looked for with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathQuery<'a> {
    /// Trusted CAs.
    pub anchors: &'a [Arc<Certificate>],
    /// Certificates that may be part of the path. Not trusted.
    pub intermediates: &'a [Arc<Certificate>],
    /// One of these must be part of the path, unless there are none.
    pub cacerts: &'a [Arc<Certificate>],
    /// What is asked of its CAs besides.
    pub wanted: Wanted<'a>,
    /// Signatures that need not be verified again.
    pub verified: &'a Verified,
    /// Extended key usages.
    pub extended_key_usage: ExtendedKeyUsagePolicy,
    /// The time.
    pub now: SystemTime,
}

impl PathQuery<'_> {
    /// Finds a path for `end_entity`.
    pub fn find(&self, end_entity: &Arc<Certificate>) -> Result<Path, PkiError> {
        check_validity(end_entity, self.now)?;
        if !end_entity.may_sign() {
            return Err(PkiError::KeyUsage { subject: end_entity.subject_text() });
        }
        let anchors: Vec<&Arc<Certificate>> =
            self.anchors.iter().filter(|ca| check_validity(ca, self.now).is_ok()).collect();
        let algorithms = self.verified.algorithms();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            algorithms.iter().map(|algorithm| algorithm as _).collect();
        let intermediates = self.vouched_for(&anchors, &algorithms);
        let der: Vec<CertificateDer<'_>> =
            intermediates.iter().map(|ca| CertificateDer::from(ca.der())).collect();
        let trusted = anchors
            .iter()
            .map(|ca| webpki::anchor_from_trusted_cert(ca.as_pki_type()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| PkiError::Malformed("CA certificate"))?;
        let parsed = EndEntityCert::try_from(end_entity.as_pki_type())
            .map_err(|why| self.explain(&why, end_entity, &intermediates))?;

        let refusal = Cell::new(None);
        let check = |path: &VerifiedPath<'_>| {
            let path = resolve(path, end_entity, &intermediates, &trusted, &anchors)
                .ok_or(Error::UnknownIssuer)?;
            self.accepts(&path).map_err(|why| {
                refusal.set(Some(why));
                Error::UnknownIssuer
            })
        };
        let found = parsed.verify_for_usage(
            &algorithms,
            &trusted,
            &der,
            unix(self.now),
            Usage(self.extended_key_usage),
            None,
            Some(&check),
        );
        match found {
            Ok(path) => resolve(&path, end_entity, &intermediates, &trusted, &anchors)
                .ok_or(PkiError::Limits),
            Err(why) => match refusal.take() {
                Some(refusal) => Err(refusal),
                None => Err(self.explain(&why, end_entity, &intermediates)),
            },
        }
    }

    /// The intermediates whose signature leads to a trusted CA, in order of distance from it.
    ///
    /// The search for a path tries every order of certificates with fitting names; what no trusted CA
    /// vouches for is left out before, so that a peer cannot make it expensive.
    fn vouched_for(
        &self,
        anchors: &[&Arc<Certificate>],
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Vec<Arc<Certificate>> {
        let mut left: Vec<&Arc<Certificate>> = self.intermediates.iter().collect();
        left.retain(|certificate| !anchors.iter().any(|ca| ca.der() == certificate.der()));
        let mut vouched: Vec<Arc<Certificate>> = Vec::new();
        loop {
            let before = vouched.len();
            left.retain(|certificate| {
                let Some(signed) = Signed::parse(certificate.der()) else { return false };
                let mut issuers = anchors.iter().copied().chain(&vouched);
                let signed = issuers.any(|ca| {
                    ca.is_ca()
                        && ca.subject() == certificate.issuer()
                        && signed.is_by_one(ca.spki(), algorithms)
                });
                if signed {
                    vouched.push(Arc::clone(certificate));
                }
                !signed
            });
            if vouched.len() == before {
                return vouched;
            }
        }
    }

    /// What webpki does not look at.
    fn accepts(&self, path: &Path) -> Result<(), PkiError> {
        for (_, issuer) in path.links() {
            if !issuer.may_sign_certificates() {
                return Err(PkiError::KeyUsage { subject: issuer.subject_text() });
            }
        }
        self.by_the_right_ca(path)?;
        self.wanted.policies_in(path)
    }

    /// One of `cacerts`, or whom `ca_id` means: either will do.
    fn by_the_right_ca(&self, path: &Path) -> Result<(), PkiError> {
        let mut cas = path.links().map(|(_, issuer)| issuer);
        let listed = |ca: &Certificate| self.cacerts.iter().any(|listed| same_ca(listed, ca));
        let named = |ca: &Certificate| self.wanted.ca.is_some_and(|id| policy::is_ca(ca, id));
        let any = self.cacerts.is_empty() && self.wanted.ca.is_none();
        if any || cas.any(|ca| listed(ca) || named(ca)) {
            return Ok(());
        }
        let anchor = path.anchor.subject_text();
        Err(match self.wanted.ca {
            Some(_) => PkiError::CaIdentity { anchor },
            None => PkiError::CaNotAllowed { anchor },
        })
    }

    /// Turns a refusal of webpki into one that names the certificate.
    fn explain(&self, why: &Error, end_entity: &Certificate, cas: &[Arc<Certificate>]) -> PkiError {
        let subject = || end_entity.subject_text();
        match why {
            Error::CertExpired { .. } | Error::CertNotValidYet { .. } => {
                let dated = cas.iter().find_map(|ca| check_validity(ca, self.now).err());
                dated.unwrap_or(PkiError::Malformed("validity"))
            }
            Error::UnknownIssuer | Error::CertDistrusted => self.missing_issuer(end_entity, cas),
            Error::InvalidSignatureForPublicKey => PkiError::BadSignature { subject: subject() },
            Error::UnsupportedSignatureAlgorithmContext(_)
            | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
                PkiError::UnsupportedAlgorithm
            }
            Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => {
                PkiError::ExtendedKeyUsage
            }
            Error::NameConstraintViolation => PkiError::NameConstraints,
            Error::CaUsedAsEndEntity
            | Error::EndEntityUsedAsCa
            | Error::PathLenConstraintViolated => PkiError::BasicConstraints,
            Error::UnsupportedCriticalExtension => PkiError::CriticalExtension,
            Error::UnsupportedCertVersion => PkiError::Malformed("not version 3"),
            Error::SignatureAlgorithmMismatch => {
                PkiError::Malformed("two different signature algorithms")
            }
            Error::MaximumPathDepthExceeded
            | Error::MaximumPathBuildCallsExceeded
            | Error::MaximumSignatureChecksExceeded
            | Error::MaximumNameConstraintComparisonsExceeded => PkiError::Limits,
            _ => PkiError::Malformed("encoding or extensions"),
        }
    }

    /// No issuer: because a CA has expired, because an issuer's signature is wrong, or because there
    /// really is none.
    fn missing_issuer(&self, end_entity: &Certificate, cas: &[Arc<Certificate>]) -> PkiError {
        let mut last = end_entity;
        for _ in 0..=cas.len() {
            let named = |ca: &&Arc<Certificate>| ca.subject() == last.issuer();
            if let Some(ca) = self.anchors.iter().find(named) {
                return match check_validity(ca, self.now) {
                    Err(dated) => dated,
                    Ok(()) => PkiError::BadSignature { subject: end_entity.subject_text() },
                };
            }
            match cas.iter().find(named) {
                Some(ca) => last = ca,
                None => break,
            }
        }
        PkiError::UnknownCa { issuer: last.issuer_text() }
    }
}

/// Checks that `now` is within the validity of `certificate`.
pub(crate) fn check_validity(certificate: &Certificate, now: SystemTime) -> Result<(), PkiError> {
    let subject = || certificate.subject_text();
    if now < certificate.not_before() {
        let not_before = certificate.not_before();
        return Err(PkiError::NotYetValid { subject: subject(), not_before });
    }
    // Validity has whole seconds and includes the last.
    if now >= certificate.not_after() + Duration::from_secs(1) {
        let not_after = certificate.not_after();
        return Err(PkiError::Expired { subject: subject(), not_after });
    }
    Ok(())
}

/// True for two certificates of one CA: a renewed certificate has the same name and key.
pub(crate) fn same_ca(a: &Certificate, b: &Certificate) -> bool {
    a.subject() == b.subject() && a.spki() == b.spki()
}

/// Times before 1970 count as 1970.
pub(crate) fn unix(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

/// The path webpki found, in our certificates.
fn resolve(
    path: &VerifiedPath<'_>,
    end_entity: &Arc<Certificate>,
    intermediates: &[Arc<Certificate>],
    trusted: &[TrustAnchor<'_>],
    anchors: &[&Arc<Certificate>],
) -> Option<Path> {
    let mut certificates = vec![Arc::clone(end_entity)];
    for used in path.intermediate_certificates() {
        let used = used.der();
        certificates.push(intermediates.iter().find(|ca| ca.der() == &*used).map(Arc::clone)?);
    }
    let at = trusted.iter().position(|anchor| anchor == path.anchor())?;
    let anchor = anchors.get(at).copied().map(Arc::clone)?;
    Some(Path { certificates, anchor })
}

/// The extended key usages of RFC 4945 §5.1.3.12, for every certificate of the path.
struct Usage(ExtendedKeyUsagePolicy);

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, present: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        let mut others = Vec::new();
        for purpose in present {
            let oid = purpose?.to_decoded_oid();
            let tls = self.0 == ExtendedKeyUsagePolicy::IkeOrTls;
            if IKE_USAGES.contains(&&*oid) || tls && TLS_USAGES.contains(&&*oid) {
                return Ok(());
            }
            others.push(oid);
        }
        if others.is_empty() {
            return Ok(());
        }
        let required = KeyUsage::required(IPSEC_IKE);
        Err(Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext {
            required,
            present: others,
        }))
    }
}

/// id-kp-ipsecIKE, DER content.
const IPSEC_IKE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 17];
/// id-kp-ipsecIKE and anyExtendedKeyUsage.
const IKE_USAGES: &[&[usize]] = &[&[1, 3, 6, 1, 5, 5, 7, 3, 17], &[2, 5, 29, 37, 0]];
/// serverAuth, clientAuth; ipsecEndSystem, ipsecTunnel and ipsecUser, which RFC 4945 withdrew; and
/// iKEIntermediate, which some systems still ask for.
const TLS_USAGES: &[&[usize]] = &[
    &[1, 3, 6, 1, 5, 5, 7, 3, 1],
    &[1, 3, 6, 1, 5, 5, 7, 3, 2],
    &[1, 3, 6, 1, 5, 5, 7, 3, 5],
    &[1, 3, 6, 1, 5, 5, 7, 3, 6],
    &[1, 3, 6, 1, 5, 5, 7, 3, 7],
    &[1, 3, 6, 1, 5, 5, 8, 2, 2],
];
