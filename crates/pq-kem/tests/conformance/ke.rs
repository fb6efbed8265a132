//! Key exchange methods: agreement in both roles, refusal of bad input.

use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeMethod, SecureRandom};
use pq_kem::ke::{FrodoKem, FrodoSet};

use crate::backends::{key_exchanges, ml_kem_backends};

#[test]
fn every_method_of_the_crate_is_offered_once() {
    let ids: Vec<_> = pq_kem::provider().ke.iter().map(|m| m.id().0).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    let mut expected = vec![14, 15, 16, 19, 20, 21, 31, 35, 36, 37];
    expected.extend((1083..=1088).chain(1183..=1188));
    assert_eq!(sorted, expected, "{ids:?}");
}

#[test]
fn both_roles_agree_and_never_repeat() {
    let mut rng = pq_kem::os_random();
    for method in key_exchanges() {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let ours = method.initiate(&mut rng).unwrap();
            assert_eq!(ours.public().len(), method.lengths().initiator, "{method:?}");
            let (public, theirs) = method.respond(ours.public(), &mut rng).unwrap();
            assert_eq!(public.len(), method.lengths().responder, "{method:?}");
            let shared = ours.complete(&public).unwrap();
            assert!(shared.ct_eq(theirs.expose()), "{method:?}");
            assert_eq!(shared.len(), secret_len(method.id()), "{method:?}");
            assert!(shared.expose().iter().any(|&o| o != 0), "{method:?}");
            for value in [ours.public(), &public, shared.expose()] {
                assert!(!seen.iter().any(|s| s == value), "{method:?} repeats itself");
                seen.push(value.to_vec());
            }
        }
    }
}

/// A forged response does not use the key up: the genuine one still completes, and again.
#[test]
fn a_pending_exchange_survives_bad_responses() {
    let mut rng = pq_kem::os_random();
    for method in key_exchanges() {
        let ours = method.initiate(&mut rng).unwrap();
        let (public, theirs) = method.respond(ours.public(), &mut rng).unwrap();
        let (other, others) = method.respond(ours.public(), &mut rng).unwrap();
        assert_eq!(ours.complete(&[]).unwrap_err(), CryptoError::InvalidPublic);
        assert!(ours.complete(&other).unwrap().ct_eq(others.expose()), "{method:?}");
        let zeros = vec![0; public.len()];
        if let Ok(shared) = ours.complete(&zeros) {
            assert!(is_kem(&*method), "{method:?} takes zeros");
            assert!(!shared.ct_eq(theirs.expose()));
        }
        for _ in 0..2 {
            assert!(ours.complete(&public).unwrap().ct_eq(theirs.expose()), "{method:?}");
        }
    }
}

#[test]
fn wrong_lengths_are_invalid() {
    let mut rng = pq_kem::os_random();
    for method in key_exchanges() {
        let ours = method.initiate(&mut rng).unwrap();
        let (public, _) = method.respond(ours.public(), &mut rng).unwrap();
        for (value, len) in [(ours.public(), ours.public().len()), (&public, public.len())] {
            let mut longer = value.to_vec();
            longer.push(0);
            let mut padded = vec![0];
            padded.extend_from_slice(value);
            // 0x04 in front is how other protocols write an ECP point.
            let mut sec1 = vec![4];
            sec1.extend_from_slice(value);
            let mut twice = value.to_vec();
            twice.extend_from_slice(value);
            let shorter = &value[..len - 1];
            let tail = &value[1..];
            for bad in [&[][..], &value[..1], shorter, tail, &longer, &padded, &sec1, &twice] {
                let bad_len = bad.len();
                assert_eq!(
                    method.respond(bad, &mut rng).unwrap_err(),
                    CryptoError::InvalidPublic,
                    "{method:?} responds to {bad_len} octets"
                );
                assert_eq!(
                    ours.complete(bad).unwrap_err(),
                    CryptoError::InvalidPublic,
                    "{method:?} completes with {bad_len} octets"
                );
            }
        }
    }
}

