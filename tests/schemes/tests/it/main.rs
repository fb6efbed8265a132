//! Signature schemes as a program brings them: vectors of others, and keys in files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod brainpool;
mod ed448;

use ipsec_types::crypto::sign::{OutsideScheme, SubjectPublicKeyInfo};
use ipsec_types::crypto::{CryptoError, SchemeRegister, SignatureScheme, SigningKey};
use pq_kem::sign::{KeyType, generate, load_private_key_with};
use serde_json::Value;

fn octets(hexadecimal: &str) -> Vec<u8> {
    let (pairs, rest) = hexadecimal.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    let octet = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(|pair| octet(pair)).collect()
}

fn register() -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(ike_test_schemes::ed448()).unwrap();
    register.add(ike_test_schemes::brainpool()).unwrap();
    register
}

/// A new key of `scheme`, by way of PKCS#8.
fn new_key(scheme: OutsideScheme) -> Box<dyn SigningKey> {
    let pkcs8 = generate(KeyType::Scheme(SignatureScheme::Outside(scheme))).unwrap();
    load_private_key_with(&register(), &pkcs8).unwrap()
}

/// Verifies all signatures of a file of Wycheproof's. A key that is no key makes none of them valid.
fn wycheproof(scheme: &OutsideScheme, file: &str) {
    let file: Value = serde_json::from_str(file).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    let mut valid = 0;
    for vector in vectors {
        let field = |name: &str| octets(vector[name].as_str().unwrap());
        let verified = scheme.verify_by(&field("spki"), &field("msg"), &field("sig"));
        let wanted = vector["result"] == "valid";
        assert_eq!(verified.is_ok(), wanted, "case {}: {verified:?}", vector["tcId"]);
        valid += usize::from(wanted);
    }
    assert!(valid > 10 && vectors.len() > valid + 10, "{valid} of {}", vectors.len());
}

/// A new key signs what it alone verifies, and each changed octet is refused.
fn signs_and_verifies(scheme: &OutsideScheme) {
    let (key, other) = (new_key(scheme.clone()), new_key(scheme.clone()));
    assert_ne!(key.public_key(), other.public_key());
    let own = SignatureScheme::Outside(scheme.clone());
    let signature = key.sign(&own, b"message").unwrap();
    assert!(signature.len() <= scheme.lengths().signature);
    let spki = key.public_key();
    assert_eq!(scheme.verify_by(spki, b"message", &signature), Ok(()));
    assert_eq!(scheme.verify_by(spki, b"Message", &signature), Err(CryptoError::Integrity));
    assert!(scheme.verify_by(other.public_key(), b"message", &signature).is_err());
    for at in 0..signature.len() {
        let mut changed = signature.clone();
        changed[at] ^= 1;
        assert!(scheme.verify_by(spki, b"message", &changed).is_err(), "octet {at}");
    }
    for cut in [&signature[..signature.len() - 1], &[&signature[..], &[0]].concat(), &[]] {
        assert_eq!(scheme.verify_by(spki, b"message", cut), Err(CryptoError::Integrity));
    }
    let wrong = key.sign(&SignatureScheme::Ed25519, b"message");
    assert_eq!(wrong, Err(CryptoError::Unsupported));
    assert!(!format!("{key:?}").contains("pair"), "{key:?}");
}

/// The public key in `spki` with other octets.
fn with_key(spki: &[u8], key: &[u8]) -> Vec<u8> {
    let SubjectPublicKeyInfo { algorithm, .. } = SubjectPublicKeyInfo::parse(spki).unwrap();
    SubjectPublicKeyInfo { algorithm, key }.encode()
}
