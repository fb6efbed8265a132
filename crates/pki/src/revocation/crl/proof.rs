//! The signature on a list, for which a long list need not be kept.

use std::ops::Range;

use aws_lc_rs::digest::{Algorithm, Digest, SHA256, SHA384, SHA512};
use aws_lc_rs::signature::{self as by, UnparsedPublicKey, VerificationAlgorithm};
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::wire::der::{Der, SEQUENCE};
use rustls_pki_types::{AlgorithmIdentifier, alg_id};

use crate::signed::pss::Pss;
use crate::signed::{ALGORITHMS, Schemes, Signed};

/// What is needed to verify the signature by any key.
pub(super) struct Proof {
    /// DER AlgorithmIdentifier.
    pub algorithm: Vec<u8>,
    pub signature: Vec<u8>,
    pub message: Message,
    /// Those that may have made the signature, beside the built-in ones.
    pub schemes: Schemes,
}

/// What the signature signs.
pub(super) enum Message {
    /// A part of the list, DER.
    Whole(Vec<u8>, Range<usize>),
    /// What a long list comes to.
    Digest(Digest),
}

impl Proof {
    /// True if the key in `spki` made the signature.
    pub fn is_by(&self, spki: &[u8]) -> bool {
        let (algorithm, signature) = (self.algorithm.as_slice(), self.signature.as_slice());
        match &self.message {
            Message::Whole(der, part) => der.get(part.clone()).is_some_and(|message| {
                Signed { message, algorithm, signature, rest: Der::new(&[]) }
                    .is_by(spki, &self.schemes)
            }),
            Message::Digest(digest) => {
                let Some(key) = SubjectPublicKeyInfo::parse(spki) else { return false };
                if let Some(pss) = Pss::of(algorithm) {
                    let made = pss.and_then(|pss| pss.verify_digest(&key, digest, signature));
                    return made.unwrap_or(false);
                }
                let (algorithm, public) = (inside(algorithm), inside(key.algorithm));
                let mut fitting = HASHED
                    .iter()
                    .filter(|known| known.is(algorithm) && public == Some(known.public.as_ref()));
                fitting.any(|known| {
                    let key = UnparsedPublicKey::new(known.verifier, key.key);
                    key.verify_digest(digest, signature).is_ok()
                })
            }
        }
    }

    /// The list, if it is kept.
    pub fn der(&self) -> Option<&[u8]> {
        match &self.message {
            Message::Whole(der, _) => Some(der),
            Message::Digest(_) => None,
        }
    }

    /// Octets of memory.
    pub fn octets(&self) -> usize {
        self.der().map_or(0, <[u8]>::len) + self.algorithm.len() + self.signature.len()
    }
}

/// The hash that the signature `algorithm`, a DER AlgorithmIdentifier, signs; `None` if it signs the whole message.
pub(super) fn hash_of(algorithm: &[u8]) -> Option<&'static Algorithm> {
    if let Some(pss) = Pss::of(algorithm) {
        return pss.ok().map(|pss| pss.hash);
    }
    let algorithm = inside(algorithm);
    HASHED.iter().find(|known| known.is(algorithm)).map(|known| known.hash)
}

/// True if the signature `algorithm`, a DER AlgorithmIdentifier, is one of those that are verified.
pub(super) fn is_known(algorithm: &[u8], schemes: &Schemes) -> bool {
    if schemes.have_signature(algorithm) {
        return true;
    }
    if let Some(pss) = Pss::of(algorithm) {
        return pss.is_ok();
    }
    let algorithm = inside(algorithm);
    ALGORITHMS.iter().any(|known| algorithm == Some(known.signature_alg_id().as_ref()))
}

/// The content of an AlgorithmIdentifier.
fn inside(algorithm: &[u8]) -> Option<&[u8]> {
    Der::new(algorithm).content(SEQUENCE)
}

/// A signature algorithm that signs a hash.
struct Hashed {
    signature: AlgorithmIdentifier,
    public: AlgorithmIdentifier,
    hash: &'static Algorithm,
    verifier: &'static dyn VerificationAlgorithm,
}

impl Hashed {
    fn is(&self, algorithm: Option<&[u8]>) -> bool {
        algorithm == Some(self.signature.as_ref())
    }
}

const fn hashed(
    signature: AlgorithmIdentifier,
    public: AlgorithmIdentifier,
    hash: &'static Algorithm,
    verifier: &'static dyn VerificationAlgorithm,
) -> Hashed {
    Hashed { signature, public, hash, verifier }
}

/// Those of the accepted algorithms, besides RSASSA-PSS. Long lists by others are kept whole.
static HASHED: [Hashed; 12] = [
    hashed(alg_id::ECDSA_SHA256, alg_id::ECDSA_P256, &SHA256, &by::ECDSA_P256_SHA256_ASN1),
    hashed(alg_id::ECDSA_SHA384, alg_id::ECDSA_P256, &SHA384, &by::ECDSA_P256_SHA384_ASN1),
    hashed(alg_id::ECDSA_SHA512, alg_id::ECDSA_P256, &SHA512, &by::ECDSA_P256_SHA512_ASN1),
    hashed(alg_id::ECDSA_SHA256, alg_id::ECDSA_P384, &SHA256, &by::ECDSA_P384_SHA256_ASN1),
    hashed(alg_id::ECDSA_SHA384, alg_id::ECDSA_P384, &SHA384, &by::ECDSA_P384_SHA384_ASN1),
    hashed(alg_id::ECDSA_SHA512, alg_id::ECDSA_P384, &SHA512, &by::ECDSA_P384_SHA512_ASN1),
    hashed(alg_id::ECDSA_SHA256, alg_id::ECDSA_P521, &SHA256, &by::ECDSA_P521_SHA256_ASN1),
    hashed(alg_id::ECDSA_SHA384, alg_id::ECDSA_P521, &SHA384, &by::ECDSA_P521_SHA384_ASN1),
    hashed(alg_id::ECDSA_SHA512, alg_id::ECDSA_P521, &SHA512, &by::ECDSA_P521_SHA512_ASN1),
    hashed(RSA_SHA256, RSA, &SHA256, &by::RSA_PKCS1_2048_8192_SHA256),
    hashed(alg_id::RSA_PKCS1_SHA384, RSA, &SHA384, &by::RSA_PKCS1_2048_8192_SHA384),
    hashed(alg_id::RSA_PKCS1_SHA512, RSA, &SHA512, &by::RSA_PKCS1_2048_8192_SHA512),
];
const RSA: AlgorithmIdentifier = alg_id::RSA_ENCRYPTION;
const RSA_SHA256: AlgorithmIdentifier = alg_id::RSA_PKCS1_SHA256;
