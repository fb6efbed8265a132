//! The verdict on a peer's certificates.

use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::config::SchemeConstraints;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::{CertEncoding, IdType};

use crate::certificate::Certificate;
use crate::error::{EncodingProblem, PkiError};
use crate::identity;
use crate::path::{ExtendedKeyUsagePolicy, Path, PathQuery, check_validity};
use crate::revocation::{FetchRequest, RevocationPolicy};
use crate::trust::TrustStore;

/// What a connection asks of its peer's certificate: the options of `remote` in swanctl.conf.
#[derive(Debug, Clone, Default)]
pub struct PeerPolicy {
    /// `cacerts`: the path must contain one of these CAs, which are trusted for it. Empty: any trusted
    /// CA will do.
    pub cacerts: Vec<Arc<Certificate>>,
    /// `certs`: the peer's certificate must be one of these, which are trusted themselves and need no
    /// CA. Empty: any certificate will do.
    pub certs: Vec<Arc<Certificate>>,
    /// `pubkeys`: raw public keys (RFC 7670), shown as such or in a certificate, of which nothing else
    /// counts then. Empty: raw keys are refused. Otherwise only these and `certs` will do.
    pub pubkeys: Vec<RawKey>,
    /// `revocation`.
    pub revocation: RevocationPolicy,
    /// Extended key usages.
    pub extended_key_usage: ExtendedKeyUsagePolicy,
    /// Key types, sizes and signature schemes of the path, the peer's own key included.
    pub chain: SchemeConstraints,
}

impl PeerPolicy {
    /// The entry of `pubkeys` that makes the key in `spki` that of `id`.
    fn known(&self, id: &IdData, spki: &[u8]) -> Option<&RawKey> {
        self.pubkeys.iter().find(|key| key.spki == spki && key.id.matches(id.as_id()))
    }
}

/// A raw public key and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawKey {
    /// The only identity the key authenticates. A raw key says nothing about its owner, so the
    /// configuration must.
    pub id: IdData,
    /// DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
}

/// A peer whose public key may be used to check its AUTH payload: the key belongs to the identity it
/// asserts. Only [`verify_peer`] makes one.
#[derive(Debug, Clone)]
pub struct TrustedPeer {
    /// The peer's public key: DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// The certificate; `None` for a raw public key.
    pub certificate: Option<Arc<Certificate>>,
    /// From the certificate to the trusted CA; empty for a raw public key. The certificate alone if it is trusted
    /// without a CA.
    pub path: Vec<Arc<Certificate>>,
    /// When trust ends: the first expiry on the path. `None` for a raw public key.
    pub not_after: Option<SystemTime>,
    /// Whether anything about revocation is left to find out.
    pub revocation: Revocation,
}

/// What is left to find out about revocation.
#[must_use]
#[derive(Debug, Clone)]
pub enum Revocation {
    /// Nothing.
    Settled,
    /// The peer is not to be accepted yet: fetch these, hand each result to
    /// [`RevocationStore::deliver`](crate::RevocationStore::deliver), and call [`verify_peer`] again.
    /// Each round leaves fewer addresses to ask, so that the rounds end. Fetch only after the peer has
    /// proven to have the key.
    Pending(Vec<FetchRequest>),
}

impl TrustedPeer {
    /// True if the certificate has the identity `id` besides the one that was asserted: the peer may
    /// be looked up in the policy by it too (RFC 4945 §3.1.10). `id` may be a DN pattern.
    pub fn has_identity(&self, id: &IdData) -> bool {
        let names = self.certificate.iter().flat_map(|certificate| certificate.identities());
        names.into_iter().any(|name| id.covers(name.as_id()))
    }
}

