//! URLs of revocation information for CAs whose certificates do not name them.

use std::sync::Arc;

use crate::certificate::{self, Certificate};
use crate::error::LoadError;
use crate::hash_and_url;
use crate::path::same_ca;

/// A CA and the addresses of its revocation information: an `authorities` section of swanctl.conf.
#[derive(Debug, Clone)]
pub struct Authority {
    /// The CA, in this or a renewed certificate.
    pub ca: Arc<Certificate>,
    /// `crl_uris`: `http` URLs of revocation lists.
    pub crl_uris: Vec<String>,
    /// `ocsp_uris`: `http` URLs of OCSP responders.
    pub ocsp_uris: Vec<String>,
    /// `cert_uri_base`: where peers find the certificates that the CA issued (RFC 7296 §3.6). The URL is this base
    /// with the hexadecimal SHA-1 of the DER certificate appended.
    pub cert_uri_base: Option<String>,
}

impl Authority {
    /// True if this crate would ask to fetch `url`: `http`, printable ASCII without spaces, at most 512 octets.
    pub fn is_usable(url: &str) -> bool {
        certificate::is_http_url(url)
    }

    /// True if `base` may be a [`cert_uri_base`](Self::cert_uri_base): [`is_usable`](Self::is_usable) accepts the
    /// URLs made from it.
    pub fn is_uri_base(base: &str) -> bool {
        hash_and_url::is_uri_base(base)
    }

    pub(super) fn check(&self) -> Result<(), LoadError> {
        let mut urls = self.crl_uris.iter().chain(&self.ocsp_uris);
        let base = self.cert_uri_base.as_deref().is_none_or(Self::is_uri_base);
        match base && urls.all(|url| Self::is_usable(url)) {
            true => Ok(()),
            false => Err(LoadError::Unsupported("a URL other than http")),
        }
    }

    /// True if it is about certificates of `issuer`, and has a URL.
    pub(super) fn is_of(&self, issuer: &Certificate) -> bool {
        same_ca(&self.ca, issuer) && !(self.crl_uris.is_empty() && self.ocsp_uris.is_empty())
    }
}
