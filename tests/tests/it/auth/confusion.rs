//! The peer must authenticate the way it is expected to, whatever it can prove otherwise.

use std::sync::Arc;

use ike_proto::config::{AuthConfig, IdMatch, IdRegex, PreSharedKey, Unique};
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{Auth, IdData, Notify, Payload};
use ike_proto::wire::registry::{AuthMethod, ExchangeType, IdType, NotifyType};
use ike_proto::{Failure, IkeState};
use ike_tests::bench::{Bench, auth_payloads};
use ike_tests::credentials::{credential, credential_for};
use ike_tests::handmade::notifies;
use ike_tests::setup::{identity, side};
use ike_tests::{Setup, Side};

use super::{comes_up, ec, refused, root, told};

/// The ways to authenticate, set up at both ends so that each would be right in itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Psk,
    Pubkey,
    Null,
}

fn local(side: &mut Side, host: u8, way: Way) {
    match way {
        Way::Psk => {}
        Way::Pubkey => side.show(credential(&root(), ec(), host)),
        Way::Null => side.connection.local[0].auth = AuthConfig::Null,
    }
}

fn remote(side: &mut Side, way: Way) {
    match way {
        Way::Psk => {}
        Way::Pubkey => side.want("pubkey", &root()),
        Way::Null => side.connection.remote[0].auth = AuthConfig::Null,
    }
}

/// Each way where each other way is required, in both roles. The keys and secrets for all are there.
#[test]
fn no_way_stands_for_another() {
    for shown in [Way::Psk, Way::Pubkey, Way::Null] {
        for wanted in [Way::Psk, Way::Pubkey, Way::Null] {
            for host in [1, 2] {
                let mut setup = Setup::new(1);
                let (prover, judge) = match host {
                    1 => (&mut setup.a, &mut setup.b),
                    _ => (&mut setup.b, &mut setup.a),
                };
                local(prover, host, shown);
                remote(judge, wanted);
                if shown == wanted {
                    comes_up(setup);
                    continue;
                }
                let mut pair = setup.build();
                let (at_a, at_b) = refused(&mut pair);
                if host == 1 {
                    assert_eq!(at_a, told(), "{shown:?} for {wanted:?}");
                } else {
                    assert_eq!(at_a, Failure::Authentication, "{shown:?} for {wanted:?}");
                    assert!(!at_b.is_empty());
                }
            }
        }
    }
}

/// ID_NULL is not an identity that `%any` admits (RFC 7619 §2.4).
#[test]
fn a_secret_does_not_make_id_null_somebody() {
    let nobody = IdData { kind: IdType::NULL, data: Vec::new() };
    let shared = |ids| Arc::new(PreSharedKey { ids, secret: Secret::copy_from(b"everybody's") });
    let mut setup = Setup::new(2);
    setup.both(|side| side.settings.secrets = vec![shared(Vec::new())]);
    setup.a.connection.set_local_id(Some(nobody));
    setup.b.connection.set_remote_id(IdMatch::Any);
    assert_eq!(refused(&mut setup.build()).0, told());
}

