//! Ed448, and ECDSA on brainpoolP256r1, which no crate of the engine knows: `tests/schemes`.

use std::sync::Arc;

use ike_proto::config::AuthConfig;
use ike_proto::crypto::sign::OutsideScheme;
use ike_proto::crypto::{CryptoError, SchemeRegister, SignatureScheme, SigningKey};
use ike_proto::wire::registry::{HashId, NotifyType};
use ike_proto::{Event, Failure};
use ike_test_schemes::{brainpool, ed448};
use ike_tests::{Host, Setup};
use pq_kem::sign::{KeyType, generate, load_private_key};

use super::outside::{announcement, both_with, key_of, used};
use super::{comes_up, refused, told};

const BRAINPOOL: &str = "ecdsa_brainpoolp256r1";

fn register(scheme: OutsideScheme) -> SchemeRegister {
    let mut register = SchemeRegister::built_in();
    register.add(scheme).unwrap();
    register
}

/// Both ends have a raw key of `scheme`, and want `auth`.
fn both(scheme: OutsideScheme, auth: [&str; 2]) -> Setup {
    let register = register(scheme);
    both_with(auth, [&register; 2], [key_of(&register), key_of(&register)])
}

/// A has a raw key on the Brainpool curve and B one on P-256. They want `auth`.
fn of_two_curves(auth: [&str; 2]) -> Setup {
    let register = register(brainpool());
    let p256 = generate(KeyType::Scheme(SignatureScheme::EcdsaP256Sha256)).unwrap();
    let keys = [key_of(&register), Arc::from(load_private_key(&p256).unwrap())];
    let mut setup = both_with(auth, [&register; 2], keys);
    setup.b.connection.local[0].auth = AuthConfig::parse("ecdsa").unwrap();
    setup
}

/// The hashes that an IKE_SA_INIT message announces.
fn hashes(pair: &ike_tests::Pair, index: usize) -> Vec<HashId> {
    let data = announcement(pair, index, NotifyType::SIGNATURE_HASH_ALGORITHMS).unwrap();
    data.as_chunks().0.iter().map(|id| HashId(u16::from_be_bytes(*id))).collect()
}

/// What `host` says of its peer's AUTH payloads.
fn said(host: &Host) -> Vec<String> {
    host.events(|event| match event {
        Event::PeerRefused(refused) => Some(refused.why.to_string()),
        _ => None,
    })
}

/// Faults: another hash in `Ed448::hash` or `Brainpool::hash`; in `SchemeRegister::from_algorithm_identifier`, look among
/// the built-in schemes alone; in `SchemeRegister::of_signature`, do not ask the key; in `signature::accepted`, compare
/// schemes by `==`.
#[test]
fn raw_keys_authenticate_both_ends_by_the_hash_of_the_scheme() {
    for (scheme, hash) in [(ed448(), HashId::IDENTITY), (brainpool(), HashId::SHA2_256)] {
        let name = scheme.name();
        for auth in [name, &format!("rsa-sha512-{name}"), &format!("pubkey-{name}")] {
            let mut setup = both(scheme.clone(), [auth, auth]);
            // An end that does not understand an announcement would be left with schemes for which it has no key.
            for side in [&mut setup.a, &mut setup.b] {
                side.connection.local[0].auth = side.connection.remote[0].auth.clone();
            }
            let pair = comes_up(setup);
            assert_eq!(used(&pair), [name, name], "{auth}");
            for index in [0, 1] {
                let announced = hashes(&pair, index);
                assert!(announced.contains(&hash), "{auth}: {announced:?}");
                assert!(auth != name || announced.len() == 1, "{auth}: {announced:?}");
            }
        }
    }
}

/// A peer that takes other hashes alone gets no signature of the scheme.
///
/// Fault: in `signature::accepted`, take every hash for a scheme of the program.
#[test]
fn without_its_hash_a_scheme_does_not_sign() {
    let nothing = "the peer takes no signature scheme that `auth` allows".to_owned();
    for (scheme, other) in
        [(ed448(), "ecdsa"), (brainpool(), "ed25519"), (brainpool(), "ecdsa-384")]
    {
        let own = scheme.name().to_owned();
        let (at_a, _) = refused(&mut both(scheme, [&own, other]).build());
        assert_eq!(at_a, Failure::Credentials(nothing.clone()), "{own} {other}");
    }
}

/// Signatures on both curves have one identifier, which is announced once.
///
/// Faults: in `SchemeRegister::of_signature`, do not ask the key; in `method_list`, `==` for `says_as`.
#[test]
fn keys_on_two_curves_share_an_identifier() {
    let auth = "ecdsa_brainpoolp256r1-ecdsa-256";
    let pair = comes_up(of_two_curves([auth, auth]));
    assert_eq!(used(&pair), ["ECDSA-256", BRAINPOOL]);
    let methods = announcement(&pair, 1, NotifyType::SUPPORTED_AUTH_METHODS).unwrap();
    let identifier = SignatureScheme::EcdsaP256Sha256.algorithm_identifier();
    let announced = methods.windows(identifier.len()).filter(|part| *part == identifier).count();
    assert_eq!(announced, 1, "{methods:02x?}");
    // The peer announces the identifier alone.
    let pair = comes_up(of_two_curves(["ecdsa-256", BRAINPOOL]));
    assert_eq!(used(&pair), ["ECDSA-256", BRAINPOOL]);
}

/// Faults: in `signature::disbelief`, do not ask the key; in `signature::verify`, let a scheme of the program verify where a
/// built-in one is asked.
#[test]
fn a_key_on_another_curve_than_auth_names_is_refused() {
    let mut pair = of_two_curves(["ecdsa", "ecdsa"]).build();
    assert_eq!(refused(&mut pair).0, told());
    let by_brainpool =
        "AUTH is by signature scheme ecdsa_brainpoolp256r1, which `auth` does not allow";
    assert_eq!(said(pair.b())[0], by_brainpool);
    let mut pair = of_two_curves([BRAINPOOL, BRAINPOOL]).build();
    assert_eq!(refused(&mut pair).0, Failure::Authentication);
    let by_p256 = "AUTH is by signature scheme ECDSA-256, which `auth` does not allow";
    assert_eq!(said(pair.a())[0], by_p256);
}

/// A key that shows itself and signs by another one of its curve.
#[derive(Debug)]
struct Forger {
    shown: Arc<dyn SigningKey>,
    signs: Arc<dyn SigningKey>,
}

impl SigningKey for Forger {
    fn schemes(&self) -> &[SignatureScheme] {
        self.shown.schemes()
    }

    fn public_key(&self) -> &[u8] {
        self.shown.public_key()
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.signs.sign(scheme, message)
    }
}

#[test]
fn a_signature_by_another_key_of_the_scheme_is_refused_by_its_name() {
    for scheme in [ed448(), brainpool()] {
        let (name, register) = (scheme.name().to_owned(), register(scheme));
        let forger = || -> Arc<dyn SigningKey> {
            Arc::new(Forger { shown: key_of(&register), signs: key_of(&register) })
        };
        let why = format!("the signature in AUTH, by {name}, does not verify");
        let keys = [forger(), key_of(&register)];
        let mut pair = both_with([&name, &name], [&register; 2], keys).build();
        assert_eq!(refused(&mut pair).0, told());
        assert_eq!(said(pair.b())[0], why);
        let keys = [key_of(&register), forger()];
        let mut pair = both_with([&name, &name], [&register; 2], keys).build();
        assert_eq!(refused(&mut pair).0, Failure::Authentication);
        assert_eq!(said(pair.a())[0], why);
    }
}
