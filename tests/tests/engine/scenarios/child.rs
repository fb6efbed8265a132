//! Collisions around the rekeying of a child.

use ike_proto::{ChildState, Failure};
use ike_tests::{A, B};

use super::scene::Kind::{Request, Response};
use super::scene::{Exchange, Scene, crossed};

const CREATE: Exchange = Exchange::CREATE_CHILD_SA;
const INFO: Exchange = Exchange::INFORMATIONAL;

fn both_rekey(winner: usize) -> Scene {
    crossed(winner, Scene::rekey_child).0
}

#[test]
fn a_rekeys_and_deletes_the_old_child() {
    let mut s = Scene::new(1);
    let done = s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    assert_eq!(s.states(B), [ChildState::Installed, ChildState::Installed]);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    assert_eq!(s.states(A), [ChildState::Rekeyed, ChildState::Installed]);
    s.arrives(B, INFO, Request);
    s.arrives(A, INFO, Response);
    s.sends_nothing();
    s.ends_well();
}

#[test]
fn b_wants_another_group_and_a_asks_again() {
    let mut s = Scene::of_two_minds(2);
    let done = s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    // INVALID_KE_PAYLOAD
    s.arrives(A, CREATE, Response);
    assert_eq!(s.states(A), [ChildState::Installed]);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    s.ends_well();
}

#[test]
fn a_soft_limit_of_the_old_child_at_b_which_waits_for_the_delete() {
    let mut s = Scene::new(3);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    s.limit(B, false);
    assert_eq!(s.pair.waiting_for(A), 1, "nothing but the response");
    s.ends_well();
}

#[test]
fn a_hard_limit_of_the_old_child_at_b_whose_delete_crosses_as() {
    let mut s = Scene::new(4);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.limit(B, true);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Request);
    // Neither names an SPI.
    assert_eq!(s.size(A, INFO, Response), s.size(B, INFO, Response));
    s.ends_well();
}

#[test]
fn the_new_child_is_deleted_by_hand_while_the_old_one_waits_for_its_delete() {
    let mut s = Scene::new(5);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    let new = s.pair.b().children().iter().map(|child| child.id).max().unwrap();
    let done = s.pair.command(B, ike_proto::Command::TerminateChild(new));
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.is_done(B, done, Ok(()));
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn b_deletes_the_old_child_itself_before_its_response_arrives() {
    let mut s = Scene::new(6);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    s.limit(B, true);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 1);
}

#[test]
fn as_delete_of_the_old_child_is_lost_and_b_deletes_it_too() {
    let mut s = Scene::new(7);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.is_lost(B);
    s.limit(B, true);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.ends_well();
}

#[test]
fn both_rekey_and_a_s_exchange_has_the_lowest_nonce() {
    let mut s = both_rekey(B);
    s.arrives(A, CREATE, Response);
    s.arrives(B, CREATE, Response);
    // A deletes the child it made, B the old one.
    assert_eq!((s.pair.waiting_for(A), s.pair.waiting_for(B)), (1, 1));
    assert_eq!(s.states(B)[0], ChildState::Rekeyed);
    s.ends_well();
}

#[test]
fn both_rekey_and_b_s_exchange_has_the_lowest_nonce() {
    let mut s = both_rekey(A);
    s.arrives(B, CREATE, Response);
    s.arrives(A, CREATE, Response);
    assert_eq!(s.states(A)[0], ChildState::Rekeyed);
    s.ends_well();
}

#[test]
fn both_rekey_and_b_wins_and_deletes_the_old_child_before_a_has_its_response() {
    let mut s = both_rekey(B);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    assert_eq!(s.pair.a().child_rekeys().len(), 1, "A sends through B's new child");
    s.arrives(B, INFO, Response);
    s.arrives(A, CREATE, Response);
    s.ends_well();
}

