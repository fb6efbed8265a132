//! Ed448.

use ike_test_schemes::ed448;
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme};
use pq_kem::sign::{KeyError, load_private_key_with};

use super::*;

/// A case of RFC 8032 §7.4.
#[derive(Default)]
struct Case {
    secret: Vec<u8>,
    public: Vec<u8>,
    message: Vec<u8>,
    context: Vec<u8>,
    signature: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for line in include_str!("../data/rfc8032-ed448.txt").lines() {
        let Some((name, value)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        if name == "secret key" {
            cases.push(Case::default());
        }
        let case = cases.last_mut().unwrap();
        *match name {
            "secret key" => &mut case.secret,
            "public key" => &mut case.public,
            "message" => &mut case.message,
            "context" => &mut case.context,
            "signature" => &mut case.signature,
            _ => panic!("{line}"),
        } = octets(value.trim());
    }
    assert_eq!(cases.len(), 9);
    cases
}

/// `OneAsymmetricKey` of version 0 (RFC 8410 §7): the key is an OCTET STRING in one.
fn pkcs8(secret: &[u8]) -> Vec<u8> {
    let head = [0x30, 71, 0x02, 1, 0, 0x30, 5, 0x06, 3, 0x2b, 101, 113, 0x04, 59, 0x04, 57];
    [&head[..], secret].concat()
}

/// The RFC's signatures are deterministic, and one of its cases has a context, which IKEv2 has not.
///
/// Faults: in `verify`, `verify_ctx` with another context than the empty one; in `sign`, the same.
#[test]
fn signatures_are_those_of_the_rfc() {
    let own = SignatureScheme::Outside(ed448());
    let mut without_context = 0;
    for case in cases() {
        let key = load_private_key_with(&register(), &pkcs8(&case.secret)).unwrap();
        let public = SubjectPublicKeyInfo::parse(key.public_key()).unwrap();
        assert_eq!(public.key, case.public);
        let signature = key.sign(&own, &case.message).unwrap();
        let verified = ed448().verify_by(key.public_key(), &case.message, &case.signature);
        if case.context.is_empty() {
            assert_eq!((signature, verified), (case.signature, Ok(())));
            without_context += 1;
        } else {
            assert_ne!(signature, case.signature);
            assert_eq!(verified, Err(CryptoError::Integrity));
        }
    }
    assert_eq!(without_context, 8);
}

/// Fault: in `Ed448::verify`, leave out `is_a_point`.
#[test]
fn forged_signatures_of_wycheproof_are_refused() {
    wycheproof(&ed448(), include_str!("../data/wycheproof-ed448.json"));
}

#[test]
fn a_new_key_signs_and_verifies() {
    signs_and_verifies(&ed448());
}

/// Each of them verifies something if it is taken: the neutral element and points of small order, by signatures
/// that anybody can make; the others are a second form of such a key.
///
/// Fault: a library that only decompresses the point.
#[test]
fn keys_that_anybody_can_sign_for_are_refused() {
    let key = new_key(ed448());
    // y = 1, y = -1 and y = 0; p + 1, which is 1 once more; and what is on no curve.
    let field = |low: u8, rest: u8| {
        let mut octets = [rest; 57];
        octets[0] = low;
        octets[56] = 0;
        octets
    };
    // p = 2^448 - 2^224 - 1: its 29th octet, counted from 1, is fe.
    let mut minus_one = field(0xfe, 0xff);
    minus_one[28] = 0xfe;
    let mut above = field(0, 0);
    above[28..56].fill(0xff);
    for octets in [field(1, 0), minus_one, field(0, 0), above, field(2, 0)] {
        let spki = with_key(key.public_key(), &octets);
        // R is the neutral element, and S is 0.
        let mut signature = [0; 114];
        signature[0] = 1;
        let verified = ed448().verify_by(&spki, b"message", &signature);
        assert_eq!(verified, Err(CryptoError::InvalidPublic), "{octets:02x?}");
    }
    // An unused bit of a good key.
    let mut good = SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key.to_vec();
    good[56] ^= 1;
    let signature = key.sign(&SignatureScheme::Outside(ed448()), b"message").unwrap();
    let verified = ed448().verify_by(&with_key(key.public_key(), &good), b"message", &signature);
    assert_eq!(verified, Err(CryptoError::InvalidPublic));
    let short = with_key(key.public_key(), &[0; 56]);
    assert_eq!(ed448().verify_by(&short, b"", &[0; 114]), Err(CryptoError::InvalidPublic));
}

#[test]
fn private_keys_of_other_lengths_are_refused() {
    let whole = pkcs8(&[7; 57]);
    assert!(load_private_key_with(&register(), &whole).is_ok());
    // A seed alone, one that is short, and one with an octet behind it.
    let behind = [&whole[14..], &[0]].concat();
    for content in [&[7; 57][..], &[&[0x04, 56][..], &[7; 56]].concat(), &behind] {
        let len = content.len();
        let head = [0x02, 1, 0, 0x30, 5, 0x06, 3, 0x2b, 101, 113, 0x04, len as u8];
        let octets = [&[0x30, (head.len() + len) as u8][..], &head, content].concat();
        let refused = load_private_key_with(&register(), &octets).map(|_| ());
        assert_eq!(refused, Err(KeyError::Malformed), "{len}");
    }
}
