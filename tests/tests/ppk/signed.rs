//! PPKs beside signatures: NO_PPK_AUTH is a second signature (RFC 8784 §3).

use ike_proto::config::PpkExchange;
use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::payload::IdData;
use ike_tests::credentials::{Authority, credential};
use ike_tests::setup::address;
use ike_tests::{A, B, Setup};
use pq_kem::sign::KeyType;

use super::{assert_nothing, attempt, give, id};

const KEY: KeyType = KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);

fn signing(seed: u64) -> Setup {
    let ca = Authority::root("root", KEY, 0);
    let mut setup = Setup::new(seed);
    setup.a.show(credential(&ca, KEY, 1));
    setup.b.show(credential(&ca, KEY, 2));
    setup.both(|side| side.want("pubkey", &ca));
    setup
}

#[test]
fn taken_declined_and_refused() {
    for exchange in [PpkExchange::Auth, PpkExchange::Intermediate] {
        for required in [false, true] {
            for (name, secret) in [("x", "one"), ("y", "one"), ("x", "two")] {
                for initiator in [A, B] {
                    let mut setup = signing(1);
                    give(&mut setup.a, "x", "one", required, exchange);
                    give(&mut setup.b, name, secret, required, exchange);
                    let mut pair = setup.build();
                    let result = attempt(&mut pair, initiator);
                    let what = format!("{exchange:?} {required} {name} {secret}: {result:?}");
                    let same = name == "x" && secret == "one";
                    // AUTH alone tells in IKE_AUTH that the secrets differ.
                    let wrong = secret == "two" && exchange == PpkExchange::Auth;
                    if same || !required && !wrong {
                        assert_eq!(result, Ok(()), "{what}\n{}", pair.story());
                        pair.assert_agreement();
                        let used = same.then(|| id("x"));
                        assert_eq!(pair.a().ike().ppk, used, "{what}");
                        assert_eq!(pair.b().ike().ppk, used, "{what}");
                    } else {
                        assert!(result.is_err(), "{what}");
                        assert_nothing(&pair);
                    }
                }
            }
        }
    }
}

/// RFC 8784 §5.2.3: with NULL authentication a PPK is all there is, so it must be used.
#[test]
fn null_authentication_makes_a_ppk_mandatory() {
    use ike_proto::config::{AuthConfig, LocalAuth, RemoteAuth};

    for known in [true, false] {
        for exchange in [PpkExchange::Auth, PpkExchange::Intermediate] {
            let mut setup = Setup::new(2);
            setup.both(|side| {
                give(side, "x", "one", false, exchange);
                for round in &mut side.connection.local {
                    *round = LocalAuth { auth: AuthConfig::Null, ..round.clone() };
                }
                for round in &mut side.connection.remote {
                    *round = RemoteAuth { auth: AuthConfig::Null, ..round.clone() };
                }
            });
            if !known {
                give(&mut setup.b, "x", "two", false, exchange);
            }
            setup.a.connection.set_local_id(None);
            let mut pair = setup.build();
            let result = attempt(&mut pair, A);
            if known {
                assert_eq!(result, Ok(()), "{exchange:?}\n{}", pair.story());
                assert_eq!(pair.b().ike().ppk, Some(id("x")));
                // Who has the PPK is somebody.
                assert_eq!(pair.b().ike().remote_auth[0].id, IdData::ip(address(1)));
            } else {
                assert!(result.is_err(), "{exchange:?}");
                assert_nothing(&pair);
            }
        }
    }
}
