//! Falcon-512 against the known answers of NIST's third round.

use ike_wire::der;
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier};
use pq_kem::sign::falcon::Falcon;
use pq_kem::sign::load_private_key;

use crate::data;

const SCHEME: SignatureScheme = SignatureScheme::Falcon512;

#[test]
fn known_answers() {
    let cases = data::json(include_str!("../data/falcon/kat.json"));
    assert_eq!(cases.len(), 5);
    for case in cases {
        let (public, message) = (case.octets("pk"), case.octets("msg"));
        let key = load_private_key(&pkcs8(&case.octets("sk"))).unwrap();
        let spki = SubjectPublicKeyInfo::parse(key.public_key()).unwrap();
        assert_eq!(spki.key, public, "{}", case.name);

        // Length, nonce, message, header of the unpadded format, s2.
        let signed = case.octets("sm");
        let (nonce, rest) = signed[2..].split_at(40);
        let (body, unpadded) = rest.split_at(message.len());
        assert_eq!((body, unpadded[0]), (&message[..], 0x29), "{}", case.name);
        let mut signature = [&[0x39], nonce, &unpadded[1..]].concat();
        assert!(signature.len() <= 666, "{}: too long to be padded", case.name);
        signature.resize(666, 0);
        let verify = |message: &[u8], signature: &[u8]| {
            Falcon.verify(&SCHEME, key.public_key(), message, signature)
        };
        assert_eq!(verify(&message, &signature), Ok(()), "{}", case.name);
        assert_eq!(verify(&message[1..], &signature), Err(CryptoError::Integrity));
        // The padding is zero, and the header that of the padded format.
        *signature.last_mut().unwrap() = 1;
        assert_eq!(verify(&message, &signature), Err(CryptoError::Integrity));
        *signature.last_mut().unwrap() = 0;
        signature[0] = 0x29;
        assert_eq!(verify(&message, &signature), Err(CryptoError::Integrity));

        let ours = key.sign(&SCHEME, &message).unwrap();
        assert_eq!(verify(&message, &ours), Ok(()), "{}", case.name);
    }
}

/// PKCS#8 around the octets of a private key.
fn pkcs8(private: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    der::push_unsigned(&mut fields, &[]);
    fields.extend_from_slice(SCHEME.key_algorithm_identifier());
    der::push(&mut fields, der::OCTET_STRING, &[private]);
    let mut out = Vec::new();
    der::push(&mut out, der::SEQUENCE, &[&fields]);
    out
}
