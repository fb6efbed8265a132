//! From an end-entity certificate to a trust anchor (RFC 5280 §6.1), with the requirements of IKE: key usages, the
//! extended key usage of RFC 4945, CA constraints, the CA's own validity, and address blocks.
//!
//! `search` finds paths, and this module checks them. rustls-webpki does not do this, for several reasons. It
//! refuses each CA that has constraints on directory names, and every critical extension of RFC 3779. It does not
//! check the path length that an anchor allows, and it counts self-issued certificates. Its algorithms verify the
//! signatures.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use der::asn1::ObjectIdentifier;
use ike_proto::config::SchemeConstraints;

use crate::address_blocks;
use crate::certificate::Certificate;
use crate::error::PkiError;
use crate::names::Comparisons;
use crate::policy::{self, Wanted};
use crate::verified::Verified;
use search::Search;
pub(crate) use signer::Signer;

mod search;
mod signer;

/// The extended key usages that a certificate may have. None at all is always accepted. The same rule applies to
/// its CAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExtendedKeyUsagePolicy {
    /// ipsecIKE or anyExtendedKeyUsage alone (RFC 4945 §5.1.3.12).
    Ike,
    /// serverAuth, clientAuth and the withdrawn IPsec usages too, as in strongSwan. Few CAs know ipsecIKE, and
    /// Windows and Apple clients require serverAuth of gateways.
    #[default]
    IkeOrTls,
    /// The server of EAP-TLS and EAP-TTLS: serverAuth (RFC 5216 §5.3), eapOverLAN and eapOverPPP (RFC 4334), or
    /// one for IKE.
    EapServer,
    /// The peer of EAP-TLS and EAP-TTLS: as [`EapServer`](Self::EapServer), with clientAuth in place of serverAuth.
    EapPeer,
}

/// A validated path: every signature, validity, constraint and usage is correct. Revocation is not part of it.
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

/// The input of a search for a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathQuery<'a> {
    /// Trust anchors.
    pub anchors: &'a [Arc<Certificate>],
    /// Certificates that may be part of the path. Not trusted.
    pub intermediates: &'a [Arc<Certificate>],
    /// One of these must be part of the path, unless there are none.
    pub cacerts: &'a [Arc<Certificate>],
    /// Further requirements on its CAs.
    pub wanted: Wanted<'a>,
    /// Signatures that need not be verified again.
    pub verified: &'a Verified,
    /// A signature by a scheme of the program is verified only if it is named here.
    pub chain: &'a SchemeConstraints,
    /// Extended key usages.
    pub extended_key_usage: ExtendedKeyUsagePolicy,
    /// The time.
    pub now: SystemTime,
}

impl PathQuery<'_> {
    /// Finds a valid path for `end_entity` that `accept` takes, such as one without a revoked certificate.
    ///
    /// # Errors
    /// Why the first path is not accepted, or why there is none.
    pub fn find<T>(
        &self,
        end_entity: &Arc<Certificate>,
        mut accept: impl FnMut(&Path) -> Result<T, PkiError>,
    ) -> Result<(Path, T), PkiError> {
        self.check_end_entity(end_entity)?;
        let by = (self.verified, self.chain);
        let mut search = Search::new(end_entity, self.anchors, self.intermediates, by);
        search.first(|path| {
            self.check(path)?;
            accept(path)
        })
    }

    /// The checks that need no path. A CA's certificate may be a peer's, if its key may make signatures besides those
    /// on certificates.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-6.1
    //# In most cases, the target
    //# certificate will be an end entity certificate, but the target
    //# certificate may be a CA certificate as long as the subject public key
    //# is to be used for a purpose other than verifying the signature on a
    //# public key certificate.
    fn check_end_entity(&self, end_entity: &Certificate) -> Result<(), PkiError> {
        check_validity(end_entity, self.now)?;
        end_entity.check_peer()?;
        self.check_always(end_entity)
    }

    /// The checks of every certificate of a path but its anchor.
    fn check_always(&self, certificate: &Certificate) -> Result<(), PkiError> {
        certificate.check_form()?;
        if !self.extended_key_usage.allows(certificate) {
            return Err(PkiError::ExtendedKeyUsage { subject: certificate.subject_text() });
        }
        Ok(())
    }

    /// Checks the certificates above the end entity, and their constraints on the names and addresses below. The
    /// constraints of the anchor apply as well.
    fn check(&self, path: &Path) -> Result<(), PkiError> {
        for (_, issuer) in path.links() {
            check_validity(issuer, self.now)?;
            if !issuer.is_ca() {
                return Err(PkiError::BasicConstraints);
            }
            if !issuer.may_sign_certificates() {
                return Err(PkiError::KeyUsage { subject: issuer.subject_text() });
            }
        }
        for certificate in path.certificates.iter().skip(1) {
            self.check_always(certificate)?;
        }
        // The extensions of an anchor limit what it is trusted for, so all of its critical ones must be understood. Its
        // extendedKeyUsage is not asked: RFC 5280 §4.2.1.12 is about the key of an end entity.
        if path.anchor.asks_too_much() {
            return Err(PkiError::CriticalExtension { subject: path.anchor.subject_text() });
        }
        check_lengths(path)?;
        check_names(path)?;
        address_blocks::of_path(path)?;
        self.by_the_right_ca(path)?;
        self.wanted.policies_in(path)
    }

    /// A path needs one of `cacerts` or a CA with the identity `ca_id`; either suffices.
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
}

