//! Falcon-512 as the `fn-dsa` crate understands the coming FN-DSA standard: experimental.
//!
//! No standard exists yet. The crate's author warns that key encodings and the hashing of the message
//! will change with it, so that keys made today may be of no use then; and already the message is
//! hashed in another way than in the Falcon of NIST's third round, with which signatures do not
//! interoperate. The raw message is signed, with the empty context.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use fn_dsa::{
    DOMAIN_NONE, FN_DSA_LOGN_512, HASH_ID_RAW, KeyPairGenerator as _, KeyPairGenerator512,
    SigningKey as _, SigningKey512, VerifyingKey as _, VerifyingKey512, sign_key_size,
    signature_size, vrfy_key_size,
};
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::crypto::{CryptoError, SignatureScheme, SignatureVerifier, SigningKey};
use rand_core::{CryptoRng, RngCore};
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
        scheme: SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if scheme != SignatureScheme::Falcon512 {
            return Err(CryptoError::Unsupported);
        }
        let key = VerifyingKey512::decode(key_for(scheme, spki)?);
        let key = key.ok_or(CryptoError::InvalidPublic)?;
        let valid = key.verify(signature, &DOMAIN_NONE, &HASH_ID_RAW, message);
        valid.then_some(()).ok_or(CryptoError::Integrity)
    }
}

/// A new private key in the encoding of `fn-dsa`, 1281 octets.
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

    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if scheme != SignatureScheme::Falcon512 {
            return Err(CryptoError::Unsupported);
        }
        let mut signature = vec![0; signature_size(FN_DSA_LOGN_512)];
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        key.sign(&mut AwsLcRng, &DOMAIN_NONE, &HASH_ID_RAW, message, &mut signature)
            .ok_or(CryptoError::Backend)?;
        Ok(signature)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &SCHEMES).finish_non_exhaustive()
    }
}

/// AWS-LC's generator for `fn-dsa`, which knows the traits of `rand_core` 0.6.
struct AwsLcRng;

impl RngCore for AwsLcRng {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        ike_proto::crypto::SecureRandom::fill(&mut crate::rng::OsRandom, out);
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for AwsLcRng {}

const SCHEMES: &[SignatureScheme] = &[SignatureScheme::Falcon512];
