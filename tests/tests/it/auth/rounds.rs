//! Several rounds of authentication (RFC 4739).

use ike_proto::Failure;
use ike_proto::config::{AuthConfig, IdMatch, LocalAuth, RemoteAuth};
use ike_proto::crypto::SignatureScheme::{Ed25519, MlDsa65};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::{AuthMethod, ExchangeType};
use ike_tests::credentials::{credential_for, key_type};
use ike_tests::network::Conditions;
use ike_tests::setup::{Side, identity};
use ike_tests::{Pair, Setup};

use super::{comes_up, ec, psk_rounds, refused, root, told};

fn user() -> IdData {
    IdData::email("user@example")
}

/// A second round of `side` as initiator or responder: "user@example" by a key of its own.
fn also_signs(side: &mut Side, host: u8) {
    let auth = AuthConfig::pubkey();
    side.show_in("local-2", auth, credential_for(&root(), key_type(Ed25519), 10 + host, &user()));
}

fn also_wants(side: &mut Side) {
    side.want_in("remote-2", "pubkey", IdMatch::Exact(user()), &root());
}

fn auths(pair: &Pair) -> usize {
    let mut ids = Vec::new();
    for packet in &pair.net.trace {
        let header = packet.header().unwrap();
        if header.exchange == ExchangeType::IKE_AUTH && !ids.contains(&header.message_id) {
            ids.push(header.message_id);
        }
    }
    ids.len()
}

#[test]
fn the_initiator_by_a_secret_and_then_by_a_key() {
    let mut setup = Setup::new(1);
    also_signs(&mut setup.a, 1);
    also_wants(&mut setup.b);
    let pair = comes_up(setup);
    let used = &pair.b().ike().remote_auth;
    assert_eq!(used.len(), 2);
    assert_eq!((used[0].method, used[0].id.clone()), (AuthMethod::PSK, identity(1)));
    assert_eq!((used[1].scheme.clone(), used[1].id.clone()), (Some(Ed25519), user()));
    assert_eq!(pair.b().ike().remote_id, Some(identity(1)), "the first round's");
    assert_eq!(auths(&pair), 2);
}

#[test]
fn the_responder_in_two_rounds() {
    let mut setup = Setup::new(2);
    also_signs(&mut setup.b, 2);
    also_wants(&mut setup.a);
    let pair = comes_up(setup);
    assert_eq!(pair.a().ike().remote_auth.len(), 2);
    assert_eq!(pair.a().ike().local_auth.len(), 1);
    assert_eq!(auths(&pair), 2);
}

#[test]
fn both_ends_in_three_rounds_of_every_kind() {
    for seed in 0..10 {
        let mut setup = Setup::new(seed);
        setup.conditions = Conditions { loss: 150, duplication: 150, ..Conditions::default() };
        setup.both(|side| side.settings.retransmission.tries = Some(20));
        for (n, side) in [(1, &mut setup.a), (2, &mut setup.b)] {
            also_signs(side, n);
            also_wants(side);
            let third = credential_for(&root(), key_type(MlDsa65), 20 + n, &identity(n));
            side.show_in("local-3", AuthConfig::pubkey(), third);
            side.want_in("remote-3", "mldsa-ecdsa", IdMatch::Exact(identity(3 - n)), &root());
        }
        let pair = comes_up(setup);
        assert_eq!(auths(&pair), 3);
        assert_eq!(pair.b().asked.len(), 4, "nothing twice");
    }
}

/// Without the second round there is no SA, although the first was in order.
#[test]
fn a_round_left_out_is_a_refusal() {
    let mut setup = Setup::new(3);
    also_wants(&mut setup.b);
    assert_eq!(refused(&mut setup.build()).0, told());
    let mut setup = Setup::new(3);
    also_wants(&mut setup.a);
    let (failure, _) = refused(&mut setup.build());
    assert!(matches!(failure, Failure::Credentials(_)), "not announced: {failure}");
}

#[test]
fn a_round_too_many_is_a_refusal() {
    let mut setup = Setup::new(4);
    also_signs(&mut setup.a, 1);
    // B has a second connection with several rounds, so that it announces them.
    let mut more = setup.b.connection.clone();
    more.name = "rounds".to_owned();
    more.set_remote_id(IdMatch::Exact(identity(9)));
    more.remote.push(RemoteAuth::new("remote-2", AuthConfig::Psk));
    setup.b.more.push(more);
    assert_eq!(refused(&mut setup.build()).0, told());
}

#[test]
fn the_wrong_key_in_the_second_round_is_a_refusal() {
    for wrong in ["id", "ca", "scheme"] {
        let mut setup = Setup::new(5);
        also_signs(&mut setup.a, 1);
        match wrong {
            "id" => {
                let id = IdMatch::Exact(IdData::email("other@example"));
                setup.b.want_in("remote-2", "pubkey", id, &root());
            }
            "ca" => {
                let ca = ike_tests::credentials::Authority::root("other", ec(), 5);
                setup.b.want_in("remote-2", "pubkey", IdMatch::Any, &ca);
            }
            _ => setup.b.want_in("remote-2", "ike:mldsa87", IdMatch::Any, &root()),
        }
        let (failure, _) = refused(&mut setup.build());
        let expected = match wrong {
            // B announced nothing A could do.
            "scheme" => matches!(failure, Failure::Credentials(_)) || failure == told(),
            _ => failure == told(),
        };
        assert!(expected, "{wrong}: {failure}");
    }
}

