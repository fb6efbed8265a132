//! RSASSA-PSS with any length of salt, and keys of type id-RSASSA-PSS (RFC 4055).

use aws_lc_rs::digest::{Algorithm, Digest, SHA256, SHA384, SHA512};
use aws_lc_rs::signature::{self, RsaParameters, RsaPssSaltLength, VerificationAlgorithm};
use ike_proto::crypto::SignatureScheme;
use ike_proto::crypto::sign::{PssParameters, PssProperty, SubjectPublicKeyInfo};
use ike_proto::wire::der::{self, Der};

use crate::error::Unaccepted;

/// The algorithm of a signature by RSASSA-PSS.
#[derive(Debug)]
pub(crate) struct Pss {
    parameters: PssParameters,
    /// The hash that it signs.
    pub hash: &'static Algorithm,
    verifier: RsaParameters,
}

impl Pss {
    /// The algorithm that a DER AlgorithmIdentifier of a signature names; `None` if it is not RSASSA-PSS.
    pub fn of(algorithm: &[u8]) -> Option<Result<Self, Unaccepted>> {
        let parameters = PssParameters::parse(algorithm)?;
        Some(parameters.and_then(Self::new).map_err(Unaccepted::Pss))
    }

    fn new(parameters: PssParameters) -> Result<Self, PssProperty> {
        use SignatureScheme::{RsaPssSha256, RsaPssSha384, RsaPssSha512};
        // A default of SHA-1 for the mask function does not hide an accepted hash.
        let of_hash = PssParameters { mgf1_hash: parameters.hash, ..parameters };
        let (hash, verifier) = match of_hash.scheme_of_hash() {
            Some(RsaPssSha256) => (&SHA256, signature::RSA_PSS_2048_8192_SHA256),
            Some(RsaPssSha384) => (&SHA384, signature::RSA_PSS_2048_8192_SHA384),
            Some(RsaPssSha512) => (&SHA512, signature::RSA_PSS_2048_8192_SHA512),
            _ => return Err(PssProperty::Hash),
        };
        if parameters.mgf1_hash != parameters.hash {
            return Err(PssProperty::MaskFunction);
        }
        let salt = RsaPssSaltLength::Custom(parameters.salt_len);
        Ok(Self { parameters, hash, verifier: verifier.with_pss_salt_length(salt) })
    }

    /// Whether `key` made the signature on `message`.
    ///
    /// # Errors
    /// The property that the parameters of the key do not allow.
    pub fn verify(
        &self,
        key: &SubjectPublicKeyInfo<'_>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool, Unaccepted> {
        Ok(self.is_for(key)? && self.verifier.verify_sig(key.key, message, signature).is_ok())
    }

    /// As [`verify`](Self::verify), with the digest of the message.
    pub fn verify_digest(
        &self,
        key: &SubjectPublicKeyInfo<'_>,
        digest: &Digest,
        signature: &[u8],
    ) -> Result<bool, Unaccepted> {
        Ok(self.is_for(key)? && self.verifier.verify_digest_sig(key.key, digest, signature).is_ok())
    }

    /// True if `key` is an RSA key. One of type id-RSASSA-PSS with parameters is for these hashes alone, and its
    /// length of salt is the least one (RFC 4055 §3.3).
    fn is_for(&self, key: &SubjectPublicKeyInfo<'_>) -> Result<bool, Unaccepted> {
        if key.algorithm == SignatureScheme::RsaPssSha256.key_algorithm_identifier() {
            return Ok(true);
        }
        let Some(limits) = PssParameters::parse(key.algorithm) else { return Ok(false) };
        if is_bare(key.algorithm) {
            return Ok(true);
        }
        let limits = limits.map_err(Unaccepted::PssKey)?;
        let (own, key) = (self.parameters, Unaccepted::PssKey);
        match () {
            () if own.hash != limits.hash => Err(key(PssProperty::Hash)),
            () if own.mgf1_hash != limits.mgf1_hash => Err(key(PssProperty::MaskFunction)),
            () if own.salt_len < limits.salt_len => Err(key(PssProperty::SaltLength)),
            () => Ok(true),
        }
    }
}

/// True for an AlgorithmIdentifier without parameters.
fn is_bare(algorithm: &[u8]) -> bool {
    let Some(mut inner) = Der::new(algorithm).nested(der::SEQUENCE) else { return false };
    inner.content(der::OBJECT_IDENTIFIER).is_some() && inner.is_empty()
}

/// Bits of the modulus of an RSA key that is too short or too long for any signature.
pub(super) fn unaccepted_modulus(key: &SubjectPublicKeyInfo<'_>) -> Option<u32> {
    let range = signature::RSA_PSS_2048_8192_SHA256;
    let accepted = range.min_modulus_len()..=range.max_modulus_len();
    key.rsa_bits().filter(|bits| !accepted.contains(bits))
}
