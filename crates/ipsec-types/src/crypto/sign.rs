//! Digital signatures as the engine sees them: schemes, keys that sign, and backends that verify. No
//! algorithm is here. A program brings a scheme of its own as a [`Scheme`] and adds it to the
//! [`SchemeRegister`] of its provider.
//!
//! A signature has the form its `AlgorithmIdentifier` gives it in X.509 and in authentication method 14
//! (RFC 7427 §3): for ECDSA that is DER. Methods 9 to 11 (RFC 4754) carry `r | s` instead; see
//! [`SignatureScheme::signature_to_legacy`] and [`SignatureScheme::signature_from_legacy`].

use std::fmt;

use super::CryptoError;
use ike_wire::der::{self, Der};
use ike_wire::registry::{AuthMethod, HashId};

mod identifier;
mod outside;
mod pss;
mod register;

pub use outside::{OutsideScheme, Scheme, SchemeLengths};
pub use pss::{PssParameters, PssProperty};
pub use register::{RegisterError, SchemeRegister};

/// A signature algorithm with every parameter it needs: what one `AlgorithmIdentifier` says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SignatureScheme {
    /// RSASSA-PKCS1-v1_5 with SHA-1, for authentication method 1 of old peers and nothing else: never
    /// read from an `AlgorithmIdentifier` (RFC 8247 §4.2).
    RsaPkcs1Sha1,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256, MGF1 with SHA-256 and 32 octets of salt.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 octets of salt.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512, MGF1 with SHA-512 and 64 octets of salt.
    RsaPssSha512,
    /// ECDSA on P-256 with SHA-256.
    EcdsaP256Sha256,
    /// ECDSA on P-384 with SHA-384.
    EcdsaP384Sha384,
    /// ECDSA on P-521 with SHA-512.
    EcdsaP521Sha512,
    /// Ed25519, the pure variant (RFC 8420).
    Ed25519,
    /// ML-DSA-44, pure, with the empty context.
    MlDsa44,
    /// ML-DSA-65, pure, with the empty context.
    MlDsa65,
    /// ML-DSA-87, pure, with the empty context.
    MlDsa87,
    /// SLH-DSA-SHA2-128s, pure, with the empty context; so for the eleven that follow.
    SlhDsaSha2_128s,
    /// SLH-DSA-SHA2-128f.
    SlhDsaSha2_128f,
    /// SLH-DSA-SHA2-192s.
    SlhDsaSha2_192s,
    /// SLH-DSA-SHA2-192f.
    SlhDsaSha2_192f,
    /// SLH-DSA-SHA2-256s.
    SlhDsaSha2_256s,
    /// SLH-DSA-SHA2-256f.
    SlhDsaSha2_256f,
    /// SLH-DSA-SHAKE-128s.
    SlhDsaShake128s,
    /// SLH-DSA-SHAKE-128f.
    SlhDsaShake128f,
    /// SLH-DSA-SHAKE-192s.
    SlhDsaShake192s,
    /// SLH-DSA-SHAKE-192f.
    SlhDsaShake192f,
    /// SLH-DSA-SHAKE-256s.
    SlhDsaShake256s,
    /// SLH-DSA-SHAKE-256f.
    SlhDsaShake256f,
    /// Falcon-512 of NIST's third round with padded signatures: experimental, not FN-DSA, and under an
    /// identifier that no standard assigns.
    Falcon512,
    /// A scheme that the program has brought. Connections use it only if their configuration names it.
    Outside(OutsideScheme),
}

/// A private key. Implementations may be a token or another process.
pub trait SigningKey: Send + Sync + fmt::Debug {
    /// Schemes the key can sign with, in order of preference.
    fn schemes(&self) -> &[SignatureScheme];
    /// The public key, a DER `SubjectPublicKeyInfo` (RFC 5280 §4.1).
    fn public_key(&self) -> &[u8];
    /// Signs `message`, hashing it first where the scheme does.
    ///
    /// # Errors
    /// [`CryptoError::Unsupported`] if `scheme` is not one of [`schemes`](Self::schemes),
    /// [`CryptoError::Backend`] if the backend fails.
    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError>;
    /// True if signing waits for another process or a token, however fast the scheme is.
    fn is_elsewhere(&self) -> bool {
        false
    }
}

