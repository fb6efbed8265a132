//! The verdict on a peer's certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_proto::config::{IdMatch, SchemeConstraints};
use ike_proto::crypto::SignatureScheme;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::{CertEncoding, IdType};

use crate::address_blocks::{self, AddressBlocks, Addresses};
use crate::certificate::Certificate;
use crate::error::{EncodingProblem, PkiError};
use crate::identity;
use crate::path::{ExtendedKeyUsagePolicy, Path, PathQuery, Signer, check_validity};
use crate::policy::{CertificatePolicy, Wanted};
use crate::revocation::{FetchRequest, InBand, RevocationPolicy};
use crate::signed::Schemes;
use crate::trust::TrustStore;

/// The requirements of a connection on its peer's certificate: the options of `remote` in swanctl.conf.
#[derive(Debug, Clone, Default)]
pub struct PeerPolicy {
    /// `cacerts`: the path must contain one of these CAs. Self-signed ones are trust anchors for it. Others are
    /// only links, and the CAs above them are checked as always. Empty: any trust anchor is accepted.
    pub cacerts: Vec<Arc<Certificate>>,
    /// `ca_id`: the path must contain a CA that has this identity, or one of `cacerts`. A key ID is compared with
    /// the certificate and its key.
    pub ca_id: Option<IdMatch>,
    /// `cert_policy`: the peer's certificate must have all of these policies, and its CAs must allow them.
    pub cert_policies: Vec<CertificatePolicy>,
    /// `certs`: the peer's certificate must be one of these. They are trusted themselves and need no CA. Empty:
    /// any certificate is accepted.
    pub certs: Vec<Arc<Certificate>>,
    /// `pubkeys`: accepted raw public keys (RFC 7670). The peer may send the key as such or in a certificate, of
    /// which only the key counts. Empty: raw keys are refused. Otherwise only these and `certs` are accepted.
    pub pubkeys: Vec<RawKey>,
    /// Certificates that are known for keys of `pubkeys`, besides one that the peer sends. If a path leads from one
    /// to a trusted CA, the key is judged by `revocation` as the certificate is. Otherwise only the key counts.
    pub key_certificates: Vec<Arc<Certificate>>,
    /// `revocation`.
    pub revocation: RevocationPolicy,
    /// `ocsp` with `request` or `both`: IKE requests OCSP responses, and those in CERT payloads count (RFC 4806).
    /// Otherwise they are ignored.
    pub ocsp: bool,
    /// `ocsp_max_age`: the time for which such a response about a good certificate counts; zero: until its
    /// nextUpdate.
    pub ocsp_max_age: Duration,
    /// Extended key usages, in IKE.
    pub extended_key_usage: ExtendedKeyUsagePolicy,
    /// Key types, sizes and signature schemes of the path, the peer's own key included.
    pub chain: SchemeConstraints,
}

impl PeerPolicy {
    /// The anchors of a path by this policy, and the CAs that only link. `cacerts` that are not self-signed are a
    /// condition on the path and no anchors. As anchors, their revocation and the constraints on them would not be
    /// checked.
    pub(crate) fn roots_and_links(
        &self,
        trust: &TrustStore,
    ) -> (Vec<Arc<Certificate>>, Vec<Arc<Certificate>>) {
        let own = |ca: &&Arc<Certificate>| trust.verified().is_self_signed(ca);
        let (own, links): (Vec<_>, Vec<_>) = self.cacerts.iter().partition(own);
        let anchors = trust.cas().iter().chain(own).map(Arc::clone).collect();
        (anchors, trust.intermediates().iter().chain(links).map(Arc::clone).collect())
    }

    /// The query for paths that this policy takes, over what [`roots_and_links`](Self::roots_and_links) gives and the
    /// certificates of the peer.
    pub(crate) fn query<'a>(
        &'a self,
        (anchors, intermediates): (&'a [Arc<Certificate>], &'a [Arc<Certificate>]),
        trust: &'a TrustStore,
        extended_key_usage: ExtendedKeyUsagePolicy,
        now: SystemTime,
    ) -> PathQuery<'a> {
        PathQuery {
            anchors,
            intermediates,
            cacerts: &self.cacerts,
            wanted: self.wanted(),
            verified: trust.verified(),
            chain: &self.chain,
            extended_key_usage,
            now,
        }
    }

    /// True without `cacerts` and `ca_id`: any trust anchor is accepted.
    pub(crate) fn takes_any_ca(&self) -> bool {
        self.cacerts.is_empty() && self.ca_id.is_none()
    }

    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted { ca: self.ca_id.as_ref(), policies: &self.cert_policies }
    }

    /// The entry of `pubkeys` that makes the key in `spki` that of `id`.
    fn known(&self, id: &IdData, spki: &[u8]) -> Option<&RawKey> {
        self.pubkeys.iter().find(|key| key.spki == spki && key.id.matches(id.as_id()))
    }
}

