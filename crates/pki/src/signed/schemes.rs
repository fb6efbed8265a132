//! The signature schemes that the program has brought.

use std::sync::Arc;

use ike_proto::config::SchemeConstraints;
use ike_proto::crypto::sign::OutsideScheme;
use ike_proto::crypto::{SchemeRegister, SignatureScheme};

use super::Signed;

/// The schemes by which certificates, revocation lists and OCSP responses may be signed, beside the built-in ones. Clones
/// share them.
///
/// They verify what they have signed wherever that is. A path with one of them is accepted only by connections that name
/// the scheme.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schemes(Arc<[OutsideScheme]>);

impl Schemes {
    /// Those of `register`.
    pub fn of(register: &SchemeRegister) -> Self {
        Self(register.outside().cloned().collect())
    }

    /// True if the program has brought none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if signatures of one of these have this DER `AlgorithmIdentifier`.
    pub fn have_signature(&self, algorithm: &[u8]) -> bool {
        self.0.iter().any(|scheme| scheme.algorithm_identifier() == algorithm)
    }

    /// The scheme of a signature with this DER `AlgorithmIdentifier` by the key in `spki`, a DER SubjectPublicKeyInfo.
    pub fn of_signature(&self, algorithm: &[u8], spki: &[u8]) -> Option<&OutsideScheme> {
        let mut named = self.0.iter().filter(|scheme| scheme.algorithm_identifier() == algorithm);
        named.find(|scheme| scheme.key_in(spki).is_some())
    }

    /// The scheme of the key in `spki`, a DER SubjectPublicKeyInfo.
    pub fn of_key(&self, spki: &[u8]) -> Option<&OutsideScheme> {
        self.0.iter().find(|scheme| scheme.key_in(spki).is_some())
    }

    /// The scheme of the key in `spki` alone; none if that is built in, or unknown.
    pub fn as_of(&self, spki: &[u8]) -> Self {
        Self(self.of_key(spki).cloned().into_iter().collect())
    }

    /// As [`of_signature`](Self::of_signature), if `chain` does not name the scheme.
    pub fn unnamed(
        &self,
        algorithm: &[u8],
        spki: &[u8],
        chain: &SchemeConstraints,
    ) -> Option<SignatureScheme> {
        let scheme = SignatureScheme::Outside(self.of_signature(algorithm, spki)?.clone());
        (!chain.allows(&scheme)).then_some(scheme)
    }

    /// The scheme of the signature on a certificate, DER, by the key in `issuer`, a DER SubjectPublicKeyInfo; `None` if it
    /// is built in, or unknown.
    pub fn of_certificate(&self, der: &[u8], issuer: &[u8]) -> Option<SignatureScheme> {
        if self.is_empty() {
            return None;
        }
        let scheme = self.of_signature(Signed::parse(der)?.algorithm, issuer)?;
        Some(SignatureScheme::Outside(scheme.clone()))
    }
}