#[test]
fn the_same_and_b_deletes_its_new_child_as_well() {
    let mut s = both_rekey(B);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    let new = s.pair.b().child_rekeys()[0].1;
    s.pair.command(B, ike_proto::Command::TerminateChild(new));
    s.arrives(A, INFO, Request);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn a_s_request_arrives_while_b_deletes_the_child_it_has_rekeyed() {
    let mut s = Scene::new(8);
    let done = s.rekey_child(A);
    s.rekey_child(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, INFO, Request);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    s.ends_well();
}

#[test]
fn a_s_request_arrives_after_b_s_delete_is_answered() {
    let mut s = Scene::new(9);
    let done = s.rekey_child(A);
    s.rekey_child(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    s.ends_well();
}

#[test]
fn a_s_request_arrives_after_b_has_deleted_the_old_child_and_the_new_one() {
    let mut s = Scene::new(10);
    s.rekey_child(A);
    s.rekey_child(B);
    s.arrives(A, CREATE, Request);
    s.arrives(B, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.delete_child(B);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn both_rekey_both_are_told_another_group_both_ask_again() {
    for seed in 0..16 {
        let mut s = Scene::of_two_minds(seed);
        s.rekey_child(A);
        s.rekey_child(B);
        for _ in 0..2 {
            s.arrives(A, CREATE, Request);
            s.arrives(B, CREATE, Request);
            s.arrives(A, CREATE, Response);
            s.arrives(B, CREATE, Response);
        }
        s.ends_well();
    }
}

#[test]
fn the_same_and_a_s_second_request_is_late() {
    for seed in 0..16 {
        let mut s = Scene::of_two_minds(seed);
        s.rekey_child(A);
        s.rekey_child(B);
        s.arrives(A, CREATE, Request);
        s.arrives(B, CREATE, Request);
        s.arrives(A, CREATE, Response);
        s.arrives(B, CREATE, Response);
        s.arrives(A, CREATE, Request);
        s.arrives(B, CREATE, Response);
        s.arrives(B, CREATE, Request);
        s.arrives(A, INFO, Request);
        s.arrives(A, CREATE, Response);
        s.ends_well();
    }
}

#[test]
fn both_rekey_and_b_has_lost_and_deletes_the_old_child_all_the_same() {
    let mut s = both_rekey(A);
    s.arrives(B, CREATE, Response);
    s.limit(B, true);
    s.arrives(A, INFO, Request);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 1);
}

#[test]
fn a_rekeys_what_b_deletes() {
    let mut s = Scene::new(11);
    let done = s.rekey_child(A);
    s.delete_child(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, INFO, Request);
    s.arrives(A, CREATE, Response);
    s.is_done(A, done, Ok(()));
    s.rest();
    s.ends_with(1, 0);
    assert_eq!(s.pair.b().child_downs()[0].1, Failure::Terminated);
    assert_eq!(s.pair.a().child_downs()[0].1, Failure::DeletedByPeer);
}

#[test]
fn a_rekeys_what_b_deletes_and_b_s_delete_is_late() {
    let mut s = Scene::new(12);
    s.rekey_child(A);
    s.delete_child(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.arrives(A, INFO, Request);
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn a_rekeys_what_b_deletes_and_a_s_request_is_late() {
    let mut s = Scene::new(13);
    s.rekey_child(A);
    s.delete_child(B);
    s.arrives(A, INFO, Request);
    s.arrives(B, INFO, Response);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn b_deletes_the_new_child_before_a_has_the_response_that_made_it() {
    let mut s = Scene::new(14);
    s.rekey_child(A);
    s.arrives(B, CREATE, Request);
    let new = s.pair.b().children().iter().map(|child| child.id).max().unwrap();
    s.pair.command(B, ike_proto::Command::TerminateChild(new));
    s.arrives(A, INFO, Request);
    s.arrives(A, CREATE, Response);
    s.rest();
    s.ends_with(1, 0);
}

#[test]
fn a_rekeys_a_child_while_b_rekeys_the_ike_sa() {
    let mut s = Scene::new(15);
    let child = s.rekey_child(A);
    let ike = s.rekey_ike(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, CREATE, Request);
    s.arrives(A, CREATE, Response);
    s.arrives(B, CREATE, Response);
    // Both are told to wait.
    s.sends_nothing();
    s.ends_well();
    s.is_done(A, child, Ok(()));
    s.is_done(B, ike, Ok(()));
}

#[test]
fn a_rekeys_a_child_while_b_deletes_the_ike_sa() {
    let mut s = Scene::new(16);
    s.rekey_child(A);
    s.delete_ike(B);
    s.arrives(B, CREATE, Request);
    s.arrives(A, INFO, Request);
    s.rest();
    s.ends_with(0, 0);
}
