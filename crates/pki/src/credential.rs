//! This end's own certificates, and the choice among them.

use std::sync::Arc;

use ike_proto::crypto::SigningKey;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::der::{self, Der};
use ike_proto::wire::payload::{Cert, CertReq, IdData};
use ike_proto::wire::registry::CertEncoding;

use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::hash_and_url::{self, HashAndUrl};
use crate::identity;
use crate::trust::TrustStore;

/// A private key with its certificate and the chain to send, or a raw public key.
#[derive(Debug, Clone)]
pub struct Credential {
    key: Arc<dyn SigningKey>,
    /// The own certificate first, then its issuers; empty for a raw public key.
    chain: Vec<Arc<Certificate>>,
    /// DER CertificateBundle that peers may fetch in place of the chain.
    bundle: Option<Arc<[u8]>>,
}

impl Credential {
    /// A key with `certificate`. From `others` it takes, in order, the certificates that link `certificate` to a
    /// root. The root itself is not sent (RFC 4945 §3.3.11.2); `others` may contain it or not.
    ///
    /// # Errors
    /// [`LoadError::KeyMismatch`].
    pub fn new(
        key: Arc<dyn SigningKey>,
        certificate: Arc<Certificate>,
        others: &[Arc<Certificate>],
    ) -> Result<Self, LoadError> {
        if !same_key(key.public_key(), certificate.spki()) {
            return Err(LoadError::KeyMismatch);
        }
        let mut chain = vec![certificate];
        while let Some(last) = chain.last().filter(|last| !last.is_self_issued()) {
            let next = others.iter().find(|other| {
                other.is_ca()
                    && !other.is_self_issued()
                    && last.names_as_issuer(other)
                    && !chain.contains(other)
            });
            match next.map(Arc::clone) {
                Some(issuer) if chain.len() <= MAX_CHAIN => chain.push(issuer),
                _ => break,
            }
        }
        Ok(Self { key, chain, bundle: None })
    }

    /// A key that is sent as raw public key (RFC 7670).
    pub fn raw(key: Arc<dyn SigningKey>) -> Self {
        Self { key, chain: Vec::new(), bundle: None }
    }

    /// Lets peers that accept hash and URL fetch the [`bundle`](crate::bundle) of the chain (RFC 7296 §3.6) in
    /// place of each certificate. This needs a [`cert_uri_base`](crate::Authority::cert_uri_base) for the own
    /// certificate. It has no effect on a raw public key.
    ///
    /// # Errors
    /// Those of [`bundle`](crate::bundle).
    pub fn with_bundle(mut self) -> Result<Self, LoadError> {
        if !self.chain.is_empty() {
            self.bundle = Some(hash_and_url::bundle(&self.chain)?.into());
        }
        Ok(self)
    }

    pub(crate) fn bundle(&self) -> Option<&[u8]> {
        self.bundle.as_deref()
    }

    /// True if peers that accept hash and URL are told the URL of the [bundle](Self::with_bundle).
    pub fn announces_bundle(&self, trust: &TrustStore) -> bool {
        self.bundle.is_some() && hash_and_url::base(self, trust).is_some()
    }

    /// The private key.
    pub fn key(&self) -> &Arc<dyn SigningKey> {
        &self.key
    }

    /// The own certificate; `None` for a raw public key.
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.chain.first()
    }

    /// The certificates to send, the own one first.
    pub fn chain(&self) -> &[Arc<Certificate>] {
        &self.chain
    }

    /// The CERT payloads to send, in order.
    pub fn payloads(&self) -> Vec<Cert<'_>> {
        if self.chain.is_empty() {
            let data = self.key.public_key();
            return vec![Cert { encoding: CertEncoding::RAW_PUBLIC_KEY, data }];
        }
        let encoding = CertEncoding::X509_SIGNATURE;
        self.chain.iter().map(|certificate| Cert { encoding, data: certificate.der() }).collect()
    }

    /// The identity to send: `configured` if the certificate has it, a DN bit by bit as in the
    /// certificate; by default the subject, or the first alternative name if there is no subject. With a
    /// raw public key, `configured`.
    ///
    /// # Errors
    /// [`LoadError::Identity`] if the certificate does not have it, or there is none to choose.
    pub fn identity(&self, configured: Option<&IdData>) -> Result<IdData, LoadError> {
        let id = match (self.certificate(), configured) {
            (Some(certificate), Some(id)) => identity::as_certified(id, certificate),
            (Some(certificate), None) => certificate.identities().into_iter().next(),
            (None, configured) => configured.cloned(),
        };
        id.ok_or(LoadError::Identity)
    }

    /// True if the certificate has the identity `id`. A raw public key has every configured identity.
    pub(crate) fn has_identity(&self, id: &IdData) -> bool {
        self.certificate().is_none_or(|certificate| identity::check(id, certificate).is_ok())
    }

    /// True if a CA with this [`ca_hash`] is on the path to the root, as far as the chain and `trust` show.
    pub(crate) fn is_issued_under(&self, hash: &[u8; 20], trust: &TrustStore) -> bool {
        let issuers = self.chain.iter().skip(1);
        let last = self.chain.last();
        let roots = trust.cas().iter().chain(trust.intermediates());
        let root = roots.filter(|ca| last.is_some_and(|last| last.names_as_issuer(ca)));
        issuers.chain(root).any(|ca| ca.ca_hash() == Some(hash))
    }
}