/// A raw public key and the identity of its owner.
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
    /// The certificates from the peer's to the trusted CA; empty for a raw public key without a known certificate.
    /// Only the peer's certificate, if it is trusted without a CA.
    pub path: Vec<Arc<Certificate>>,
    /// The addresses that the peer's certificates authorize (RFC 3779). `None` for no limit.
    pub addresses: Option<Addresses>,
    /// The schemes of the program by which certificates of the path are signed.
    pub schemes: Vec<SignatureScheme>,
    /// When trust ends: the first expiry on the path. `None` for a raw public key.
    pub not_after: Option<SystemTime>,
    /// Whether revocation is still to be checked.
    pub revocation: Revocation,
    /// Certificates of the path whose status is not known, although URLs were asked: `revocation` accepts them.
    pub unchecked: Vec<Arc<Certificate>>,
}

/// What is still to be done about revocation.
#[must_use]
#[derive(Debug, Clone)]
pub enum Revocation {
    /// Nothing.
    Settled,
    /// The peer must not be accepted yet. Fetch these, hand each result to
    /// [`RevocationStore::deliver`](crate::RevocationStore::deliver), and call [`verify_peer`] again. Each round
    /// leaves fewer URLs to ask, so the rounds end. Fetch only after the peer has proven that it has the key.
    /// Before that, the list may be empty: the OCSP responses that it sent are then still to be examined.
    Pending(Vec<FetchRequest>),
}

impl TrustedPeer {
    /// True if the certificate has the identity `id` besides the asserted one, so that the peer may be looked up
    /// in the policy by it too (RFC 4945 §3.1.10). `id` may be a DN pattern.
    pub fn has_identity(&self, id: &IdData) -> bool {
        let names = self.certificate.iter().flat_map(|certificate| certificate.identities());
        names.into_iter().any(|name| id.covers(name.as_id()))
    }
}

/// Decides whether the key in a peer's CERT payloads may authenticate `id`.
///
/// `certs` are the bodies of all its CERT payloads in order; the first has the peer's own key. If there are none,
/// the certificates and keys in the policy are searched for the identity. `id` is the identity that the peer
/// asserts in its ID payload. This function does not decide whether the connection admits that identity.
///
/// It fetches nothing. It asks for fetches only if the peer's path ends at a trusted CA and the certificate has
/// the identity.
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
    let (chain, usage) = (&policy.chain, policy.extended_key_usage);
    verify_peer_by(id, certs, Terms { policy, chain, usage, proven: true }, trust, now)
}

/// The terms on which a peer is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub policy: &'a PeerPolicy,
    /// Replaces `chain` of `policy`.
    pub chain: &'a SchemeConstraints,
    /// Replaces `extended_key_usage` of `policy`.
    pub usage: ExtendedKeyUsagePolicy,
    /// The peer has proven that it has the key. If not, OCSP responses that it sends are not examined yet.
    pub proven: bool,
}