/// What an anonymous peer calls itself takes nobody's place: neither by INITIAL_CONTACT nor by
/// `unique` (RFC 7619 §2.3).
#[test]
fn an_anonymous_peer_replaces_nobody() {
    let mut setup = Setup::new(3);
    setup.both(|side| side.connection.unique = Unique::Replace);
    // A has two connections with B: one by a secret, one without.
    let mut anonymous = setup.a.connection.clone();
    anonymous.name = "anonymous".to_owned();
    anonymous.local[0].auth = AuthConfig::Null;
    anonymous.children = vec![Arc::new(ike_tests::setup::child("other", 3, 4))];
    setup.a.more.push(anonymous);
    let mut anybody = setup.b.connection.clone();
    anybody.name = "anybody".to_owned();
    anybody.remote[0].auth = AuthConfig::Null;
    anybody.children = vec![Arc::new(ike_tests::setup::child("other", 4, 3))];
    setup.b.more.push(anybody);
    let mut pair = setup.build();
    pair.establish();
    let (local, remote) = (pair.address(0), pair.address(1));
    let request = pair.command(
        0,
        ike_proto::Command::Initiate {
            connection: "anonymous".to_owned(),
            child: Some("other".to_owned()),
            local,
            remote,
            packet: None,
        },
    );
    pair.run_for(std::time::Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let b = pair.b().ikes();
    assert_eq!(b.len(), 2, "{}", pair.story());
    assert_eq!(b[1].remote_auth[0].method, AuthMethod::NULL);
    assert_eq!(b[1].remote_auth[0].id, identity(1), "what it said");
    assert_eq!(b[1].remote_id.as_ref().map(|id| id.kind), Some(IdType::NULL));
}

//= https://www.rfc-editor.org/rfc/rfc7619#section-2.3
//# INITIAL_CONTACT
//# notifications MUST NOT be used to delete any other IKE SAs based on
//# the same peer identity without additional verification
/// Two anonymous peers are not one: neither ends the other's IKE SA, by INITIAL_CONTACT or by `unique`.
///
/// Fault: in `Established::forgets_others` (exchange/auth/first_contact.rs), leave out `IdType::NULL`; or, in
/// `Endpoint::on_established` (endpoint/effects.rs), leave out `identity.1.kind == IdType::NULL`.
#[test]
fn an_anonymous_peer_ends_no_other_anonymous_peer() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep, Unique::Never] {
        for first_contact in [false, true] {
            for names in [[2, 2], [2, 3]] {
                let mut host = side(1, 2);
                host.connection.remote[0].auth = AuthConfig::Null;
                host.connection.set_remote_id(IdMatch::Any);
                let secret = Secret::copy_from(b"everybody's");
                host.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
                host.connection.unique = unique;
                let mut bench = Bench::with(host);
                let mut peers = Vec::new();
                for (spi, name) in (1001..).zip(names) {
                    let mut peer = bench.half_open();
                    let id = identity(name);
                    let auth = peer.null_auth(&id);
                    let mut payloads = auth_payloads(&id, &auth, spi, true);
                    payloads[1] = Payload::Auth(Auth { method: AuthMethod::NULL, data: &auth });
                    if first_contact {
                        let first = Notify::new(NotifyType::INITIAL_CONTACT, &[]);
                        payloads.push(Payload::Notify(first));
                    }
                    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
                    let sent = bench.give(&request);
                    assert_eq!(sent.len(), 1, "dropped: {:?}", bench.host().dropped);
                    assert_eq!(peer.open(&sent[0]).map(|sent| notifies(&sent)), Some(vec![]));
                    peers.push(peer);
                }
                let ikes = bench.host().ikes();
                let established = ikes.iter().filter(|ike| ike.state == IkeState::Established);
                assert_eq!(established.count(), 2, "{unique:?}, {first_contact}, {names:?}");
                assert!(
                    ikes.iter().all(|ike| ike.remote_id.as_ref().unwrap().kind == IdType::NULL)
                );
                assert_eq!(bench.host().ike_downs(), []);
            }
        }
    }
}

/// A certificate of one's own gives no right to another's identity, not even with the CA's blessing.
#[test]
fn a_certificate_is_good_for_its_own_names() {
    let mut setup = Setup::new(4);
    setup.a.show(credential_for(&root(), ec(), 1, &identity(5)));
    setup.b.want("pubkey", &root());
    // The connection at B is for a.example; A asserts e.example, which its certificate has.
    assert_eq!(setup.a.connection.local_id(), Some(&identity(5)));
    assert_eq!(refused(&mut setup.build()).0, told());
}

/// Of connections that overlap, the one that says most exactly who the peer is, in whatever order they
/// stand (RFC 4945 §3.1.10).
#[test]
fn the_most_exact_connection_is_taken() {
    let suffix = |text: &str| IdMatch::Suffix(IdData::fqdn(text));
    let regex = |text: &str| IdMatch::Regex(IdRegex::parse(text).expect("an expression"));
    let from_loose_to_strict = [
        IdMatch::Any,
        regex("fqdn:^a[.]example$"),
        suffix("*example"),
        suffix("*.example"),
        IdMatch::Exact(identity(1)),
    ];
    for strict in 1..from_loose_to_strict.len() {
        for loose_first in [true, false] {
            let mut setup = Setup::new(5);
            setup.b.settings.secrets = setup.a.settings.secrets.clone();
            let mut wanted = vec![("loose", &from_loose_to_strict[strict - 1])];
            wanted.insert(usize::from(loose_first), ("strict", &from_loose_to_strict[strict]));
            for (name, id) in wanted {
                let mut connection = setup.b.connection.clone();
                let children = setup.b.children.iter().cloned().map(Arc::new);
                connection.children = children.collect();
                connection.name = name.to_owned();
                connection.set_remote_id(id.clone());
                setup.b.more.push(connection);
            }
            // The one that is always there is for somebody else.
            setup.b.connection.set_remote_id(IdMatch::Exact(identity(9)));
            let mut pair = setup.build();
            pair.establish();
            assert_eq!(pair.b().ike().connection, "strict", "{strict} {loose_first}");
        }
    }
}
