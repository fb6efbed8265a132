//! Encrypt-then-MAC suites: a cipher of [`super::cipher`] under an HMAC of [`super::mac`].

use ipsec_types::crypto::{CipherKey, CipherLengths, CryptoError, Frame};

use super::cipher::{Cbc, Cipher, Ctr, Kind, Null};
use super::mac;

pub(super) fn lengths(kind: Kind, mac: mac::Algorithm) -> CipherLengths {
    CipherLengths {
        encr_key: kind.key_len(),
        integ_key: mac.key_len(),
        iv: kind.iv_len(),
        iv_kind: kind.iv_kind(),
        icv: mac.icv_len(),
        block: kind.block(),
        aead: false,
    }
}

/// Keys a suite. The keys have the lengths of [`lengths`].
pub(super) fn key(
    kind: Kind,
    mac: mac::Algorithm,
    encr_key: &[u8],
    integ_key: &[u8],
) -> Result<Box<dyn CipherKey>, CryptoError> {
    let mac = mac::Key::new(mac, integ_key);
    Ok(match kind {
        Kind::Cbc(algorithm, _) => Box::new(Key { cipher: Cbc::new(algorithm, encr_key)?, mac }),
        Kind::Ctr(algorithm, _) => Box::new(Key { cipher: Ctr::new(algorithm, encr_key)?, mac }),
        Kind::Null => Box::new(Key { cipher: Null, mac }),
    })
}

struct Key<C> {
    cipher: C,
    mac: mac::Key,
}

impl<C: Cipher> CipherKey for Key<C> {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        let Frame { iv, aad, trailer } = frame;
        if icv.len() != self.mac.icv_len() {
            return Err(CryptoError::Length);
        }
        self.cipher.encrypt(iv, data)?;
        self.mac.sign(&[aad, iv, data, trailer], icv)
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        let Frame { iv, aad, trailer } = frame;
        if icv.len() != self.mac.icv_len() {
            return Err(CryptoError::Length);
        }
        self.mac.verify(&[aad, iv, data, trailer], icv)?;
        self.cipher.decrypt(iv, data)
    }
}
