//! Private keys from DER and PEM, and new ones.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, PqdsaKeyPair, RsaKeyPair};
use ike_wire::der::{self, Der};
use ipsec_types::crypto::{CryptoError, SchemeRegister, SignatureScheme, SigningKey};
use rustls_pki_types::pem::{PemObject, SectionKind};
use zeroize::Zeroizing;

use super::signing_key::{AwsLcKey, MlDsaSet};
use super::slh_dsa;

/// Why there is no private key to be had from some octets. Says nothing about the key itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// A PEM file without a private key.
    NoKey,
    /// The key is encrypted with a passphrase.
    Encrypted,
    /// A key of an algorithm that no backend signs with.
    Unsupported,
    /// An RSA key of type id-RSASSA-PSS (RFC 4055 §1.2).
    PssKey,
    /// An RSA key of less than 2048 or more than 8192 bits, or with a public exponent below 65537 or
    /// not below 2^32.
    RsaSize,
    /// Not a private key in any known form, or one whose parts do not fit together.
    Malformed,
    /// An ML-DSA key that has none of the three forms of RFC 9881 §6 and is no seed either, or whose parts do not fit
    /// together.
    MlDsaForm,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no private key in it",
            Self::Encrypted => "the private key is encrypted",
            Self::Unsupported => "a private key of an unsupported algorithm",
            Self::PssKey => {
                "a private key of type id-RSASSA-PSS is not used: one of type rsaEncryption signs by RSASSA-PSS, too"
            }
            Self::RsaSize => {
                "an RSA key must have 2048 to 8192 bits and an exponent of 65537 to 2^32"
            }
            Self::Malformed => "not a valid private key",
            Self::MlDsaForm => {
                "an ML-DSA key must have a form of RFC 9881 section 6 or 32 octets, and its parts must agree"
            }
        })
    }
}

impl std::error::Error for KeyError {}

/// A type of key that [`generate`] makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyType {
    /// RSA, 2048 bits.
    Rsa2048,
    /// RSA, 3072 bits.
    Rsa3072,
    /// RSA, 4096 bits.
    Rsa4096,
    /// The key of any scheme that is not RSA.
    Scheme(SignatureScheme),
}

/// A new private key, DER of PKCS#8 (RFC 5958), for [`load_private_key`]. ML-DSA keys are in seed
/// form (RFC 9881 §6).
///
/// # Errors
/// [`CryptoError::Unsupported`] for a scheme of RSA or without a backend, [`CryptoError::Backend`] if
/// the backend fails.
pub fn generate(key_type: KeyType) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    let failed = |_| CryptoError::Backend;
    let rsa = |size| {
        let pair = RsaKeyPair::generate(size).map_err(failed)?;
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
        Ok(Zeroizing::new(der.as_ref().to_vec()))
    };
    let ecdsa = |algorithm| {
        let pair = EcdsaKeyPair::generate(algorithm).map_err(failed)?;
        Ok(Zeroizing::new(pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec()))
    };
    let scheme = match key_type {
        KeyType::Rsa2048 => return rsa(KeySize::Rsa2048),
        KeyType::Rsa3072 => return rsa(KeySize::Rsa3072),
        KeyType::Rsa4096 => return rsa(KeySize::Rsa4096),
        KeyType::Scheme(scheme) => scheme,
    };
    let scheme = &scheme;
    match scheme {
        SignatureScheme::Outside(outside) => Ok(pkcs8(scheme, outside.generate()?.expose())),
        SignatureScheme::EcdsaP256Sha256 => ecdsa(&signature::ECDSA_P256_SHA256_ASN1_SIGNING),
        SignatureScheme::EcdsaP384Sha384 => ecdsa(&signature::ECDSA_P384_SHA384_ASN1_SIGNING),
        SignatureScheme::EcdsaP521Sha512 => ecdsa(&signature::ECDSA_P521_SHA512_ASN1_SIGNING),
        SignatureScheme::Ed25519 => {
            let pair = Ed25519KeyPair::generate().map_err(failed)?;
            Ok(Zeroizing::new(pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec()))
        }
        SignatureScheme::MlDsa44 | SignatureScheme::MlDsa65 | SignatureScheme::MlDsa87 => {
            let set = MlDsaSet::of(scheme).ok_or(CryptoError::Unsupported)?;
            let pair = PqdsaKeyPair::generate(set.algorithm).map_err(failed)?;
            Ok(Zeroizing::new(pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec()))
        }
        #[cfg(feature = "experimental-falcon")]
        SignatureScheme::Falcon512 => Ok(pkcs8(scheme, &super::falcon::generate())),
        _ => slh_dsa::generate(scheme).map(|key| pkcs8(scheme, &key)),
    }
}

