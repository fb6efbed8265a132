//! What this end trusts: CA certificates, and what is known about revocation.

use std::sync::Arc;

use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::path::same_ca;
use crate::revocation::RevocationStore;
use crate::verified::Verified;

/// Trusted CAs, further certificates that help to build paths, and revocation information.
#[derive(Debug, Default, Clone)]
pub struct TrustStore {
    anchors: Vec<Arc<Certificate>>,
    intermediates: Vec<Arc<Certificate>>,
    verified: Verified,
    /// Revocation lists and OCSP responses.
    pub revocation: RevocationStore,
}

impl TrustStore {
    /// Trusts nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts `certificate` as CA: a self-signed root, or any other CA to end paths at. Without
    /// basicConstraints it is none, so that roots of X.509 version 1 are not taken.
    ///
    /// # Errors
    /// [`LoadError::NotCa`].
    //= RFC 4945 §5.1.3.9
    //# IKE implementations
    //# SHOULD reject CA certificates that do not contain this extension.
    pub fn add_ca(&mut self, certificate: Certificate) -> Result<(), LoadError> {
        if !certificate.is_ca() || !certificate.may_sign_certificates() {
            return Err(LoadError::NotCa);
        }
        if !self.anchors.iter().any(|ca| ca.der() == certificate.der()) {
            self.anchors.push(Arc::new(certificate));
        }
        Ok(())
    }

    /// Adds a CA certificate that is not trusted by itself: it links a peer's certificate to a trusted
    /// CA if the peer does not send it.
    ///
    /// # Errors
    /// [`LoadError::NotCa`].
    pub fn add_intermediate(&mut self, certificate: Certificate) -> Result<(), LoadError> {
        if !certificate.is_ca() {
            return Err(LoadError::NotCa);
        }
        if !self.intermediates.iter().any(|ca| ca.der() == certificate.der()) {
            self.intermediates.push(Arc::new(certificate));
        }
        Ok(())
    }

    /// The trusted CAs.
    pub fn cas(&self) -> &[Arc<Certificate>] {
        &self.anchors
    }

    /// The certificates that only link.
    pub fn intermediates(&self) -> &[Arc<Certificate>] {
        &self.intermediates
    }

    /// `cert_cache`: whether signatures on certificates that were found good are remembered, as they are by
    /// default: those of the last thousands of certificates, 32 octets of hash each. Clones of this store
    /// share them.
    pub fn set_cert_cache(&mut self, on: bool) {
        self.verified = if on { Verified::default() } else { Verified::off() };
    }

    /// Takes over what `other` has found out and fetched: a new configuration need not ask again. Where
    /// nothing of use was found may be asked anew.
    pub fn inherit(&mut self, other: &Self) {
        self.revocation.inherit(&other.revocation);
        if self.cert_cache() && other.cert_cache() {
            self.verified = other.verified.clone();
        }
    }

    /// False if [`set_cert_cache`](Self::set_cert_cache) has turned it off.
    pub fn cert_cache(&self) -> bool {
        self.verified.remembers()
    }

    pub(crate) fn verified(&self) -> &Verified {
        &self.verified
    }

    /// True if `certificate` is a trusted CA, in this or a renewed certificate.
    pub fn trusts(&self, certificate: &Certificate) -> bool {
        self.anchors.iter().any(|ca| same_ca(ca, certificate))
    }
}
