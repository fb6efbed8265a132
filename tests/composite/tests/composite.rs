//! The composite of ML-DSA-65 and Ed25519: the draft's vectors, and what is not a signature.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use ike_test_composite::{Composite, scheme};
use ike_wire::der::{self, Der};
use ike_wire::registry::HashId;
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{
    CryptoError, Scheme, SchemeRegister, SignatureScheme, SignatureVerifier, SigningKey,
};
use ml_dsa::{MlDsa65, Signature, VerifyingKey};
use pq_kem::sign::{AwsLc, KeyError, KeyType, generate, load_private_key, load_private_key_with};
use serde_json::Value;

/// The composite of the tests.
const OURS: &str = "id-MLDSA65-Ed25519-SHA512";
/// Another composite with Ed25519.
const OTHER: &str = "id-MLDSA44-Ed25519-SHA512";

/// A field of the entry `name` of the draft's vectors.
fn vector(name: &str, field: &str) -> Vec<u8> {
    octets(&vectors()[name][field])
}

/// The message that the vectors sign.
fn signed() -> Vec<u8> {
    octets(&vectors()["m"])
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("data/testvectors.json")).unwrap()
}

fn octets(hexadecimal: &Value) -> Vec<u8> {
    let digits = hexadecimal.as_str().unwrap().as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty());
    let octet = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(|pair| octet(pair)).collect()
}

fn register() -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(scheme()).unwrap();
    register
}

fn outside() -> SignatureScheme {
    SignatureScheme::Outside(scheme())
}

fn spki(key: &[u8]) -> Vec<u8> {
    SubjectPublicKeyInfo { algorithm: Composite.key_algorithm_identifier(), key }.encode()
}

/// A new key and its raw public key.
fn new_key() -> (Box<dyn SigningKey>, Vec<u8>) {
    let pkcs8 = generate(KeyType::Scheme(outside())).unwrap();
    let key = load_private_key_with(&register(), &pkcs8).unwrap();
    let public = SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key.to_vec();
    (key, public)
}

/// The halves of a signature.
fn split(signature: &[u8]) -> (&[u8], &[u8]) {
    signature.split_at(3309)
}

/// The halves of a public key.
fn split_key(key: &[u8]) -> (&[u8], &[u8]) {
    key.split_at(1952)
}

/// What the halves of a composite sign, written down a second time.
fn representative(label: &str, message: &[u8]) -> Vec<u8> {
    let hash = digest::digest(&digest::SHA512, message);
    let mut octets = format!("CompositeAlgorithmSignatures2025{label}\0").into_bytes();
    octets.extend_from_slice(hash.as_ref());
    octets
}

fn ed25519_takes(key: &[u8], message: &[u8], half: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, half).is_ok()
}

fn ml_dsa_takes(key: &[u8], message: &[u8], context: &str, half: &[u8]) -> bool {
    let key = VerifyingKey::<MlDsa65>::decode(key.try_into().unwrap());
    let half = Signature::<MlDsa65>::try_from(half).unwrap();
    key.verify_with_context(message, context.as_bytes(), &half)
}

#[track_caller]
fn valid(key: &[u8], message: &[u8], signature: &[u8]) {
    assert_eq!(scheme().verify_by(&spki(key), message, signature), Ok(()));
}

/// Each refusal says the same, through the register and without it.
#[track_caller]
fn invalid(key: &[u8], message: &[u8], signature: &[u8]) {
    let said = [
        scheme().verify_by(&spki(key), message, signature),
        Composite.verify(key, message, signature),
    ];
    assert_eq!(said, [Err(CryptoError::Integrity), Err(CryptoError::Integrity)]);
}