/// Decides whether the key in a peer's CERT payloads may authenticate `id`.
///
/// `certs` are the bodies of all its CERT payloads in order; the first has the peer's own key. Without
/// any, the certificates and keys the policy names are looked through for the identity. `id` is what
/// the peer asserts in its ID payload; whether the connection admits that identity is another question.
///
/// Nothing is fetched, and nothing is asked to be fetched unless the peer's path ends at a trusted CA
/// and the certificate has the identity.
///
/// # Errors
/// [`PkiError`] says what is wrong.
pub fn verify_peer(
    id: &IdData,
    certs: &[Cert<'_>],
    policy: &PeerPolicy,
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    verify_peer_by(id, certs, policy, &policy.chain, trust, now)
}

/// As [`verify_peer`], with `chain` in place of what `policy` says of it.
pub(crate) fn verify_peer_by(
    id: &IdData,
    certs: &[Cert<'_>],
    policy: &PeerPolicy,
    chain: &SchemeConstraints,
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    match Presented::read(certs, trust)? {
        Presented::RawKey(spki) => raw_key(id, spki, policy),
        Presented::Certificates(end_entity, _) if policy.known(id, end_entity.spki()).is_some() => {
            raw_key(id, end_entity.spki(), policy)
        }
        Presented::Certificates(end_entity, others) => {
            certificate(id, &end_entity, &others, (policy, chain), trust, now)
        }
        Presented::Nothing => configured(id, (policy, chain), trust, now),
    }
}

/// The usable content of a peer's CERT payloads.
enum Presented<'a> {
    Nothing,
    RawKey(&'a [u8]),
    Certificates(Arc<Certificate>, Vec<Arc<Certificate>>),
}

impl<'a> Presented<'a> {
    fn read(certs: &[Cert<'a>], trust: &TrustStore) -> Result<Self, PkiError> {
        let verified = trust.verified();
        if certs.len() > MAX_CERTS {
            return Err(PkiError::TooMuch("CERT payloads"));
        }
        if certs.iter().map(|cert| cert.data.len()).sum::<usize>() > MAX_CERTS_LEN {
            return Err(PkiError::TooMuch("octets of certificates"));
        }
        let Some(first) = certs.first() else { return Ok(Self::Nothing) };
        match first.encoding {
            CertEncoding::X509_SIGNATURE => {}
            CertEncoding::RAW_PUBLIC_KEY => return Ok(Self::RawKey(first.data)),
            CertEncoding::HASH_AND_URL_X509 | CertEncoding::HASH_AND_URL_BUNDLE => {
                return Err(PkiError::Encoding(first.encoding, EncodingProblem::HashAndUrl));
            }
            other => return Err(PkiError::Encoding(other, EncodingProblem::Unsupported)),
        }
        let end_entity = verified.parsed(first.data).map_err(PkiError::Malformed)?;
        let mut others: Vec<Arc<Certificate>> = Vec::new();
        for cert in certs.iter().skip(1) {
            // RFC 4945 §3.3.10: what is unknown, malformed, repeated or of no use is passed over.
            let useful = cert.encoding == CertEncoding::X509_SIGNATURE
                && !others.iter().any(|other| other.der() == cert.data);
            let parsed = if useful { verified.parsed(cert.data).ok() } else { None };
            if let Some(ca) = parsed.filter(|ca| !ca.is_self_issued() || ca.is_ca()) {
                others.push(ca);
            }
        }
        if others.len() > MAX_INTERMEDIATES {
            return Err(PkiError::TooMuch("intermediate certificates"));
        }
        Ok(Self::Certificates(end_entity, others))
    }
}

fn certificate(
    id: &IdData,
    end_entity: &Arc<Certificate>,
    others: &[Arc<Certificate>],
    (policy, chain): (&PeerPolicy, &SchemeConstraints),
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let pinned = policy.certs.iter().any(|pin| pin.der() == end_entity.der());
    let any = policy.certs.is_empty() && policy.pubkeys.is_empty();
    if !pinned && !any {
        return Err(PkiError::NotPinned { subject: end_entity.subject_text() });
    }
    let anchors: Vec<_> = trust.cas().iter().chain(&policy.cacerts).map(Arc::clone).collect();
    let intermediates: Vec<_> =
        others.iter().chain(trust.intermediates()).map(Arc::clone).collect();
    let query = PathQuery {
        anchors: &anchors,
        intermediates: &intermediates,
        cacerts: &policy.cacerts,
        verified: trust.verified(),
        extended_key_usage: policy.extended_key_usage,
        now,
    };
    let path = match query.find(end_entity) {
        Err(PkiError::UnknownCa { .. } | PkiError::BasicConstraints)
            if pinned && policy.cacerts.is_empty() =>
        {
            None
        }
        found => Some(found?),
    };
    for certificate in path.iter().flat_map(|path| &path.certificates) {
        trust.verified().keep(certificate);
    }
    identity::check(id, end_entity)?;
    check_strength(end_entity, path.as_ref(), chain)?;
    let revocation = match &path {
        Some(path) => revocation(path, policy, trust, now)?,
        // Nobody could have revoked a certificate that is trusted without a CA.
        None => Revocation::Settled,
    };
    Ok(TrustedPeer {
        spki: end_entity.spki().to_vec(),
        certificate: Some(Arc::clone(end_entity)),
        path: match &path {
            Some(path) => path.certificates.iter().chain([&path.anchor]).map(Arc::clone).collect(),
            None => vec![Arc::clone(end_entity)],
        },
        not_after: Some(path.map_or(end_entity.not_after(), |path| path.not_after())),
        revocation,
    })
}

/// Is every key and every signature of the path as good as `auth` asks for? The signature on the CA
/// it ends at proves nothing, and is not looked at.
fn check_strength(
    end_entity: &Certificate,
    path: Option<&Path>,
    chain: &SchemeConstraints,
) -> Result<(), PkiError> {
    if *chain == SchemeConstraints::default() {
        return Ok(());
    }
    let weak =
        |certificate: &Certificate| PkiError::Strength { subject: certificate.subject_text() };
    if !chain.allows_key(end_entity.spki()) {
        return Err(weak(end_entity));
    }
    for (certificate, issuer) in path.iter().flat_map(|path| path.links()) {
        if !chain.allows_key(issuer.spki()) {
            return Err(weak(issuer));
        }
        if !certificate.signature_scheme().is_some_and(|scheme| chain.allows(scheme)) {
            return Err(weak(certificate));
        }
    }
    Ok(())
}

/// The path is good and the identity bound: only now does revocation matter.
fn revocation(
    path: &Path,
    policy: &PeerPolicy,
    trust: &TrustStore,
    now: SystemTime,
) -> Result<Revocation, PkiError> {
    let pending = trust.revocation.check(path, policy.revocation, now)?;
    Ok(if pending.is_empty() { Revocation::Settled } else { Revocation::Pending(pending) })
}

/// RFC 7670: the key itself is what is trusted, for exactly the identity it is configured with.
fn raw_key(id: &IdData, spki: &[u8], policy: &PeerPolicy) -> Result<TrustedPeer, PkiError> {
    let known = policy.known(id, spki).ok_or(PkiError::UnknownRawKey)?;
    SubjectPublicKeyInfo::parse(&known.spki).ok_or(PkiError::Malformed("raw public key"))?;
    Ok(TrustedPeer {
        spki: known.spki.clone(),
        certificate: None,
        path: Vec::new(),
        not_after: None,
        revocation: Revocation::Settled,
    })
}

/// The peer sent nothing: RFC 7296 §3.6 lets it, if this end has its certificate. The newest that is
/// valid is taken.
fn configured(
    id: &IdData,
    (policy, chain): (&PeerPolicy, &SchemeConstraints),
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let mine = |pin: &&Arc<Certificate>| {
        identity::check(id, pin).is_ok() && check_validity(pin, now).is_ok()
    };
    let newest = policy.certs.iter().filter(mine).max_by_key(|pin| pin.not_before());
    if let Some(pin) = newest {
        return certificate(id, pin, &[], (policy, chain), trust, now);
    }
    match policy.pubkeys.iter().find(|key| key.id.matches(id.as_id())) {
        Some(key) => raw_key(id, &key.spki, policy),
        None if id.kind == IdType::NULL => Err(PkiError::IdentityType(id.clone())),
        None => Err(PkiError::NoCertificate),
    }
}

/// Most CERT payloads looked at.
pub const MAX_CERTS: usize = 16;
/// Most octets in all of them.
pub const MAX_CERTS_LEN: usize = 256 * 1024;
/// Most certificates besides the peer's own.
pub const MAX_INTERMEDIATES: usize = 8;
