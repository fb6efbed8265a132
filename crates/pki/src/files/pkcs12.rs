//! PKCS#12 files.

use std::sync::Arc;

use ike_proto::crypto::{SchemeRegister, SigningKey};
use ike_proto::wire::der::{self as asn1, Der};
use p12_keystore::Pkcs12Archive;
use pq_kem::sign::load_private_key_with as load_plain;

use super::key_error;
use crate::certificate::Certificate;
use crate::error::LoadError;

/// The content of a PKCS#12 file.
#[derive(Debug)]
pub struct Pkcs12 {
    /// Private keys.
    pub keys: Vec<Arc<dyn SigningKey>>,
    /// Certificates.
    pub certificates: Vec<Certificate>,
}

/// Opens a DER PKCS#12 file (RFC 7292) with keys of any scheme of `register`. Key derivation is bounded, so that a file cannot stall its reader.
///
/// The decrypted key passes through memory of the PKCS#12 library that is not wiped.
///
/// # Errors
/// [`LoadError::Passphrase`] or [`LoadError::NullPassphrase`] if the MAC does not fit; without a MAC the file is
/// refused.
pub fn load_pkcs12(
    register: &SchemeRegister,
    octets: &[u8],
    passphrase: &[u8],
) -> Result<Pkcs12, LoadError> {
    let passphrase = std::str::from_utf8(passphrase).map_err(|_| LoadError::Passphrase)?;
    if !has_mac(octets).ok_or(LoadError::Malformed("PKCS#12 file"))? {
        return Err(LoadError::Unsupported("PKCS#12 without a MAC"));
    }
    let archive = Pkcs12Archive::from_pkcs12(octets, passphrase).map_err(pkcs12_error);
    let archive = archive.map_err(|why| match why {
        LoadError::Passphrase if passphrase.is_empty() => LoadError::NullPassphrase,
        why => why,
    })?;
    let key = |bag: &p12_keystore::PrivateKeyBag| {
        load_plain(register, bag.key.as_der()).map(Arc::from).map_err(key_error)
    };
    let certificate = |bag: &p12_keystore::CertificateBag| {
        let parsed = Certificate::from_der(bag.cert.as_der());
        parsed.map_err(LoadError::Certificate)
    };
    Ok(Pkcs12 {
        keys: archive.keys.iter().map(key).collect::<Result<_, _>>()?,
        certificates: archive.certs.iter().map(certificate).collect::<Result<_, _>>()?,
    })
}

fn pkcs12_error(why: p12_keystore::error::Error) -> LoadError {
    use p12_keystore::error::Error;
    match why {
        Error::MacError(_) | Error::Pkcs5Error(_) => LoadError::Passphrase,
        Error::UnsupportedEncryptionScheme | Error::InvalidParameters => {
            LoadError::Unsupported("this PKCS#12 encryption")
        }
        _ => LoadError::Malformed("PKCS#12 file"),
    }
}

/// True if the PFX has a MacData. Without it, nothing shows that the file is complete (RFC 7292 §4).
fn has_mac(octets: &[u8]) -> Option<bool> {
    let mut pfx = Der::new(octets).nested(asn1::SEQUENCE)?;
    pfx.content(asn1::INTEGER)?;
    pfx.content(asn1::SEQUENCE)?;
    Some(!pfx.is_empty())
}
