//! ML-DSA and ML-KEM against ACVP and Wycheproof: every backend where it can be told what to draw,
//! the others by what they accept.

use aws_lc_rs::digest::{SHA256, digest};
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SecureRandom, SignatureScheme, SigningKey};
use pq_kem::sign::{load_private_key, rustcrypto};

use crate::backends::{ml_kem_backends, signatures};
use crate::data;

fn sha256(octets: &[u8]) -> Vec<u8> {
    digest(&SHA256, octets).as_ref().to_vec()
}

fn public(key: &dyn SigningKey) -> Vec<u8> {
    SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key.to_vec()
}

/// PKCS#8 around the seed form of RFC 9881 §6.
fn pkcs8(scheme: SignatureScheme, seed: &[u8]) -> Vec<u8> {
    let head = [0x30, 0x34, 0x02, 0x01, 0x00];
    [&head[..], scheme.algorithm_identifier(), &[0x04, 0x22, 0x80, 0x20], seed].concat()
}

#[test]
fn acvp_ml_dsa_keys() {
    let cases = data::json(include_str!("../data/acvp/ml_dsa_keygen.json"));
    assert_eq!(cases.len(), 75);
    for case in cases {
        let scheme = match case.text("set") {
            "ML-DSA-44" => SignatureScheme::MlDsa44,
            "ML-DSA-65" => SignatureScheme::MlDsa65,
            "ML-DSA-87" => SignatureScheme::MlDsa87,
            other => panic!("{other}"),
        };
        let seed: [u8; 32] = case.octets("seed").try_into().unwrap();
        let second = rustcrypto::key_from_seed(&scheme, &seed).unwrap();
        let first = load_private_key(&pkcs8(scheme, &seed)).unwrap();
        for key in [&first, &second] {
            assert_eq!(sha256(&public(key.as_ref())), case.octets("pkSha256"), "{}", case.name);
        }
    }
}

#[test]
fn wycheproof_ml_dsa_verify() {
    let cases = data::json(include_str!("../data/wycheproof/ml_dsa_44_verify.json"));
    let scheme = SignatureScheme::MlDsa44;
    let mut key = Vec::new();
    let (mut valid, mut invalid) = (0, 0);
    for case in cases {
        if let Some(pk) = case.optional("pk") {
            key = pk;
        }
        let algorithm = scheme.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key: &key }.encode();
        for backend in signatures().iter().filter(|b| b.verifier.schemes().contains(&scheme)) {
            let verified =
                backend.verifier.verify(&scheme, &spki, &case.octets("msg"), &case.octets("sig"));
            let expected = match (case.text("result"), key.len()) {
                ("valid", _) => Ok(()),
                (_, 1312) => Err(CryptoError::Integrity),
                _ => Err(CryptoError::InvalidPublic),
            };
            let name = format!("{} {} {:?}", case.name, case.text("flags"), backend.verifier);
            assert_eq!(verified, expected, "{name}");
            match verified {
                Ok(()) => valid += 1,
                Err(_) => invalid += 1,
            }
        }
    }
    assert!(valid >= 2 * 18 && invalid >= 2 * 33, "{valid} {invalid}");
}

/// Deterministic signatures, octet by octet; and AWS-LC reads the same keys and accepts them.
#[test]
fn wycheproof_ml_dsa_sign() {
    let scheme = SignatureScheme::MlDsa44;
    let cases = data::json(include_str!("../data/wycheproof/ml_dsa_44_sign.json"));
    assert_eq!(cases.len(), 70);
    for case in cases {
        let seed = case.octets("seed").try_into().unwrap();
        let key = rustcrypto::key_from_seed(&scheme, &seed).unwrap();
        assert_eq!(sha256(&public(key.as_ref())), case.octets("pkSha256"), "{}", case.name);
        let message = case.octets("msg");
        let signature = key.sign(&scheme, &message).unwrap();
        assert_eq!(sha256(&signature), case.octets("sigSha256"), "{}", case.name);
        let loaded = load_private_key(&case.octets("pkcs8")).unwrap();
        assert_eq!(loaded.public_key(), key.public_key(), "{}", case.name);
        let provider = pq_kem::provider();
        let verified = provider.verify(&scheme, loaded.public_key(), &message, &signature);
        assert_eq!(verified, Ok(()), "{}", case.name);
    }
}

/// A source that hands out given octets once.
struct Fixed(Vec<u8>);

impl SecureRandom for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
        self.0.clear();
    }
}

#[test]
fn acvp_ml_kem_keys() {
    let cases = data::json(include_str!("../data/acvp/ml_kem_keygen.json"));
    assert_eq!(cases.len(), 75);
    for case in cases {
        let set = case.text("set").replace('-', "_");
        let method = pq_kem::ke::rustcrypto::ALL.iter().find(|m| m.id().to_string() == set);
        let seed = [case.octets("d"), case.octets("z")].concat();
        let pending = method.unwrap().initiate(&mut Fixed(seed)).unwrap();
        assert_eq!(sha256(pending.public()), case.octets("ekSha256"), "{}", case.name);
        // Keys of known answers are good for every backend.
        for backend in ml_kem_backends() {
            let other = backend.iter().find(|m| m.id().to_string() == set).unwrap();
            let (ciphertext, shared) =
                other.respond(pending.public(), &mut pq_kem::os_random()).unwrap();
            assert!(pending.complete(&ciphertext).unwrap().ct_eq(shared.expose()));
        }
    }
}

#[test]
fn acvp_ml_kem_encapsulation() {
    let mut checked = 0;
    for case in data::json(include_str!("../data/acvp/ml_kem.json")) {
        let (Some(key), Some(m)) = (case.optional("ek"), case.optional("m")) else { continue };
        let set = case.text("set").replace('-', "_");
        let method = pq_kem::ke::rustcrypto::ALL.iter().find(|m| m.id().to_string() == set);
        let (ciphertext, shared) = method.unwrap().respond(&key, &mut Fixed(m)).unwrap();
        assert_eq!(ciphertext, case.octets("c"), "{}", case.name);
        assert_eq!(shared.expose(), case.octets("k"), "{}", case.name);
        checked += 1;
    }
    assert_eq!(checked, 15);
}
