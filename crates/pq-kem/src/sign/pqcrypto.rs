//! ML-DSA by PQClean's C, through the `pqcrypto` crates: a third backend, for comparison.
//!
//! Upstream has stopped: both PQClean and `pqcrypto` are archived, with advisories that say so
//! (RUSTSEC-2026-0162, -0163 and -0166). Private keys lie in plain arrays that are wiped only here.
//!
//! Its portable code is used. The AVX2 code is faster and wrong: it verifies without the
//! check of z's norm (FIPS 204, algorithm 8, step 13) and so takes signatures that are none, and it
//! refuses valid ones that use a hint where the low bits are zero; Wycheproof's cases 81 and 147 show
//! both.

use std::fmt;

use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier, SigningKey};
use pqcrypto_mldsa::{mldsa44, mldsa65, mldsa87};
use pqcrypto_traits::sign::{DetachedSignature, PublicKey, SecretKey};
use zeroize::Zeroizing;

use super::public_key::key_for;

/// ML-DSA-44, -65 and -87.
#[derive(Debug, Clone, Copy)]
pub struct MlDsa;

/// `$body` with `$module` as the module of `$scheme`'s parameter set.
macro_rules! with_set {
    ($scheme:expr, $module:ident => $body:expr) => {
        match $scheme {
            SignatureScheme::MlDsa44 => {
                use mldsa44 as $module;
                $body
            }
            SignatureScheme::MlDsa65 => {
                use mldsa65 as $module;
                $body
            }
            SignatureScheme::MlDsa87 => {
                use mldsa87 as $module;
                $body
            }
            _ => Err(CryptoError::Unsupported),
        }
    };
}

impl SignatureVerifier for MlDsa {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::MlDsa87, SignatureScheme::MlDsa65, SignatureScheme::MlDsa44]
    }

    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if !self.schemes().contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let key = key_for(scheme, spki)?;
        with_set!(scheme, set => {
            // The crate takes shorter signatures as well.
            if signature.len() != set::signature_bytes() {
                return Err(CryptoError::Integrity);
            }
            let key = PublicKey::from_bytes(key).map_err(|_| CryptoError::InvalidPublic)?;
            let signature =
                DetachedSignature::from_bytes(signature).map_err(|_| CryptoError::Integrity)?;
            set::verify_detached_signature(&signature, message, &key)
                .map_err(|_| CryptoError::Integrity)
        })
    }
}

/// A new private key of an ML-DSA `scheme`.
///
/// # Errors
/// [`CryptoError::Unsupported`] for any other scheme.
pub fn generate(scheme: &SignatureScheme) -> Result<Box<dyn SigningKey>, CryptoError> {
    with_set!(scheme, set => {
        let (public, key) = set::keypair();
        let algorithm = scheme.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key: public.as_bytes() }.encode();
        let key = Zeroizing::new(key.as_bytes().to_vec());
        Ok(Box::new(Key { schemes: [scheme.clone()], key, spki }))
    })
}

struct Key {
    schemes: [SignatureScheme; 1],
    key: Zeroizing<Vec<u8>>,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        with_set!(scheme, set => {
            let key = SecretKey::from_bytes(&self.key).map_err(|_| CryptoError::Backend)?;
            Ok(set::detached_sign(message, &key).as_bytes().to_vec())
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}
