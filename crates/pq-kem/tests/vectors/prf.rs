//! PRFs: RFC 4868 §2.7.1 and §2.7.2, and strongSwan's HMAC and KDF vectors.

use ike_wire::registry::PrfId;
use ipsec_types::crypto::Prf;

use crate::data;

fn prf(id: PrfId) -> &'static dyn Prf {
    pq_kem::provider().prf(id).unwrap()
}

#[track_caller]
fn check(id: PrfId, name: &str, key: &[u8], input: &[u8], expected: &[u8]) {
    let prf = prf(id);
    assert_eq!(prf.output_len(), expected.len(), "{name}");
    assert_eq!(prf.prf(key, &[input]).expose(), expected, "{name}");
    // The same in parts, an empty one among them.
    let (head, tail) = input.split_at(input.len() / 3);
    assert_eq!(prf.prf(key, &[head, &[], tail]).expose(), expected, "{name} in parts");
}

#[test]
fn rfc4868() {
    let mut checked = 0;
    for case in data::sections(include_str!("../data/rfc/rfc4868.txt")) {
        for (field, id) in [
            ("PRF-HMAC-SHA-256", PrfId::HMAC_SHA2_256),
            ("PRF-HMAC-SHA-384", PrfId::HMAC_SHA2_384),
            ("PRF-HMAC-SHA-512", PrfId::HMAC_SHA2_512),
        ] {
            let Some(expected) = case.optional(field) else { continue };
            check(id, &case.name, &case.octets("Key"), &case.octets("Data"), &expected);
            checked += 1;
        }
    }
    assert_eq!(checked, 6 * 3 + 3 * 4);
}

#[test]
fn strongswan() {
    let mut checked = 0;
    for case in data::json(include_str!("../data/strongswan/hmac.json")) {
        let id = match case.text("alg") {
            "PRF_HMAC_SHA1" => PrfId::HMAC_SHA1,
            "PRF_HMAC_SHA2_256" => PrfId::HMAC_SHA2_256,
            "PRF_HMAC_SHA2_384" => PrfId::HMAC_SHA2_384,
            "PRF_HMAC_SHA2_512" => PrfId::HMAC_SHA2_512,
            _ => continue,
        };
        let (key, seed) = (case.octets("key"), case.octets("seed"));
        check(id, &case.name, &key, &seed, &case.octets("out"));
        checked += 1;
    }
    assert_eq!(checked, 6 + 3 * 5);
}

/// HMAC takes keys of no octets, and inputs of none.
#[test]
fn empty_key_and_input() {
    let expected = data::hex("b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
    let prf = prf(PrfId::HMAC_SHA2_256);
    assert_eq!(prf.prf(&[], &[]).expose(), expected);
}