/// Faults: in `representative`, leave out PREFIX, LABEL or the length of the context, or take SHA-256; in `verify`,
/// give ML-DSA another context than LABEL.
#[test]
fn the_signature_of_the_draft_verifies_with_the_empty_context_alone() {
    let key = vector(OURS, "pk");
    valid(&key, &signed(), &vector(OURS, "s"));
    // The same key signed this one with a context.
    invalid(&key, &signed(), &vector(OURS, "sWithContext"));
    invalid(&key, b"another message", &vector(OURS, "s"));
}

/// Fault: another octet in `IDENTIFIER`.
#[test]
fn the_certificate_of_the_draft_is_signed_by_its_own_key() {
    let certificate = vector(OURS, "x5c");
    let mut outer = Der::new(&certificate);
    let mut parts = outer.nested(der::SEQUENCE).unwrap();
    let tbs = parts.element(der::SEQUENCE).unwrap();
    assert_eq!(parts.element(der::SEQUENCE).unwrap(), Composite.algorithm_identifier());
    let signature = parts.bits().unwrap();
    parts.end().unwrap();
    let mut fields = Der::new(tbs).nested(der::SEQUENCE).unwrap();
    fields.element(der::context(0)).unwrap();
    fields.unsigned().unwrap();
    // Signature, issuer, validity and subject.
    assert_eq!(fields.element(der::SEQUENCE).unwrap(), Composite.algorithm_identifier());
    for _ in 0..3 {
        fields.element(der::SEQUENCE).unwrap();
    }
    let spki = fields.element(der::SEQUENCE).unwrap();
    assert_eq!(scheme().key_in(spki), Some(&vector(OURS, "pk")[..]));
    assert_eq!(scheme().verify_by(spki, tbs, signature), Ok(()));
    let mut other = tbs.to_vec();
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(scheme().verify_by(spki, &other, signature), Err(CryptoError::Integrity));
}

/// Faults: in `private_key`, exchange the halves; take the public key of Ed25519 first.
#[test]
fn the_private_key_of_the_draft_has_its_public_key_and_signs() {
    let public = vector(OURS, "pk");
    let raw = Composite.private_key(&vector(OURS, "sk")).unwrap();
    let loaded = load_private_key_with(&register(), &vector(OURS, "sk_pkcs8")).unwrap();
    for key in [raw, loaded] {
        assert_eq!(key.public_key(), spki(&public));
        assert_eq!(key.schemes(), [outside()]);
        let signature = key.sign(&outside(), &signed()).unwrap();
        assert_eq!(signature.len(), Composite.lengths().signature);
        valid(&public, &signed(), &signature);
    }
    let unknown = load_private_key(&vector(OURS, "sk_pkcs8"));
    assert_eq!(unknown.unwrap_err(), KeyError::Unsupported);
}

/// Faults: in `generate`, draw one half alone; in `sign`, leave `rnd` at zero.
#[test]
fn new_keys_are_fresh_in_both_halves_and_sign_hedged() {
    let [(one, one_public), (_, other_public)] = [new_key(), new_key()];
    assert_ne!(split_key(&one_public).0, split_key(&other_public).0);
    assert_ne!(split_key(&one_public).1, split_key(&other_public).1);
    let zeros = Composite.private_key(&[0; 64]).unwrap();
    let zeros = SubjectPublicKeyInfo::parse(zeros.public_key()).unwrap().key;
    assert_ne!(split_key(&one_public).0, split_key(zeros).0);
    assert_ne!(split_key(&one_public).1, split_key(zeros).1);
    let [first, second] = [(); 2].map(|()| one.sign(&outside(), b"message").unwrap());
    for signature in [&first, &second] {
        valid(&one_public, b"message", signature);
        invalid(&other_public, b"message", signature);
    }
    assert_ne!(split(&first).0, split(&second).0);
    assert_eq!(split(&first).1, split(&second).1, "Ed25519 is deterministic");
    let another = one.sign(&SignatureScheme::MlDsa65, b"message");
    assert_eq!(another, Err(CryptoError::Unsupported));
}

