//! Ed448 (RFC 8032 §5.2): pure, with the empty context, as RFC 8420 has it in IKEv2 and RFC 8410 in certificates.

use std::fmt;

use ed448_goldilocks::{
    CompressedEdwardsY, SecretKey, Signature, SigningKey as Pair, VerifyingKey,
};
use ike_wire::der::{self, Der};
use ike_wire::registry::HashId;
use ipsec_types::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ipsec_types::crypto::{CryptoError, Scheme, Secret, SignatureScheme, SigningKey};
use zeroize::{Zeroize, Zeroizing};

/// Ed448, for [`SchemeRegister::add`](ipsec_types::crypto::SchemeRegister::add).
pub fn scheme() -> OutsideScheme {
    let scheme: &'static dyn Scheme = &Ed448;
    scheme.into()
}

/// Ed448.
#[derive(Debug, Clone, Copy)]
pub struct Ed448;

impl Scheme for Ed448 {
    fn name(&self) -> &str {
        "ed448"
    }

    fn algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
    }

    /// The message goes into it as it is (RFC 8420 §2).
    fn hash(&self) -> HashId {
        HashId::IDENTITY
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    /// Its curve is the stronger one.
    fn preferred_to(&self) -> Option<SignatureScheme> {
        Some(SignatureScheme::Ed25519)
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths { public_key: KEY, signature: Signature::BYTE_SIZE }
    }

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let key = key.try_into().ok().filter(is_a_point);
        let key = key.and_then(|key| VerifyingKey::from_bytes(&key).ok());
        let key = key.ok_or(CryptoError::InvalidPublic)?;
        let signature = Signature::from_slice(signature).map_err(|_| CryptoError::Integrity)?;
        if !is_a_point(signature.r_bytes()) {
            return Err(CryptoError::Integrity);
        }
        key.verify_raw(&signature, message).map_err(|_| CryptoError::Integrity)
    }

    /// `octets` are a `CurvePrivateKey` (RFC 8410 §7): an OCTET STRING inside that of PKCS#8.
    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let mut outer = Der::new(octets);
        let seed = outer.content(der::OCTET_STRING).filter(|_| outer.is_empty());
        let seed = seed.and_then(|seed| SecretKey::try_from(seed).ok());
        let seed = Zeroizing::new(seed.ok_or(CryptoError::Length)?);
        let pair = Pair::from(&*seed);
        let public = pair.verifying_key();
        let spki = SubjectPublicKeyInfo { algorithm: IDENTIFIER, key: public.as_bytes() }.encode();
        Ok(Box::new(Key { schemes: [SignatureScheme::Outside(scheme())], pair, spki }))
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        let mut seed = [0; KEY];
        let drawn = aws_lc_rs::rand::fill(&mut seed);
        let mut octets = Zeroizing::new(Vec::with_capacity(KEY + 2));
        der::push(&mut octets, der::OCTET_STRING, &[&seed]);
        seed.zeroize();
        drawn.map(|()| Secret::copy_from(&octets)).map_err(|_| CryptoError::Backend)
    }
}

/// A private key. The library wipes it.
struct Key {
    schemes: [SignatureScheme; 1],
    pair: Pair,
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
        Ok(self.pair.sign_raw(message).to_bytes().to_vec())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// True if `octets` are the one encoding of a point (RFC 8032 §5.2.3). The library passes over the seven unused bits.
fn is_a_point(octets: &[u8; KEY]) -> bool {
    let point = CompressedEdwardsY(*octets).decompress().into_option();
    point.is_some_and(|point| point.compress().as_bytes() == octets)
}

/// id-Ed448 without parameters, 1.3.101.113 (RFC 8410 §3).
const IDENTIFIER: &[u8] = &[0x30, 5, 0x06, 3, 0x2b, 101, 113];
/// Octets of a private key and of a public key.
const KEY: usize = 57;