/// As [`verify_peer`], on `terms`.
pub(crate) fn verify_peer_by(
    id: &IdData,
    certs: &[Cert<'_>],
    terms: Terms<'_>,
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let policy = terms.policy;
    if certs.iter().map(|cert| cert.data.len()).sum::<usize>() > MAX_CERTS_LEN {
        return Err(PkiError::TooMuch { what: "octets of certificates", most: MAX_CERTS_LEN });
    }
    let (responses, certs): (Vec<Cert<'_>>, Vec<Cert<'_>>) =
        certs.iter().copied().partition(|cert| cert.encoding == CertEncoding::OCSP);
    let responses = responses.iter().filter(|_| policy.ocsp).take(MAX_RESPONSES);
    let responses: Vec<&[u8]> = responses.map(|response| response.data).collect();
    let in_band = InBand { responses: &responses, max_age: policy.ocsp_max_age };
    match Presented::read(&certs, trust)? {
        Presented::RawKey(spki) => raw_key(id, spki, &[], (terms, in_band), trust, now),
        Presented::Certificates(end_entity, others)
            if policy.known(id, end_entity.spki()).is_some() =>
        {
            let shown: Vec<_> = [Arc::clone(&end_entity)].into_iter().chain(others).collect();
            raw_key(id, end_entity.spki(), &shown, (terms, in_band), trust, now)
        }
        Presented::Certificates(end_entity, others) => {
            certificate(id, &end_entity, &others, (terms, in_band), trust, now)
        }
        Presented::Nothing => configured(id, (terms, in_band), trust, now),
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
            return Err(PkiError::TooMuch { what: "CERT payloads", most: MAX_CERTS });
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
            // RFC 4945 §3.3.10: unknown, malformed, repeated and useless certificates are ignored.
            let useful = cert.encoding == CertEncoding::X509_SIGNATURE
                && !others.iter().any(|other| other.der() == cert.data);
            let parsed = if useful { verified.parsed(cert.data).ok() } else { None };
            // A CA's key for its lists alone need not be that of a CA.
            let lists = |ca: &Certificate| ca.key_usages().contains(&"cRLSign");
            if let Some(ca) = parsed.filter(|ca| !ca.is_self_issued() || ca.is_ca() || lists(ca)) {
                others.push(ca);
            }
        }
        if others.len() > MAX_INTERMEDIATES {
            let what = "certificates besides its own";
            return Err(PkiError::TooMuch { what, most: MAX_INTERMEDIATES });
        }
        Ok(Self::Certificates(end_entity, others))
    }
}

fn certificate(
    id: &IdData,
    end_entity: &Arc<Certificate>,
    others: &[Arc<Certificate>],
    (terms, in_band): (Terms<'_>, InBand<'_>),
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let Terms { policy, chain, usage, .. } = terms;
    let pinned = policy.certs.iter().any(|pin| pin.der() == end_entity.der());
    let any = policy.certs.is_empty() && policy.pubkeys.is_empty();
    if !pinned && !any {
        return Err(PkiError::NotPinned { subject: end_entity.subject_text() });
    }
    let (anchors, links) = policy.roots_and_links(trust);
    let intermediates: Vec<_> = others.iter().map(Arc::clone).chain(links).collect();
    let query = policy.query((&anchors, &intermediates), trust, usage, now);
    let query = PathQuery { chain, ..query };
    let found = query.find(end_entity, |path| {
        for certificate in &path.certificates {
            trust.verified().keep(certificate);
        }
        identity::check(id, end_entity)?;
        check_strength(end_entity, Some(path), chain, trust.verified().schemes())?;
        revocation(path, &query, (terms, in_band), trust)
    });
    match found {
        // Without a path to a trusted CA nothing is fetched. A list at hand that revokes the certificate counts, since
        // the peer may have withheld the certificate of the CA that signed the list.
        Err(
            PkiError::UnknownCa { .. }
            | PkiError::BasicConstraints
            | PkiError::TrustAnchor { .. }
            // A trusted CA has the name of its issuer, and is another one.
            | PkiError::BadSignature { .. }
            // Its CA is known, and says nothing to this connection.
            | PkiError::UnnamedScheme { .. },
        ) if pinned && policy.cacerts.is_empty() && policy.wanted().is_nothing() => {
            identity::check(id, end_entity)?;
            check_strength(end_entity, None, chain, trust.verified().schemes())?;
            if !trust.verified().is_self_signed(end_entity) {
                let known = anchors.iter().chain(&intermediates).chain(&policy.cacerts);
                trust.revocation.check_pinned(end_entity, known, now)?;
            }
            Ok(TrustedPeer {
                spki: end_entity.spki().to_vec(),
                certificate: Some(Arc::clone(end_entity)),
                path: vec![Arc::clone(end_entity)],
                addresses: end_entity.address_blocks().map(AddressBlocks::of_trusted),
                schemes: Vec::new(),
                not_after: Some(end_entity.not_after()),
                revocation: Revocation::Settled,
                unchecked: Vec::new(),
            })
        }
        found => {
            let (path, (revocation, unchecked)) = found?;
            Ok(TrustedPeer {
                spki: end_entity.spki().to_vec(),
                certificate: Some(Arc::clone(end_entity)),
                addresses: address_blocks::of_path(&path)?,
                schemes: brought(&path, trust.verified().schemes()),
                not_after: Some(path.not_after()),
                path: path.certificates.into_iter().chain([path.anchor]).collect(),
                revocation,
                unchecked,
            })
        }
    }
}

