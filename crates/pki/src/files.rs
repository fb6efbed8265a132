//! Reads files: PEM or DER, certificates, keys; PKCS#12 with the feature `pkcs12`.

use std::sync::Arc;

use der::Decode;
use ike_proto::crypto::sign::SubjectPublicKeyInfo;
use ike_proto::crypto::{SchemeRegister, SigningKey};
use ike_proto::wire::der::{self as asn1, Der};
use pkcs8::EncryptedPrivateKeyInfoRef;
use pq_kem::sign::{KeyError, load_private_key_with as load_plain};
use zeroize::Zeroizing;

use crate::certificate::Certificate;
use crate::error::LoadError;
#[cfg(feature = "pkcs12")]
pub use pkcs12::{Pkcs12, load_pkcs12};

#[cfg(feature = "pkcs12")]
mod pkcs12;

/// The certificates in `octets`: one as DER, or any number as PEM. Other PEM sections are ignored.
///
/// # Errors
/// If there is none, or one is malformed.
pub fn load_certificates(octets: &[u8]) -> Result<Vec<Certificate>, LoadError> {
    let parse = |der: &[u8]| Certificate::from_der(der).map_err(LoadError::Certificate);
    if is_der(octets) {
        return Ok(vec![parse(octets)?]);
    }
    let labels = ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"];
    let sections = pem::parse_many(octets).map_err(|_| LoadError::Malformed("PEM"))?;
    let wanted = sections.iter().filter(|section| labels.contains(&section.tag()));
    let certificates: Vec<Certificate> =
        wanted.map(|section| parse(section.contents())).collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err(LoadError::Nothing("certificate"));
    }
    Ok(certificates)
}

/// The private key in `octets`, of any algorithm of [`pq_kem::sign`]. The form is PKCS#8, encrypted PKCS#8
/// (PBES2), PKCS#1 or SEC1, as DER or PEM.
///
/// # Errors
/// [`LoadError::PassphraseNeeded`] and [`LoadError::Passphrase`] tell a missing passphrase from a wrong
/// one. The encryption of old PEM files (`Proc-Type: 4,ENCRYPTED`) is not supported.
pub fn load_private_key(
    octets: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<Arc<dyn SigningKey>, LoadError> {
    load_private_key_with(&SchemeRegister::built_in(), octets, passphrase)
}

/// As [`load_private_key`], a key of any scheme of `register`.
///
/// # Errors
/// As [`load_private_key`].
pub fn load_private_key_with(
    register: &SchemeRegister,
    octets: &[u8],
    passphrase: Option<&[u8]>,
) -> Result<Arc<dyn SigningKey>, LoadError> {
    let key = match encrypted_pkcs8(octets)? {
        Some(encrypted) => load_plain(register, &decrypt(&encrypted, passphrase)?),
        None => load_plain(register, octets),
    };
    Ok(Arc::from(key.map_err(key_error)?))
}

/// The public key in `octets` as DER SubjectPublicKeyInfo. `octets` are such a key or a certificate, as DER or
/// PEM.
///
/// # Errors
/// If there is none.
pub fn load_public_key(octets: &[u8]) -> Result<Vec<u8>, LoadError> {
    if let Ok(spki) = one(octets, "PUBLIC KEY")
        && SubjectPublicKeyInfo::parse(&spki).is_some()
    {
        return Ok(spki);
    }
    match load_certificates(octets)?.first() {
        Some(certificate) => Ok(certificate.spki().to_vec()),
        None => Err(LoadError::Nothing("public key")),
    }
}

/// `der` as one PEM section. The memory that it uses is not wiped, since printed text is no longer secret.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), config)
}

/// The one section `label` of a PEM file, or `octets` if they are DER.
pub(crate) fn one(octets: &[u8], label: &'static str) -> Result<Vec<u8>, LoadError> {
    if is_der(octets) {
        return Ok(octets.to_vec());
    }
    let sections = pem::parse_many(octets).map_err(|_| LoadError::Malformed("PEM"))?;
    let found = sections.into_iter().find(|section| section.tag() == label);
    found.map(pem::Pem::into_contents).ok_or(LoadError::Nothing(label))
}

fn is_der(octets: &[u8]) -> bool {
    octets.first() == Some(&asn1::SEQUENCE)
}

/// The EncryptedPrivateKeyInfo, if `octets` are one. In DER it differs from a plain key in its first field, which
/// is not a version.
fn encrypted_pkcs8(octets: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, LoadError> {
    if is_der(octets) {
        let first = Der::new(octets).nested(asn1::SEQUENCE).and_then(|fields| fields.peek());
        let encrypted = first == Some(asn1::SEQUENCE);
        return Ok(encrypted.then(|| Zeroizing::new(octets.to_vec())));
    }
    let label = "ENCRYPTED PRIVATE KEY";
    let marker = format!("-----BEGIN {label}-----");
    if !octets.windows(marker.len()).any(|window| window == marker.as_bytes()) {
        return Ok(None);
    }
    one(octets, label).map(|der| Some(Zeroizing::new(der)))
}

fn decrypt(encrypted: &[u8], passphrase: Option<&[u8]>) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let info = EncryptedPrivateKeyInfoRef::from_der(encrypted)
        .map_err(|_| LoadError::Unsupported("this key encryption"))?;
    let passphrase = passphrase.ok_or(LoadError::PassphraseNeeded)?;
    let plain = info.decrypt(passphrase).map_err(|_| LoadError::Passphrase)?;
    Ok(Zeroizing::new(plain.as_bytes().to_vec()))
}

fn key_error(why: KeyError) -> LoadError {
    match why {
        KeyError::NoKey => LoadError::Nothing("private key"),
        KeyError::Encrypted => LoadError::Unsupported("PEM encryption other than PKCS#8"),
        KeyError::RsaSize => LoadError::Unsupported("size of RSA key"),
        KeyError::PssKey => LoadError::Unsupported(
            "private key of type id-RSASSA-PSS (one of type rsaEncryption signs by RSASSA-PSS as well)",
        ),
        KeyError::Malformed => LoadError::Malformed("private key"),
        KeyError::MlDsaForm => LoadError::Malformed(
            "ML-DSA private key: its parts differ, or it has neither a form of RFC 9881 §6 nor 32 octets",
        ),
        // KeyError::Unsupported also ends here.
        _ => LoadError::Unsupported("type of key"),
    }
}
