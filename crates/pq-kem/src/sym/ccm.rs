//! AES-CCM (RFC 4309, RFC 5282). The nonce is `salt | iv` of 3 + 8 octets; the salt is the last 3
//! octets of the key material.

use aes::{Aes128, Aes192, Aes256};
use ccm::aead::inout::InOutBuf;
use ccm::consts::{U8, U11, U12, U16};
use ccm::{AeadInOut, Ccm, KeyInit, Nonce, Tag};
use ike_wire::registry::EncrId;
use ipsec_types::crypto::{CipherKey, CipherLengths, CryptoError, Frame, IvKind};
use zeroize::Zeroizing;

/// Key and ICV lengths of one CCM suite, in octets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Algorithm {
    key: usize,
    icv: usize,
}

impl Algorithm {
    pub(super) fn of(encr: EncrId, key_bits: u16) -> Option<Self> {
        let key = match key_bits {
            128 => 16,
            192 => 24,
            256 => 32,
            _ => return None,
        };
        let icv = match encr {
            EncrId::AES_CCM_8 => 8,
            EncrId::AES_CCM_12 => 12,
            EncrId::AES_CCM_16 => 16,
            _ => return None,
        };
        Some(Self { key, icv })
    }

    pub(super) fn lengths(self) -> CipherLengths {
        CipherLengths {
            encr_key: self.key + SALT,
            integ_key: 0,
            iv: IV,
            iv_kind: IvKind::Counter,
            icv: self.icv,
            block: 1,
            aead: true,
        }
    }
}

/// Keys a CCM suite; `key` ends with the salt.
pub(super) fn key(algorithm: Algorithm, key: &[u8]) -> Result<Box<dyn CipherKey>, CryptoError> {
    match (algorithm.key, algorithm.icv) {
        (16, 8) => keyed::<Ccm<Aes128, U8, U11>>(key),
        (16, 12) => keyed::<Ccm<Aes128, U12, U11>>(key),
        (16, 16) => keyed::<Ccm<Aes128, U16, U11>>(key),
        (24, 8) => keyed::<Ccm<Aes192, U8, U11>>(key),
        (24, 12) => keyed::<Ccm<Aes192, U12, U11>>(key),
        (24, 16) => keyed::<Ccm<Aes192, U16, U11>>(key),
        (32, 8) => keyed::<Ccm<Aes256, U8, U11>>(key),
        (32, 12) => keyed::<Ccm<Aes256, U12, U11>>(key),
        (32, 16) => keyed::<Ccm<Aes256, U16, U11>>(key),
        _ => Err(CryptoError::Unsupported),
    }
}

fn keyed<C>(key: &[u8]) -> Result<Box<dyn CipherKey>, CryptoError>
where
    C: AeadInOut<NonceSize = U11> + KeyInit + Send + Sync + 'static,
{
    let (key, salt) = key.split_last_chunk().ok_or(CryptoError::Length)?;
    let cipher = C::new_from_slice(key).map_err(|_| CryptoError::Length)?;
    Ok(Box::new(Key { cipher, salt: Zeroizing::new(*salt) }))
}

struct Key<C> {
    cipher: C,
    salt: Zeroizing<[u8; SALT]>,
}

impl<C> Key<C> {
    fn nonce(&self, frame: Frame<'_>) -> Result<Nonce<U11>, CryptoError> {
        if frame.iv.len() != IV || !frame.trailer.is_empty() {
            return Err(CryptoError::Length);
        }
        let mut nonce = Nonce::<U11>::default();
        let (salt, iv) = nonce.split_at_mut(SALT);
        salt.copy_from_slice(self.salt.as_ref());
        iv.copy_from_slice(frame.iv);
        Ok(nonce)
    }
}

impl<C> CipherKey for Key<C>
where
    C: AeadInOut<NonceSize = U11> + Send + Sync,
{
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        if icv.len() != Tag::<C::TagSize>::default().len() {
            return Err(CryptoError::Length);
        }
        let tag = self
            .cipher
            .encrypt_inout_detached(&self.nonce(frame)?, frame.aad, InOutBuf::from(data))
            .map_err(|_| CryptoError::Backend)?;
        icv.copy_from_slice(&tag);
        Ok(())
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        let tag = Tag::<C::TagSize>::try_from(icv).map_err(|_| CryptoError::Length)?;
        self.cipher
            .decrypt_inout_detached(&self.nonce(frame)?, frame.aad, InOutBuf::from(data), &tag)
            .map_err(|_| CryptoError::Integrity)
    }
}

const SALT: usize = 3;
const IV: usize = 8;
