//! Tickets that are not taken: the client begins by IKE_SA_INIT at once.

use std::sync::Arc;

use ike_proto::config::{DowngradePrevention, IdMatch, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::registry::NotifyType;
use ike_proto::{Command, Failure};

use super::*;
use ike_tests::setup::identity;
use xfrm::{CommandKind, Fault};

/// B changes between the two; what it says of the ticket then.
#[track_caller]
fn refused_after(seed: u64, change: impl Fn(&mut Side)) -> Vec<String> {
    refused_between(setup(seed), setup(seed), change)
}

#[track_caller]
fn refused_between(first: Setup, mut second: Setup, change: impl Fn(&mut Side)) -> Vec<String> {
    let mut pair = first.build();
    pair.establish();
    lose(&mut pair);
    change(&mut second.b);
    pair.reload(B, second.b.config());
    let from = pair.now();
    assert!(!again(&mut pair), "{}", pair.story());
    assert!(pair.now() - from < SECOND, "at once: {}", pair.story());
    let told = format!("the gateway answered {}", NotifyType::TICKET_NACK);
    assert_eq!(complaints(&pair, A), [told]);
    // The next one has a ticket again.
    pair.assert_agreement();
    complaints(&pair, B)
}

#[test]
fn what_the_configuration_does_not_have_any_more() {
    let foreign = "not sealed by a key of this gateway";
    assert_eq!(refused_after(1, |b| gateway(b, &[2])), [foreign]);
    let gone = "its connection is not configured here";
    assert_eq!(refused_after(2, |b| b.connection.session_resumption = false), [gone]);
    // It is known by another name.
    assert_eq!(refused_after(3, |b| b.connection.name = "other".to_owned()), [gone]);
    let peer = "the peer must authenticate otherwise";
    let both = |b: &mut Side| {
        let a = identity(1);
        b.connection.set_remote_id(IdMatch::Exact(identity(3)));
        // For the ordinary way.
        let mut more = b.connection.clone();
        more.name = "more".to_owned();
        more.set_remote_id(IdMatch::Exact(a));
        more.children = b.children.iter().cloned().map(Arc::new).collect();
        b.more = vec![more];
    };
    assert_eq!(refused_after(4, both), [peer]);
}

/// What it is about is the daemon's business; the engine sees that it is something else.
#[test]
fn another_way_of_doing_eap() {
    let mut first = setup(5);
    first.b.connection.remote[0].eap = "mschapv2".to_owned();
    let why = refused_between(first, setup(5), |b| {
        b.connection.remote[0].eap = "tls".to_owned();
    });
    assert_eq!(why, ["EAP is to be done otherwise"]);
}

/// A client that does not answer the Delete of a gateway has no ticket any more all the same, nor gets another.
#[test]
fn a_session_that_is_being_ended() {
    let mut pair = setup(6).build();
    pair.establish();
    lose(&mut pair);
    let ike = pair.ike_id(B);
    pair.command(B, Command::TerminateIke(ike));
    assert!(!again(&mut pair), "{}", pair.story());
    assert_eq!(complaints(&pair, B), ["its IKE SA was resumed, rekeyed or deleted"]);
}

#[test]
fn algorithms_that_are_not_wanted_any_more() {
    let mut first = setup(5);
    first.both(|side| side.ike_proposals(&["aes128gcm16-prfsha256-x25519"]));
    let both = ["aes256gcm16-prfsha384-x25519", "aes128gcm16-prfsha256-x25519"];
    first.a.ike_proposals(&both);
    let why = refused_between(first, setup(5), |b| {
        b.ike_proposals(&["aes256gcm16-prfsha384-x25519"]);
    });
    assert_eq!(why, ["its algorithms are not configured any more"]);
}

#[test]
fn a_secret_that_was_changed_ends_its_tickets() {
    let mut pair = setup(6).build();
    pair.establish();
    lose(&mut pair);
    let ids = vec![identity(1), identity(2)];
    let secret = Secret::copy_from(b"another one");
    let mut config = pair.b().endpoint.config().clone();
    config.secrets = vec![Arc::new(PreSharedKey { ids, secret })];
    pair.reload(B, config);
    // A has not heard of it yet, and gets in by neither.
    let request = pair.initiate(A, Some("net"));
    pair.run_for(5 * SECOND);
    assert_eq!(complaints(&pair, B), ["a secret has changed"]);
    assert_eq!(pair.a().done(request), Some(Err(Failure::Peer(NotifyType::AUTHENTICATION_FAILED))));
}

#[test]
fn downgrade_prevention_that_is_required_now() {
    let mut first = setup(7);
    first.b.connection.downgrade_prevention = DowngradePrevention::No;
    let why = refused_between(first, setup(7), |b| {
        b.connection.downgrade_prevention = DowngradePrevention::Require;
    });
    assert_eq!(why, ["downgrade prevention is required"]);
}

#[test]
fn keys_are_rotated() {
    let mut pair = setup(8).build();
    pair.establish();
    // The new key seals, the old one opens.
    let mut with = setup(8);
    gateway(&mut with.b, &[2, 1]);
    pair.reload(B, with.b.config());
    lose(&mut pair);
    assert!(again(&mut pair));
    // The ticket got then is by the new one.
    gateway(&mut with.b, &[2]);
    pair.reload(B, with.b.config());
    lose(&mut pair);
    assert!(again(&mut pair));
    assert!(complaints(&pair, B).is_empty());
}

#[test]
fn two_keys_of_one_id() {
    let mut pair = setup(9).build();
    pair.establish();
    let mut with = setup(9);
    let other = TicketKey { id: [1; 8], secret: Secret::new(vec![9; 32]) };
    with.b.settings.resumption.keys.insert(0, Arc::new(other));
    pair.reload(B, with.b.config());
    lose(&mut pair);
    assert!(again(&mut pair));
}

/// A client does not present what it knows to be over; a gateway does not take it.
#[test]
fn time_ends_a_ticket() {
    let mut short = setup(10);
    short.b.settings.resumption.lifetime = 10 * MINUTE;
    let mut pair = short.build();
    pair.establish();
    lose(&mut pair);
    pair.run_for(9 * MINUTE);
    assert!(!again(&mut pair));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
    assert!(complaints(&pair, B).is_empty());
}

#[test]
fn a_ticket_is_renewed_before_it_is_over() {
    let mut short = setup(11);
    short.b.settings.resumption.lifetime = 20 * MINUTE;
    let mut pair = short.build();
    pair.establish();
    pair.run_for(95 * MINUTE);
    lose(&mut pair);
    assert!(again(&mut pair));
    pair.assert_agreement();
}

/// A gateway that has no keys when the ticket is about to expire is asked again as long as that one is good.
#[test]
fn a_renewal_that_is_refused_is_asked_for_again() {
    let mut short = setup(11);
    short.b.settings.resumption.lifetime = 20 * MINUTE;
    let mut pair = short.build();
    pair.establish();
    let with = pair.b().endpoint.config().clone();
    let mut without = with.clone();
    without.resumption.keys.clear();
    pair.reload(B, without);
    pair.run_for(17 * MINUTE);
    pair.reload(B, with);
    pair.run_for(5 * MINUTE);
    lose(&mut pair);
    assert!(again(&mut pair), "{}", pair.story());
    pair.assert_agreement();
}

/// It never lasts longer than the IKE SA would, nor than until the peers must authenticate again.
#[test]
fn reauthentication_is_not_put_off() {
    let mut setup = setup(12);
    setup.both(|side| {
        side.connection.reauth_time = 60 * MINUTE;
        side.connection.rand_time = Duration::ZERO;
    });
    let mut pair = setup.build();
    pair.establish();
    let due = pair.time_of(pair.a().ike().reauth_at.unwrap());
    for _ in 0..3 {
        pair.run_for(4 * MINUTE);
        lose(&mut pair);
        assert!(again(&mut pair));
        let then = pair.time_of(pair.a().ike().reauth_at.unwrap());
        assert!(then <= due + SECOND && then + 2 * SECOND >= due, "{then:?} {due:?}");
        let at_b = pair.time_of(pair.b().ike().reauth_at.unwrap());
        assert!(at_b <= due + 2 * SECOND && at_b + 5 * SECOND >= due, "{at_b:?} {due:?}");
    }
    // Then it is done in full.
    let from = pair.net.trace.len();
    let left = due - pair.now();
    pair.run_for(left + MINUTE);
    assert!(sent(&pair, from, ExchangeType::IKE_SA_INIT, false) > 0, "{}", pair.story());
    assert_eq!(sent(&pair, from, ExchangeType::IKE_SESSION_RESUME, false), 0);
    assert!(!pair.a().ikes_in(IkeState::Established)[0].resumed);
}

#[test]
fn an_ike_sa_that_was_deleted_does_not_come_back() {
    for by in [A, B] {
        let mut pair = setup(13).build();
        pair.establish();
        let ike = pair.ike_id(by);
        pair.command(by, Command::TerminateIke(ike));
        pair.run_for(5 * SECOND);
        assert!(!again(&mut pair), "deleted by {by}");
        assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
    }
}

/// The Delete did not get through: it was meant all the same.
#[test]
fn nor_one_whose_end_nobody_has_heard_of() {
    let mut pair = setup(14).build();
    pair.establish();
    let cut = switch(&mut pair);
    cut.store(true, Ordering::Relaxed);
    let ike = pair.ike_id(A);
    pair.command(A, Command::TerminateIke(ike));
    pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
    cut.store(false, Ordering::Relaxed);
    assert!(!again(&mut pair));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
}

#[test]
fn a_client_whose_configuration_has_changed_presents_nothing() {
    let mut pair = setup(15).build();
    pair.establish();
    lose(&mut pair);
    let mut other = setup(15);
    other.a.connection.set_remote_id(IdMatch::Any);
    pair.reload(A, other.a.config());
    assert!(!again(&mut pair));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
}

/// What is refused for reasons of the moment is the child, and no more: the IKE SA goes on, with a ticket of its own.
#[test]
fn a_child_that_is_refused_costs_no_ike_sa() {
    let mut pair = setup(16).build();
    pair.establish();
    lose(&mut pair);
    pair.hosts[B].plane.inner.fail(Fault::Every(CommandKind::InstallSa));
    let refused = pair.initiate(A, Some("net"));
    pair.run_for(SECOND);
    assert!(matches!(pair.a().done(refused), Some(Err(Failure::Peer(_)))), "{}", pair.story());
    let (a, b) = (pair.a().ike(), pair.b().ike());
    assert!(a.resumed && b.resumed && pair.a().children_up().is_empty(), "{}", pair.story());
    pair.hosts[B].plane.inner.heal();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().ike().id, a.id);
    lose(&mut pair);
    assert!(again(&mut pair), "by the ticket that came with the refusal");
}