/// Each degenerate value is refused in both roles, or known to be a legal value of the method.
#[test]
fn degenerate_values() {
    let mut rng = pq_kem::os_random();
    for method in key_exchanges() {
        let lengths = method.lengths();
        let ours = method.initiate(&mut rng).unwrap();
        for (fill, dh_legal, kem_legal) in [
            (0x00, false, true),
            // X25519 ignores the top bit, and 2^255 - 1 is then 18: an ordinary point. FrodoKEM's
            // coefficients fill their bits; ML-KEM's do not.
            (0xff, method.id() == KeMethodId::CURVE_25519, is_frodo(method.id())),
        ] {
            let responded = method.respond(&vec![fill; lengths.initiator], &mut rng);
            let legal = if is_kem(&*method) { kem_legal } else { dh_legal };
            assert_eq!(responded.is_ok(), legal, "{method:?} {fill:02x}");
            if !legal {
                assert_eq!(responded.unwrap_err(), CryptoError::InvalidPublic);
            }
            // A KEM rejects a ciphertext implicitly: by a secret that nobody shares.
            let completed = ours.complete(&vec![fill; lengths.responder]);
            assert_eq!(completed.is_ok(), is_kem(&*method) || dh_legal, "{method:?} {fill:02x}");
        }
    }
}

/// Points beside the curve, and coordinates beyond the field.
#[test]
fn ecp_points_are_validated() {
    let mut rng = pq_kem::os_random();
    for id in [KeMethodId::ECP_256, KeMethodId::ECP_384, KeMethodId::ECP_521] {
        let method = pq_kem::provider().ke(id).cloned().unwrap();
        let ours = method.initiate(&mut rng).unwrap();
        let (good, _) = method.respond(ours.public(), &mut rng).unwrap();
        let half = good.len() / 2;
        let mut bad = Vec::new();
        // No two points share all but one bit of x and y, so every flip leaves the curve.
        for bit in (0..good.len() * 8).step_by(29) {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            bad.push(flipped);
        }
        let mut swapped = good[half..].to_vec();
        swapped.extend_from_slice(&good[..half]);
        bad.push(swapped);
        // x with y = 0; 0 with y; x beyond the field.
        bad.push([&good[..half], &vec![0; half][..]].concat());
        bad.push([&vec![0; half][..], &good[half..]].concat());
        bad.push([&vec![0xff; half][..], &good[half..]].concat());
        for value in bad {
            let error = ours.complete(&value).unwrap_err();
            assert_eq!(error, CryptoError::InvalidPublic, "{id}");
            assert_eq!(method.respond(&value, &mut rng).unwrap_err(), error, "{id}");
        }
    }
}

/// An ML-KEM key with a coefficient of q or more fails the modulus check of FIPS 203 §7.2.
#[test]
fn ml_kem_modulus_check() {
    let mut rng = pq_kem::os_random();
    for method in ml_kem_backends().into_iter().flatten() {
        let ours = method.initiate(&mut rng).unwrap();
        let coefficients = (method.lengths().initiator - 32) / 3 * 2;
        for index in [0, 1, coefficients / 2, coefficients - 1] {
            let mut key = ours.public().to_vec();
            for value in [3329, 4095] {
                set_coefficient(&mut key, index, value);
                let error = method.respond(&key, &mut rng).unwrap_err();
                assert_eq!(error, CryptoError::InvalidPublic, "{method:?} {index}");
            }
            set_coefficient(&mut key, index, 3328);
            assert!(method.respond(&key, &mut rng).is_ok(), "{method:?} {index}");
        }
    }
}

/// Two 12-bit coefficients, low bits first, in three octets (FIPS 203 §4.2.1).
fn set_coefficient(key: &mut [u8], index: usize, value: u16) {
    let at = index / 2 * 3;
    if index.is_multiple_of(2) {
        key[at] = value as u8;
        key[at + 1] = (key[at + 1] & 0xf0) | (value >> 8) as u8;
    } else {
        key[at + 1] = (key[at + 1] & 0x0f) | ((value as u8) << 4);
        key[at + 2] = (value >> 4) as u8;
    }
}

