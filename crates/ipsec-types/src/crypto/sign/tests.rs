use std::collections::HashSet;
use std::sync::Arc;

use super::SignatureScheme as S;
use super::*;
use crate::crypto::Secret;

/// RFC 7427 Appendix A, RFC 8420 Appendix A and draft-ietf-ipsecme-ikev2-pqc-auth Appendix B, as
/// printed there but for PSS: see [`pss_identifiers`].
#[test]
fn identifiers_are_those_of_the_rfcs() {
    for (scheme, hex) in [
        (S::RsaPkcs1Sha1, "300d06092a864886f70d0101050500"),
        (S::RsaPkcs1Sha256, "300d06092a864886f70d01010b0500"),
        (S::RsaPkcs1Sha384, "300d06092a864886f70d01010c0500"),
        (S::RsaPkcs1Sha512, "300d06092a864886f70d01010d0500"),
        (S::EcdsaP256Sha256, "300a06082a8648ce3d040302"),
        (S::EcdsaP384Sha384, "300a06082a8648ce3d040303"),
        (S::EcdsaP521Sha512, "300a06082a8648ce3d040304"),
        (S::Ed25519, "300506032b6570"),
        (S::MlDsa44, "300b0609608648016503040311"),
        (S::MlDsa65, "300b0609608648016503040312"),
        (S::MlDsa87, "300b0609608648016503040313"),
        (S::SlhDsaSha2_128s, "300b0609608648016503040314"),
        (S::SlhDsaSha2_256f, "300b0609608648016503040319"),
        (S::SlhDsaShake128s, "300b060960864801650304031a"),
        (S::SlhDsaShake256f, "300b060960864801650304031f"),
    ] {
        assert_eq!(scheme.algorithm_identifier(), octets(hex), "{scheme}");
    }
}

#[test]
fn identifiers_name_their_scheme_and_no_other() {
    for scheme in S::BUILT_IN {
        let identifier = scheme.algorithm_identifier();
        let named = S::from_built_in_identifier(identifier);
        assert_eq!(named, (*scheme != S::RsaPkcs1Sha1).then(|| scheme.clone()));
        // Cut short, with something behind it, and with any bit changed, it names another or none.
        for len in 0..identifier.len() {
            assert_eq!(S::from_built_in_identifier(&identifier[..len]), None, "{scheme} {len}");
        }
        assert_eq!(S::from_built_in_identifier(&[identifier, &[0]].concat()), None);
        for bit in 0..identifier.len() * 8 {
            let mut changed = identifier.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let other = S::from_built_in_identifier(&changed);
            assert!(other.is_none_or(|other| other != *scheme), "{scheme} {bit}");
        }
    }
}

/// RFC 4055 §5: "Implementations MUST accept the parameters being absent as well as present."
#[test]
fn pkcs1_identifiers_without_null() {
    for (scheme, arc) in [(S::RsaPkcs1Sha256, 11), (S::RsaPkcs1Sha384, 12), (S::RsaPkcs1Sha512, 13)]
    {
        let mut identifier = octets("300b06092a864886f70d010100");
        *identifier.last_mut().unwrap() = arc;
        assert_eq!(S::from_built_in_identifier(&identifier), Some(scheme));
    }
    assert_eq!(S::from_built_in_identifier(&octets("300b06092a864886f70d010105")), None);
    // ECDSA and EdDSA have no parameters, and a NULL is one.
    assert_eq!(S::from_built_in_identifier(&octets("300c06082a8648ce3d0403020500")), None);
    assert_eq!(S::from_built_in_identifier(&octets("300706032b65700500")), None);
}

#[test]
fn pss_identifiers() {
    // RFC 7427 §A.4.3 with an explicit trailer field, and without it.
    let explicit = "304606092a864886f70d01010a3039a00f300d06096086480165030402010500a11c301a06092a86\
                    4886f70d010108300d06096086480165030402010500a203020120a303020101";
    let implicit = "304106092a864886f70d01010a3034a00f300d06096086480165030402010500a11c301a06092a86\
                    4886f70d010108300d06096086480165030402010500a203020120";
    // The hashes without NULL.
    let bare = "303d06092a864886f70d01010a3030a00d300b0609608648016503040201a11a301806092a864886f70d\
                010108300b0609608648016503040201a203020120";
    assert_eq!(S::RsaPssSha256.algorithm_identifier(), octets(implicit));
    for hex in [explicit, implicit, bare] {
        assert_eq!(S::from_built_in_identifier(&octets(hex)), Some(S::RsaPssSha256), "{hex}");
    }
}

