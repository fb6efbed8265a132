//! ML-DSA by RustCrypto: a second backend, in portable Rust, several times slower than AWS-LC.

use std::fmt;

use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier, SigningKey};
use ml_dsa::{MlDsaParams, Seed, Signature, VerifyingKey};
use zeroize::Zeroize;

use super::public_key::key_for;

/// ML-DSA-44, -65 and -87.
#[derive(Debug, Clone, Copy)]
pub struct MlDsa;

/// Calls `$function::<P>($arguments)` with the parameter set `P` of `$scheme`.
macro_rules! with_set {
    ($scheme:expr, $function:ident($($argument:expr),*)) => {
        match $scheme {
            SignatureScheme::MlDsa44 => $function::<ml_dsa::MlDsa44>($($argument),*),
            SignatureScheme::MlDsa65 => $function::<ml_dsa::MlDsa65>($($argument),*),
            SignatureScheme::MlDsa87 => $function::<ml_dsa::MlDsa87>($($argument),*),
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
        with_set!(scheme, verify(key, message, signature))
    }
}

/// The private key of an ML-DSA `scheme` that FIPS 204 derives from `seed` (xi). It signs
/// deterministically (rnd is zero), so that a test knows the answer.
///
/// # Errors
/// [`CryptoError::Unsupported`] for any other scheme.
pub fn key_from_seed(
    scheme: &SignatureScheme,
    seed: &[u8; 32],
) -> Result<Box<dyn SigningKey>, CryptoError> {
    with_set!(scheme, key_of(scheme, seed))
}

fn verify<P: MlDsaParams>(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
    let key = key.try_into().map_err(|_| CryptoError::InvalidPublic)?;
    let signature = Signature::<P>::try_from(signature).map_err(|_| CryptoError::Integrity)?;
    let valid = VerifyingKey::<P>::decode(key).verify_with_context(message, &[], &signature);
    valid.then_some(()).ok_or(CryptoError::Integrity)
}

fn key_of<P: MlDsaParams + Send + Sync + 'static>(
    scheme: &SignatureScheme,
    seed: &[u8; 32],
) -> Result<Box<dyn SigningKey>, CryptoError> {
    let mut seed = Seed::from(*seed);
    let key = ml_dsa::SigningKey::<P>::from_seed(&seed);
    seed.zeroize();
    let public = key.expanded_key().verifying_key().encode();
    let algorithm = scheme.key_algorithm_identifier();
    let spki = SubjectPublicKeyInfo { algorithm, key: &public }.encode();
    Ok(Box::new(Key { schemes: [scheme.clone()], key, spki }))
}

struct Key<P: MlDsaParams> {
    schemes: [SignatureScheme; 1],
    key: ml_dsa::SigningKey<P>,
    spki: Vec<u8>,
}

impl<P: MlDsaParams + Send + Sync> SigningKey for Key<P> {
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
        let signature = self.key.expanded_key().sign_deterministic(message, &[]);
        Ok(signature.map_err(|_| CryptoError::Backend)?.encode().to_vec())
    }
}

impl<P: MlDsaParams> fmt::Debug for Key<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}
