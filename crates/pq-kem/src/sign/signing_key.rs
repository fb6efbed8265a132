//! Private keys that AWS-LC holds.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, PqdsaKeyPair,
    PqdsaSigningAlgorithm, RsaEncoding, RsaKeyPair,
};
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SigningKey};

use super::private_key::KeyError;
use super::public_key::is_acceptable_rsa;

/// A private key with its public half.
pub(super) struct AwsLcKey {
    pair: Pair,
    schemes: &'static [SignatureScheme],
    spki: Vec<u8>,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    MlDsa(PqdsaKeyPair),
}

impl AwsLcKey {
    /// An RSA key of a size and an exponent that our own verifiers accept.
    pub(super) fn rsa(pair: RsaKeyPair) -> Result<Self, KeyError> {
        if !is_acceptable_rsa(pair.public_key().as_ref()) {
            return Err(KeyError::RsaSize);
        }
        Ok(Self::new(RSA_SCHEMES, pair.public_key().as_ref().to_vec(), Pair::Rsa(pair)))
    }

    /// The ECDSA key that `parse` finds for one of the curves.
    pub(super) fn ecdsa(
        parse: impl Fn(&'static EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>,
    ) -> Result<Self, KeyError> {
        let (schemes, pair) = CURVES
            .iter()
            .find_map(|(schemes, algorithm)| Some((*schemes, parse(algorithm)?)))
            .ok_or(KeyError::Malformed)?;
        Ok(Self::new(schemes, pair.public_key().as_ref().to_vec(), Pair::Ecdsa(pair)))
    }

    pub(super) fn ed25519(pair: Ed25519KeyPair) -> Self {
        let public = pair.public_key().as_ref().to_vec();
        Self::new(&[SignatureScheme::Ed25519], public, Pair::Ed25519(pair))
    }

    pub(super) fn ml_dsa(set: &'static MlDsaSet, pair: PqdsaKeyPair) -> Self {
        Self::new(&set.schemes, pair.public_key().as_ref().to_vec(), Pair::MlDsa(pair))
    }

    fn new(schemes: &'static [SignatureScheme], key: Vec<u8>, pair: Pair) -> Self {
        let algorithm = schemes.first().map(|scheme| scheme.key_algorithm_identifier());
        let algorithm = algorithm.unwrap_or_default();
        Self { pair, schemes, spki: SubjectPublicKeyInfo { algorithm, key: &key }.encode() }
    }
}

impl SigningKey for AwsLcKey {
    fn schemes(&self) -> &[SignatureScheme] {
        self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let failed = |_| CryptoError::Backend;
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding = rsa_encoding(scheme).ok_or(CryptoError::Unsupported)?;
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut signature)
                    .map_err(failed)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => Ok(pair.try_sign(message).map_err(failed)?.as_ref().to_vec()),
            Pair::MlDsa(pair) => {
                let mut signature = vec![0; pair.algorithm().signature_len()];
                let len = pair.sign(message, &mut signature).map_err(failed)?;
                signature.truncate(len);
                Ok(signature)
            }
        }
    }
}

impl fmt::Debug for AwsLcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// A parameter set of ML-DSA.
#[derive(Debug)]
pub(super) struct MlDsaSet {
    pub(super) schemes: [SignatureScheme; 1],
    pub(super) algorithm: &'static PqdsaSigningAlgorithm,
}

impl MlDsaSet {
    pub(super) fn of(scheme: &SignatureScheme) -> Option<&'static Self> {
        ML_DSA.iter().find(|set| set.schemes.contains(scheme))
    }
}

static ML_DSA: [MlDsaSet; 3] = [
    MlDsaSet { schemes: [SignatureScheme::MlDsa44], algorithm: &signature::ML_DSA_44_SIGNING },
    MlDsaSet { schemes: [SignatureScheme::MlDsa65], algorithm: &signature::ML_DSA_65_SIGNING },
    MlDsaSet { schemes: [SignatureScheme::MlDsa87], algorithm: &signature::ML_DSA_87_SIGNING },
];

static CURVES: [(&[SignatureScheme], &EcdsaSigningAlgorithm); 3] = [
    (&[SignatureScheme::EcdsaP256Sha256], &signature::ECDSA_P256_SHA256_ASN1_SIGNING),
    (&[SignatureScheme::EcdsaP384Sha384], &signature::ECDSA_P384_SHA384_ASN1_SIGNING),
    (&[SignatureScheme::EcdsaP521Sha512], &signature::ECDSA_P521_SHA512_ASN1_SIGNING),
];

const RSA_SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::RsaPssSha256,
    SignatureScheme::RsaPssSha384,
    SignatureScheme::RsaPssSha512,
    SignatureScheme::RsaPkcs1Sha256,
    SignatureScheme::RsaPkcs1Sha384,
    SignatureScheme::RsaPkcs1Sha512,
];

fn rsa_encoding(scheme: &SignatureScheme) -> Option<&'static dyn RsaEncoding> {
    Some(match scheme {
        SignatureScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
        SignatureScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_SHA384,
        SignatureScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_SHA512,
        SignatureScheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
        SignatureScheme::RsaPssSha384 => &signature::RSA_PSS_SHA384,
        SignatureScheme::RsaPssSha512 => &signature::RSA_PSS_SHA512,
        _ => return None,
    })
}
