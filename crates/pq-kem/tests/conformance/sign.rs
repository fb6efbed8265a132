//! Signatures: what is signed verifies, and nothing else does.

use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier};
use pq_kem::sign::{AwsLc, RsaSha1};

use crate::backends::{affordable, default_key, signatures};

const MESSAGE: &[u8] = b"octets that both peers have seen";

#[test]
fn the_provider_has_every_standard_scheme_once() {
    let mut schemes = Vec::new();
    for verifier in pq_kem::provider().verifiers {
        schemes.extend_from_slice(verifier.schemes());
    }
    schemes.sort_unstable_by_key(|scheme| scheme.to_string());
    let mut expected: Vec<_> = SignatureScheme::BUILT_IN
        .iter()
        .filter(|&s| !matches!(s, SignatureScheme::RsaPkcs1Sha1 | SignatureScheme::Falcon512))
        .cloned()
        .collect();
    expected.sort_unstable_by_key(|scheme| scheme.to_string());
    assert_eq!(schemes, expected);
}

#[test]
fn what_is_signed_verifies() {
    for backend in signatures() {
        for scheme in affordable(&backend) {
            let key = (backend.key)(scheme.clone());
            assert!(key.schemes().contains(&scheme), "{scheme}");
            for message in [&[][..], MESSAGE, &[0x5a; 65_520]] {
                let signature = key.sign(&scheme, message).unwrap();
                let verify = |verifier: &dyn SignatureVerifier| {
                    verifier.verify(&scheme, key.public_key(), message, &signature)
                };
                assert_eq!(verify(backend.verifier), Ok(()), "{scheme}");
                let mut provider = pq_kem::provider();
                provider.verifiers.push(&pq_kem::sign::falcon::Falcon);
                let chosen = provider.verify(&scheme, key.public_key(), message, &signature);
                assert_eq!(chosen, Ok(()), "{scheme} through the provider");
            }
        }
    }
}

/// One backend signs, every backend that knows the scheme verifies.
#[test]
fn backends_interoperate() {
    let mut pairs = 0;
    for signer in signatures() {
        for scheme in affordable(&signer) {
            let key = (signer.key)(scheme.clone());
            let signature = key.sign(&scheme, MESSAGE).unwrap();
            for other in signatures() {
                if other.verifier.schemes().contains(&scheme) {
                    let verified =
                        other.verifier.verify(&scheme, key.public_key(), MESSAGE, &signature);
                    assert_eq!(verified, Ok(()), "{scheme} {:?}", other.verifier);
                    pairs += 1;
                }
            }
        }
    }
    let ml_dsa = if cfg!(feature = "backend-pqcrypto") { 27 } else { 12 };
    assert!(pairs >= ml_dsa + 10, "{pairs} pairs");
}

#[test]
fn every_change_is_noticed() {
    for backend in signatures() {
        for scheme in affordable(&backend) {
            let key = (backend.key)(scheme.clone());
            let signature = key.sign(&scheme, MESSAGE).unwrap();
            let verify = |message: &[u8], signature: &[u8]| {
                backend.verifier.verify(&scheme, key.public_key(), message, signature)
            };
            let bits = signature.len() * 8;
            for bit in (0..bits).step_by(bits / 24) {
                let mut changed = signature.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    verify(MESSAGE, &changed),
                    Err(CryptoError::Integrity),
                    "{scheme} {bit}"
                );
            }
            let mut message = MESSAGE.to_vec();
            message[0] ^= 1;
            assert_eq!(verify(&message, &signature), Err(CryptoError::Integrity), "{scheme}");
            assert_eq!(verify(&MESSAGE[1..], &signature), Err(CryptoError::Integrity), "{scheme}");
            let longer = [&signature[..], &[0]].concat();
            let padded = [&[0], &signature[..]].concat();
            let zeros = vec![0; signature.len()];
            let shorter = &signature[..signature.len() - 1];
            for bad in [&longer[..], &padded, &zeros, shorter, &signature[1..], &[]] {
                assert_eq!(verify(MESSAGE, bad), Err(CryptoError::Integrity), "{scheme}");
            }
        }
    }
}