/// A private key of a built-in scheme from DER or from the first private key of a PEM file: PKCS#8 (RFC 5958) of
/// every algorithm, `RSAPrivateKey` (RFC 8017 §A.1.2) and `ECPrivateKey` (RFC 5915).
///
/// # Errors
/// See [`KeyError`].
pub fn load_private_key(octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    load_private_key_with(&SchemeRegister::built_in(), octets)
}

/// As [`load_private_key`], a key of any scheme of `register`.
///
/// # Errors
/// See [`KeyError`].
pub fn load_private_key_with(
    register: &SchemeRegister,
    octets: &[u8],
) -> Result<Box<dyn SigningKey>, KeyError> {
    if octets.first() == Some(&der::SEQUENCE) {
        return load_der(register, octets);
    }
    let contains = |text: &[u8]| octets.windows(text.len()).any(|window| window == text);
    if contains(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(b"Proc-Type: 4,ENCRYPTED") {
        return Err(KeyError::Encrypted);
    }
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(octets) {
        let (kind, content) = section.map_err(|_| KeyError::Malformed)?;
        let content = Zeroizing::new(content);
        match kind {
            SectionKind::PrivateKey => return load_pkcs8(register, &content),
            SectionKind::RsaPrivateKey => return load_pkcs1(&content),
            SectionKind::EcPrivateKey => return load_sec1(register, &content),
            _ => {}
        }
    }
    Err(KeyError::NoKey)
}

/// The three forms differ in what follows the version: an `AlgorithmIdentifier`, an integer, octets.
fn load_der(register: &SchemeRegister, octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    let second = Der::new(octets).nested(der::SEQUENCE).and_then(|mut fields| {
        fields.unsigned()?;
        fields.peek()
    });
    match second {
        Some(der::SEQUENCE) => load_pkcs8(register, octets),
        Some(der::INTEGER) => load_pkcs1(octets),
        Some(der::OCTET_STRING) => load_sec1(register, octets),
        _ => Err(KeyError::Malformed),
    }
}

fn load_pkcs1(octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    rsa(RsaKeyPair::from_der(octets).ok(), octets)
}

/// An `ECPrivateKey` by itself: it names its curve.
fn load_sec1(register: &SchemeRegister, octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    let of_curve = |curve: &[u8]| {
        register.outside().find(|scheme| names_curve(scheme.key_algorithm_identifier(), curve))
    };
    match sec1_curve(octets).and_then(of_curve) {
        Some(scheme) => scheme.private_key(octets).map_err(|_| KeyError::Malformed),
        None => ecdsa(octets),
    }
}

/// The curve that an `ECPrivateKey` names, an OBJECT IDENTIFIER with its header (RFC 5915 §3).
fn sec1_curve(octets: &[u8]) -> Option<&[u8]> {
    let mut fields = Der::new(octets).nested(der::SEQUENCE)?;
    fields.unsigned()?;
    fields.content(der::OCTET_STRING)?;
    fields.content(der::context(0))
}

/// True if `algorithm`, an `AlgorithmIdentifier`, is that of keys of ECDSA on `curve` (RFC 5480 §2.1.1).
fn names_curve(algorithm: &[u8], curve: &[u8]) -> bool {
    let Some(content) = Der::new(algorithm).content(der::SEQUENCE) else { return false };
    content.strip_prefix(ID_EC_PUBLIC_KEY) == Some(curve)
}

/// A key of a built-in scheme of ECDSA, in an `ECPrivateKey` or in PKCS#8.
fn ecdsa(octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    let key = AwsLcKey::ecdsa(|curve| EcdsaKeyPair::from_private_key_der(curve, octets).ok())?;
    Ok(Box::new(key))
}

fn load_pkcs8(register: &SchemeRegister, octets: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    let (algorithm, private) = pkcs8_parts(octets).ok_or(KeyError::Malformed)?;
    let known = |scheme: &SignatureScheme| scheme.key_algorithm_identifier() == algorithm;
    let Some(scheme) = register.iter().find(|scheme| known(scheme)) else {
        let oid = Der::new(algorithm)
            .nested(der::SEQUENCE)
            .and_then(|mut parts| parts.content(der::OBJECT_IDENTIFIER));
        let is_pss = oid == Some(ID_RSASSA_PSS);
        return Err(if is_pss { KeyError::PssKey } else { KeyError::Unsupported });
    };
    match scheme {
        SignatureScheme::Outside(outside) => {
            outside.private_key(private).map_err(|_| KeyError::Malformed)
        }
        rsa_scheme if rsa_scheme.is_rsa() => rsa(RsaKeyPair::from_pkcs8(octets).ok(), private),
        SignatureScheme::EcdsaP256Sha256
        | SignatureScheme::EcdsaP384Sha384
        | SignatureScheme::EcdsaP521Sha512 => ecdsa(octets),
        SignatureScheme::Ed25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(octets);
            Ok(Box::new(AwsLcKey::ed25519(pair.map_err(|_| KeyError::Malformed)?)))
        }
        SignatureScheme::MlDsa44 | SignatureScheme::MlDsa65 | SignatureScheme::MlDsa87 => {
            let set = MlDsaSet::of(scheme).ok_or(KeyError::Unsupported)?;
            let pair = match private.len() {
                // Not a form of RFC 9881 §6, but what Botan writes. No other form is that short.
                ML_DSA_SEED => PqdsaKeyPair::from_seed(set.algorithm, private),
                _ => PqdsaKeyPair::from_pkcs8(set.algorithm, octets),
            };
            Ok(Box::new(AwsLcKey::ml_dsa(set, pair.map_err(|_| KeyError::MlDsaForm)?)))
        }
        #[cfg(feature = "experimental-falcon")]
        SignatureScheme::Falcon512 => super::falcon::load(private),
        _ => slh_dsa::load(scheme, private),
    }
}

