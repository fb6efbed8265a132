//! Ciphers without integrity: AES-CBC (RFC 3602), AES-CTR (RFC 3686, RFC 5930) and NULL (RFC 2410).
//! Only ever used below a MAC ([`super::etm`]).

use aws_lc_rs::cipher::{
    self, AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey,
    EncryptionContext, UnboundCipherKey,
};
use ike_wire::registry::EncrId;
use ipsec_types::crypto::{CryptoError, IvKind};
use zeroize::Zeroizing;

/// A cipher and its key length.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Cbc(&'static cipher::Algorithm, usize),
    Ctr(&'static cipher::Algorithm, usize),
    Null,
}

impl Kind {
    pub(super) fn of(encr: EncrId, key_bits: u16) -> Option<Self> {
        if encr == EncrId::NULL {
            return (key_bits == 0).then_some(Self::Null);
        }
        let (algorithm, key) = match key_bits {
            128 => (&AES_128, 16),
            192 => (&AES_192, 24),
            256 => (&AES_256, 32),
            _ => return None,
        };
        match encr {
            EncrId::AES_CBC => Some(Self::Cbc(algorithm, key)),
            EncrId::AES_CTR => Some(Self::Ctr(algorithm, key)),
            _ => None,
        }
    }

    /// Octets of the key, with the nonce of CTR at its end (RFC 3686 §5.1).
    pub(super) fn key_len(self) -> usize {
        match self {
            Self::Cbc(_, key) => key,
            Self::Ctr(_, key) => key + NONCE,
            Self::Null => 0,
        }
    }

    /// Octets of the IV.
    pub(super) fn iv_len(self) -> usize {
        match self {
            Self::Cbc(..) => BLOCK,
            Self::Ctr(..) => CTR_IV,
            Self::Null => 0,
        }
    }

    pub(super) fn iv_kind(self) -> IvKind {
        match self {
            Self::Cbc(..) => IvKind::Random,
            Self::Ctr(..) | Self::Null => IvKind::Counter,
        }
    }

    /// What the data must be a multiple of, in octets.
    pub(super) fn block(self) -> usize {
        match self {
            Self::Cbc(..) => BLOCK,
            Self::Ctr(..) | Self::Null => 1,
        }
    }
}

/// A keyed cipher. Both methods answer [`CryptoError::Length`] if `iv` or `data` does not fit.
pub(super) trait Cipher: Send + Sync {
    /// Encrypts in place.
    fn encrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError>;
    /// Decrypts in place.
    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError>;
}

/// AES-CBC. Both directions are scheduled: which one a key is for is not known here.
pub(super) struct Cbc {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
}

impl Cbc {
    pub(super) fn new(
        algorithm: &'static cipher::Algorithm,
        key: &[u8],
    ) -> Result<Self, CryptoError> {
        Ok(Self {
            encrypt: EncryptingKey::cbc(unbound(algorithm, key)?)
                .map_err(|_| CryptoError::Backend)?,
            decrypt: DecryptingKey::cbc(unbound(algorithm, key)?)
                .map_err(|_| CryptoError::Backend)?,
        })
    }
}

impl Cipher for Cbc {
    fn encrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        let iv: [u8; BLOCK] = iv.try_into().map_err(|_| CryptoError::Length)?;
        self.encrypt
            .less_safe_encrypt(data, EncryptionContext::Iv128(iv.into()))
            .map_err(|_| CryptoError::Length)?;
        Ok(())
    }

    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        let iv: [u8; BLOCK] = iv.try_into().map_err(|_| CryptoError::Length)?;
        self.decrypt
            .decrypt(data, DecryptionContext::Iv128(iv.into()))
            .map_err(|_| CryptoError::Length)?;
        Ok(())
    }
}

/// AES-CTR, with the nonce that the key material ends with.
pub(super) struct Ctr {
    key: EncryptingKey,
    nonce: Zeroizing<[u8; NONCE]>,
}

impl Ctr {
    pub(super) fn new(
        algorithm: &'static cipher::Algorithm,
        key: &[u8],
    ) -> Result<Self, CryptoError> {
        let (key, nonce) = key.split_last_chunk().ok_or(CryptoError::Length)?;
        let key = EncryptingKey::ctr(unbound(algorithm, key)?).map_err(|_| CryptoError::Backend)?;
        Ok(Self { key, nonce: Zeroizing::new(*nonce) })
    }

    /// `nonce | iv | 1` (RFC 3686 §4).
    fn counter_block(&self, iv: &[u8]) -> Result<[u8; BLOCK], CryptoError> {
        if iv.len() != CTR_IV {
            return Err(CryptoError::Length);
        }
        let mut block = [0; BLOCK];
        let (head, counter) = block.split_at_mut(NONCE + CTR_IV);
        let (head_nonce, head_iv) = head.split_at_mut(NONCE);
        head_nonce.copy_from_slice(self.nonce.as_ref());
        head_iv.copy_from_slice(iv);
        counter.copy_from_slice(&1u32.to_be_bytes());
        Ok(block)
    }
}

impl Cipher for Ctr {
    fn encrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        let block = self.counter_block(iv)?;
        self.key
            .less_safe_encrypt(data, EncryptionContext::Iv128(block.into()))
            .map_err(|_| CryptoError::Length)?;
        Ok(())
    }

    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        self.encrypt(iv, data)
    }
}

/// No encryption.
pub(super) struct Null;

impl Cipher for Null {
    fn encrypt(&self, iv: &[u8], _: &mut [u8]) -> Result<(), CryptoError> {
        if iv.is_empty() { Ok(()) } else { Err(CryptoError::Length) }
    }

    fn decrypt(&self, iv: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        self.encrypt(iv, data)
    }
}

fn unbound(
    algorithm: &'static cipher::Algorithm,
    key: &[u8],
) -> Result<UnboundCipherKey, CryptoError> {
    UnboundCipherKey::new(algorithm, key).map_err(|_| CryptoError::Length)
}

const BLOCK: usize = 16;
const NONCE: usize = 4;
const CTR_IV: usize = 8;