/// Checks that every key and every signature of the path is as strong as `auth` requires. The signature on the CA
/// at the end proves nothing, and is not checked.
///
/// The search takes no path with a scheme of the program that is not named. If `auth` says nothing about paths, the engine
/// judges the peer's own key.
fn check_strength(
    end_entity: &Certificate,
    path: Option<&Path>,
    chain: &SchemeConstraints,
    schemes: &Schemes,
) -> Result<(), PkiError> {
    if chain.takes_all_built_in() {
        return Ok(());
    }
    let weak =
        |certificate: &Certificate| PkiError::Strength { subject: certificate.subject_text() };
    if !chain.allows_key(end_entity.spki()) {
        return Err(weak(end_entity));
    }
    for (certificate, issuer) in path.iter().flat_map(|path| path.links()) {
        let scheme = schemes.of_certificate(certificate.der(), issuer.spki());
        let scheme = scheme.or_else(|| certificate.signature_scheme());
        if !scheme.is_some_and(|scheme| chain.allows(&scheme)) {
            return Err(weak(certificate));
        }
        if !chain.allows_key(issuer.spki()) {
            return Err(weak(issuer));
        }
    }
    Ok(())
}

/// The schemes of the program by which certificates of the path are signed, each once.
fn brought(path: &Path, schemes: &Schemes) -> Vec<SignatureScheme> {
    let mut all = Vec::new();
    for (certificate, issuer) in path.links() {
        if let Some(scheme) = schemes.of_certificate(certificate.der(), issuer.spki())
            && !all.contains(&scheme)
        {
            all.push(scheme);
        }
    }
    all
}

fn unnamed(scheme: &SignatureScheme, certificate: &Certificate) -> PkiError {
    PkiError::UnnamedScheme { subject: certificate.subject_text(), scheme: scheme.to_string() }
}

/// Checks revocation, once the path is good and the identity bound.
///
/// The certificates of a stranger may belong to anybody, and each OCSP response costs a verification. Responses in
/// CERT payloads therefore wait until the peer has proven that it has the key.
fn revocation(
    path: &Path,
    query: &PathQuery<'_>,
    (terms, in_band): (Terms<'_>, InBand<'_>),
    trust: &TrustStore,
) -> Result<(Revocation, Vec<Arc<Certificate>>), PkiError> {
    let now = query.now;
    let policy = terms.policy.revocation;
    let signers = |certificate: &Certificate, issuer: &Arc<Certificate>| {
        list_signers(query, (terms.chain, policy), (certificate, issuer), &path.anchor, trust)
    };
    if !terms.proven && !in_band.responses.is_empty() {
        return match trust.revocation.check(path, &signers, (policy, InBand::default()), now) {
            Err(revoked @ PkiError::Revoked { .. }) => Err(revoked),
            _ => Ok((Revocation::Pending(Vec::new()), Vec::new())),
        };
    }
    let checked = trust.revocation.check(path, &signers, (policy, in_band), now)?;
    let revocation = match checked.pending.is_empty() {
        true => Revocation::Settled,
        false => Revocation::Pending(checked.pending),
    };
    Ok((revocation, checked.unchecked))
}

/// Those besides `issuer` who may sign lists about `certificate`, whose path ends at `anchor`. `chain` is what the keys
/// and signatures of their own paths must satisfy.
///
/// A signer that is known to be revoked is none: by a list of its own issuer, or of another key of the CA. One whose status
/// is not known, and should be by `policy`, may revoke, and call nothing good.
pub(crate) fn list_signers(
    query: &PathQuery<'_>,
    (chain, policy): (&SchemeConstraints, RevocationPolicy),
    (certificate, issuer): (&Certificate, &Certificate),
    anchor: &Arc<Certificate>,
    trust: &TrustStore,
) -> Vec<Signer> {
    let (store, now) = (&trust.revocation, query.now);
    let judge = |path: &Path, others: &dyn Fn(&Certificate, &Certificate) -> Vec<Signer>| {
        let first = path.certificates.first().unwrap_or(&path.anchor);
        let schemes = trust.verified().schemes();
        check_strength(first, Some(path), chain, schemes)?;
        let scheme = schemes.of_key(first.spki()).cloned().map(SignatureScheme::Outside);
        if let Some(scheme) = scheme.filter(|scheme| !chain.allows(scheme)) {
            return Err(unnamed(&scheme, first));
        }
        store.standing(path, others, policy, now)
    };
    let nobody = |_: &Certificate, _: &Certificate| Vec::new();
    let by_issuers = |path: &Path| judge(path, &nobody);
    let by_all = |path: &Path| {
        // A signer's own list must not clear the signer.
        let own = path.certificates.first().map(|own| own.spki());
        let others = |certificate: &Certificate, issuer: &Certificate| {
            let mut all = query.signers(certificate, issuer, anchor, &by_issuers);
            all.retain(|other| Some(other.certificate.spki()) != own);
            all
        };
        judge(path, &others)
    };
    query.signers(certificate, issuer, anchor, &by_all)
}

