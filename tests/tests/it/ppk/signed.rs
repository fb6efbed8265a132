//! PPKs beside signatures: NO_PPK_AUTH is a second signature (RFC 8784 §3).

use std::sync::Arc;

use ike_proto::config::{AuthConfig, LocalAuth, PpkExchange, RemoteAuth};
use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::payload::IdData;
use ike_tests::credentials::{Authority, credential};
use ike_tests::setup::address;
use ike_tests::{A, B, Setup};
use pki::PeerPolicy;
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

/// What one connection may do without, another must have: the peer's certificate belongs to that other.
#[test]
fn what_one_connection_does_without_another_may_need() {
    let (first, second) = (Authority::root("root", KEY, 0), Authority::root("second", KEY, 8));
    let mut setup = Setup::new(3);
    setup.a.show(credential(&second, KEY, 1));
    setup.a.want("pubkey", &first);
    setup.b.show(credential(&first, KEY, 2));
    setup.b.want("pubkey", &first);
    give(&mut setup.a, "y", "unknown there", false, PpkExchange::Auth);
    give(&mut setup.b, "x", "one", false, PpkExchange::Auth);
    let mut more = setup.b.connection.clone();
    more.name = "second".to_owned();
    more.children = vec![Arc::new(setup.b.children[0].clone())];
    // RFC 8784 §5.2.3: with this the PPK is mandatory.
    for round in &mut more.local {
        *round = LocalAuth { auth: AuthConfig::Null, ..round.clone() };
    }
    let cacerts = vec![second.certificate.clone()];
    let policy = PeerPolicy { cacerts, ..PeerPolicy::default() };
    setup.b.answerer.set_policy("second", "remote", policy);
    setup.b.more.push(more);
    let mut pair = setup.build();
    assert!(attempt(&mut pair, A).is_err());
    assert_nothing(&pair);
}

/// RFC 8784 §5.2.3: with NULL authentication a PPK is all there is, so it must be used.
#[test]
fn null_authentication_makes_a_ppk_mandatory() {
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
