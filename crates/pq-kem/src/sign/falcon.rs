//! Falcon-512 of NIST's third round with padded signatures (666 octets): experimental.
//!
//! Its standard, FN-DSA, is not out, and will hash messages and encode keys in another way: keys
//! and signatures made here will not be those of FN-DSA. So this is for trials with peers that have
//! Falcon from the Open Quantum Safe project, whose `falconpadded512` it is. `fn-dsa` is held at 0.3,
//! the last release with that scheme. No list has [`Falcon`]: who wants it adds it to a provider.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use fn_dsa::{
    CryptoRng, DOMAIN_NONE, FN_DSA_LOGN_512, HASH_ID_ORIGINAL_FALCON, KeyPairGenerator as _,
    KeyPairGenerator512, RngCore, RngError, SigningKey as _, SigningKey512, VerifyingKey as _,
    VerifyingKey512, sign_key_size, signature_size, vrfy_key_size,
};
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier, SigningKey};
use zeroize::Zeroizing;

use super::private_key::KeyError;
use super::public_key::key_for;

/// Falcon-512.
#[derive(Debug, Clone, Copy)]
pub struct Falcon;

impl SignatureVerifier for Falcon {
    fn schemes(&self) -> &[SignatureScheme] {
        SCHEMES
    }

    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if *scheme != SignatureScheme::Falcon512 {
            return Err(CryptoError::Unsupported);
        }
        let key = VerifyingKey512::decode(key_for(scheme, spki)?);
        let key = key.ok_or(CryptoError::InvalidPublic)?;
        let valid = key.verify(signature, &DOMAIN_NONE, &HASH_ID_ORIGINAL_FALCON, message);
        valid.then_some(()).ok_or(CryptoError::Integrity)
    }
}

/// A new private key, 1281 octets.
pub(super) fn generate() -> Zeroizing<Vec<u8>> {
    let mut private = Zeroizing::new(vec![0; sign_key_size(FN_DSA_LOGN_512)]);
    let mut public = [0; vrfy_key_size(FN_DSA_LOGN_512)];
    let mut generator = KeyPairGenerator512::default();
    generator.keygen(FN_DSA_LOGN_512, &mut AwsLcRng, &mut private, &mut public);
    private
}

/// The private key in `octets`.
pub(super) fn load(octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    let key = SigningKey512::decode(octets).ok_or(KeyError::Malformed)?;
    let mut public = [0; vrfy_key_size(FN_DSA_LOGN_512)];
    key.to_verifying_key(&mut public);
    let algorithm = SignatureScheme::Falcon512.key_algorithm_identifier();
    let spki = SubjectPublicKeyInfo { algorithm, key: &public }.encode();
    Ok(Box::new(Key { key: Mutex::new(Box::new(key)), spki }))
}

struct Key {
    /// Signing needs the scratch space inside.
    key: Mutex<Box<SigningKey512>>,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        SCHEMES
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if *scheme != SignatureScheme::Falcon512 {
            return Err(CryptoError::Unsupported);
        }
        let mut signature = vec![0; signature_size(FN_DSA_LOGN_512)];
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        key.sign(&mut AwsLcRng, &DOMAIN_NONE, &HASH_ID_ORIGINAL_FALCON, message, &mut signature);
        Ok(signature)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &SCHEMES).finish_non_exhaustive()
    }
}

/// AWS-LC's generator for `fn-dsa`.
struct AwsLcRng;

impl RngCore for AwsLcRng {
    fn next_u32(&mut self) -> u32 {
        let mut octets = [0; 4];
        self.fill_bytes(&mut octets);
        u32::from_le_bytes(octets)
    }

    fn next_u64(&mut self) -> u64 {
        let mut octets = [0; 8];
        self.fill_bytes(&mut octets);
        u64::from_le_bytes(octets)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        ipsec_types::crypto::SecureRandom::fill(&mut crate::rng::OsRandom::new(), out);
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), RngError> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for AwsLcRng {}

const SCHEMES: &[SignatureScheme] = &[SignatureScheme::Falcon512];