/// The same two ends may have a connection of one round and one of two: what the peer announces tells
/// them apart.
#[test]
fn connections_differ_by_their_rounds() {
    for rounds in [1, 2] {
        let mut setup = Setup::new(6);
        if rounds == 2 {
            also_signs(&mut setup.a, 1);
        } else {
            psk_rounds(&mut setup.a);
        }
        let mut more = setup.b.connection.clone();
        more.name = "two".to_owned();
        more.children = Vec::new();
        also_wants(&mut setup.b);
        std::mem::swap(&mut more.name, &mut setup.b.connection.name);
        setup.b.connection.name = "ab".to_owned();
        more.name = "one".to_owned();
        let child = std::sync::Arc::new(setup.b.children[0].clone());
        more.children.push(child);
        setup.b.more.push(more);
        let pair = comes_up(setup);
        let expected = if rounds == 2 { "ab" } else { "one" };
        assert_eq!(pair.b().ike().connection, expected);
    }
}

/// A peer that fails in its second round is told, and nothing is left of the first.
#[test]
fn a_second_secret_that_is_wrong() {
    let mut setup = Setup::new(7);
    for side in [&mut setup.a, &mut setup.b] {
        side.settings.secrets.push(std::sync::Arc::new(ike_proto::config::PreSharedKey {
            ids: vec![user()],
            secret: ike_proto::crypto::Secret::copy_from(side.address.to_string().as_bytes()),
        }));
    }
    let second = LocalAuth { id: Some(user()), ..LocalAuth::new("local-2", AuthConfig::Psk) };
    setup.a.connection.local.push(second);
    let id = IdMatch::Exact(user());
    let second = RemoteAuth { id, ..RemoteAuth::new("remote-2", AuthConfig::Psk) };
    setup.b.connection.remote.push(second);
    assert_eq!(refused(&mut setup.build()).0, told());
}

/// The responder's first round is wrong, and the initiator has another of its own to come: it says so in
/// an INFORMATIONAL between two rounds, and both ends end.
#[test]
fn a_complaint_between_two_rounds() {
    let mut setup = Setup::new(8);
    also_signs(&mut setup.a, 1);
    also_wants(&mut setup.b);
    setup.a.want("pubkey", &root());
    let mut pair = setup.build();
    let (at_a, at_b) = refused(&mut pair);
    assert_eq!(at_a, Failure::Authentication);
    assert_eq!(at_b[0], told(), "{}", pair.story());
}

/// Every message of two rounds lost once, and the first once more.
#[test]
fn each_message_of_the_rounds_may_be_lost() {
    for lost in 0..12 {
        let mut setup = Setup::new(9);
        also_signs(&mut setup.a, 1);
        also_wants(&mut setup.b);
        also_signs(&mut setup.b, 2);
        also_wants(&mut setup.a);
        let mut pair = setup.build();
        let mut seen = 0;
        pair.net.tap(move |_| {
            seen += 1;
            match seen == lost + 1 {
                true => ike_tests::network::Fate::Drop,
                false => ike_tests::network::Fate::Pass,
            }
        });
        pair.establish();
        assert_eq!(pair.b().asked, ["judge", "sign"], "{}", pair.story());
    }
}

/// Rounds of every kind in any order, over bad networks: both ends always agree on who is who.
#[test]
fn many_seeded_lives_of_many_rounds() {
    use ike_proto::crypto::SignatureScheme::{EcdsaP384Sha384, MlDsa44};
    for seed in 0..150_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut setup = Setup::new(seed);
        let loss = u32::try_from(draw(300)).unwrap();
        let duplication = u32::try_from(draw(300)).unwrap();
        setup.conditions = Conditions { loss, duplication, ..Conditions::default() };
        setup.both(|side| {
            let ladder = &mut side.settings.retransmission;
            (ladder.tries, ladder.base) = (Some(40), 1.0);
            ladder.timeout = Some(std::time::Duration::from_millis(500));
            side.settings.half_open_timeout = std::time::Duration::from_secs(200);
        });
        for host in [1, 2] {
            let rounds = 1 + draw(3);
            for n in 0..rounds {
                let suffix = if n == 0 { String::new() } else { format!("-{n}") };
                let (local, remote) = (format!("local{suffix}"), format!("remote{suffix}"));
                let kind = draw(5);
                let (prover, judge) = match host {
                    1 => (&mut setup.a, &mut setup.b),
                    _ => (&mut setup.b, &mut setup.a),
                };
                let scheme = [Ed25519, EcdsaP384Sha384, MlDsa44].get(kind as usize);
                if let Some(scheme) = scheme {
                    let key =
                        credential_for(&root(), key_type(scheme.clone()), host, &identity(host));
                    prover.show_in(&local, AuthConfig::pubkey(), key);
                    let id = IdMatch::Exact(identity(host));
                    judge.want_in(&remote, "pubkey", id, &root());
                    continue;
                }
                let auth = if kind == 3 || n == 0 { AuthConfig::Psk } else { AuthConfig::Null };
                let id = Some(identity(host));
                let own = LocalAuth { id, ..LocalAuth::new(&local, auth.clone()) };
                let id = IdMatch::Exact(identity(host));
                let other = RemoteAuth { id, ..RemoteAuth::new(&remote, auth) };
                if n == 0 {
                    prover.connection.local = vec![own];
                    judge.connection.remote = vec![other];
                } else {
                    prover.connection.local.push(own);
                    judge.connection.remote.push(other);
                }
            }
        }
        let expected = [setup.a.connection.local.len(), setup.b.connection.local.len()];
        let pair = comes_up(setup);
        let used = [&pair.hosts[0], &pair.hosts[1]].map(|host| host.ike().local_auth.len());
        assert_eq!(used, expected, "seed {seed}");
    }
}