#[test]
fn hashes_and_legacy_methods() {
    for scheme in S::BUILT_IN {
        let method = scheme.legacy_auth_method();
        if let Some(method) = method {
            assert!(S::of_legacy_auth_method(method).contains(scheme), "{scheme}");
        } else {
            assert_eq!(scheme.signature_to_legacy(&[0; 64]), None, "{scheme}");
            assert_eq!(scheme.signature_from_legacy(&[0; 64]), None, "{scheme}");
        }
        let classical = scheme.is_rsa() || scheme.is_ecdsa();
        assert_eq!(scheme.hash() == HashId::IDENTITY, !classical, "{scheme}");
        let quantum_safe = !classical && *scheme != S::Ed25519;
        assert_eq!(scheme.is_post_quantum(), quantum_safe, "{scheme}");
    }
    for method in
        [AuthMethod::PSK, AuthMethod::NULL, AuthMethod::DIGITAL_SIGNATURE, AuthMethod(200)]
    {
        assert!(S::of_legacy_auth_method(method).is_empty());
    }
}

#[test]
fn ecdsa_signatures_in_both_forms() {
    // r = 1, s with its top bit set.
    let mut raw = vec![0; 64];
    raw[31] = 1;
    raw[32] = 0x80;
    let der = S::EcdsaP256Sha256.signature_from_legacy(&raw).unwrap();
    assert_eq!(der[..8], [0x30, 0x26, 0x02, 0x01, 0x01, 0x02, 0x21, 0x00]);
    assert_eq!(S::EcdsaP256Sha256.signature_to_legacy(&der).unwrap(), raw);
    // Zero, which is no valid signature, survives both ways for the verifier to refuse.
    let zeros = S::EcdsaP521Sha512.signature_from_legacy(&[0; 132]).unwrap();
    assert_eq!(zeros, [0x30, 6, 2, 1, 0, 2, 1, 0]);
    assert_eq!(S::EcdsaP521Sha512.signature_to_legacy(&zeros).unwrap(), [0; 132]);
    for len in [0, 63, 65, 96, 132] {
        assert_eq!(S::EcdsaP256Sha256.signature_from_legacy(&vec![1; len]), None, "{len}");
    }
    // r longer than the curve's order; one integer; three; negative; not minimal; something behind.
    let long = S::EcdsaP384Sha384.signature_from_legacy(&[0x11; 96]).unwrap();
    assert_eq!(S::EcdsaP256Sha256.signature_to_legacy(&long), None);
    for hex in [
        "",
        "3003020101",
        "3009020101020101020101",
        "3006020181020101",
        "300702020001020101",
        "300602010102010100",
        "30810602010102010100",
    ] {
        assert_eq!(S::EcdsaP256Sha256.signature_to_legacy(&octets(hex)), None, "{hex}");
    }
}