/// A backend that verifies signatures.
pub trait SignatureVerifier: Send + Sync + fmt::Debug {
    /// Schemes the backend has.
    fn schemes(&self) -> &[SignatureScheme];
    /// Verifies `signature` over `message` with the key in `spki`, a DER `SubjectPublicKeyInfo`. With a
    /// scheme of ECDSA the key may be on another curve than the scheme's: then its hash alone counts,
    /// as in its `AlgorithmIdentifier`. A backend may refuse such a key.
    ///
    /// # Errors
    /// [`CryptoError::Integrity`] if the signature is not valid, whatever is wrong with it;
    /// [`CryptoError::InvalidPublic`] if the key is malformed, not of the scheme's type, or outside
    /// the sizes the backend accepts; [`CryptoError::Unsupported`] for a scheme it does not have.
    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError>;
}

/// A DER `SubjectPublicKeyInfo` (RFC 5280 §4.1), taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubjectPublicKeyInfo<'a> {
    /// The whole `AlgorithmIdentifier`.
    pub algorithm: &'a [u8],
    /// The key: the octets of the BIT STRING.
    pub key: &'a [u8],
}

impl<'a> SubjectPublicKeyInfo<'a> {
    /// Parses `spki`; `None` if it is not DER or something follows it.
    pub fn parse(spki: &'a [u8]) -> Option<Self> {
        let mut outer = Der::new(spki);
        let mut inner = outer.nested(der::SEQUENCE)?;
        outer.end()?;
        let this = Self { algorithm: inner.element(der::SEQUENCE)?, key: inner.bits()? };
        inner.end().map(|()| this)
    }

    /// Bits of the modulus of an RSA key (RFC 8017 §A.1.1); `None` for any other key.
    pub fn rsa_bits(&self) -> Option<u32> {
        if !SignatureScheme::of_built_in_key(&self.encode()).iter().any(SignatureScheme::is_rsa) {
            return None;
        }
        let modulus = Der::new(self.key).nested(der::SEQUENCE)?.unsigned()?;
        let bits = modulus.len().checked_mul(8)?;
        let unused = modulus.first()?.leading_zeros();
        u32::try_from(bits).ok()?.checked_sub(unused)
    }

    /// The DER encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut bits = Vec::with_capacity(self.key.len() + 8);
        der::push(&mut bits, der::BIT_STRING, &[&[0], self.key]);
        let mut out = Vec::with_capacity(self.algorithm.len() + bits.len() + 8);
        der::push(&mut out, der::SEQUENCE, &[self.algorithm, &bits]);
        out
    }
}

