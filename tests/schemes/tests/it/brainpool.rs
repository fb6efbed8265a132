//! ECDSA on brainpoolP256r1.

use ike_test_schemes::brainpool;
use ike_wire::registry::HashId;
use pq_kem::sign::{KeyError, KeyType, generate, load_private_key, load_private_key_with};

use super::*;

const PKCS8: &[u8] = include_bytes!("../data/brainpool-pkcs8.pem");
const SEC1: &[u8] = include_bytes!("../data/brainpool-sec1.pem");
const PUBLIC: &[u8] = include_bytes!("../data/brainpool.pub");

#[test]
fn forged_signatures_of_wycheproof_are_refused() {
    wycheproof(&brainpool(), include_str!("../data/wycheproof-brainpool.json"));
}

#[test]
fn a_new_key_signs_and_verifies() {
    signs_and_verifies(&brainpool());
    assert_eq!(brainpool().hash(), HashId::SHA2_256);
}

/// Both forms that OpenSSL writes: PKCS#8, and `EC PRIVATE KEY`, which names its curve inside.
///
/// Faults: in `load_sec1`, look among the built-in curves alone; in `names_curve`, true.
#[test]
fn private_keys_of_openssl_are_read() {
    for file in [PKCS8, SEC1] {
        let key = load_private_key_with(&register(), file).unwrap();
        assert_eq!(key.schemes(), [SignatureScheme::Outside(brainpool())]);
        assert_eq!(key.public_key(), PUBLIC);
        // Without the scheme it is no key.
        assert!(load_private_key(file).is_err());
    }
    // Keys on built-in curves are what they were, in both forms.
    for curve in [SignatureScheme::EcdsaP256Sha256, SignatureScheme::EcdsaP384Sha384] {
        let pkcs8 = generate(KeyType::Scheme(curve.clone())).unwrap();
        let key = load_private_key_with(&register(), &pkcs8).unwrap();
        assert_eq!(key.schemes(), [curve]);
    }
}

/// Faults, in `ec_private_key`: leave out the check of the version, of the curve, of the length or of the end; in
/// `private_key`, that of the public key.
#[test]
fn private_keys_whose_parts_do_not_fit_are_refused() {
    let pkcs8 = generate(KeyType::Scheme(SignatureScheme::Outside(brainpool()))).unwrap();
    let loads = |octets: &[u8]| load_private_key_with(&register(), octets).map(|_| ());
    assert_eq!(loads(&pkcs8), Ok(()));
    // `ECPrivateKey` begins behind the header, version, algorithm and header of PKCS#8.
    let inner = pkcs8.windows(5).position(|five| five == [0x02, 1, 1, 0x04, 32]).unwrap();
    let changed = |at: usize, octet: u8| {
        let mut octets = pkcs8.to_vec();
        octets[inner + at] = octet;
        octets
    };
    assert_eq!(loads(&changed(2, 2)), Err(KeyError::Malformed), "version");
    let last = pkcs8.len() - inner - 1;
    let other = pkcs8[pkcs8.len() - 1] ^ 1;
    assert_eq!(loads(&changed(last, other)), Err(KeyError::Malformed), "public key");
    let ec = |fields: &[u8]| {
        let head = [0x30, fields.len() as u8];
        brainpool().private_key(&[&head[..], fields].concat()).map(|_| ())
    };
    let scalar = [&[0x02, 1, 1, 0x04, 32][..], &[7; 32]].concat();
    let curve = [0xa0, 11, 0x06, 9, 0x2b, 36, 3, 3, 2, 8, 1, 1, 7];
    assert_eq!(ec(&scalar), Ok(()));
    assert_eq!(ec(&[&scalar[..], &curve].concat()), Ok(()));
    let whole = [&[0x30, scalar.len() as u8], &scalar[..]].concat();
    let key = brainpool().private_key(&whole).unwrap();
    let point = SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key;
    let public = [&[0xa1, 68, 0x03, 66, 0][..], point].concat();
    assert_eq!(ec(&[&scalar[..], &public].concat()), Ok(()));
    let mut of_another = curve;
    of_another[12] = 8;
    for (what, fields) in [
        ("curve", [&scalar[..], &of_another].concat()),
        ("no public key", [&scalar[..], &curve, &[5, 0]].concat()),
        ("end", [&scalar[..], &public, &[5, 0]].concat()),
        ("short", [&[0x02, 1, 1, 0x04, 31][..], &[7; 31]].concat()),
        ("zero", [&[0x02, 1, 1, 0x04, 32][..], &[0; 32]].concat()),
        ("not below the order", [&[0x02, 1, 1, 0x04, 32][..], &[0xff; 32]].concat()),
    ] {
        assert_eq!(ec(&fields), Err(CryptoError::Length), "{what}");
    }
}

#[test]
fn compressed_points_and_points_off_the_curve_are_refused() {
    let key = new_key(brainpool());
    let own = SignatureScheme::Outside(brainpool());
    let signature = key.sign(&own, b"message").unwrap();
    let point = SubjectPublicKeyInfo::parse(key.public_key()).unwrap().key;
    let compressed = [&[2 + (point[64] & 1)], &point[1..33]].concat();
    let mut off = point.to_vec();
    off[64] ^= 1;
    for octets in [&compressed[..], &off, &[0], &point[..64]] {
        let spki = with_key(key.public_key(), octets);
        let verified = brainpool().verify_by(&spki, b"message", &signature);
        assert_eq!(verified, Err(CryptoError::InvalidPublic), "{octets:02x?}");
    }
}

/// The identifier of the signature is that of ECDSA on P-256. The key tells them apart, whichever of the two it is.
///
/// Faults: in `SchemeRegister::of_signature`, do not ask the key; in `OutsideScheme::key_in`, compare the OBJECT IDENTIFIERs
/// alone.
#[test]
fn the_key_says_on_which_curve_a_signature_is() {
    let register = register();
    let p256 = SignatureScheme::EcdsaP256Sha256;
    let pkcs8 = generate(KeyType::Scheme(p256.clone())).unwrap();
    let p256_key = load_private_key_with(&register, &pkcs8).unwrap();
    let own = SignatureScheme::Outside(brainpool());
    let identifier = own.algorithm_identifier();
    assert_eq!(identifier, p256.algorithm_identifier());
    assert_eq!(register.of_signature(identifier, PUBLIC), Some(own.clone()));
    assert_eq!(register.of_signature(identifier, p256_key.public_key()), Some(p256.clone()));
    assert_eq!(register.from_algorithm_identifier(identifier), Some(p256.clone()));
    assert!(own.verifies_with(PUBLIC) && !p256.verifies_with(PUBLIC));
    assert!(!own.verifies_with(p256_key.public_key()));
    assert!(own.has_identifier_of(&p256) && own != p256);
    assert_ne!(own.distinct_identifier(), p256.distinct_identifier());
}
