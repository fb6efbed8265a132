//! Certificates and revocation lists by a scheme of the program whose signatures have the identifier of a built-in one:
//! ECDSA on a curve of its own.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::UsedAuth;
use ike_proto::crypto::sign::{OutsideScheme, SchemeLengths, SubjectPublicKeyInfo};
use ike_proto::crypto::{
    CryptoError, Scheme, Secret, SignatureScheme, SignatureVerifier, SigningKey,
};
use ike_proto::wire::registry::{AuthMethod, HashId};
use pki::issue::{self, RevokedEntry};
use pki::{Answerer, Crl, PkiError, TrustNow};
use pq_kem::sign::{AwsLc, KeyType, generate, load_private_key};

use crate::common::{id, now};
use crate::outside::{chain, policy, register, trust_in, verdict};

/// ECDSA on P-256 over the message with a word before it, with keys that say another curve.
#[derive(Debug, Clone)]
pub(crate) struct Curved;

/// id-ecPublicKey with brainpoolP256r1.
const IDENTIFIER: &[u8] = &[
    0x30, 20, 0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 9, 0x2b, 36, 3, 3, 2, 8, 1, 1, 7,
];
const WORD: &[u8] = b"curved ";
const INNER: SignatureScheme = SignatureScheme::EcdsaP256Sha256;

impl Scheme for Curved {
    fn name(&self) -> &str {
        "curved"
    }

    fn algorithm_identifier(&self) -> &[u8] {
        INNER.algorithm_identifier()
    }

    fn key_algorithm_identifier(&self) -> &[u8] {
        IDENTIFIER
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

    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let algorithm = INNER.key_algorithm_identifier();
        let spki = SubjectPublicKeyInfo { algorithm, key }.encode();
        AwsLc.verify(&INNER, &spki, &[WORD, message].concat(), signature)
    }

    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let inner = load_private_key(octets).map_err(|_| CryptoError::Length)?;
        let key = SubjectPublicKeyInfo::parse(inner.public_key()).ok_or(CryptoError::Length)?.key;
        let spki = SubjectPublicKeyInfo { algorithm: IDENTIFIER, key }.encode();
        Ok(Box::new(Key { schemes: [curved()], inner, spki }))
    }

    fn generate(&self) -> Result<Secret, CryptoError> {
        Ok(Secret::copy_from(&generate(KeyType::Scheme(INNER))?))
    }
}

#[derive(Debug)]
struct Key {
    schemes: [SignatureScheme; 1],
    inner: Box<dyn SigningKey>,
    spki: Vec<u8>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, _: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.inner.sign(&INNER, &[WORD, message].concat())
    }
}

fn curved() -> SignatureScheme {
    SignatureScheme::Outside(OutsideScheme::from(Arc::new(Curved) as Arc<dyn Scheme>))
}

/// Faults: in `Signed::check`, take the built-in algorithms first; in `Schemes::of_signature`, do not ask the key.
#[test]
fn the_key_of_the_issuer_says_by_which_scheme_a_certificate_is_signed() {
    let all = [curved(), curved(), curved()];
    for (schemes, unnamed) in [
        (all, true),
        // The root and the intermediate sign; what the leaf signs is judged by the engine.
        ([curved(), INNER, INNER], true),
        ([INNER, curved(), INNER], true),
        ([INNER, INNER, curved()], false),
        ([INNER, INNER, INNER], false),
    ] {
        let nodes = chain(schemes.clone());
        let trust = trust_in(&register(), &nodes[0]);
        let peer = verdict(&nodes, &policy("ecdsa-curved"), &trust).unwrap();
        assert_eq!(peer.spki, nodes[2].key.public_key(), "{schemes:?}");
        match verdict(&nodes, &policy("pubkey"), &trust) {
            Err(PkiError::UnnamedScheme { scheme, .. }) => {
                assert!(unnamed && scheme == "curved", "{schemes:?}: {scheme}");
            }
            other => assert!(!unnamed && other.is_ok(), "{schemes:?}: {other:?}"),
        }
        // ECDSA is not this scheme, and this scheme is not ECDSA.
        let brought = schemes.contains(&curved());
        assert_eq!(verdict(&nodes, &policy("ecdsa"), &trust).is_err(), brought, "{schemes:?}");
        let only = schemes.iter().all(|scheme| *scheme == curved());
        assert_eq!(verdict(&nodes, &policy("curved"), &trust).is_ok(), only, "{schemes:?}");
    }
}