/// The first of `credentials`, in order of preference, that a CA in the peer's CERTREQ payloads vouches for, or
/// whose form they ask for. If there is none, or the peer sent no CERTREQ, it is the first of all.
//= https://www.rfc-editor.org/rfc/rfc4945#section-3.2.7.1
//# Upon receipt of a CERTREQ, implementations MUST respond by sending at
//# least the end-entity certificate corresponding to the Certification
//# Authority listed in the CERTREQ
//= https://www.rfc-editor.org/rfc/rfc4945#section-3.2.7.2
//# Receiving a CERTREQ payload with an empty Certification Authority
//# field indicates that the recipient should send all/any end-entity
//# certificates it has, regardless of the trust anchor.
pub fn choose<'a>(
    credentials: &'a [Credential],
    requests: &[CertReq<'_>],
    trust: &TrustStore,
) -> Option<&'a Credential> {
    in_order(credentials, requests, trust).into_iter().flatten().next()
}

/// The credentials that fit the peer's CERTREQ payloads as [`choose`] says, and the others.
pub(crate) fn in_order<'a>(
    credentials: &'a [Credential],
    requests: &[CertReq<'_>],
    trust: &TrustStore,
) -> [Vec<&'a Credential>; 2] {
    let hashes: Vec<&[u8; 20]> = requests
        .iter()
        .filter(|request| {
            request.encoding == CertEncoding::X509_SIGNATURE || HashAndUrl::is(request.encoding)
        })
        .flat_map(|request| requested_cas(request.authorities))
        .take(MAX_REQUESTED)
        .collect();
    let raw = requests.iter().any(|request| request.encoding == CertEncoding::RAW_PUBLIC_KEY);
    let fits = |credential: &Credential| match credential.certificate() {
        Some(_) => hashes.iter().any(|hash| credential.is_issued_under(hash, trust)),
        None => raw,
    };
    let (first, rest) = credentials.iter().partition(|one| fits(one));
    [first, rest]
}

/// Certification Authority data of the CERTREQ to send for `cas`: their [`ca_hash`]es, concatenated.
pub fn certificate_request<'a>(cas: impl IntoIterator<Item = &'a Arc<Certificate>>) -> Vec<u8> {
    let mut hashes: Vec<[u8; 20]> = Vec::new();
    for ca in cas {
        let hash = ca_hash(ca.spki());
        if !hashes.contains(&hash) && hashes.len() < MAX_REQUESTED {
            hashes.push(hash);
        }
    }
    hashes.concat()
}

/// The hashes in Certification Authority data. Octets that make no whole hash are ignored (RFC 4945 §3.2.8.2).
pub fn requested_cas(authorities: &[u8]) -> impl Iterator<Item = &[u8; 20]> {
    authorities.as_chunks().0.iter()
}

/// The hash by which CERTREQ names a CA: the SHA-1 of its DER SubjectPublicKeyInfo (RFC 7296 §3.7).
pub fn ca_hash(spki: &[u8]) -> [u8; 20] {
    hash_and_url::sha1(spki)
}

/// True for the same key of the same algorithm, whatever parameters its algorithm identifier has. Both algorithms of RSA
/// are one here: a certificate may limit the key to RSASSA-PSS (RFC 4055 §1.2).
fn same_key(a: &[u8], b: &[u8]) -> bool {
    let parts = |spki| {
        let SubjectPublicKeyInfo { algorithm, key } = SubjectPublicKeyInfo::parse(spki)?;
        let oid = Der::new(algorithm).nested(der::SEQUENCE)?.object_identifier()?;
        Some((if oid == RSASSA_PSS { RSA_ENCRYPTION } else { oid }, key))
    };
    parts(a).is_some_and(|a| parts(b) == Some(a))
}

/// rsaEncryption, 1.2.840.113549.1.1.1.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// id-RSASSA-PSS, 1.2.840.113549.1.1.10.
const RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
/// Most certificates sent besides the own one.
const MAX_CHAIN: usize = 6;
/// Most CAs in a CERTREQ, sent or examined.
const MAX_REQUESTED: usize = 256;
