//! Ciphers with a MAC: RFC 3602 and RFC 3686 for the cipher, RFC 4868 §2.7.2 for the MAC, strongSwan's
//! for both.

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherKey, CipherSuite, CryptoError, Frame};

use crate::data;

fn key(encr: EncrId, key: &[u8], bits: usize, integ: IntegId, mac: &[u8]) -> Box<dyn CipherKey> {
    let suite = CipherSuite { encr, key_bits: bits as u16, integ };
    pq_kem::provider().ciphers.key(suite, key, mac).unwrap()
}

/// Encrypts and decrypts under a MAC of no interest.
#[track_caller]
fn check_cipher(name: &str, encr: EncrId, encr_key: &[u8], iv: &[u8], plain: &[u8], cipher: &[u8]) {
    let bits = match encr {
        EncrId::AES_CBC => encr_key.len() * 8,
        EncrId::AES_CTR => (encr_key.len() - 4) * 8,
        _ => 0,
    };
    let key = key(encr, encr_key, bits, IntegId::HMAC_SHA2_256_128, &[7; 32]);
    let frame = Frame { iv, aad: b"aad", trailer: b"trailer" };
    let (mut buffer, mut icv) = (plain.to_vec(), [0; 16]);
    key.seal(frame, &mut buffer, &mut icv).unwrap();
    assert_eq!(buffer, cipher, "{name}");
    key.open(frame, &mut buffer, &icv).unwrap();
    assert_eq!(buffer, plain, "{name}");
}

/// The MAC of `input`, split over all that a MAC covers.
#[track_caller]
fn check_mac(name: &str, integ: IntegId, mac_key: &[u8], input: &[u8], mac: &[u8]) {
    let key = key(EncrId::NULL, &[], 0, integ, mac_key);
    let (aad, rest) = input.split_at(input.len() / 3);
    let (body, trailer) = rest.split_at(rest.len() / 2);
    let frame = Frame { iv: &[], aad, trailer };
    let (mut data, mut icv) = (body.to_vec(), vec![0; mac.len()]);
    key.seal(frame, &mut data, &mut icv).unwrap();
    assert_eq!(icv, mac, "{name}");
    assert_eq!(data, body, "{name}: NULL changes nothing");
    key.open(frame, &mut data, mac).unwrap();
    let mut wrong = mac.to_vec();
    wrong[0] ^= 1;
    assert_eq!(key.open(frame, &mut data, &wrong), Err(CryptoError::Integrity), "{name}");
}

#[test]
fn rfc3602() {
    let cases = data::sections(include_str!("../data/rfc/rfc3602.txt"));
    assert_eq!(cases.len(), 8);
    for case in cases {
        let (plain, cipher) = (case.octets("plaintext"), case.octets("ciphertext"));
        let (key, iv) = (case.octets("key"), case.octets("iv"));
        check_cipher(&case.name, EncrId::AES_CBC, &key, &iv, &plain, &cipher);
    }
}

#[test]
fn rfc3686() {
    let cases = data::sections(include_str!("../data/rfc/rfc3686.txt"));
    assert_eq!(cases.len(), 9);
    for case in cases {
        let mut key = case.octets("key");
        key.extend(case.octets("nonce"));
        let (plain, cipher) = (case.octets("plaintext"), case.octets("ciphertext"));
        check_cipher(&case.name, EncrId::AES_CTR, &key, &case.octets("iv"), &plain, &cipher);
    }
}

#[test]
fn rfc4868() {
    let mut checked = 0;
    for case in data::sections(include_str!("../data/rfc/rfc4868.txt")) {
        for (field, integ) in [
            ("HMAC-SHA-256-128", IntegId::HMAC_SHA2_256_128),
            ("HMAC-SHA-384-192", IntegId::HMAC_SHA2_384_192),
            ("HMAC-SHA-512-256", IntegId::HMAC_SHA2_512_256),
        ] {
            let Some(mac) = case.optional(field) else { continue };
            check_mac(&case.name, integ, &case.octets("Key"), &case.octets("Data"), &mac);
            checked += 1;
        }
    }
    assert_eq!(checked, 12);
}

#[test]
fn strongswan_ciphers() {
    for case in data::json(include_str!("../data/strongswan/crypter.json")) {
        let encr = match case.text("alg") {
            "ENCR_AES_CBC" => EncrId::AES_CBC,
            "ENCR_AES_CTR" => EncrId::AES_CTR,
            "ENCR_NULL" => EncrId::NULL,
            other => panic!("{other}"),
        };
        let (plain, cipher) = (case.octets("plain"), case.octets("cipher"));
        check_cipher(&case.name, encr, &case.octets("key"), &case.octets("iv"), &plain, &cipher);
    }
}

/// strongSwan has SHA-1 with three truncations; only 96 bits is an IKEv2 transform that we have.
#[test]
fn strongswan_signers() {
    let mut checked = 0;
    for case in data::json(include_str!("../data/strongswan/hmac.json")) {
        let (integ, icv) = match case.text("alg") {
            "AUTH_HMAC_SHA1_96" => (IntegId::HMAC_SHA1_96, 12),
            "AUTH_HMAC_SHA2_256_128" => (IntegId::HMAC_SHA2_256_128, 16),
            "AUTH_HMAC_SHA2_384_192" => (IntegId::HMAC_SHA2_384_192, 24),
            "AUTH_HMAC_SHA2_512_256" => (IntegId::HMAC_SHA2_512_256, 32),
            _ => continue,
        };
        // One case carries octets behind its truncated value.
        let mac = &case.octets("mac")[..icv];
        check_mac(&case.name, integ, &case.octets("key"), &case.octets("data"), mac);
        checked += 1;
    }
    assert_eq!(checked, 2 + 9);
}
