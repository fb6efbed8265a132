//! Cipher suites for IKE's SK payload (RFC 7296 §3.14, RFC 5282) and for ESP (RFC 4303).
//!
//! | Encryption | Integrity | Key bits |
//! |---|---|---|
//! | AES_GCM_16 (RFC 4106, RFC 5282) | NONE | 128, 192, 256 |
//! | CHACHA20_POLY1305 (RFC 7634) | NONE | one length |
//! | AES_CCM_8, _12, _16 (RFC 4309, RFC 5282) | NONE | 128, 192, 256 |
//! | AES_CBC (RFC 3602) | HMAC | 128, 192, 256 |
//! | AES_CTR (RFC 3686, RFC 5930) | HMAC | 128, 192, 256 |
//! | NULL (RFC 2410) | HMAC | none |
//!
//! HMAC is SHA1-96 (RFC 2404) or SHA2 256-128, 384-192, 512-256 (RFC 4868). GCM with an ICV of 8 or 12
//! octets is not here: the backend has full tags only. NULL is for ESP alone (RFC 7296 §5 forbids it
//! for IKE); keeping it out of IKE proposals is the negotiation's part.

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError};

mod aead;
mod ccm;
mod cipher;
mod etm;
mod mac;

use cipher::Kind;

/// Every suite of this module.
#[derive(Debug, Clone, Copy)]
pub struct Ciphers;

impl CipherProvider for Ciphers {
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths> {
        match Family::of(suite)? {
            Family::Aead(algorithm) => Some(algorithm.lengths()),
            Family::Ccm(algorithm) => Some(algorithm.lengths()),
            Family::EncryptThenMac(kind, mac) => Some(etm::lengths(kind, mac)),
        }
    }

    fn key(
        &self,
        suite: CipherSuite,
        encr_key: &[u8],
        integ_key: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError> {
        let lengths = self.lengths(suite).ok_or(CryptoError::Unsupported)?;
        if encr_key.len() != lengths.encr_key || integ_key.len() != lengths.integ_key {
            return Err(CryptoError::Length);
        }
        match Family::of(suite).ok_or(CryptoError::Unsupported)? {
            Family::Aead(algorithm) => Ok(Box::new(aead::Key::new(algorithm, encr_key)?)),
            Family::Ccm(algorithm) => ccm::key(algorithm, encr_key),
            Family::EncryptThenMac(kind, mac) => etm::key(kind, mac, encr_key, integ_key),
        }
    }
}

/// Which implementation serves a suite.
#[derive(Debug, Clone, Copy)]
enum Family {
    Aead(aead::Algorithm),
    Ccm(ccm::Algorithm),
    EncryptThenMac(Kind, mac::Algorithm),
}

impl Family {
    fn of(suite: CipherSuite) -> Option<Self> {
        let CipherSuite { encr, key_bits, integ } = suite;
        if integ != IntegId::NONE {
            return Some(Self::EncryptThenMac(
                Kind::of(encr, key_bits)?,
                mac::Algorithm::of(integ)?,
            ));
        }
        match (encr, key_bits) {
            (EncrId::AES_GCM_16, 128) => Some(Self::Aead(aead::Algorithm::Aes128Gcm)),
            (EncrId::AES_GCM_16, 192) => Some(Self::Aead(aead::Algorithm::Aes192Gcm)),
            (EncrId::AES_GCM_16, 256) => Some(Self::Aead(aead::Algorithm::Aes256Gcm)),
            (EncrId::CHACHA20_POLY1305, 0) => Some(Self::Aead(aead::Algorithm::ChaCha20Poly1305)),
            _ => ccm::Algorithm::of(encr, key_bits).map(Self::Ccm),
        }
    }
}
