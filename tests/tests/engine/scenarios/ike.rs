//! Collisions around the rekeying of an IKE SA.

use ike_proto::config::ConnectionConfig;
use ike_proto::wire::registry::ProtocolId;
use ike_proto::{Failure, IkeState};
use ike_tests::setup::proposals;
use ike_tests::{A, B, Setup};

use super::scene::Kind::{Request, Response};
use super::scene::{Exchange, Scene, crossed};

const CREATE: Exchange = Exchange::CREATE_CHILD_SA;
const INFO: Exchange = Exchange::INFORMATIONAL;

fn both_rekey(winner: usize) -> Scene {
    crossed(winner, Scene::rekey_ike).0
}

/// Ends whose IKE SA has a group that neither prefers: the rekey of either meets INVALID_KE_PAYLOAD.
fn of_two_minds(seed: u64) -> Scene {
    let mut setup = Setup::new(seed);
    let with = |connection: &mut ConnectionConfig, text: &str| {
        connection.proposals = proposals(ProtocolId::IKE, &[text]);
    };
    with(&mut setup.a.connection, "aes128gcm16-prfsha256-x25519-ecp256");
    with(&mut setup.b.connection, "aes128gcm16-prfsha256-ecp256-x25519");
    Scene::of(setup)
}

#[test]
fn a_rekeys_the_ike_sa_and_deletes_the_old_one() {
    let mut s = Scene::new(1);
    let done = s.rekey_ike(A);
    s.arrives(B, CREATE, Request);
    assert_eq!(s.pair.b().ikes_in(IkeState::Rekeyed).len(), 1);
    assert_eq!(s.pair.b().ike().children.len(), 1, "the children have moved");
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    s.arrives(B, INFO, Request);
    s.arrives(A, INFO, Response);
    s.sends_nothing();
    s.ends_well();
}

#[test]
fn a_wants_another_group_and_b_asks_again() {
    // A rekey begins with the group in use, which is B's favourite.
    let mut s = of_two_minds(2);
    let done = s.rekey_ike(B);
    s.arrives(A, CREATE, Request);
    assert!(s.size(B, CREATE, Response) < 100, "INVALID_KE_PAYLOAD");
    s.arrives(B, CREATE, Response);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.is_done(B, done, Ok(()));
    s.ends_well();
}

#[test]
fn both_rekey_and_a_s_exchange_has_the_lowest_nonce() {
    let mut s = both_rekey(B);
    s.arrives(A, CREATE, Response);
    s.arrives(B, CREATE, Response);
    // A deletes what it made, B the old one.
    assert_eq!((s.pair.waiting_for(A), s.pair.waiting_for(B)), (1, 1));
    s.ends_well();
    assert!(s.pair.b().ike().initiator, "the SA that B made is left");
}

#[test]
fn both_rekey_and_b_s_exchange_has_the_lowest_nonce() {
    let mut s = both_rekey(A);
    s.arrives(B, CREATE, Response);
    s.arrives(A, CREATE, Response);
    s.ends_well();
    assert!(s.pair.a().ike().initiator, "the SA that A made is left");
}

#[test]
fn both_rekey_and_b_is_told_another_group() {
    for seed in 0..16 {
        let mut s = of_two_minds(seed);
        s.rekey_ike(A);
        s.rekey_ike(B);
        s.arrives(A, CREATE, Request);
        s.arrives(B, CREATE, Request);
        s.arrives(A, CREATE, Response);
        s.arrives(B, CREATE, Response);
        s.ends_well();
    }
}

#[test]
fn both_rekey_and_b_wins_and_deletes_the_old_sa_before_a_has_its_response() {
    let mut s = both_rekey(B);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.ends_well();
}

#[test]
fn a_s_request_is_lost_and_b_deletes_the_sa_it_has_rekeyed() {
    let mut s = Scene::new(3);
    let done = s.rekey_ike(A);
    s.rekey_ike(B);
    s.is_lost(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.is_done(A, done, Ok(()));
    s.ends_well();
}

#[test]
fn a_s_request_arrives_while_b_deletes_the_sa_it_has_rekeyed() {
    let mut s = Scene::new(4);
    let done = s.rekey_ike(A);
    s.rekey_ike(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, INFO, Request);
    s.is_done(A, done, Ok(()));
    s.ends_well();
}

#[test]
fn the_same_and_b_s_error_arrives_before_its_delete() {
    let mut s = Scene::new(5);
    let done = s.rekey_ike(A);
    s.rekey_ike(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    assert_eq!(s.pair.a().ike_rekeys().len(), 1);
    s.arrives(A, INFO, Request);
    s.ends_well();
}

#[test]
fn a_request_on_the_new_sa_overtakes_the_delete_of_the_old_one() {
    let mut s = Scene::new(6);
    s.rekey_ike(A);
    s.rekey_ike(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    // B noticed no collision. It rekeys the child on its new SA, and that arrives first.
    let child = s.rekey_child(B);
    s.arrives(A, CREATE, Request);
    assert_eq!(s.pair.a().ike_rekeys().len(), 1, "A takes the SA that B uses");
    s.ends_well();
    s.is_done(B, child, Ok(()));
}

#[test]
fn a_rekeys_what_b_deletes() {
    let mut s = Scene::new(7);
    s.rekey_ike(A);
    s.delete_ike(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, INFO, Request);
    s.rest();
    s.ends_with(0, 0);
    assert_eq!(s.pair.a().ike_downs()[0].1, Failure::DeletedByPeer);
    assert_eq!(s.pair.b().ike_downs()[0].1, Failure::Terminated);
}

#[test]
fn a_rekeys_what_b_deletes_and_b_s_delete_is_late() {
    let mut s = Scene::new(8);
    s.rekey_ike(A);
    s.delete_ike(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.rest();
    s.ends_with(0, 0);
}
