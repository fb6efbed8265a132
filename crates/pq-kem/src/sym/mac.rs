//! Integrity algorithms: truncated HMAC (RFC 2404, RFC 4868).

use aws_lc_rs::{constant_time, hmac};
use ike_wire::registry::IntegId;
use ipsec_types::crypto::CryptoError;

/// An integrity algorithm.
#[derive(Debug, Clone, Copy)]
pub(super) enum Algorithm {
    Sha1_96,
    Sha256_96,
    Sha256_128,
    Sha384_192,
    Sha512_256,
}

impl Algorithm {
    pub(super) fn of(integ: IntegId) -> Option<Self> {
        match integ {
            IntegId::HMAC_SHA1_96 => Some(Self::Sha1_96),
            IntegId::HMAC_SHA2_256_96 => Some(Self::Sha256_96),
            IntegId::HMAC_SHA2_256_128 => Some(Self::Sha256_128),
            IntegId::HMAC_SHA2_384_192 => Some(Self::Sha384_192),
            IntegId::HMAC_SHA2_512_256 => Some(Self::Sha512_256),
            _ => None,
        }
    }

    fn backend(self) -> hmac::Algorithm {
        match self {
            Self::Sha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256_96 | Self::Sha256_128 => hmac::HMAC_SHA256,
            Self::Sha384_192 => hmac::HMAC_SHA384,
            Self::Sha512_256 => hmac::HMAC_SHA512,
        }
    }

    /// Octets of the key: those of the hash's output (RFC 4868 §2.1.1, RFC 2404 §3).
    pub(super) fn key_len(self) -> usize {
        self.backend().tag_len()
    }

    /// Octets of the ICV.
    pub(super) fn icv_len(self) -> usize {
        match self {
            Self::Sha1_96 | Self::Sha256_96 => 12,
            Self::Sha256_128 => 16,
            Self::Sha384_192 => 24,
            Self::Sha512_256 => 32,
        }
    }
}

/// A keyed integrity algorithm, with the key schedule done.
pub(super) struct Key {
    key: hmac::Key,
    icv: usize,
}

impl Key {
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Self {
        Self { key: hmac::Key::new(algorithm.backend(), key), icv: algorithm.icv_len() }
    }

    /// Octets of the ICV.
    pub(super) fn icv_len(&self) -> usize {
        self.icv
    }

    /// Writes the ICV over the concatenated `parts`.
    pub(super) fn sign(&self, parts: &[&[u8]], icv: &mut [u8]) -> Result<(), CryptoError> {
        let tag = self.tag(parts);
        let truncated = tag.as_ref().get(..self.icv).ok_or(CryptoError::Length)?;
        if icv.len() != truncated.len() {
            return Err(CryptoError::Length);
        }
        icv.copy_from_slice(truncated);
        Ok(())
    }

    /// Compares the ICV over the concatenated `parts` with `icv`, in constant time.
    pub(super) fn verify(&self, parts: &[&[u8]], icv: &[u8]) -> Result<(), CryptoError> {
        let tag = self.tag(parts);
        let truncated = tag.as_ref().get(..self.icv).ok_or(CryptoError::Length)?;
        constant_time::verify_slices_are_equal(truncated, icv).map_err(|_| CryptoError::Integrity)
    }

    fn tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(part);
        }
        context.sign()
    }
}
