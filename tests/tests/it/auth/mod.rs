//! Authentication by signatures, in rounds, and not at all: two endpoints on a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod address_blocks;
mod announcements;
mod authorization;
mod composite;
mod confusion;
mod curves;
mod eap;
mod eap_again;
mod failures;
mod forged;
mod hash_and_url;
mod ocsp;
mod outside;
mod reloads;
mod rounds;
mod schemes;
mod waiting;

use ike_proto::config::{AuthConfig, LocalAuth, RemoteAuth};
use ike_proto::wire::registry::NotifyType;
use ike_proto::{Failure, IkeState, UsedAuth};
use ike_tests::credentials::{Authority, credential};
use ike_tests::{A, Pair, Setup};
use pq_kem::sign::KeyType;

/// A root with an ECDSA key.
fn root() -> Authority {
    Authority::root("root", ec(), 0)
}

fn ec() -> KeyType {
    KeyType::Scheme(ike_proto::crypto::SignatureScheme::EcdsaP256Sha256)
}

/// Both ends by keys of these types, certified by one root.
fn signing(seed: u64, a: KeyType, b: KeyType) -> Setup {
    let ca = root();
    let mut setup = Setup::new(seed);
    setup.a.show(credential(&ca, a, 1));
    setup.b.show(credential(&ca, b, 2));
    setup.both(|side| side.want("pubkey", &root()));
    setup
}

/// Why the attempt of A fails, and why B refuses: nothing is left at either end.
#[track_caller]
fn refused(pair: &mut Pair) -> (Failure, Vec<Failure>) {
    let request = pair.initiate(A, Some("net"));
    pair.run_until(std::time::Duration::from_secs(900), |w| w.hosts[A].done(request).is_some());
    let result = pair.a().done(request).expect("an end");
    pair.run_for(std::time::Duration::from_secs(200));
    assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty(), "{}", pair.story());
    assert!(pair.a().plane.table().is_empty() && pair.b().plane.table().is_empty());
    let ups = |host: &ike_tests::Host| {
        host.events(|event| matches!(event, ike_proto::Event::IkeUp(_)).then_some(())).len()
    };
    assert_eq!(ups(pair.a()), 0, "{}", pair.story());
    let at_b = pair.b().ike_downs().into_iter().map(|(_, why)| why).collect();
    (result.expect_err("a refusal"), at_b)
}

/// What the wire says of every refusal.
fn told() -> Failure {
    Failure::Peer(NotifyType::AUTHENTICATION_FAILED)
}

/// The pair comes up, and says what both ends used.
#[track_caller]
fn comes_up(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(pair.a().ike().state, IkeState::Established);
    let said = |used: Vec<UsedAuth>| {
        used.into_iter().map(|used| UsedAuth { certificate: None, ..used }).collect::<Vec<_>>()
    };
    assert_eq!(pair.a().ike().local_auth, said(pair.b().ike().remote_auth));
    assert_eq!(said(pair.a().ike().remote_auth), pair.b().ike().local_auth);
    pair
}

fn psk_rounds(side: &mut ike_tests::Side) {
    side.connection.local = vec![LocalAuth {
        id: side.connection.local_id().cloned(),
        ..LocalAuth::new("local", AuthConfig::Psk)
    }];
    side.connection.remote = vec![RemoteAuth {
        id: side.connection.remote_id().clone(),
        ..RemoteAuth::new("remote", AuthConfig::Psk)
    }];
}
