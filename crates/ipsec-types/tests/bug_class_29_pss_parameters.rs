//! Bug class 29: parameters of RSASSA-PSS, which have carried negative and huge salts, and mask
//! generation functions without a hash, into other daemons.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use ipsec_types::crypto::SignatureScheme;
use ipsec_types::crypto::sign::{PssParameters, PssProperty};
use serde_json::Value;

const VECTORS: &str = include_str!("data/signatures/rsapss.json");

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn rows(name: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(VECTORS).unwrap();
    file[name].as_array().unwrap().clone()
}

#[test]
fn strongswan_valid() {
    let rows = rows("valid");
    assert_eq!(rows.len(), 9);
    for row in rows {
        let identifier = octets(row["aid"].as_str().unwrap());
        let parsed = PssParameters::from_algorithm_identifier(&identifier).unwrap();
        assert_eq!(parsed.hash.to_string(), row["hash"].as_str().unwrap(), "{row}");
        assert_eq!(parsed.mgf1_hash.to_string(), row["mgf1"].as_str().unwrap(), "{row}");
        assert_eq!(u64::from(parsed.salt_len), row["salt"].as_u64().unwrap(), "{row}");
        // Parameters in use: two equal hashes of SHA-2, and a salt as long as they are.
        let scheme = match (row["hash"].as_str(), row["mgf1"].as_str(), parsed.salt_len) {
            (Some("SHA2-256"), Some("SHA2-256"), 32) => Some(SignatureScheme::RsaPssSha256),
            (Some("SHA2-512"), Some("SHA2-512"), 64) => Some(SignatureScheme::RsaPssSha512),
            _ => None,
        };
        assert_eq!(SignatureScheme::from_built_in_identifier(&identifier), scheme, "{row}");
    }
}

#[test]
fn strongswan_invalid() {
    let rows = rows("invalid");
    assert_eq!(rows.len(), 6);
    for row in rows {
        refused(&row.to_string(), &octets(row["aid"].as_str().unwrap()));
    }
}

#[test]
fn salts() {
    for (name, salt) in [
        ("-1", &[0xff][..]),
        ("-32", &[0xe0]),
        ("2^16", &[1, 0, 0]),
        ("2^31", &[0, 0x80, 0, 0, 0]),
        ("2^32 + 32", &[1, 0, 0, 0, 32]),
        ("2^64 + 32", &[1, 0, 0, 0, 0, 0, 0, 0, 32]),
        ("32 in two octets", &[0, 32]),
        ("nothing", &[]),
    ] {
        refused(name, &identifier(&[HASH, MGF1, &field(0xa2, &element(2, salt))]));
    }
    for (salt, expected) in
        [(&[0][..], 0), (&[31], 31), (&[0, 0xff], 255), (&[0, 0xff, 0xff], 65535)]
    {
        let salt_field = field(0xa2, &element(2, salt));
        let parsed =
            PssParameters::from_algorithm_identifier(&identifier(&[HASH, MGF1, &salt_field]));
        assert_eq!(parsed.unwrap().salt_len, expected);
        assert_eq!(parsed.unwrap().scheme(), None, "{expected} octets of salt are not in use");
    }
}

#[test]
fn shapes() {
    let good = identifier(&[HASH, MGF1, SALT]);
    assert_eq!(
        SignatureScheme::from_built_in_identifier(&good),
        Some(SignatureScheme::RsaPssSha256)
    );
    let mgf1_oid = element(6, &MGF1_OID);
    let mgf_without_hash = field(0xa1, &element(0x30, &mgf1_oid));
    let null_hash = field(0xa0, &[5, 0]);
    let hash_of_hash = field(0xa0, HASH);
    for (name, fields) in [
        ("out of order", &[MGF1, HASH, SALT][..]),
        ("twice", &[HASH, HASH, MGF1, SALT]),
        ("MGF1 without a hash", &[HASH, &mgf_without_hash, SALT]),
        ("a hash that is NULL", &[&null_hash, MGF1, SALT]),
        ("a hash in a hash", &[&hash_of_hash, MGF1, SALT]),
        ("a field 4", &[HASH, MGF1, SALT, &[0xa4, 3, 2, 1, 1]]),
        ("an empty field", &[HASH, MGF1, &[0xa2, 0]]),
        ("two salts in one field", &[HASH, MGF1, &[0xa2, 6, 2, 1, 32, 2, 1, 32]]),
        ("trailer 0", &[HASH, MGF1, SALT, &[0xa3, 3, 2, 1, 0]]),
        ("an empty trailer", &[HASH, MGF1, SALT, &[0xa3, 2, 2, 0]]),
    ] {
        refused(name, &identifier(fields));
    }
    let null_parameters = element(0x30, &[&element(6, &PSS_OID)[..], &[5, 0]].concat());
    refused("NULL parameters", &null_parameters);
    refused("no parameters", &element(0x30, &element(6, &PSS_OID)));
    let mut twice = good.clone();
    twice.extend_from_slice(&good);
    refused("two identifiers", &twice);
    for len in 0..good.len() {
        refused("cut short", &good[..len]);
    }
}

/// Fault: in `PssParameters::read`, return `Form` for each of them.
#[test]
fn a_refusal_names_the_property() {
    let sha3 = field(0xa0, &element(0x30, &element(6, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 8])));
    for (fields, property) in [
        (&[&sha3, MGF1, SALT][..], PssProperty::Hash),
        (&[HASH, &field(0xa1, HASH), SALT], PssProperty::MaskFunction),
        (&[HASH, MGF1, &field(0xa2, &element(2, &[0xe0]))], PssProperty::SaltLength),
        (&[HASH, MGF1, SALT, &[0xa3, 3, 2, 1, 2]], PssProperty::Trailer),
        (&[MGF1, HASH, SALT], PssProperty::Form),
    ] {
        assert_eq!(PssParameters::parse(&identifier(fields)), Some(Err(property)));
    }
    let other = SignatureScheme::RsaPkcs1Sha256.algorithm_identifier();
    assert_eq!(PssParameters::parse(other), None);
}

fn refused(name: &str, identifier: &[u8]) {
    assert_eq!(PssParameters::from_algorithm_identifier(identifier), None, "{name}");
    assert_eq!(SignatureScheme::from_built_in_identifier(identifier), None, "{name}");
}

fn identifier(fields: &[&[u8]]) -> Vec<u8> {
    let parameters = element(0x30, &fields.concat());
    element(0x30, &[element(6, &PSS_OID), parameters].concat())
}

fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    element(tag, content)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 0x80);
    [&[tag, content.len() as u8], content].concat()
}

const PSS_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const MGF1_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08];

/// `[0]` SHA-256, `[1]` MGF1 with SHA-256, `[2]` 32 octets of salt.
const HASH: &[u8] = &[
    0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00,
];
const MGF1: &[u8] = &[
    0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
];
const SALT: &[u8] = &[0xa2, 0x03, 0x02, 0x01, 0x20];
