//! ECDSA with SHA-256 on brainpoolP256r1 (RFC 5639).
//!
//! Its signatures have the identifier of those on P-256 (RFC 7427 §A.3.2). Only the key names the curve.

use std::fmt;

use bp256::r1::BrainpoolP256r1;
use bp256::r1::ecdsa::DerSignature;
use ecdsa::signature::{Signer, Verifier};
use ecdsa::{SigningKey as Pair, VerifyingKey};
use ike_wire::der::{self, Der};
use ike_wire::registry::HashId;
use ipsec_types::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ipsec_types::crypto::{CryptoError, Scheme, Secret, SignatureScheme, SigningKey};
use zeroize::Zeroizing;

/// ECDSA on brainpoolP256r1, for [`SchemeRegister::add`](ipsec_types::crypto::SchemeRegister::add).
pub fn scheme() -> OutsideScheme {
    let scheme: &'static dyn Scheme = &Brainpool;
    scheme.into()
}

/// ECDSA with SHA-256 on brainpoolP256r1.
#[derive(Debug, Clone, Copy)]
pub struct Brainpool;

impl Scheme for Brainpool {
    fn name(&self) -> &str {
        "ecdsa_brainpoolp256r1"
    }

    fn algorithm_identifier(&self) -> &[u8] {
        ECDSA_WITH_SHA256
    }

    fn key_algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
    }

    fn hash(&self) -> HashId {
        HashId::SHA2_256
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths { public_key: POINT, signature: SIGNATURE }
    }

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        // RFC 5480 §2.2: the form without compression is the one that everybody has.
        let point = key.starts_with(&[UNCOMPRESSED]).then_some(key);
        let key = point.and_then(|key| VerifyingKey::<BrainpoolP256r1>::from_sec1_bytes(key).ok());
        let key = key.ok_or(CryptoError::InvalidPublic)?;
        let signature = DerSignature::from_bytes(signature).map_err(|_| CryptoError::Integrity)?;
        key.verify(message, &signature).map_err(|_| CryptoError::Integrity)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let (scalar, public) = ec_private_key(octets).ok_or(CryptoError::Length)?;
        let pair = Pair::<BrainpoolP256r1>::from_slice(scalar).map_err(|_| CryptoError::Length)?;
        let own = pair.verifying_key().to_sec1_point(false);
        if public.is_some_and(|public| public != own.as_bytes()) {
            return Err(CryptoError::Length);
        }
        let spki = SubjectPublicKeyInfo { algorithm: IDENTIFIER, key: own.as_bytes() }.encode();
        Ok(Box::new(Key { schemes: [SignatureScheme::Outside(scheme())], pair, spki }))
    }

    /// An `ECPrivateKey` with its public key.
    fn generate(&self) -> Result<Secret, CryptoError> {
        let mut scalar = Zeroizing::new([0; SCALAR]);
        let pair = loop {
            aws_lc_rs::rand::fill(&mut *scalar).map_err(|_| CryptoError::Backend)?;
            // Of 100 numbers of 256 bits 66 are below the order of the curve.
            if let Ok(pair) = Pair::<BrainpoolP256r1>::from_slice(&*scalar) {
                break pair;
            }
        };
        let mut bits = Vec::new();
        let point = pair.verifying_key().to_sec1_point(false);
        der::push(&mut bits, der::BIT_STRING, &[&[0], point.as_bytes()]);
        let mut fields = Zeroizing::new(Vec::with_capacity(2 * POINT));
        der::push_unsigned(&mut fields, &[1]);
        der::push(&mut fields, der::OCTET_STRING, &[&*scalar]);
        der::push(&mut fields, der::context(1), &[&bits]);
        let mut octets = Zeroizing::new(Vec::with_capacity(2 * POINT));
        der::push(&mut octets, der::SEQUENCE, &[&fields]);
        Ok(Secret::copy_from(&octets))
    }
}

/// The private key and, if it is there, the public one of an `ECPrivateKey` (RFC 5915 §3) on this curve.
fn ec_private_key(octets: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut outer = Der::new(octets);
    let mut fields = outer.nested(der::SEQUENCE)?;
    outer.end()?;
    fields.unsigned().filter(|version| *version == [1])?;
    let scalar = fields.content(der::OCTET_STRING).filter(|scalar| scalar.len() == SCALAR)?;
    if fields.peek() == Some(der::context(0)) {
        fields.content(der::context(0)).filter(|curve| *curve == CURVE)?;
    }
    let public = match fields.peek() {
        Some(_) => Some(fields.nested(der::context(1))?.bits()?),
        None => None,
    };
    fields.end().map(|()| (scalar, public))
}

/// A private key. The library wipes it.
struct Key {
    schemes: [SignatureScheme; 1],
    pair: Pair<BrainpoolP256r1>,
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
        let signature: DerSignature =
            self.pair.try_sign(message).map_err(|_| CryptoError::Backend)?;
        Ok(signature.as_bytes().to_vec())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// ecdsa-with-SHA256 (RFC 5758 §3.2).
const ECDSA_WITH_SHA256: &[u8] = &[0x30, 10, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// id-ecPublicKey with brainpoolP256r1, 1.3.36.3.3.2.8.1.1.7.
const IDENTIFIER: &[u8] = &[
    0x30, 20, 0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 9, 0x2b, 36, 3, 3, 2, 8, 1, 1, 7,
];
/// The curve of [`IDENTIFIER`].
const CURVE: &[u8] = &[0x06, 9, 0x2b, 36, 3, 3, 2, 8, 1, 1, 7];
/// Octets of a private key.
const SCALAR: usize = 32;
/// Octets of a public key: both coordinates, after the octet [`UNCOMPRESSED`].
const POINT: usize = 65;
/// Octets of the longest signature: two integers of 33 octets, in DER.
const SIGNATURE: usize = 72;
/// The first octet of a point that is not compressed (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;