/// Checks that no CA has more CAs below it than it allows.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.9
//# In this case, it gives the maximum number of non-
//# self-issued intermediate certificates that may follow this
//# certificate in a valid certification path.
fn check_lengths(path: &Path) -> Result<(), PkiError> {
    let mut below = 0;
    for ca in path.certificates.iter().skip(1).chain([&path.anchor]) {
        if ca.path_len().is_some_and(|most| below > usize::from(most)) {
            return Err(PkiError::BasicConstraints);
        }
        below += usize::from(!ca.is_self_issued());
    }
    Ok(())
}

/// Checks that the names of every certificate are within the constraints of all CAs above it.
//= https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10
//# Name constraints are not applied to self-issued certificates (unless
//# the certificate is the final certificate in the path).
fn check_names(path: &Path) -> Result<(), PkiError> {
    let mut left = Comparisons::default();
    let mut below = Vec::new();
    for (certificate, issuer) in path.links() {
        if below.is_empty() || !certificate.is_self_issued() {
            below.push(certificate);
        }
        if let Some(constraints) = issuer.name_constraints() {
            below.iter().try_for_each(|one| constraints.allow(one, &mut left))?;
        }
    }
    Ok(())
}

/// Checks that `now` is within the validity of `certificate`.
pub(crate) fn check_validity(certificate: &Certificate, now: SystemTime) -> Result<(), PkiError> {
    let subject = || certificate.subject_text();
    if now < certificate.not_before() {
        let not_before = certificate.not_before();
        return Err(PkiError::NotYetValid { subject: subject(), not_before, now });
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
    a.subject_hash() == b.subject_hash() && a.spki() == b.spki()
}

impl ExtendedKeyUsagePolicy {
    /// True if `certificate` has no extendedKeyUsage, or one of the purposes.
    pub(crate) fn allows(self, certificate: &Certificate) -> bool {
        let others = match self {
            Self::Ike => &[][..],
            Self::IkeOrTls => &IKE_OR_TLS,
            Self::EapServer => &EAP_SERVER,
            Self::EapPeer => &EAP_PEER,
        };
        certificate.purposes().is_none_or(|purposes| {
            purposes.iter().any(|purpose| IKE.contains(purpose) || others.contains(purpose))
        })
    }
}

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

/// id-kp-ipsecIKE and anyExtendedKeyUsage.
const IKE: [ObjectIdentifier; 2] = [oid("1.3.6.1.5.5.7.3.17"), oid("2.5.29.37.0")];
const SERVER_AUTH: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.2");
/// ipsecEndSystem, ipsecTunnel and ipsecUser, which RFC 4945 withdrew, and iKEIntermediate, which some systems
/// still require.
const IKE_OR_TLS: [ObjectIdentifier; 6] = [
    SERVER_AUTH,
    CLIENT_AUTH,
    oid("1.3.6.1.5.5.7.3.5"),
    oid("1.3.6.1.5.5.7.3.6"),
    oid("1.3.6.1.5.5.7.3.7"),
    oid("1.3.6.1.5.5.8.2.2"),
];
const EAP_OVER_PPP: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.13");
const EAP_OVER_LAN: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.14");
const EAP_SERVER: [ObjectIdentifier; 3] = [SERVER_AUTH, EAP_OVER_PPP, EAP_OVER_LAN];
const EAP_PEER: [ObjectIdentifier; 3] = [CLIENT_AUTH, EAP_OVER_PPP, EAP_OVER_LAN];
