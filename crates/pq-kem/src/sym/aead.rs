//! AES-GCM (RFC 4106, RFC 5282) and ChaCha20-Poly1305 (RFC 7634), both with a full tag.
//!
//! The nonce is `salt | iv`; the salt is the last 4 octets of the key material.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ipsec_types::crypto::{CipherKey, CipherLengths, CryptoError, Frame, IvKind};
use zeroize::Zeroizing;

/// An AEAD with a 4-octet salt, an 8-octet IV and a 16-octet ICV.
#[derive(Debug, Clone, Copy)]
pub(super) enum Algorithm {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Algorithm {
    fn backend(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes192Gcm => &aead::AES_192_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    pub(super) fn lengths(self) -> CipherLengths {
        CipherLengths {
            encr_key: self.backend().key_len() + SALT,
            integ_key: 0,
            iv: IV,
            iv_kind: IvKind::Counter,
            icv: TAG,
            block: 1,
            aead: true,
        }
    }
}

/// A keyed AEAD.
pub(super) struct Key {
    key: LessSafeKey,
    salt: Zeroizing<[u8; SALT]>,
}

impl Key {
    /// `key` ends with the salt.
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, CryptoError> {
        let (key, salt) = key.split_last_chunk().ok_or(CryptoError::Length)?;
        let key = UnboundKey::new(algorithm.backend(), key).map_err(|_| CryptoError::Length)?;
        Ok(Self { key: LessSafeKey::new(key), salt: Zeroizing::new(*salt) })
    }

    fn nonce(&self, frame: Frame<'_>) -> Result<Nonce, CryptoError> {
        let iv = <[u8; IV]>::try_from(frame.iv).map_err(|_| CryptoError::Length)?;
        if !frame.trailer.is_empty() {
            return Err(CryptoError::Length);
        }
        // Put together in registers: the backend reads it in other pieces, and would wait for them.
        let iv = u64::from_be_bytes(iv);
        let salt = u64::from(u32::from_be_bytes(*self.salt));
        let mut nonce = [0; SALT + IV];
        nonce[..8].copy_from_slice(&(salt << 32 | iv >> 32).to_be_bytes());
        nonce[8..].copy_from_slice(&(iv as u32).to_be_bytes());
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

impl CipherKey for Key {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        if icv.len() != TAG {
            return Err(CryptoError::Length);
        }
        let tag = self
            .key
            .seal_in_place_separate_tag(self.nonce(frame)?, Aad::from(frame.aad), data)
            .map_err(|_| CryptoError::Backend)?;
        icv.copy_from_slice(tag.as_ref());
        Ok(())
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        if icv.len() != TAG {
            return Err(CryptoError::Length);
        }
        self.key
            .open_in_place_separate_tag(self.nonce(frame)?, Aad::from(frame.aad), icv, data)
            .map(|_| ())
            .map_err(|_| CryptoError::Integrity)
    }

    fn seal_to(
        &self,
        frame: Frame<'_>,
        data: &[u8],
        tail: &[u8],
        out: &mut [u8],
    ) -> Result<(), CryptoError> {
        if out.len() != data.len() + tail.len() + TAG {
            return Err(CryptoError::Length);
        }
        let (head, rest) = out.split_at_mut_checked(data.len()).ok_or(CryptoError::Length)?;
        self.key
            .seal_out_of_place_scatter(
                self.nonce(frame)?,
                Aad::from(frame.aad),
                data,
                head,
                tail,
                rest,
            )
            .map_err(|_| CryptoError::Backend)
    }

    fn open_to(
        &self,
        frame: Frame<'_>,
        data: &[u8],
        icv: &[u8],
        out: &mut [u8],
    ) -> Result<(), CryptoError> {
        if icv.len() != TAG || out.len() != data.len() {
            return Err(CryptoError::Length);
        }
        self.key
            .open_separate_gather(self.nonce(frame)?, Aad::from(frame.aad), data, icv, out)
            .map_err(|_| CryptoError::Integrity)
    }
}

const SALT: usize = 4;
const IV: usize = 8;
const TAG: usize = 16;