/// The identifier and the octets of the key are the same. The word is not, and neither is the curve.
///
/// Fault: in `OutsideScheme::key_in`, compare the OBJECT IDENTIFIERs alone.
#[test]
fn a_signature_by_the_scheme_is_none_by_the_built_in_one_and_the_other_way_round() {
    let nodes = chain([INNER, INNER, INNER]);
    let brought = chain([curved(), curved(), curved()]);
    // The names of both roots are the same.
    for (path, root) in [(&brought, &nodes[0]), (&nodes, &brought[0])] {
        let trust = trust_in(&register(), root);
        let why = verdict(path, &policy("ecdsa-curved"), &trust).unwrap_err();
        assert!(
            matches!(why, PkiError::BadSignature { .. } | PkiError::UnknownCa { .. }),
            "{why:?}"
        );
    }
}

/// Fault: in `Proof::is_by`, verify with no schemes.
#[test]
fn a_revocation_list_of_the_scheme_revokes() {
    for by in [curved(), INNER] {
        let nodes = chain([by.clone(), by.clone(), by.clone()]);
        let [root, inter, leaf] = &nodes;
        let mut trust = trust_in(&register(), root);
        let entry = RevokedEntry {
            serial: leaf.certificate.serial().to_vec(),
            at: now(),
            reason: RevokedEntry::reason("key-compromise"),
        };
        let next = now() + Duration::from_secs(3600);
        let list = issue::revocation_list(&inter.issuer(), now(), next, 1, &[entry]).unwrap();
        assert!(verdict(&nodes, &policy("ecdsa-curved"), &trust).is_ok());
        trust.revocation.add_crl(&list).unwrap();
        let why = verdict(&nodes, &policy("ecdsa-curved"), &trust).unwrap_err();
        assert!(matches!(why, PkiError::Revoked { .. }), "{by}: {why:?}");
        // One by a key on the other curve counts for nothing.
        let other = if by == INNER { curved() } else { INNER };
        let [_, other, _] = chain([other.clone(), other.clone(), other]);
        assert_eq!(other.certificate.subject(), inter.certificate.subject());
        let whole = Crl::load_whole(&register(), &list).unwrap();
        assert!(whole.is_signed_by(&inter.certificate) && !whole.is_signed_by(&other.certificate));
    }
}

/// What is kept of a path tells the scheme from the built-in one with its identifier.
///
/// Fault: in `record::scheme_hash`, take the identifier of signatures.
#[test]
fn a_path_of_the_scheme_does_not_stand_by_the_built_in_one() {
    let nodes = chain([curved(), curved(), curved()]);
    let trust = trust_in(&register(), &nodes[0]);
    let peer = verdict(&nodes, &policy("ecdsa-curved"), &trust).unwrap();
    assert_eq!(peer.schemes, [curved()]);
    let used = UsedAuth {
        id: id("leaf.example.org"),
        method: AuthMethod::DIGITAL_SIGNATURE,
        scheme: Some(curved()),
        certificate: Some(peer.shown()),
        eap: None,
        addresses: None,
    };
    for (auth, expected) in [
        ("curved", TrustNow::Same),
        ("ecdsa-curved", TrustNow::Same),
        ("ecdsa", TrustNow::SchemeRemoved),
        ("pubkey", TrustNow::SchemeRemoved),
    ] {
        let mut answerer = Answerer::new(trust.clone());
        answerer.set_policy("site", "remote", policy(auth));
        assert_eq!(TrustNow::of(&answerer, ("site", "remote"), &used), expected, "{auth}");
    }
}