#[test]
fn public_keys_tell_their_schemes() {
    for scheme in S::BUILT_IN {
        let algorithm = scheme.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key: &[1, 2, 3] };
        let encoded = spki.encode();
        assert_eq!(SubjectPublicKeyInfo::parse(&encoded), Some(spki));
        assert!(S::of_built_in_key(&encoded).contains(scheme), "{scheme}");
        assert_eq!(S::of_built_in_key(&[&encoded[..], &[0]].concat()), []);
        assert_eq!(S::of_built_in_key(&encoded[..encoded.len() - 1]), []);
    }
    // RSA keys made for PSS: for any parameters, and for one set of them.
    let any = octets("300b06092a864886f70d01010a");
    let any = SubjectPublicKeyInfo { algorithm: &any, key: &[1] }.encode();
    assert_eq!(S::of_built_in_key(&any), [S::RsaPssSha256, S::RsaPssSha384, S::RsaPssSha512]);
    let algorithm = S::RsaPssSha384.algorithm_identifier();
    let one = SubjectPublicKeyInfo { algorithm, key: &[1] }.encode();
    assert_eq!(S::of_built_in_key(&one), [S::RsaPssSha384]);
    // The least length of salt: 48 octets of SHA-384 allow 48, and 49 do not. Fault: in `scheme_of_key`, ask for
    // the length of the hash.
    for (least, schemes) in [(20, &[S::RsaPssSha384][..]), (49, &[])] {
        let mut algorithm = algorithm.to_vec();
        *algorithm.last_mut().unwrap() = least;
        let key = SubjectPublicKeyInfo { algorithm: &algorithm, key: &[1] }.encode();
        assert_eq!(S::of_built_in_key(&key), schemes);
    }
    // The algorithm of a signature is not that of a key.
    let algorithm = S::EcdsaP256Sha256.algorithm_identifier();
    assert_eq!(S::of_built_in_key(&SubjectPublicKeyInfo { algorithm, key: &[1] }.encode()), []);
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A scheme with these identifiers, and nothing behind them.
#[derive(Debug)]
struct Named(&'static str, Vec<u8>, Vec<u8>);

impl Scheme for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn algorithm_identifier(&self) -> &[u8] {
        &self.1
    }

    fn key_algorithm_identifier(&self) -> &[u8] {
        &self.2
    }

    fn hash(&self) -> HashId {
        HashId::SHA2_256
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    fn lengths(&self) -> SchemeLengths {
        SchemeLengths { public_key: 65, signature: 72 }
    }

    fn verify(&self, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), CryptoError> {
        Err(CryptoError::Integrity)
    }

    fn private_key(&self, _: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        Err(CryptoError::Length)
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        Err(CryptoError::Backend)
    }
}

/// id-ecPublicKey with brainpoolP256r1, P384r1 and P256t1, and an identifier of nobody's.
const BRAINPOOL_256: &str = "301406072a8648ce3d020106092b2403030208010107";
const BRAINPOOL_384: &str = "301406072a8648ce3d020106092b240303020801010b";
const BRAINPOOL_256T: &str = "301406072a8648ce3d020106092b2403030208010108";
const OWN: &str = "300d060b2b0601040186fd1f010203";

/// Signatures and keys of built-in schemes cannot be taken over; a curve beside theirs can be added, once.
///
/// Faults, each by itself in `clash`: leave out one of its four lines; `true` for `apart`; in `are_of_two_curves`, take
/// other parameters than an OBJECT IDENTIFIER, or equal ones.
#[test]
fn a_curve_of_its_own_is_all_by_which_a_scheme_may_differ() {
    let p256 = S::EcdsaP256Sha256;
    let ecdsa = "300a06082a8648ce3d040302";
    assert_eq!(p256.algorithm_identifier(), octets(ecdsa));
    let add = |register: &mut SchemeRegister, name, signature: &str, key: &str| {
        let scheme: Arc<dyn Scheme> = Arc::new(Named(name, octets(signature), octets(key)));
        register.add(scheme)
    };
    let of_p256 = "301306072a8648ce3d020106082a8648ce3d030107";
    let rsa = "300d06092a864886f70d01010b0500";
    for (what, signature, key) in [
        ("its key", ecdsa, of_p256),
        ("its key, another signature", OWN, of_p256),
        ("no curve", ecdsa, "300906072a8648ce3d0201"),
        ("no curve, another signature", OWN, "300906072a8648ce3d0201"),
        ("NULL for a curve", OWN, "300b06072a8648ce3d02010500"),
        ("parameters of the signature", "300c06082a8648ce3d0403020500", BRAINPOOL_256),
        ("a signature of RSA", rsa, BRAINPOOL_256),
        ("a signature of Ed25519", "300506032b6570", BRAINPOOL_256),
        ("a signature of ECDSA, another key", ecdsa, OWN),
        ("a key of RSA with a curve", OWN, "301406092a864886f70d01010106072a8648ce3d0201"),
        ("a key of RSA as signature", "300d06092a864886f70d0101010500", OWN),
        ("a signature of ECDSA as key", OWN, ecdsa),
        ("the key's algorithm as signature", BRAINPOOL_256, BRAINPOOL_256T),
    ] {
        let mut register = SchemeRegister::built_in();
        let said = add(&mut register, "squatter", signature, key);
        assert_eq!(said, Err(RegisterError::SameIdentifier("squatter".to_owned())), "{what}");
        assert_eq!(register, SchemeRegister::built_in(), "{what}");
    }
    let mut register = SchemeRegister::built_in();
    assert_eq!(add(&mut register, "one", ecdsa, BRAINPOOL_256), Ok(()));
    assert_eq!(add(&mut register, "two", "300a06082a8648ce3d040303", BRAINPOOL_384), Ok(()));
    assert_eq!(add(&mut register, "three", ecdsa, BRAINPOOL_256T), Ok(()));
    for key in [BRAINPOOL_256, BRAINPOOL_384] {
        for signature in [ecdsa, OWN] {
            assert!(add(&mut register, "again", signature, key).is_err(), "{key} {signature}");
        }
    }
    // Each is found by its keys, and tickets tell them apart.
    let spki = |key: &str| SubjectPublicKeyInfo { algorithm: &octets(key), key: &[4] }.encode();
    let found = |key: &str| register.of_signature(&octets(ecdsa), &spki(key)).unwrap().to_string();
    assert_eq!(found(BRAINPOOL_256), "one");
    assert_eq!(found(BRAINPOOL_256T), "three");
    assert_eq!(found(of_p256), "ECDSA-256");
    // RFC 7427 §6: a curve does not bind the hash. No key of "two" has signed with this one.
    assert_eq!(found(BRAINPOOL_384), "ECDSA-256");
    assert_eq!(register.from_algorithm_identifier(&octets(ecdsa)), Some(p256));
    let distinct: HashSet<_> = register.iter().map(S::distinct_identifier).collect();
    assert_eq!(distinct.len(), S::BUILT_IN.len() + 3);
}