/// Fault: derive `Debug` for `Key`.
#[test]
fn nothing_of_a_private_key_is_printed() {
    let key = Composite.private_key(&vector(OURS, "sk")).unwrap();
    assert_eq!(
        format!("{key:?}"),
        "SigningKey { schemes: [Outside(composite_mldsa65_ed25519)], .. }"
    );
}

/// Faults: in `verify`, `|` in the place of `&`; take the ML-DSA half alone, or the Ed25519 half alone, in the end.
#[test]
fn a_half_that_is_forged_is_refused() {
    let (key, signature) = (vector(OURS, "pk"), vector(OURS, "s"));
    // Of ML-DSA: the challenge, the response and the hint; of Ed25519: both numbers.
    for at in [0, 47, 48, 1000, 3247, 3248, 3308, 3309, 3340, 3341, 3372] {
        let mut forged = signature.clone();
        forged[at] ^= 1;
        invalid(&key, &signed(), &forged);
    }
    let (ml_dsa, ed25519) = split(&signature);
    invalid(&key, &signed(), &[ml_dsa, &[0; 64]].concat());
    invalid(&key, &signed(), &[&[0; 3309], ed25519].concat());
}

/// Faults: as in the test above.
#[test]
fn halves_of_two_messages_are_no_signature() {
    let (key, public) = new_key();
    let [one, other] =
        [&b"one"[..], b"other"].map(|message| key.sign(&outside(), message).unwrap());
    for (first, second) in [(&one, &other), (&other, &one)] {
        let swapped = [split(first).0, split(second).1].concat();
        for message in [&b"one"[..], b"other"] {
            invalid(&public, message, &swapped);
        }
    }
}

/// Faults: as in the test above.
#[test]
fn halves_of_two_keys_are_no_signature() {
    let [(one, one_public), (other, other_public)] = [new_key(), new_key()];
    let [one, other] = [one, other].map(|key| key.sign(&outside(), b"message").unwrap());
    for (first, second) in [(&one, &other), (&other, &one)] {
        let swapped = [split(first).0, split(second).1].concat();
        for public in [&one_public, &other_public] {
            invalid(public, b"message", &swapped);
        }
    }
    // The two halves are independent: to the key of these two halves it is a signature.
    let both = [split_key(&one_public).0, split_key(&other_public).1].concat();
    valid(&both, b"message", &[split(&one).0, split(&other).1].concat());
}

/// The key has the Ed25519 key of the other composite, so that its label alone makes the difference.
///
/// Faults: in `verify`, `|` in the place of `&`, or the ML-DSA half alone.
#[test]
fn a_half_of_another_composite_is_refused() {
    let (message, of_other) = (signed(), vector(OTHER, "s"));
    let (key, signature) = (vector(OURS, "pk"), vector(OURS, "s"));
    let (_, ed25519) = of_other.split_at(2420);
    let ed25519_key = vector(OTHER, "pk").split_off(1312);
    let label = "COMPSIG-MLDSA44-Ed25519-SHA512";
    assert!(ed25519_takes(&ed25519_key, &representative(label, &message), ed25519));
    let mixed = [split_key(&key).0, &ed25519_key].concat();
    invalid(&mixed, &message, &[split(&signature).0, ed25519].concat());
    invalid(&key, &message, &[split(&signature).0, ed25519].concat());
    invalid(&key, &message, &of_other);
    let malformed = scheme().verify_by(&spki(&vector(OTHER, "pk")), &message, &of_other);
    assert_eq!(malformed, Err(CryptoError::InvalidPublic));
}

