//! Certificates by hash and URL (RFC 7296 §3.6): encodings 12 and 13 of CERT payloads.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::asn1::AnyRef;
use der::{Decode, Encode, Tag, TagNumber};
use ike_proto::OwnedCert;
use ike_proto::wire::registry::CertEncoding;

use crate::certificate::{Certificate, MAX_CERTIFICATE, is_http_url};
use crate::credential::Credential;
use crate::error::{EncodingProblem, LoadError, PkiError};
use crate::trust::TrustStore;
use crate::verify::{MAX_CERTS, MAX_CERTS_LEN};

/// A hash and URL that a peer sent in place of a certificate, or of several.
//= https://www.rfc-editor.org/rfc/rfc7296#section-3.6
//# Hash and URL encodings allow IKE messages to remain short by
//# replacing long data structures with a 20-octet SHA-1 hash (see
//# [FIPS.180-4.2012]) of the replaced value followed by a variable-
//# length URL that resolves to the DER-encoded data structure itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashAndUrl<'a> {
    /// [`HASH_AND_URL_X509`](CertEncoding::HASH_AND_URL_X509) or
    /// [`HASH_AND_URL_BUNDLE`](CertEncoding::HASH_AND_URL_BUNDLE).
    pub encoding: CertEncoding,
    /// SHA-1 of the content at the URL.
    pub hash: [u8; 20],
    /// `http://…`: printable ASCII without spaces, 512 octets at the most.
    pub url: &'a str,
}

impl<'a> HashAndUrl<'a> {
    /// True for the encodings of CERT payloads that are a hash and a URL.
    pub fn is(encoding: CertEncoding) -> bool {
        matches!(encoding, CertEncoding::HASH_AND_URL_X509 | CertEncoding::HASH_AND_URL_BUNDLE)
    }

    /// Reads the body of a CERT payload with such an encoding.
    ///
    /// # Errors
    /// [`PkiError::Encoding`] if the encoding is another, or the data are no hash and `http` URL.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.6
    //# Implementations MUST support the "http:" scheme for hash-and-URL
    //# lookup.  The behavior of other URL schemes [URLS] is not currently
    //# specified, and such schemes SHOULD NOT be used
    pub fn read(cert: &'a OwnedCert) -> Result<Self, PkiError> {
        let encoding = cert.encoding;
        if !Self::is(encoding) {
            return Err(PkiError::Encoding(encoding, EncodingProblem::Unsupported));
        }
        let malformed = PkiError::Encoding(encoding, EncodingProblem::Malformed);
        let (&hash, url) = cert.data.split_first_chunk().ok_or(malformed.clone())?;
        let url = std::str::from_utf8(url).ok().filter(|url| is_http_url(url)).ok_or(malformed)?;
        Ok(Self { encoding, hash, url })
    }

    /// Most octets of the content at the URL.
    pub fn limit(&self) -> usize {
        match self.encoding {
            CertEncoding::HASH_AND_URL_BUNDLE => MAX_CERTS_LEN,
            _ => MAX_CERTIFICATE,
        }
    }

    /// The CERT payloads that the peer would have sent without a URL, if `found` is the content at the URL. The
    /// hash is compared before anything is parsed.
    ///
    /// # Errors
    /// [`PkiError::Encoding`] if the hash differs, or the content is no bundle.
    pub fn unpack(&self, found: &[u8]) -> Result<Vec<OwnedCert>, PkiError> {
        if sha1(found) != self.hash {
            return Err(PkiError::Encoding(self.encoding, EncodingProblem::Hash));
        }
        if self.encoding == CertEncoding::HASH_AND_URL_BUNDLE {
            let bundle = read_bundle(found);
            return bundle.ok_or(PkiError::Encoding(self.encoding, EncodingProblem::Bundle));
        }
        Ok(vec![OwnedCert { encoding: CertEncoding::X509_SIGNATURE, data: found.to_vec() }])
    }
}

