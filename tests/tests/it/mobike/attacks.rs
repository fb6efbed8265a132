//! Somebody who captures, redirects and plays back, and a peer that lies about where it is.

use std::sync::{Arc, Mutex};

use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::{Fate, Packet};
use ike_tests::setup::address;
use ike_tests::{A, B};

use super::{MINUTE, SECOND, assert_at, established, ip};

/// A captured request comes again from elsewhere, and one of the next exchange is redirected: nothing moves
/// without an update.
#[test]
fn redirected_messages_move_nothing() {
    let mut pair = established(50);
    pair.rekey_child(A);
    pair.run_for(MINUTE);
    let requests: Vec<_> = pair
        .net
        .trace
        .iter()
        .filter(|p| p.header().is_some_and(|h| !h.flags.response))
        .cloned()
        .collect();
    for request in requests {
        let mut forged = Packet { from: None, ..request };
        forged.src.set_ip(ip("203.0.113.66"));
        pair.inject(forged);
    }
    pair.net.tap(|packet| {
        if packet.is(ExchangeType::CREATE_CHILD_SA, false) {
            packet.src.set_ip(ip("203.0.113.66"));
        }
        Fate::Pass
    });
    pair.rekey_child(A);
    pair.run_for(SECOND);
    assert_eq!(pair.b().ike().path.remote.ip(), address(1));
    assert_eq!(pair.a().ike().path.remote.ip(), address(2));
    for child in pair.b().children() {
        assert_eq!(child.outbound.dst, address(1));
    }
}

/// The update is redirected on its way, so that it seems to come from a third host: the children stay until
/// that host has answered, which it does not.
#[test]
fn a_redirected_update_does_not_send_traffic_to_a_stranger() {
    let mut pair = established(51);
    pair.net.tap(|packet| {
        if packet.from == Some(A) {
            packet.src.set_ip(ip("203.0.113.66"));
        }
        Fate::Pass
    });
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(20 * SECOND);
    assert!(pair.b().children().iter().all(|child| child.outbound.dst == address(1)));
    assert!(pair.b().plane.outbound().all(|(id, _)| id.dst == address(1)));
    // As soon as that ends the next move, or the peer's next try, puts it right.
    pair.net.taps.clear();
    pair.roam(A, ip("10.0.0.78"));
    pair.run_for(MINUTE);
    assert_at(&pair, ip("10.0.0.78"), address(2));
}

/// An old update is played back after a newer one.
#[test]
fn an_old_update_moves_nothing() {
    let mut pair = established(52);
    let captured: Arc<Mutex<Vec<Packet>>> = Arc::default();
    let store = Arc::clone(&captured);
    pair.net.tap(move |packet| {
        if packet.is(ExchangeType::INFORMATIONAL, false) && packet.from == Some(A) {
            store.lock().expect("nobody panicked").push(packet.clone());
        }
        Fate::Pass
    });
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    pair.roam(A, ip("10.0.0.78"));
    pair.run_for(SECOND);
    let captured = captured.lock().expect("nobody panicked").clone();
    assert!(!captured.is_empty());
    for old in captured {
        pair.inject(Packet { from: None, ..old });
    }
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.78"), address(2));
}

/// The responder has no say: what it sends from elsewhere without saying so moves nothing.
#[test]
fn the_responder_cannot_move_the_initiator() {
    let mut pair = established(53);
    pair.add_address(B, ip("10.0.0.88"));
    pair.net.tap(|packet| {
        if packet.from == Some(B) && packet.is(ExchangeType::CREATE_CHILD_SA, false) {
            packet.src.set_ip(ip("10.0.0.88"));
        }
        Fate::Pass
    });
    pair.rekey_child(B);
    pair.run_for(SECOND);
    assert_eq!(pair.a().ike().path.remote.ip(), address(2));
}

/// The same, and there are children to be made meanwhile: none of them goes to the stranger.
#[test]
fn no_child_is_made_at_a_strangers() {
    let mut pair = established(54);
    pair.net.tap(|packet| {
        if packet.from == Some(A) {
            packet.src.set_ip(ip("203.0.113.66"));
        }
        Fate::Pass
    });
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    // What B answers gets there all the same.
    pair.net.tap(|packet| {
        if packet.from == Some(B) && packet.is(ExchangeType::INFORMATIONAL, true) {
            packet.dst.set_ip(ip("10.0.0.77"));
        }
        Fate::Pass
    });
    pair.run_for(2 * SECOND);
    pair.rekey_child(A);
    pair.rekey_child(B);
    pair.run_for(20 * SECOND);
    let asked = |p: &&Packet| p.from == Some(A) && p.is(ExchangeType::CREATE_CHILD_SA, false);
    assert!(pair.net.trace.iter().any(|p| asked(&p)), "{}", pair.story());
    let plane = &pair.b().plane;
    assert!(plane.outbound().all(|(id, _)| id.dst == address(1)), "{}", pair.story());
    assert!(pair.b().children().iter().all(|child| child.outbound.dst == address(1)));
    pair.net.taps.clear();
    pair.roam(A, ip("10.0.0.78"));
    pair.run_for(2 * MINUTE);
    assert_at(&pair, ip("10.0.0.78"), address(2));
}