/// Fault: in `sign` and `verify`, give ML-DSA the empty context, or the message in the place of the representative.
#[test]
fn neither_half_verifies_under_its_component_key_alone() {
    let (key, public) = new_key();
    for (public, message, signature) in [
        (vector(OURS, "pk"), signed(), vector(OURS, "s")),
        (public, b"message".to_vec(), key.sign(&outside(), b"message").unwrap()),
    ] {
        let (ml_dsa, ed25519) = split(&signature);
        let (ml_dsa_key, ed25519_key) = split_key(&public);
        let label = "COMPSIG-MLDSA65-Ed25519-SHA512";
        let representative = representative(label, &message);
        // The halves are where these checks look.
        assert!(ml_dsa_takes(ml_dsa_key, &representative, label, ml_dsa));
        assert!(ed25519_takes(ed25519_key, &representative, ed25519));
        for message in [&message, &representative] {
            assert!(!ml_dsa_takes(ml_dsa_key, message, "", ml_dsa));
        }
        assert!(!ml_dsa_takes(ml_dsa_key, &message, label, ml_dsa));
        assert!(!ed25519_takes(ed25519_key, &message, ed25519));
        // The same by the engine's own schemes.
        for (scheme, key, half) in [
            (SignatureScheme::MlDsa65, ml_dsa_key, ml_dsa),
            (SignatureScheme::Ed25519, ed25519_key, ed25519),
        ] {
            let algorithm = scheme.key_algorithm_identifier();
            let spki = SubjectPublicKeyInfo { algorithm, key }.encode();
            let said = AwsLc.verify(&scheme, &spki, &message, half);
            assert_eq!(said, Err(CryptoError::Integrity), "{scheme}");
        }
    }
}

/// Fault: in `halves`, take a second part of any length.
#[test]
fn a_signature_of_another_length_is_refused() {
    let (key, signature) = (vector(OURS, "pk"), vector(OURS, "s"));
    let (ml_dsa, ed25519) = split(&signature);
    let without_last = &signature[..signature.len() - 1];
    let with_another = [&signature[..], &[0]].concat();
    let doubled = [&signature[..], ed25519].concat();
    let exchanged = [ed25519, ml_dsa].concat();
    for wrong in [&[], ml_dsa, ed25519, without_last, &with_another, &doubled, &exchanged] {
        invalid(&key, &signed(), wrong);
    }
}

/// Faults: in `halves`, take a second part of any length; in `verify`, `Integrity` for a key.
#[test]
fn a_malformed_key_is_no_key() {
    let (key, signature) = (vector(OURS, "pk"), vector(OURS, "s"));
    let (ml_dsa, ed25519) = split_key(&key);
    let with_another = [&key[..], &[0]].concat();
    for wrong in [&[], ml_dsa, ed25519, &key[..key.len() - 1], &with_another] {
        let said = [
            scheme().verify_by(&spki(wrong), &signed(), &signature),
            Composite.verify(wrong, &signed(), &signature),
        ];
        assert_eq!(said, [Err(CryptoError::InvalidPublic), Err(CryptoError::InvalidPublic)]);
    }
    // 2 is the y of no point of the curve.
    let no_point = [ml_dsa, &[2], &[0; 31]].concat();
    invalid(&no_point, &signed(), &signature);
    for len in [0, 32, 63, 65, 96] {
        let octets = vec![7; len];
        assert_eq!(Composite.private_key(&octets).unwrap_err(), CryptoError::Length);
    }
}

/// Fault: a name of another form, or the name of the draft.
#[test]
fn a_register_takes_it_once() {
    let mut known = SchemeRegister::built_in();
    assert_eq!(known.add(scheme()), Ok(()));
    assert_eq!(
        known.add(scheme()).unwrap_err().to_string(),
        "signature scheme composite_mldsa65_ed25519: a scheme of this name is registered already; choose another name"
    );
    assert_eq!(known.outside().count(), 1);
    let identifier = Composite.algorithm_identifier();
    assert_eq!(known.from_algorithm_identifier(identifier), Some(outside()));
    assert_eq!(Composite.hash(), HashId::IDENTITY);
    assert_eq!(SchemeRegister::built_in().from_algorithm_identifier(identifier), None);
}