/// A signature is bound to its scheme, and a public key to the schemes of its type; of those of ECDSA
/// to the hash.
#[test]
fn schemes_do_not_mix() {
    for backend in signatures() {
        for scheme in affordable(&backend) {
            let key = (backend.key)(scheme.clone());
            let signature = key.sign(&scheme, MESSAGE).unwrap();
            for other in SignatureScheme::BUILT_IN.iter().filter(|other| **other != scheme) {
                let verified =
                    backend.verifier.verify(other, key.public_key(), MESSAGE, &signature);
                let expected = if !backend.verifier.schemes().contains(other) {
                    CryptoError::Unsupported
                } else if key.schemes().contains(other) || scheme.is_ecdsa() && other.is_ecdsa() {
                    CryptoError::Integrity
                } else {
                    CryptoError::InvalidPublic
                };
                assert_eq!(verified, Err(expected), "{scheme} taken for {other}");
                if !key.schemes().contains(other) {
                    let signed = key.sign(other, MESSAGE);
                    assert_eq!(signed.unwrap_err(), CryptoError::Unsupported, "{scheme} {other}");
                }
            }
        }
    }
}

#[test]
fn malformed_public_keys_are_refused() {
    for backend in signatures() {
        for scheme in affordable(&backend) {
            let key = (backend.key)(scheme.clone());
            let signature = key.sign(&scheme, MESSAGE).unwrap();
            let spki = key.public_key();
            let verify = |spki: &[u8]| {
                backend.verifier.verify(&scheme, spki, MESSAGE, &signature).unwrap_err()
            };
            let SubjectPublicKeyInfo { algorithm, key: octets } =
                SubjectPublicKeyInfo::parse(spki).unwrap();
            let with_key = |key: &[u8]| SubjectPublicKeyInfo { algorithm, key }.encode();
            let longer = [octets, &[0]].concat();
            for bad in [
                &[][..],
                &spki[..spki.len() - 1],
                &[spki, &[0]].concat(),
                &with_key(&[]),
                &with_key(&octets[..octets.len() - 1]),
                &with_key(&longer),
                // A key inside the key, which a library may take as well.
                &with_key(spki),
                octets,
            ] {
                assert_eq!(verify(bad), CryptoError::InvalidPublic, "{scheme}");
            }
        }
    }
}

/// Points beside the curve are refused, and so are compressed ones.
#[test]
fn ecdsa_points_are_validated() {
    for (scheme, len) in [
        (SignatureScheme::EcdsaP256Sha256, 32),
        (SignatureScheme::EcdsaP384Sha384, 48),
        (SignatureScheme::EcdsaP521Sha512, 66),
    ] {
        let key = default_key(scheme.clone());
        let signature = key.sign(&scheme, MESSAGE).unwrap();
        let SubjectPublicKeyInfo { algorithm, key: point } =
            SubjectPublicKeyInfo::parse(key.public_key()).unwrap();
        let mut off_curve = point.to_vec();
        *off_curve.last_mut().unwrap() ^= 1;
        let infinity = [vec![4], vec![0; 2 * len]].concat();
        let compressed = [&[2 + (point[2 * len] & 1)], &point[1..=len]].concat();
        for bad in [off_curve, infinity, compressed, vec![0]] {
            let spki = SubjectPublicKeyInfo { algorithm, key: &bad }.encode();
            assert!(AwsLc.verify(&scheme, &spki, MESSAGE, &signature).is_err(), "{scheme}");
        }
    }
}