/// The CERT payloads of `credential` for a peer that accepts hash and URL: its bundle, or each certificate, as
/// hash and URL if `cert_uri_base` of its issuer gives a URL.
pub(crate) fn payloads(credential: &Credential, trust: &TrustStore) -> Vec<OwnedCert> {
    let chain = credential.chain();
    if chain.is_empty() {
        return credential.payloads().into_iter().map(OwnedCert::from).collect();
    }
    if let (Some(bundle), Some(base)) = (credential.bundle(), base(credential, trust)) {
        return vec![by_url(CertEncoding::HASH_AND_URL_BUNDLE, base, bundle)];
    }
    let base = |certificate: &Certificate, issuer: Option<&Arc<Certificate>>| {
        trust.revocation.cert_uri_base(certificate, issuer.map(|issuer| &**issuer))
    };
    let payload = |(at, certificate): (usize, &Arc<Certificate>)| match base(
        certificate,
        chain.get(at + 1),
    ) {
        Some(base) => by_url(CertEncoding::HASH_AND_URL_X509, base, certificate.der()),
        None => {
            OwnedCert { encoding: CertEncoding::X509_SIGNATURE, data: certificate.der().to_vec() }
        }
    };
    chain.iter().enumerate().map(payload).collect()
}

/// `cert_uri_base` for the own certificate of `credential`.
pub(crate) fn base<'a>(credential: &Credential, trust: &'a TrustStore) -> Option<&'a str> {
    let (own, issuers) = credential.chain().split_first()?;
    trust.revocation.cert_uri_base(own, issuers.first().map(|issuer| &**issuer))
}

/// The hash and URL in place of `replaced` (DER). The URL is `base` with the hexadecimal hash appended, as
/// `cert_uri_base` of swanctl.conf(5) defines. `encoding` is the kind of `replaced`.
fn by_url(encoding: CertEncoding, base: &str, replaced: &[u8]) -> OwnedCert {
    let hash = sha1(replaced);
    let mut data = Vec::with_capacity(base.len() + 60);
    data.extend(hash);
    data.extend(base.as_bytes());
    data.extend(hash.iter().flat_map(|octet| format!("{octet:02x}").into_bytes()));
    OwnedCert { encoding, data }
}

/// True if `base` with 40 digits appended is a URL that [`HashAndUrl::read`] accepts.
pub(crate) fn is_uri_base(base: &str) -> bool {
    is_http_url(&format!("{base}{:040}", 0))
}

/// The SHA-1 hash that names `octets` (RFC 7296 §3.6).
pub fn sha1(octets: &[u8]) -> [u8; 20] {
    let mut hash = [0; 20];
    hash.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref());
    hash
}

/// The DER CertificateBundle of RFC 7296 §3.6 with `certificates`; the first is the certificate of the sender's
/// key.
///
/// # Errors
/// [`LoadError::Nothing`] if `certificates` is empty; [`LoadError::Unsupported`] above [`MAX_CERTS`] certificates
/// or [`MAX_CERTS_LEN`] octets.
pub fn bundle(certificates: &[Arc<Certificate>]) -> Result<Vec<u8>, LoadError> {
    if certificates.is_empty() {
        return Err(LoadError::Nothing("certificate"));
    }
    let long = LoadError::Unsupported("a bundle of that size");
    let tag = Tag::ContextSpecific { constructed: true, number: CERTIFICATE };
    let items = certificates.iter().map(|certificate| AnyRef::new(tag, certificate.der()));
    let items: Result<Vec<_>, _> = items.collect();
    let encoded = items.and_then(|items| items.to_der()).map_err(|_| long)?;
    if certificates.len() > MAX_CERTS || encoded.len() > MAX_CERTS_LEN {
        return Err(long);
    }
    Ok(encoded)
}

/// The certificates and revocation lists of a CertificateBundle, in their order.
fn read_bundle(octets: &[u8]) -> Option<Vec<OwnedCert>> {
    let items = Vec::<AnyRef<'_>>::from_der(octets).ok()?;
    if items.is_empty() || items.len() > MAX_CERTS {
        return None;
    }
    let item = |item: AnyRef<'_>| {
        let encoding = match item.header().tag() {
            Tag::ContextSpecific { constructed: true, number: CERTIFICATE } => {
                CertEncoding::X509_SIGNATURE
            }
            Tag::ContextSpecific { constructed: true, number: CRL } => CertEncoding::CRL,
            _ => return None,
        };
        // The tags are explicit, so each has one SEQUENCE inside.
        let inner = AnyRef::from_der(item.value()).ok()?;
        let whole = inner.header().tag() == Tag::Sequence;
        whole.then(|| OwnedCert { encoding, data: item.value().to_vec() })
    };
    items.into_iter().map(item).collect()
}

/// `cert [0] Certificate`.
const CERTIFICATE: TagNumber = TagNumber(0);
/// `crl [1] CertificateList`.
const CRL: TagNumber = TagNumber(1);
