//! The trust of this end: trust anchors, and revocation information.

use std::sync::Arc;

use ike_proto::crypto::SchemeRegister;

use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::path::same_ca;
use crate::revocation::RevocationStore;
use crate::signed::Schemes;
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
    /// An empty store, which trusts nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`new`](Self::new), for certificates, revocation lists and OCSP responses that are signed by any scheme of
    /// `register`. A peer's path with a scheme of the program is accepted only if the connection names the scheme.
    pub fn with_schemes(register: &SchemeRegister) -> Self {
        let schemes = Schemes::of(register);
        Self {
            verified: Verified::default().with(schemes.clone()),
            revocation: RevocationStore::with(schemes),
            ..Self::default()
        }
    }

    /// Makes `certificate` a trust anchor, where paths end: a self-signed CA, or another CA that the configuration
    /// names as an anchor. No CA above it is examined, so nobody can revoke it. A certificate without
    /// basicConstraints is no CA, so roots of X.509 version 1 are refused.
    ///
    /// # Errors
    /// [`LoadError::NotCa`], [`LoadError::CriticalExtension`].
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.1.3.9
    //# IKE implementations
    //# SHOULD reject CA certificates that do not contain this extension.
    pub fn add_ca(&mut self, certificate: Certificate) -> Result<(), LoadError> {
        certificate.check_ca()?;
        if !self.anchors.iter().any(|ca| ca.der() == certificate.der()) {
            self.anchors.push(Arc::new(certificate));
        }
        Ok(())
    }

    /// Adds `certificate` as a file of x509ca/: a self-signed CA becomes a trust anchor, any other CA a link to one.
    ///
    /// # Errors
    /// [`LoadError::NotCa`], [`LoadError::CriticalExtension`].
    pub fn add(&mut self, certificate: Certificate) -> Result<(), LoadError> {
        match self.verified.is_self_signed(&certificate) {
            true => self.add_ca(certificate),
            false => self.add_intermediate(certificate),
        }
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

    /// The trust anchors.
    pub fn cas(&self) -> &[Arc<Certificate>] {
        &self.anchors
    }

    /// The CA certificates that only link.
    pub fn intermediates(&self) -> &[Arc<Certificate>] {
        &self.intermediates
    }

    /// The CAs without a trust anchor above them, judged by names alone: links, and CAs of `more` that are not
    /// self-signed. A self-signed CA of `more` counts as a trust anchor.
    pub fn loose<'a>(&'a self, more: &'a [Arc<Certificate>]) -> Vec<&'a Arc<Certificate>> {
        let (mut names, mut left) = (Vec::new(), Vec::new());
        for ca in more {
            if self.verified.is_self_signed(ca) {
                names.push(ca.subject_hash())
            } else {
                left.push(ca)
            }
        }
        names.extend(self.anchors.iter().map(|ca| ca.subject_hash()));
        left.extend(&self.intermediates);
        loop {
            let (under, loose): (Vec<_>, Vec<_>) = left.into_iter().partition(|ca| {
                names.contains(&ca.issuer_hash()) || names.contains(&ca.subject_hash())
            });
            left = loose;
            if under.is_empty() {
                return left;
            }
            names.extend(under.iter().map(|ca| ca.subject_hash()));
        }
    }

    /// `cert_cache`: whether good signatures on certificates are remembered. The default is yes, for the last
    /// thousands of certificates, with 32 octets of hash each. Clones of this store share them.
    pub fn set_cert_cache(&mut self, on: bool) {
        let verified = if on { Verified::default() } else { Verified::off() };
        self.verified = verified.with(self.verified.schemes().clone());
    }

    /// Takes over the information that `other` has fetched and the signatures it has verified, so that a new
    /// configuration need not ask again. URLs that failed may be asked again.
    pub fn inherit(&mut self, other: &Self) {
        // What a scheme has vouched for counts only where the scheme is known.
        let same_schemes = self.verified.schemes() == other.verified.schemes();
        if same_schemes {
            self.revocation.inherit(&other.revocation);
        }
        if self.cert_cache() && other.cert_cache() && same_schemes {
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