/// Every part of a ciphertext matters, and none gives an error that an attacker could see.
#[test]
fn kems_reject_implicitly() {
    let mut rng = pq_kem::os_random();
    for method in key_exchanges().into_iter().filter(|method| is_kem(&**method)) {
        let ours = method.initiate(&mut rng).unwrap();
        let (ciphertext, shared) = method.respond(ours.public(), &mut rng).unwrap();
        let last = ciphertext.len() - 1;
        // Of a salted FrodoKEM ciphertext, the last octets are the salt.
        for at in (0..last).step_by(last / 12).chain([last]) {
            let mut flipped = ciphertext.clone();
            flipped[at] ^= 0x10;
            let first = ours.complete(&flipped).unwrap();
            assert!(!first.ct_eq(shared.expose()), "{method:?} {at}");
            assert!(first.ct_eq(ours.complete(&flipped).unwrap().expose()), "{method:?} {at}");
        }
    }
}

/// Each backend of ML-KEM as initiator with each as responder.
#[test]
fn ml_kem_backends_interoperate() {
    let mut rng = pq_kem::os_random();
    let backends = ml_kem_backends();
    assert!(backends.len() >= 2, "there is nothing to compare");
    for (ours, theirs) in backends.iter().flat_map(|a| backends.iter().map(move |b| (a, b))) {
        for initiator in ours {
            let responder = theirs.iter().find(|m| m.id() == initiator.id()).unwrap();
            assert_eq!(initiator.lengths(), responder.lengths());
            let pending = initiator.initiate(&mut rng).unwrap();
            let (public, shared) = responder.respond(pending.public(), &mut rng).unwrap();
            let completed = pending.complete(&public).unwrap();
            assert!(completed.ct_eq(shared.expose()), "{initiator:?} with {responder:?}");
        }
    }
}

/// Sizes as on the slides of IETF 121 for the salted scheme, and as in strongSwan's old plugin for the
/// other.
#[test]
fn frodokem_sizes() {
    for (id, key, ciphertext) in [
        (KeMethodId::FRODOKEM_640_AES, 9616, 9752),
        (KeMethodId::FRODOKEM_976_SHAKE, 15632, 15792),
        (KeMethodId::FRODOKEM_1344_AES, 21520, 21696),
        (KeMethodId::EFRODOKEM_640_SHAKE, 9616, 9720),
        (KeMethodId::EFRODOKEM_976_AES, 15632, 15744),
        (KeMethodId::EFRODOKEM_1344_SHAKE, 21520, 21632),
    ] {
        let lengths = pq_kem::provider().ke(id).unwrap().lengths();
        assert_eq!((lengths.initiator, lengths.responder), (key, ciphertext), "{id}");
    }
}

/// A method that has no number yet can be given one.
#[test]
fn frodokem_under_another_number() {
    let method = FrodoKem::new(FrodoSet::Aes640, KeMethodId(38));
    assert_eq!((method.id(), format!("{method:?}")), (KeMethodId(38), "38".to_owned()));
}

/// X25519, MODP and FrodoKEM draw their keys from the source they are given, as their documentation
/// says.
#[test]
fn the_injected_source_is_used() {
    for id in [
        KeMethodId::CURVE_25519,
        KeMethodId::MODP_2048,
        KeMethodId::MODP_4096,
        KeMethodId::FRODOKEM_640_AES,
    ] {
        let method = pq_kem::provider().ke(id).cloned().unwrap();
        let public = |seed| method.initiate(&mut Counting(seed)).unwrap().public().to_vec();
        assert_eq!(public(1), public(1), "{id}");
        assert_ne!(public(1), public(2), "{id}");
    }
}

struct Counting(u8);

impl SecureRandom for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_mul(5).wrapping_add(1);
            *octet = self.0;
        }
    }
}

fn is_kem(method: &dyn KeMethod) -> bool {
    is_frodo(method.id())
        || (KeMethodId::ML_KEM_512..=KeMethodId::ML_KEM_1024).contains(&method.id())
}

fn is_frodo(id: KeMethodId) -> bool {
    (1083..=1088).contains(&id.0) || (1183..=1188).contains(&id.0)
}

/// Octets of the shared secret, by RFC.
fn secret_len(id: KeMethodId) -> usize {
    match id {
        KeMethodId::CURVE_25519 | KeMethodId::ECP_256 => 32,
        KeMethodId::ECP_384 => 48,
        KeMethodId::ECP_521 => 66,
        KeMethodId::MODP_2048 => 256,
        KeMethodId::MODP_3072 => 384,
        KeMethodId::MODP_4096 => 512,
        id if is_frodo(id) => [16, 24, 32][usize::from(id.0 % 100 - 83) % 3],
        _ => 32,
    }
}
