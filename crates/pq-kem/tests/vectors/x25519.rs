//! X25519 with given private keys: RFC 8031, strongSwan and Wycheproof.

use ipsec_types::crypto::{CryptoError, KeMethod, SecureRandom};
use pq_kem::ke::X25519;

use crate::data;

/// A source that hands out one private key.
struct Fixed(Vec<u8>);

impl SecureRandom for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}

#[track_caller]
fn check_exchange(name: &str, i: &[u8], r: &[u8], pub_i: &[u8], pub_r: &[u8], shared: &[u8]) {
    let pending = X25519.initiate(&mut Fixed(i.to_vec())).unwrap();
    assert_eq!(pending.public(), pub_i, "{name}");
    let (response, theirs) = X25519.respond(pub_i, &mut Fixed(r.to_vec())).unwrap();
    assert_eq!(response, pub_r, "{name}");
    assert_eq!(theirs.expose(), shared, "{name}");
    assert_eq!(pending.complete(pub_r).unwrap().expose(), shared, "{name}");
}

#[test]
fn rfc8031() {
    for case in data::sections(include_str!("../data/rfc/rfc8031.txt")) {
        check_exchange(
            &case.name,
            &case.octets("random_i"),
            &case.octets("random_r"),
            &case.octets("pub_i"),
            &case.octets("pub_r"),
            &case.octets("SHARED_SECRET"),
        );
    }
}

#[test]
fn strongswan() {
    let cases = data::json(include_str!("../data/strongswan/ke.json"));
    let cases: Vec<_> = cases.iter().filter(|c| c.text("method") == "CURVE_25519").collect();
    assert_eq!(cases.len(), 2);
    for case in cases {
        let seed = case.octets("seed");
        let (i, r) = seed.split_at(32);
        let (pub_i, pub_r) = (case.octets("pub_i"), case.octets("pub_r"));
        check_exchange(&case.name, i, r, &pub_i, &pub_r, &case.octets("shared"));
    }
}

/// 518 cases: twists and non-canonical values work, as RFC 7748 wants; low order is refused.
#[test]
fn wycheproof() {
    let (mut agreed, mut refused) = (0, 0);
    for case in data::json(include_str!("../data/wycheproof/x25519.json")) {
        let pending = X25519.initiate(&mut Fixed(case.octets("private"))).unwrap();
        let result = pending.complete(&case.octets("public"));
        if case.text("flags").contains("ZeroSharedSecret") {
            assert_eq!(result.unwrap_err(), CryptoError::InvalidPublic, "{}", case.name);
            refused += 1;
        } else {
            assert_eq!(result.unwrap().expose(), case.octets("shared"), "{}", case.name);
            agreed += 1;
        }
    }
    assert_eq!((agreed, refused), (518 - 31, 31));
}