impl SignatureScheme {
    /// Every built-in scheme.
    pub const BUILT_IN: &'static [Self] = &[
        Self::RsaPkcs1Sha1,
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssSha256,
        Self::RsaPssSha384,
        Self::RsaPssSha512,
        Self::EcdsaP256Sha256,
        Self::EcdsaP384Sha384,
        Self::EcdsaP521Sha512,
        Self::Ed25519,
        Self::MlDsa44,
        Self::MlDsa65,
        Self::MlDsa87,
        Self::SlhDsaSha2_128s,
        Self::SlhDsaSha2_128f,
        Self::SlhDsaSha2_192s,
        Self::SlhDsaSha2_192f,
        Self::SlhDsaSha2_256s,
        Self::SlhDsaSha2_256f,
        Self::SlhDsaShake128s,
        Self::SlhDsaShake128f,
        Self::SlhDsaShake192s,
        Self::SlhDsaShake192f,
        Self::SlhDsaShake256s,
        Self::SlhDsaShake256f,
        Self::Falcon512,
    ];

    /// The hash that SIGNATURE_HASH_ALGORITHMS must list for the scheme to be used (RFC 7427 §4);
    /// [`HashId::IDENTITY`] where the message goes into the scheme as it is (RFC 8420 §2).
    pub fn hash(&self) -> HashId {
        match self {
            Self::RsaPkcs1Sha1 => HashId::SHA1,
            Self::RsaPkcs1Sha256 | Self::RsaPssSha256 | Self::EcdsaP256Sha256 => HashId::SHA2_256,
            Self::RsaPkcs1Sha384 | Self::RsaPssSha384 | Self::EcdsaP384Sha384 => HashId::SHA2_384,
            Self::RsaPkcs1Sha512 | Self::RsaPssSha512 | Self::EcdsaP521Sha512 => HashId::SHA2_512,
            Self::Outside(outside) => outside.hash(),
            _ => HashId::IDENTITY,
        }
    }

    /// True if a quantum computer is not known to forge signatures of the scheme.
    pub fn is_post_quantum(&self) -> bool {
        match self {
            Self::Outside(outside) => outside.is_post_quantum(),
            Self::Ed25519 => false,
            other => !other.is_rsa() && !other.is_ecdsa(),
        }
    }

    /// True for RSA with either padding.
    pub fn is_rsa(&self) -> bool {
        matches!(
            self,
            Self::RsaPkcs1Sha1
                | Self::RsaPkcs1Sha256
                | Self::RsaPkcs1Sha384
                | Self::RsaPkcs1Sha512
                | Self::RsaPssSha256
                | Self::RsaPssSha384
                | Self::RsaPssSha512
        )
    }

    /// True for SLH-DSA with any parameter set.
    pub fn is_slh_dsa(&self) -> bool {
        matches!(
            self,
            Self::SlhDsaSha2_128s
                | Self::SlhDsaSha2_128f
                | Self::SlhDsaSha2_192s
                | Self::SlhDsaSha2_192f
                | Self::SlhDsaSha2_256s
                | Self::SlhDsaSha2_256f
                | Self::SlhDsaShake128s
                | Self::SlhDsaShake128f
                | Self::SlhDsaShake192s
                | Self::SlhDsaShake192f
                | Self::SlhDsaShake256s
                | Self::SlhDsaShake256f
        )
    }

    /// True for a scheme that is used only where a configuration names it: one with SHA-1, an
    /// experimental one, and each that the program has brought.
    pub fn must_be_named(&self) -> bool {
        matches!(self, Self::RsaPkcs1Sha1 | Self::Falcon512 | Self::Outside(_))
    }

    /// True if a signature takes less than a millisecond on a common processor. RSA does with short
    /// moduli.
    pub fn signs_quickly(&self) -> bool {
        match self {
            Self::Outside(outside) => outside.signs_quickly(),
            other => !other.is_slh_dsa() && *other != Self::Falcon512,
        }
    }

    /// True if `spki`, a DER `SubjectPublicKeyInfo`, is a key that the scheme verifies with.
    pub fn verifies_with(&self, spki: &[u8]) -> bool {
        match self {
            Self::Outside(outside) => outside.key_in(spki).is_some(),
            other => Self::of_built_in_key(spki).contains(other),
        }
    }

    /// True for ECDSA on any curve.
    pub fn is_ecdsa(&self) -> bool {
        self.ecdsa_integer_len().is_some()
    }

    /// The authentication method older than RFC 7427 that the scheme can be used with: 1 for RSA with
    /// PKCS#1 v1.5 padding (RFC 7296 §3.8), 9 to 11 for ECDSA (RFC 4754 §3). `None` for all others.
    pub fn legacy_auth_method(&self) -> Option<AuthMethod> {
        match self {
            Self::RsaPkcs1Sha1
            | Self::RsaPkcs1Sha256
            | Self::RsaPkcs1Sha384
            | Self::RsaPkcs1Sha512 => Some(AuthMethod::RSA),
            Self::EcdsaP256Sha256 => Some(AuthMethod::ECDSA_256),
            Self::EcdsaP384Sha384 => Some(AuthMethod::ECDSA_384),
            Self::EcdsaP521Sha512 => Some(AuthMethod::ECDSA_521),
            _ => None,
        }
    }

    /// Schemes that a signature under the legacy `method` may have; none for methods that are not
    /// signatures or name their scheme. Method 1 does not say which hash was used: a verifier tries
    /// those it accepts. SHA-1, its default (RFC 7296 §3.8), is the last.
    pub fn of_legacy_auth_method(method: AuthMethod) -> &'static [Self] {
        match method {
            AuthMethod::RSA => &[
                Self::RsaPkcs1Sha256,
                Self::RsaPkcs1Sha384,
                Self::RsaPkcs1Sha512,
                Self::RsaPkcs1Sha1,
            ],
            AuthMethod::ECDSA_256 => &[Self::EcdsaP256Sha256],
            AuthMethod::ECDSA_384 => &[Self::EcdsaP384Sha384],
            AuthMethod::ECDSA_521 => &[Self::EcdsaP521Sha512],
            _ => &[],
        }
    }

    /// The Authentication Data of the scheme's [legacy method](Self::legacy_auth_method) for
    /// `signature`: `r | s`, each padded to the length of the curve's order, for ECDSA (RFC 4754 §7);
    /// the signature itself for RSA. `None` if there is no such method or `signature` is malformed.
    pub fn signature_to_legacy(&self, signature: &[u8]) -> Option<Vec<u8>> {
        self.legacy_auth_method()?;
        let Some(len) = self.ecdsa_integer_len() else { return Some(signature.to_vec()) };
        let mut outer = Der::new(signature);
        let mut pair = outer.nested(der::SEQUENCE)?;
        outer.end()?;
        let integers = [pair.unsigned()?, pair.unsigned()?];
        pair.end()?;
        let mut out = Vec::with_capacity(2 * len);
        for integer in integers {
            out.resize(out.len() + len.checked_sub(integer.len())?, 0);
            out.extend_from_slice(integer);
        }
        Some(out)
    }

    /// The signature in `data`, Authentication Data of the scheme's
    /// [legacy method](Self::legacy_auth_method). `None` if there is no such method or `data` does not
    /// have the length of two integers of the curve.
    pub fn signature_from_legacy(&self, data: &[u8]) -> Option<Vec<u8>> {
        self.legacy_auth_method()?;
        let Some(len) = self.ecdsa_integer_len() else { return Some(data.to_vec()) };
        if data.len() != 2 * len {
            return None;
        }
        let (r, s) = data.split_at_checked(len)?;
        let mut pair = Vec::with_capacity(data.len() + 8);
        der::push_unsigned(&mut pair, r);
        der::push_unsigned(&mut pair, s);
        let mut out = Vec::with_capacity(pair.len() + 3);
        der::push(&mut out, der::SEQUENCE, &[&pair]);
        Some(out)
    }

    /// Octets of `r` and of `s` in methods 9 to 11.
    fn ecdsa_integer_len(&self) -> Option<usize> {
        match self {
            Self::EcdsaP256Sha256 => Some(32),
            Self::EcdsaP384Sha384 => Some(48),
            Self::EcdsaP521Sha512 => Some(66),
            _ => None,
        }
    }

    /// The name, spelled as in strongSwan's log where it has one.
    pub fn name(&self) -> &str {
        match self {
            Self::RsaPkcs1Sha1 => "RSA_EMSA_PKCS1_SHA1",
            Self::RsaPkcs1Sha256 => "RSA_EMSA_PKCS1_SHA2_256",
            Self::RsaPkcs1Sha384 => "RSA_EMSA_PKCS1_SHA2_384",
            Self::RsaPkcs1Sha512 => "RSA_EMSA_PKCS1_SHA2_512",
            Self::RsaPssSha256 => "RSA_EMSA_PSS_SHA2_256",
            Self::RsaPssSha384 => "RSA_EMSA_PSS_SHA2_384",
            Self::RsaPssSha512 => "RSA_EMSA_PSS_SHA2_512",
            Self::EcdsaP256Sha256 => "ECDSA-256",
            Self::EcdsaP384Sha384 => "ECDSA-384",
            Self::EcdsaP521Sha512 => "ECDSA-521",
            Self::Ed25519 => "ED25519",
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
            Self::SlhDsaSha2_128s => "SLH-DSA-SHA2-128s",
            Self::SlhDsaSha2_128f => "SLH-DSA-SHA2-128f",
            Self::SlhDsaSha2_192s => "SLH-DSA-SHA2-192s",
            Self::SlhDsaSha2_192f => "SLH-DSA-SHA2-192f",
            Self::SlhDsaSha2_256s => "SLH-DSA-SHA2-256s",
            Self::SlhDsaSha2_256f => "SLH-DSA-SHA2-256f",
            Self::SlhDsaShake128s => "SLH-DSA-SHAKE-128s",
            Self::SlhDsaShake128f => "SLH-DSA-SHAKE-128f",
            Self::SlhDsaShake192s => "SLH-DSA-SHAKE-192s",
            Self::SlhDsaShake192f => "SLH-DSA-SHAKE-192f",
            Self::SlhDsaShake256s => "SLH-DSA-SHAKE-256s",
            Self::SlhDsaShake256f => "SLH-DSA-SHAKE-256f",
            Self::Falcon512 => "FALCON-512",
            Self::Outside(outside) => outside.name(),
        }
    }
}

impl fmt::Display for SignatureScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
