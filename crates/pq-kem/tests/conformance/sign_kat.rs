//! Classical signatures against RFC 4754 and Wycheproof.

use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier};
use pq_kem::sign::AwsLc;

use crate::data;

/// RFC 4754 §8: authentication data of methods 9, 10 and 11.
#[test]
fn rfc4754() {
    let cases = data::sections(include_str!("../data/rfc/rfc4754.txt"));
    assert_eq!(cases.len(), 3);
    for (case, scheme) in cases.iter().zip([
        SignatureScheme::EcdsaP256Sha256,
        SignatureScheme::EcdsaP384Sha384,
        SignatureScheme::EcdsaP521Sha512,
    ]) {
        assert_eq!(case.name, scheme.to_string());
        let point = [vec![4], case.octets("gwx"), case.octets("gwy")].concat();
        let algorithm = scheme.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key: &point }.encode();
        let mut data = [case.octets("r"), case.octets("s")].concat();
        let verify = |data: &[u8]| {
            let signature = scheme.signature_from_legacy(data).unwrap();
            AwsLc.verify(&scheme, &spki, b"abc", &signature)
        };
        assert_eq!(verify(&data), Ok(()), "{scheme}");
        *data.last_mut().unwrap() ^= 1;
        assert_eq!(verify(&data), Err(CryptoError::Integrity), "{scheme}");
        assert_eq!(verify(&vec![0; data.len()]), Err(CryptoError::Integrity), "{scheme}");
    }
}

/// RFC 7427 §6: a curve goes with any hash; the scheme asked for says which.
#[test]
fn ecdsa_with_another_hash() {
    let cases = data::sections(include_str!("../data/openssl/ecdsa_hashes.txt"));
    assert_eq!(cases.len(), 6);
    for case in cases {
        for scheme in [
            SignatureScheme::EcdsaP256Sha256,
            SignatureScheme::EcdsaP384Sha384,
            SignatureScheme::EcdsaP521Sha512,
        ] {
            let verified = AwsLc.verify(&scheme, &case.octets("spki"), b"abc", &case.octets("sig"));
            let right = case.name == scheme.to_string();
            assert_eq!(verified.is_ok(), right, "{} as {scheme}", case.name);
        }
    }
}

#[test]
fn wycheproof_ed25519() {
    let (mut valid, mut invalid) = (0, 0);
    for case in data::json(include_str!("../data/wycheproof/ed25519.json")) {
        let verified = AwsLc.verify(
            &SignatureScheme::Ed25519,
            &case.octets("spki"),
            &case.octets("msg"),
            &case.octets("sig"),
        );
        let expected = match case.text("result") {
            "valid" => Ok(()),
            _ => Err(CryptoError::Integrity),
        };
        assert_eq!(verified, expected, "{} {}", case.name, case.text("flags"));
        match verified {
            Ok(()) => valid += 1,
            Err(_) => invalid += 1,
        }
    }
    assert_eq!((valid, invalid), (88, 63));
}
