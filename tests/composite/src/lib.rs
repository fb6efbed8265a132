//! The composite of ML-DSA-65 and Ed25519 with SHA-512, as a program brings a signature scheme: no crate of the engine
//! knows it.
//!
//! It is id-MLDSA65-Ed25519-SHA512 of draft-ietf-lamps-pq-composite-sigs-19, with the empty application context. Keys,
//! signatures and test vectors are those of that version. In IKEv2 the message goes into the scheme as it is, by
//! authentication method 14 and the identity hash (draft-hu-ipsecme-pqt-hybrid-auth).
//!
//! ```
//! use ipsec_types::crypto::SchemeRegister;
//!
//! let mut register = SchemeRegister::built_in();
//! register.add(ike_test_composite::scheme()).unwrap();
//! assert!(register.by_name("composite_mldsa65_ed25519").is_some());
//! ```

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use ike_wire::registry::HashId;
use ipsec_types::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ipsec_types::crypto::{CryptoError, Scheme, Secret, SignatureScheme, SigningKey};
use ml_dsa::{MlDsa65, Seed, Signature, VerifyingKey};
use zeroize::Zeroize;

pub mod exchange;

/// id-MLDSA65-Ed25519-SHA512, for [`SchemeRegister::add`](ipsec_types::crypto::SchemeRegister::add).
pub fn scheme() -> OutsideScheme {
    let scheme: &'static dyn Scheme = &Composite;
    scheme.into()
}

/// id-MLDSA65-Ed25519-SHA512.
#[derive(Debug, Clone, Copy)]
pub struct Composite;

impl Scheme for Composite {
    /// Not the draft's name: names that begin with `mldsa` are the engine's.
    fn name(&self) -> &str {
        "composite_mldsa65_ed25519"
    }

    fn algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
    }

    fn hash(&self) -> HashId {
        HashId::IDENTITY
    }

    fn is_post_quantum(&self) -> bool {
        true
    }

    /// It does not depend on one algorithm alone.
    fn preferred_to(&self) -> Option<SignatureScheme> {
        Some(SignatureScheme::MlDsa65)
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths {
            public_key: ML_DSA_KEY + ED25519_KEY,
            signature: ML_DSA_SIGNATURE + ED25519_SIGNATURE,
        }
    }

    /// Verifies both halves in every case, and says the same whichever of them is not valid.
    ///
    /// Of a key only the length is checked before that: FIPS 204 decodes all octets, and no signature is valid by octets
    /// that are no point of Ed25519's curve.
    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let (ml_dsa_key, ed25519_key) =
            halves(key, ML_DSA_KEY, ED25519_KEY).ok_or(CryptoError::InvalidPublic)?;
        let (ml_dsa_signature, ed25519_signature) =
            halves(signature, ML_DSA_SIGNATURE, ED25519_SIGNATURE).ok_or(CryptoError::Integrity)?;
        let ml_dsa_key = ml_dsa_key.try_into().map_err(|_| CryptoError::InvalidPublic)?;
        let representative = representative(message);
        let ml_dsa_is_valid = Signature::<MlDsa65>::try_from(ml_dsa_signature).is_ok_and(|half| {
            let key = VerifyingKey::<MlDsa65>::decode(ml_dsa_key);
            key.verify_with_context(&representative, LABEL, &half)
        });
        let ed25519_key = UnparsedPublicKey::new(&ED25519, ed25519_key);
        let ed25519_is_valid = ed25519_key.verify(&representative, ed25519_signature).is_ok();
        (ml_dsa_is_valid & ed25519_is_valid).then_some(()).ok_or(CryptoError::Integrity)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let (seed, ed25519_key) = halves(octets, SEED, SEED).ok_or(CryptoError::Length)?;
        let mut seed = Seed::try_from(seed).map_err(|_| CryptoError::Length)?;
        let ml_dsa = ml_dsa::SigningKey::from_seed(&seed);
        seed.zeroize();
        let ed25519 = Ed25519KeyPair::from_seed_unchecked(ed25519_key);
        let ed25519 = ed25519.map_err(|_| CryptoError::Length)?;
        let public = ml_dsa.expanded_key().verifying_key().encode();
        let public = [&public[..], ed25519.public_key().as_ref()].concat();
        let spki = SubjectPublicKeyInfo { algorithm: IDENTIFIER, key: &public }.encode();
        Ok(Box::new(Key { schemes: [SignatureScheme::Outside(scheme())], ml_dsa, ed25519, spki }))
    }

    /// Both halves are drawn: the seed of FIPS 204, and the private key of RFC 8032.
    fn generate(&self) -> Result<Secret, CryptoError> {
        let mut octets = [0; 2 * SEED];
        let drawn = aws_lc_rs::rand::fill(&mut octets);
        let secret = Secret::copy_from(&octets);
        octets.zeroize();
        drawn.map(|()| secret).map_err(|_| CryptoError::Backend)
    }
}

/// A private key. Both libraries wipe their half of it.
struct Key {
    schemes: [SignatureScheme; 1],
    ml_dsa: ml_dsa::SigningKey<MlDsa65>,
    ed25519: Ed25519KeyPair,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    /// ML-DSA is hedged: `rnd` is drawn (FIPS 204 §3.4).
    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let representative = representative(message);
        let mut rnd = Seed::default();
        aws_lc_rs::rand::fill(&mut rnd).map_err(|_| CryptoError::Backend)?;
        // FIPS 204, algorithm 2: the context is the label.
        let parts = [&[0, LABEL.len() as u8], LABEL, &representative];
        let ml_dsa = self.ml_dsa.expanded_key().sign_internal(&parts, &rnd).encode();
        rnd.zeroize();
        let ed25519 = self.ed25519.try_sign(&representative).map_err(|_| CryptoError::Backend)?;
        Ok([&ml_dsa[..], ed25519.as_ref()].concat())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// The draft's `M'`, which both halves sign, for the empty context.
fn representative(message: &[u8]) -> Vec<u8> {
    let context_len = 0;
    [PREFIX, LABEL, &[context_len], digest::digest(&digest::SHA512, message).as_ref()].concat()
}

/// The two parts of `octets`; `None` if their lengths are not these.
fn halves(octets: &[u8], first: usize, second: usize) -> Option<(&[u8], &[u8])> {
    let (one, other) = octets.split_at_checked(first)?;
    (other.len() == second).then_some((one, other))
}

/// Without parameters, 1.3.6.1.5.5.7.6.48.
const IDENTIFIER: &[u8] = &[0x30, 10, 0x06, 8, 0x2b, 6, 1, 5, 5, 7, 6, 48];
const PREFIX: &[u8] = b"CompositeAlgorithmSignatures2025";
/// The draft's label. It is also the context of ML-DSA, so that the half alone is no signature of plain ML-DSA.
const LABEL: &[u8] = b"COMPSIG-MLDSA65-Ed25519-SHA512";
/// Octets of both private keys.
const SEED: usize = 32;
const ML_DSA_KEY: usize = 1952;
const ML_DSA_SIGNATURE: usize = 3309;
const ED25519_KEY: usize = 32;
const ED25519_SIGNATURE: usize = 64;
