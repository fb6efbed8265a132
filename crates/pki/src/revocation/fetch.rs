//! Fetches that the caller is asked to make.

use std::sync::Arc;

use crate::certificate::Certificate;
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
        certificate: &Arc<Certificate>,
        issuer: &Arc<Certificate>,
    ) -> Self {
        let (certificate, issuer) = (Arc::clone(certificate), Arc::clone(issuer));
        Self { url, kind: FetchKind::Crl, certificate, issuer }
    }

    pub(super) fn ocsp(
        url: &str,
        certificate: &Arc<Certificate>,
        issuer: &Arc<Certificate>,
    ) -> Self {
        let request = ocsp::request(certificate, issuer);
        let (certificate, issuer) = (Arc::clone(certificate), Arc::clone(issuer));
        Self { url: url.to_owned(), kind: FetchKind::Ocsp { request }, certificate, issuer }
    }

    /// The certificate in question. Safe in a log line.
    pub fn subject_text(&self) -> String {
        self.certificate.subject_text()
    }
}