/// RFC 7670: the key itself is trusted, for exactly the identity that it is configured with. `shown` are the
/// certificates that the peer sends, its own first. If a certificate of the key leads to a trusted CA, its revocation
/// counts.
fn raw_key(
    id: &IdData,
    spki: &[u8],
    shown: &[Arc<Certificate>],
    (terms, in_band): (Terms<'_>, InBand<'_>),
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let policy = terms.policy;
    let known = policy.known(id, spki).ok_or(PkiError::UnknownRawKey)?;
    policy.wanted().of_raw_key()?;
    SubjectPublicKeyInfo::parse(&known.spki).ok_or(PkiError::Malformed("raw public key"))?;
    let mut peer = TrustedPeer {
        spki: known.spki.clone(),
        certificate: None,
        path: Vec::new(),
        addresses: None,
        schemes: Vec::new(),
        not_after: None,
        revocation: Revocation::Settled,
        unchecked: Vec::new(),
    };
    let (anchors, links) = policy.roots_and_links(trust);
    let intermediates: Vec<_> = shown.iter().skip(1).map(Arc::clone).chain(links).collect();
    let query = PathQuery {
        cacerts: &[],
        wanted: Wanted::default(),
        chain: terms.chain,
        ..policy.query((&anchors, &intermediates), trust, terms.usage, now)
    };
    let mut own = shown.iter().take(1).chain(&policy.key_certificates).chain(&policy.certs);
    let Some(certificate) = own.find(|own| own.spki() == known.spki) else { return Ok(peer) };
    let found = query.find(certificate, |path| revocation(path, &query, (terms, in_band), trust));
    match found {
        Ok((path, (revocation, unchecked))) => {
            (peer.revocation, peer.unchecked) = (revocation, unchecked);
            peer.path = path.certificates.into_iter().chain([path.anchor]).collect();
            Ok(peer)
        }
        Err(why @ (PkiError::Revoked { .. } | PkiError::RevocationUnknown { .. })) => Err(why),
        // Nobody vouches for the certificate, so nobody can revoke it.
        Err(_) => Ok(peer),
    }
}

/// The peer sent no certificate. RFC 7296 §3.6 allows that, if this end has its certificate. The newest valid one
/// is used.
fn configured(
    id: &IdData,
    (terms, in_band): (Terms<'_>, InBand<'_>),
    trust: &TrustStore,
    now: SystemTime,
) -> Result<TrustedPeer, PkiError> {
    let policy = terms.policy;
    let mine = |pin: &&Arc<Certificate>| {
        identity::check(id, pin).is_ok() && check_validity(pin, now).is_ok()
    };
    let newest = policy.certs.iter().filter(mine).max_by_key(|pin| pin.not_before());
    if let Some(pin) = newest {
        return certificate(id, pin, &[], (terms, in_band), trust, now);
    }
    match policy.pubkeys.iter().find(|key| key.id.matches(id.as_id())) {
        Some(key) => raw_key(id, &key.spki, &[], (terms, in_band), trust, now),
        None if id.kind == IdType::NULL => Err(PkiError::IdentityType(id.clone())),
        None => Err(PkiError::NoCertificate),
    }
}

/// Most CERT payloads examined, OCSP responses aside.
pub const MAX_CERTS: usize = 16;
/// Most octets in all of them.
pub const MAX_CERTS_LEN: usize = 256 * 1024;
/// Most OCSP responses examined: one for each certificate of the longest path, and some more.
const MAX_RESPONSES: usize = 12;
/// Most certificates besides the peer's own.
pub const MAX_INTERMEDIATES: usize = 8;
