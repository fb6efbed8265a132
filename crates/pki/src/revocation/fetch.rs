//! Fetches that the caller is asked to make.

use std::sync::Arc;
use std::time::SystemTime;

use crate::certificate::Certificate;
use crate::path::Signer;
use crate::revocation::lists::Asked;
use crate::revocation::ocsp;

/// One thing to fetch over HTTP, from an address that a validated certificate names.
///
/// The fetcher should give up after a few seconds, follow no redirection to another scheme, and read
/// no more than [`MAX_BODY`](super::MAX_BODY) octets.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    /// `http://…`: printable ASCII without spaces.
    pub url: String,
    /// The request method and content.
    pub kind: FetchKind,
    pub(super) certificate: Arc<Certificate>,
    pub(super) issuer: Arc<Certificate>,
    /// Those who may sign a list about the certificate.
    pub(super) signers: Vec<Signer>,
    /// The URLs of lists that the certificate, or the authority of its CA, names.
    pub(super) urls: Vec<String>,
}

/// How to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchKind {
    /// GET; the body is a revocation list.
    Crl,
    /// POST of `request` as `application/ocsp-request` (RFC 6960 appendix A); the body is an OCSP
    /// response.
    Ocsp {
        /// DER OCSPRequest.
        request: Vec<u8>,
    },
}

impl FetchRequest {
    pub(super) fn crl(
        url: String,
        (certificate, issuer): (&Arc<Certificate>, &Arc<Certificate>),
        signers: &[Signer],
        urls: Vec<String>,
    ) -> Self {
        let (certificate, issuer) = (Arc::clone(certificate), Arc::clone(issuer));
        Self { url, kind: FetchKind::Crl, certificate, issuer, signers: signers.to_vec(), urls }
    }

    /// The certificate in question, for its status by lists.
    pub(super) fn asked(&self, now: SystemTime) -> Asked<'_> {
        Asked { certificate: &self.certificate, signers: &self.signers, urls: &self.urls, now }
    }

    pub(super) fn ocsp(
        url: &str,
        certificate: &Arc<Certificate>,
        issuer: &Arc<Certificate>,
    ) -> Self {
        let request = ocsp::request(certificate, issuer);
        let (certificate, issuer) = (Arc::clone(certificate), Arc::clone(issuer));
        let (kind, url) = (FetchKind::Ocsp { request }, url.to_owned());
        Self { url, kind, certificate, issuer, signers: Vec::new(), urls: Vec::new() }
    }

    /// The CA of the certificate in question. Safe in a log line.
    pub fn issuer_text(&self) -> String {
        self.certificate.issuer_text()
    }

    /// The certificate in question. Safe in a log line.
    pub fn subject_text(&self) -> String {
        self.certificate.subject_text()
    }
}
