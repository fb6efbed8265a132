//! What the log of an end says of a peer it refuses. The peer hears one thing, whatever it was.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AuthConfig, IdMatch, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::registry::NotifyType;
use ike_proto::{Event, Failure, PeerRefused};
use ike_tests::setup::{address, identity};
use ike_tests::{A, Host, Setup};

/// What is changed, and what B says of A.
type Case = (fn(&mut Setup), &'static str, &'static str);

const CASES: &[Case] = &[
    (|s| share(s, Vec::new()), "ab", "wrong pre-shared key"),
    (
        |s| share(s, vec![identity(2), identity(7)]),
        "ab",
        "no pre-shared key for b.example and a.example",
    ),
    (
        |s| s.b.connection.remote[0].id = IdMatch::Exact(identity(9)),
        "",
        "no connection for the peer's identity",
    ),
    (
        |s| s.b.connection.local[0].id = Some(identity(9)),
        "ab",
        "no connection of this peer has the identity it asks for",
    ),
    (
        |s| s.a.connection.local[0].auth = AuthConfig::Null,
        "ab",
        "the peer shows null authentication, wanted is a pre-shared key",
    ),
];

/// Gives B another key, for `ids`.
fn share(setup: &mut Setup, ids: Vec<ike_proto::wire::payload::IdData>) {
    let secret = Secret::copy_from(b"another");
    setup.b.settings.secrets = vec![Arc::new(PreSharedKey { ids, secret })];
}

fn refusals(host: &Host) -> Vec<PeerRefused> {
    host.events(|event| match event {
        Event::PeerRefused(refused) => Some((**refused).clone()),
        _ => None,
    })
}

#[test]
fn the_responder_says_why_to_its_log_alone() {
    for (change, connection, why) in CASES {
        let mut setup = Setup::new(1);
        change(&mut setup);
        let mut pair = setup.build();
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(100));
        let told = Failure::Peer(NotifyType::AUTHENTICATION_FAILED);
        assert_eq!(pair.a().done(request), Some(Err(told)), "{why}");
        let said = refusals(pair.b());
        // An initiator asks twice, for the first answer might be forged.
        let [refused, _again] = &said[..] else { panic!("{why}: {said:?}") };
        assert_eq!((&*refused.connection, &*refused.why), (*connection, *why));
        assert_eq!(refused.path.remote.ip(), address(1));
        assert_eq!(refused.local_id, Some(identity(2)));
        // Who does not authenticate is nobody, and says so.
        if !why.contains("null") {
            assert_eq!(refused.remote_id, Some(identity(1)));
        }
    }
}

#[test]
fn the_initiator_says_why() {
    let mut setup = Setup::new(2);
    setup.a.connection.remote[0].auth = AuthConfig::Null;
    let mut pair = setup.build();
    pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(100));
    let said = refusals(pair.a());
    let [refused, ..] = &said[..] else { panic!("{said:?}") };
    let expected = "the peer shows a pre-shared key, wanted is null authentication";
    assert_eq!((&*refused.connection, &*refused.why), ("ab", expected));
    assert_eq!(refused.remote_id, Some(identity(2)));
}