/// Tells a key that is only too small or too large, which a library may refuse, from a malformed one.
fn rsa(pair: Option<RsaKeyPair>, pkcs1: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    if let Some(pair) = pair {
        return Ok(Box::new(AwsLcKey::rsa(pair)?));
    }
    let modulus_len = Der::new(pkcs1).nested(der::SEQUENCE).and_then(|mut fields| {
        fields.unsigned()?;
        Some(fields.unsigned()?.len())
    });
    match modulus_len {
        Some(len) if !(256..=1024).contains(&len) => Err(KeyError::RsaSize),
        _ => Err(KeyError::Malformed),
    }
}

/// `AlgorithmIdentifier` and content of the key, of a `OneAsymmetricKey` (RFC 5958 §2).
fn pkcs8_parts(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut outer = Der::new(octets);
    let mut fields = outer.nested(der::SEQUENCE)?;
    outer.end()?;
    if !matches!(fields.unsigned()?, [] | [1]) {
        return None;
    }
    let algorithm = fields.element(der::SEQUENCE)?;
    // Attributes and the public key may follow.
    Some((algorithm, fields.content(der::OCTET_STRING)?))
}

/// id-ecPublicKey (RFC 5480 §2.1.1), with its header.
const ID_EC_PUBLIC_KEY: &[u8] = &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// id-RSASSA-PSS (RFC 4055 §1.2).
const ID_RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
/// Octets of the seed of an ML-DSA key (FIPS 204).
const ML_DSA_SEED: usize = 32;

/// `OneAsymmetricKey` of version 0 around `key`.
fn pkcs8(scheme: &SignatureScheme, key: &[u8]) -> Zeroizing<Vec<u8>> {
    let algorithm = scheme.key_algorithm_identifier();
    // Enough for two headers and the version, so that no copy of the key is left behind by growth.
    let mut inner = Zeroizing::new(Vec::with_capacity(key.len() + algorithm.len() + 16));
    der::push_unsigned(&mut inner, &[]);
    inner.extend_from_slice(algorithm);
    der::push(&mut inner, der::OCTET_STRING, &[key]);
    let mut out = Zeroizing::new(Vec::with_capacity(inner.len() + 8));
    der::push(&mut out, der::SEQUENCE, &[&inner]);
    out
}
