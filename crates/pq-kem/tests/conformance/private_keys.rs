//! Private keys: every form that is read, and what is refused.

use ike_wire::der::{self, Der};
use ipsec_types::crypto::SignatureScheme as S;
use pq_kem::sign::{KeyError, KeyType, generate, load_private_key};

use crate::backends::default_key;

macro_rules! key_file {
    ($name:literal) => {
        include_bytes!(concat!("../data/", $name)).as_slice()
    };
}

/// The content of a PEM section, for the DER forms of the same keys.
fn der_of(pem: &[u8]) -> Vec<u8> {
    use rustls_pki_types::pem::{PemObject, SectionKind};
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem);
    sections.map(|section| section.unwrap()).last().unwrap().1
}

#[test]
fn openssl_files() {
    for (name, pem, spki, first) in [
        (
            "PKCS#8",
            key_file!("keys/rsa.pkcs8.pem"),
            key_file!("keys/rsa.spki.der"),
            S::RsaPssSha256,
        ),
        (
            "PKCS#1",
            key_file!("keys/rsa.pkcs1.pem"),
            key_file!("keys/rsa.spki.der"),
            S::RsaPssSha256,
        ),
        (
            "PKCS#8",
            key_file!("keys/ec.pkcs8.pem"),
            key_file!("keys/ec.spki.der"),
            S::EcdsaP256Sha256,
        ),
        // With a section EC PARAMETERS in front.
        ("SEC1", key_file!("keys/ec.sec1.pem"), key_file!("keys/ec.spki.der"), S::EcdsaP256Sha256),
        (
            "SEC1",
            key_file!("keys/ec521.sec1.pem"),
            key_file!("keys/ec521.spki.der"),
            S::EcdsaP521Sha512,
        ),
        ("PKCS#8", key_file!("keys/ed25519.pem"), key_file!("keys/ed25519.spki.der"), S::Ed25519),
    ] {
        let with_text = [b"Bag Attributes: none\n", pem].concat();
        for octets in [pem, &der_of(pem), &with_text] {
            let key = load_private_key(octets).unwrap_or_else(|e| panic!("{name} {first}: {e}"));
            assert_eq!(key.public_key(), spki, "{name} {first}");
            assert_eq!(key.schemes().first(), Some(&first));
            for scheme in key.schemes() {
                let signature = key.sign(scheme, b"message").unwrap();
                let provider = pq_kem::provider();
                assert_eq!(provider.verify(scheme, spki, b"message", &signature), Ok(()));
            }
        }
    }
}

#[test]
fn rfc9881_files() {
    for (public, forms, scheme) in [
        (
            key_file!("rfc9881/ML-DSA-44.pub"),
            [
                key_file!("rfc9881/ML-DSA-44-seed.priv"),
                key_file!("rfc9881/ML-DSA-44-expanded.priv"),
                key_file!("rfc9881/ML-DSA-44-both.priv"),
            ],
            S::MlDsa44,
        ),
        (
            key_file!("rfc9881/ML-DSA-65.pub"),
            [
                key_file!("rfc9881/ML-DSA-65-seed.priv"),
                key_file!("rfc9881/ML-DSA-65-expanded.priv"),
                key_file!("rfc9881/ML-DSA-65-both.priv"),
            ],
            S::MlDsa65,
        ),
        (
            key_file!("rfc9881/ML-DSA-87.pub"),
            [
                key_file!("rfc9881/ML-DSA-87-seed.priv"),
                key_file!("rfc9881/ML-DSA-87-expanded.priv"),
                key_file!("rfc9881/ML-DSA-87-both.priv"),
            ],
            S::MlDsa87,
        ),
    ] {
        let spki = der_of(public);
        for form in forms {
            let key = load_private_key(form).unwrap();
            assert_eq!(key.public_key(), spki, "{scheme}");
            let signature = key.sign(&scheme, b"message").unwrap();
            let provider = pq_kem::provider();
            assert_eq!(provider.verify(&scheme, &spki, b"message", &signature), Ok(()));
        }
        // Seed and expanded key that are not of one another (RFC 9881 §8.1).
        let mut both = der_of(forms[2]);
        let seed_at = both.windows(2).position(|w| w == [4, 32]).unwrap() + 2;
        both[seed_at] ^= 1;
        assert_eq!(load_private_key(&both).unwrap_err(), KeyError::MlDsaForm, "{scheme}");
    }
}