/// Not only the bits of r and s: their encoding, too, is the one that DER has (bug class 35).
#[test]
fn ecdsa_signatures_are_der() {
    let scheme = SignatureScheme::EcdsaP256Sha256;
    let key = default_key(scheme.clone());
    let verify = |signature: &[u8]| AwsLc.verify(&scheme, key.public_key(), MESSAGE, signature);
    let raw = loop {
        // Both halves with a top bit of zero, so that the encodings below are of known length.
        let signature = key.sign(&scheme, MESSAGE).unwrap();
        let raw = scheme.signature_to_legacy(&signature).unwrap();
        if raw[0] < 0x80 && raw[32] < 0x80 && raw[0] != 0 && raw[32] != 0 {
            break raw;
        }
    };
    let (r, s) = raw.split_at(32);
    let good = [&[0x30, 68, 2, 32][..], r, &[2, 32], s].concat();
    assert_eq!(verify(&good), Ok(()));
    let malformed: [(&str, Vec<u8>); 8] = [
        ("raw", raw.clone()),
        ("long length", [&[0x30, 0x81, 68, 2, 32][..], r, &[2, 32], s].concat()),
        ("indefinite length", [&[0x30, 0x80, 2, 32][..], r, &[2, 32], s, &[0, 0]].concat()),
        ("leading zero", [&[0x30, 69, 2, 33, 0][..], r, &[2, 32], s].concat()),
        ("something behind", [&good[..], &[0]].concat()),
        ("something inside", [&[0x30, 70, 2, 32][..], r, &[2, 32], s, &[5, 0]].concat()),
        ("a set", [&[0x31, 68, 2, 32][..], r, &[2, 32], s].concat()),
        ("r is zero", [&[0x30, 37, 2, 1, 0, 2, 32][..], s].concat()),
    ];
    for (what, signature) in malformed {
        assert_eq!(verify(&signature), Err(CryptoError::Integrity), "{what}");
    }
}

/// Signatures of authentication methods 9 to 11 (RFC 4754), from ours and back.
#[test]
fn ecdsa_in_legacy_form() {
    for scheme in [
        SignatureScheme::EcdsaP256Sha256,
        SignatureScheme::EcdsaP384Sha384,
        SignatureScheme::EcdsaP521Sha512,
    ] {
        let key = default_key(scheme.clone());
        // Often enough to meet integers with leading zeros.
        for round in 0..40_u8 {
            let message = [MESSAGE, &[round]].concat();
            let signature = key.sign(&scheme, &message).unwrap();
            let legacy = scheme.signature_to_legacy(&signature).unwrap();
            let back = scheme.signature_from_legacy(&legacy).unwrap();
            assert_eq!(back, signature, "{scheme}");
            assert_eq!(AwsLc.verify(&scheme, key.public_key(), &message, &back), Ok(()));
        }
    }
}

/// SHA-1 is there for who asks for it, and only to verify.
#[test]
fn sha1_is_apart() {
    let scheme = SignatureScheme::RsaPkcs1Sha1;
    let key = default_key(SignatureScheme::RsaPkcs1Sha256);
    let signature = key.sign(&SignatureScheme::RsaPkcs1Sha256, MESSAGE).unwrap();
    let verify = |verifier: &dyn SignatureVerifier, scheme| {
        verifier.verify(scheme, key.public_key(), MESSAGE, &signature).unwrap_err()
    };
    assert_eq!(key.sign(&scheme, MESSAGE).unwrap_err(), CryptoError::Unsupported);
    assert_eq!(verify(&AwsLc, &scheme), CryptoError::Unsupported);
    assert_eq!(verify(&RsaSha1, &scheme), CryptoError::Integrity);
    assert_eq!(verify(&RsaSha1, &SignatureScheme::RsaPkcs1Sha256), CryptoError::Unsupported);
    let provider = pq_kem::provider();
    let verified = provider.verify(&scheme, key.public_key(), MESSAGE, &signature);
    assert_eq!(verified, Err(CryptoError::Unsupported));
}

/// Signing is randomized where the scheme allows it, and deterministic where it must be.
#[test]
fn hedged_signatures_differ() {
    for backend in signatures() {
        if backend.verifier.schemes().contains(&SignatureScheme::MlDsa44)
            && !backend.verifier.schemes().contains(&SignatureScheme::Ed25519)
        {
            // The other backends of ML-DSA are here to be compared, and one is deterministic.
            continue;
        }
        for scheme in affordable(&backend) {
            let key = default_key(scheme.clone());
            let twice = [(); 2].map(|()| key.sign(&scheme, MESSAGE).unwrap());
            let fixed = matches!(
                scheme,
                SignatureScheme::Ed25519
                    | SignatureScheme::RsaPkcs1Sha256
                    | SignatureScheme::RsaPkcs1Sha384
                    | SignatureScheme::RsaPkcs1Sha512
            );
            assert_eq!(twice[0] == twice[1], fixed, "{scheme}");
        }
    }
}
