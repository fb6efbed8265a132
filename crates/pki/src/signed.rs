//! Signatures on certificates, revocation lists and OCSP responses.

use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::crypto::{SignatureScheme, SignatureVerifier};
use ike_proto::wire::der::{self, Der};
use pq_kem::sign::SlhDsa;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};
use webpki::aws_lc_rs as algorithms;

use crate::error::Unaccepted;
use pss::Pss;
pub(crate) use schemes::Schemes;

pub(crate) mod pss;
mod schemes;

/// Signature algorithms that a certificate may have. SHA-1 and RSA under 2048 bits are excluded. Curves go with
/// any SHA-2. RSASSA-PSS with other lengths of salt, and keys of its own type, are in [`pss`].
pub(crate) static ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    algorithms::ML_DSA_87,
    algorithms::ML_DSA_65,
    algorithms::ML_DSA_44,
    algorithms::ED25519,
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P256_SHA512,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ECDSA_P384_SHA512,
    algorithms::ECDSA_P521_SHA256,
    algorithms::ECDSA_P521_SHA384,
    algorithms::ECDSA_P521_SHA512,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
    algorithms::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    &Slh(&SignatureScheme::SlhDsaSha2_128s),
    &Slh(&SignatureScheme::SlhDsaSha2_128f),
    &Slh(&SignatureScheme::SlhDsaSha2_192s),
    &Slh(&SignatureScheme::SlhDsaSha2_192f),
    &Slh(&SignatureScheme::SlhDsaSha2_256s),
    &Slh(&SignatureScheme::SlhDsaSha2_256f),
    &Slh(&SignatureScheme::SlhDsaShake128s),
    &Slh(&SignatureScheme::SlhDsaShake128f),
    &Slh(&SignatureScheme::SlhDsaShake192s),
    &Slh(&SignatureScheme::SlhDsaShake192f),
    &Slh(&SignatureScheme::SlhDsaShake256s),
    &Slh(&SignatureScheme::SlhDsaShake256f),
];

/// SLH-DSA in certificates (RFC 9909), which rustls-webpki lacks. The backend for AUTH payloads verifies it.
#[derive(Debug)]
struct Slh(&'static SignatureScheme);

impl SignatureVerificationAlgorithm for Slh {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let algorithm = self.0.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key: public_key }.encode();
        SlhDsa.verify(self.0, &spki, message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        let content = inside(self.0.key_algorithm_identifier());
        AlgorithmIdentifier::from_slice(content.unwrap_or_default())
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        // The same for both uses (RFC 9909 §3).
        self.public_key_alg_id()
    }
}

/// The result of verifying a signature by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The key made it.
    Good,
    /// The key did not make it.
    Wrong,
    /// No accepted algorithm makes such signatures.
    Unsupported(Unaccepted),
    /// It is by a scheme of the program that the connection does not name. It was not verified.
    Unnamed,
}

/// A SIGNED structure of X.509: the signed octets, the algorithm, and the signature (RFC 5280 §4.1.1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    /// The signed octets, header included.
    pub message: &'a [u8],
    /// The AlgorithmIdentifier, header included.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
    /// The octets after the signature, inside the structure.
    pub rest: Der<'a>,
}

impl<'a> Signed<'a> {
    /// Parses `octets`; `None` if they are not exactly one such structure.
    pub fn parse(octets: &'a [u8]) -> Option<Self> {
        let mut outer = Der::new(octets);
        let mut inner = outer.nested(der::SEQUENCE)?;
        outer.end()?;
        Some(Self {
            message: inner.element(der::SEQUENCE)?,
            algorithm: inner.element(der::SEQUENCE)?,
            signature: inner.bits()?,
            rest: inner,
        })
    }

    /// True if `spki` made the signature. See [`check`](Self::check).
    pub fn is_by(&self, spki: &[u8], schemes: &Schemes) -> bool {
        self.check(spki, schemes) == Signature::Good
    }

    /// Whether `spki` made the signature: with one of [`ALGORITHMS`], by RSASSA-PSS with any length of salt, or with one of
    /// `schemes`.
    pub fn check(&self, spki: &[u8], schemes: &Schemes) -> Signature {
        let unknown = Signature::Unsupported(Unaccepted::Algorithm);
        if let Some(scheme) = schemes.of_signature(self.algorithm, spki) {
            return match scheme.verify_by(spki, self.message, self.signature) {
                Ok(()) => Signature::Good,
                Err(_) => Signature::Wrong,
            };
        }
        let Some(key) = SubjectPublicKeyInfo::parse(spki) else { return unknown };
        let (Some(signature), Some(public)) = (inside(self.algorithm), inside(key.algorithm))
        else {
            return unknown;
        };
        let mut known = ALGORITHMS
            .iter()
            .filter(|algorithm| algorithm.signature_alg_id().as_ref() == signature)
            .peekable();
        let pss = Pss::of(self.algorithm);
        if known.peek().is_none() && pss.is_none() {
            // A scheme of the program, and the key of another one.
            return if schemes.have_signature(self.algorithm) { Signature::Wrong } else { unknown };
        }
        let mut fitting =
            known.filter(|algorithm| algorithm.public_key_alg_id().as_ref() == public).peekable();
        let good = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            algorithm.verify_signature(key.key, self.message, self.signature).is_ok()
        };
        let made = match pss {
            // Parameters or keys that no entry of the table stands for.
            Some(pss) if fitting.peek().is_none() => {
                pss.and_then(|pss| pss.verify(&key, self.message, self.signature))
            }
            _ => Ok(fitting.any(good)),
        };
        match (made, pss::unaccepted_modulus(&key)) {
            (Ok(true), _) => Signature::Good,
            (Err(why), _) => Signature::Unsupported(why),
            (Ok(false), Some(bits)) => Signature::Unsupported(Unaccepted::Modulus(bits)),
            (Ok(false), None) => Signature::Wrong,
        }
    }
}

/// The content of an AlgorithmIdentifier.
fn inside(algorithm: &[u8]) -> Option<&[u8]> {
    Der::new(algorithm).content(der::SEQUENCE)
}