#[test]
fn generated_keys_load() {
    for (key_type, octets) in [(KeyType::Rsa2048, 256), (KeyType::Rsa3072, 384)] {
        let key = load_private_key(&generate(key_type).unwrap()).unwrap();
        assert_eq!(key.sign(&S::RsaPssSha256, b"message").unwrap().len(), octets);
    }
    for scheme in S::BUILT_IN.iter().filter(|scheme| !scheme.is_rsa()) {
        // Key generation of the small sets takes as long as a whole tree.
        if scheme.name().ends_with('s') {
            continue;
        }
        let key = default_key(scheme.clone());
        assert_eq!(key.schemes(), std::slice::from_ref(scheme));
        assert_eq!(S::of_built_in_key(key.public_key()), std::slice::from_ref(scheme));
        assert!(!format!("{key:?}").contains("seed"), "{key:?}");
    }
    for scheme in [S::RsaPkcs1Sha1, S::RsaPkcs1Sha256, S::RsaPssSha512] {
        assert!(generate(KeyType::Scheme(scheme.clone())).is_err(), "{scheme}: of which size?");
    }
}

/// Fault: in `load_pkcs8`, leave `ID_RSASSA_PSS` out.
#[test]
fn a_private_key_of_type_id_rsassa_pss_is_refused_by_its_name() {
    let mut key = generate(KeyType::Rsa2048).unwrap().to_vec();
    let oid = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    let at = key.windows(9).position(|nine| nine == oid).unwrap();
    key[at + 8] = 10;
    let why = load_private_key(&key).unwrap_err();
    assert_eq!(why, KeyError::PssKey);
    assert!(why.to_string().contains("id-RSASSA-PSS"), "{why}");
}

#[test]
fn refused_files() {
    for (name, file, error) in [
        ("1024 bits", key_file!("keys/rsa1024.pem"), KeyError::RsaSize),
        ("exponent 3", key_file!("keys/rsa-e3.pem"), KeyError::RsaSize),
        ("PKCS#8, encrypted", key_file!("keys/ec.encrypted.pem"), KeyError::Encrypted),
        ("old encryption", key_file!("keys/rsa.encrypted-traditional.pem"), KeyError::Encrypted),
        ("secp256k1", key_file!("keys/k1.pem"), KeyError::Malformed),
        ("X25519", key_file!("keys/x25519.pem"), KeyError::Unsupported),
        ("a public key", key_file!("rfc9881/ML-DSA-44.pub"), KeyError::NoKey),
        ("a public key", key_file!("keys/ec.spki.der"), KeyError::Malformed),
        ("nothing", b"", KeyError::NoKey),
        ("no PEM", b"private", KeyError::NoKey),
    ] {
        assert_eq!(load_private_key(file).map(|_| ()), Err(error), "{name}");
    }
}

/// Every key cut short anywhere, and with something behind it.
#[test]
fn truncated_der() {
    for key_type in [
        KeyType::Rsa2048,
        KeyType::Scheme(S::EcdsaP384Sha384),
        KeyType::Scheme(S::Ed25519),
        KeyType::Scheme(S::MlDsa65),
        KeyType::Scheme(S::SlhDsaSha2_128f),
        KeyType::Scheme(S::Falcon512),
    ] {
        let octets = generate(key_type.clone()).unwrap();
        for len in (0..octets.len()).step_by(1 + octets.len() / 64) {
            assert!(load_private_key(&octets[..len]).is_err(), "{key_type:?} {len}");
        }
        let longer = [&octets[..], &[0]].concat();
        assert!(load_private_key(&longer).is_err(), "{key_type:?} with an octet behind it");
    }
}

/// The public half that an EC key may carry must be its own.
#[test]
fn mismatched_halves() {
    let mut octets = der_of(key_file!("keys/ec.sec1.pem"));
    let other = default_key(S::EcdsaP256Sha256);
    let point = &other.public_key()[other.public_key().len() - 65..];
    let at = octets.len() - 65;
    octets[at..].copy_from_slice(point);
    assert_eq!(load_private_key(&octets).unwrap_err(), KeyError::Malformed);

    // An RSA key whose modulus is not the product of its primes.
    let mut octets = der_of(key_file!("keys/rsa.pkcs1.pem"));
    let mut fields = Der::new(&octets).nested(der::SEQUENCE).unwrap();
    fields.unsigned().unwrap();
    let modulus = fields.unsigned().unwrap().to_vec();
    let at = octets.windows(modulus.len()).position(|w| w == modulus).unwrap();
    octets[at + 100] ^= 1;
    assert_eq!(load_private_key(&octets).unwrap_err(), KeyError::Malformed);
}
