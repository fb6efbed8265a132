//! A handshake, from nothing to a child, and back to nothing.

use std::time::Duration;

use ike_proto::{Command, IkeState};
use ike_tests::{A, B, Pair, Setup};

#[test]
fn a_brings_up_a_child_and_both_ends_agree() {
    let pair = Pair::established(1);
    assert_eq!(pair.a().ike().state, IkeState::Established);
    assert!(pair.a().ike().initiator);
    assert!(!pair.b().ike().initiator);
    assert_eq!(pair.net.trace.len(), 4, "{}", pair.story());
}

#[test]
fn the_same_with_real_key_exchange() {
    let mut pair = Setup::new(2).real().build();
    pair.establish();
}

#[test]
fn terminating_the_ike_sa_leaves_nothing_anywhere() {
    for end in [A, B] {
        let mut pair = Pair::established(3);
        let ike = pair.ike_id(end);
        let request = pair.command(end, Command::TerminateIke(ike));
        pair.run_for(Duration::from_secs(10));
        assert_eq!(pair.hosts[end].done(request), Some(Ok(())));
        assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty(), "{}", pair.story());
        assert!(pair.a().plane.table().is_empty() && pair.b().plane.table().is_empty());
        pair.assert_agreement();
    }
}
