//! Verification by AWS-LC.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use ike_wire::registry::HashId;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier};

use super::public_key::key_for;

/// RSA, ECDSA, Ed25519 and ML-DSA by AWS-LC.
#[derive(Debug, Clone, Copy)]
pub struct AwsLc;

impl SignatureVerifier for AwsLc {
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
        let curve = if scheme.is_ecdsa() { curve_of(spki) } else { None };
        let of_key = curve.unwrap_or(scheme);
        let algorithm = algorithm(of_key, scheme.hash()).ok_or(CryptoError::Unsupported)?;
        verify(algorithm, key_for(of_key, spki)?, message, signature)
    }
}

/// RSASSA-PKCS1-v1_5 with SHA-1 by AWS-LC, for authentication method 1 of peers that know no other
/// hash (RFC 7296 §3.8). No list of this crate has it: who needs it adds it to the
/// [`verifiers`](ipsec_types::crypto::CryptoProvider::verifiers) of a provider.
#[derive(Debug, Clone, Copy)]
pub struct RsaSha1;

impl SignatureVerifier for RsaSha1 {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::RsaPkcs1Sha1]
    }

    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if *scheme != SignatureScheme::RsaPkcs1Sha1 {
            return Err(CryptoError::Unsupported);
        }
        let algorithm = &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        verify(algorithm, key_for(scheme, spki)?, message, signature)
    }
}

fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), CryptoError> {
    UnparsedPublicKey::new(algorithm, key)
        .verify(message, signature)
        .map_err(|_| CryptoError::Integrity)
}

/// The scheme that names the curve of an ECDSA key.
fn curve_of(spki: &[u8]) -> Option<&'static SignatureScheme> {
    SignatureScheme::of_built_in_key(spki).iter().find(|scheme| scheme.is_ecdsa())
}

/// The algorithm of a key that is for `scheme`, with another hash if it is one for ECDSA.
fn algorithm(scheme: &SignatureScheme, hash: HashId) -> Option<&'static dyn VerificationAlgorithm> {
    use SignatureScheme::*;
    Some(match scheme {
        RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        RsaPkcs1Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        RsaPkcs1Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        RsaPssSha384 => &signature::RSA_PSS_2048_8192_SHA384,
        RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
        EcdsaP256Sha256 | EcdsaP384Sha384 | EcdsaP521Sha512 => match (scheme, hash) {
            (EcdsaP256Sha256, HashId::SHA2_256) => &signature::ECDSA_P256_SHA256_ASN1,
            (EcdsaP256Sha256, HashId::SHA2_384) => &signature::ECDSA_P256_SHA384_ASN1,
            (EcdsaP256Sha256, HashId::SHA2_512) => &signature::ECDSA_P256_SHA512_ASN1,
            (EcdsaP384Sha384, HashId::SHA2_256) => &signature::ECDSA_P384_SHA256_ASN1,
            (EcdsaP384Sha384, HashId::SHA2_384) => &signature::ECDSA_P384_SHA384_ASN1,
            (EcdsaP384Sha384, HashId::SHA2_512) => &signature::ECDSA_P384_SHA512_ASN1,
            (EcdsaP521Sha512, HashId::SHA2_256) => &signature::ECDSA_P521_SHA256_ASN1,
            (EcdsaP521Sha512, HashId::SHA2_384) => &signature::ECDSA_P521_SHA384_ASN1,
            (EcdsaP521Sha512, HashId::SHA2_512) => &signature::ECDSA_P521_SHA512_ASN1,
            _ => return None,
        },
        Ed25519 => &signature::ED25519,
        MlDsa44 => &signature::ML_DSA_44,
        MlDsa65 => &signature::ML_DSA_65,
        MlDsa87 => &signature::ML_DSA_87,
        _ => return None,
    })
}

const SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::MlDsa87,
    SignatureScheme::MlDsa65,
    SignatureScheme::MlDsa44,
    SignatureScheme::Ed25519,
    SignatureScheme::EcdsaP256Sha256,
    SignatureScheme::EcdsaP384Sha384,
    SignatureScheme::EcdsaP521Sha512,
    SignatureScheme::RsaPssSha256,
    SignatureScheme::RsaPssSha384,
    SignatureScheme::RsaPssSha512,
    SignatureScheme::RsaPkcs1Sha256,
    SignatureScheme::RsaPkcs1Sha384,
    SignatureScheme::RsaPkcs1Sha512,
];

#[cfg(test)]
mod forged;
