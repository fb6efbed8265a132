//! Rekeying of a Child SA (RFC 7296 §1.3.3, §2.8), by one end at a time.

use std::time::Duration;

use ike_tests::{A, B, Pair, Setup};

/// Long enough for a rekeyed inbound SA to go.
const LINGER: Duration = Duration::from_secs(10);

#[track_caller]
fn rekeys(mut pair: Pair, end: usize) {
    pair.traffic.watch();
    let (before_a, before_b) = (pair.a().child(), pair.b().child());
    let request = pair.rekey_child(end);
    pair.run_for(LINGER);
    assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
    pair.assert_agreement();
    assert_ne!(pair.a().child().inbound, before_a.inbound);
    assert_ne!(pair.b().child().inbound, before_b.inbound);
    assert_eq!(pair.a().child().policy, before_a.policy, "the policy stays");
    assert!(pair.traffic.lost.is_empty(), "{:#?}\n{}", pair.traffic.lost, pair.story());
    assert!(pair.traffic.arrived > 0);
    assert_eq!(pair.a().child_rekeys().len(), 1);
    assert_eq!(pair.b().child_rekeys().len(), 1);
    assert!(pair.a().child_downs().is_empty() && pair.b().child_downs().is_empty());
}

#[test]
fn initiated_by_either_end_loses_no_packet() {
    for end in [A, B] {
        rekeys(Pair::established(10), end);
    }
}

/// A packet that the host has handed to the old SA before the policy changed is still sealed by it.
#[test]
fn the_outbound_sa_stays_for_packets_that_are_in_it() {
    for end in [A, B] {
        let mut pair = Pair::established(15);
        let before = [A, B].map(|end| pair.hosts[end].child().outbound);
        pair.rekey_child(end);
        pair.run_for(Duration::from_secs(2));
        for (host, old) in pair.hosts.iter().zip(before) {
            assert!(host.plane.outbound_spis().contains(&old.spi), "{}", pair.story());
            let unused = host.plane.routes().iter().all(|(_, sa)| sa.is_some_and(|sa| sa != old));
            assert!(unused, "{}", pair.story());
        }
        pair.run_for(LINGER);
        for (host, old) in pair.hosts.iter().zip(before) {
            assert!(!host.plane.outbound_spis().contains(&old.spi), "{}", pair.story());
        }
        pair.assert_agreement();
    }
}

#[test]
fn with_pfs_by_either_end() {
    for end in [A, B] {
        let mut setup = Setup::new(11);
        setup.both(|side| side.esp_proposals(&["aes128gcm16-x25519"]));
        let mut pair = setup.build();
        pair.establish();
        rekeys(pair, end);
    }
}

#[test]
fn with_a_slow_data_plane() {
    for end in [A, B] {
        let mut setup = Setup::new(12);
        setup.both(|side| side.plane.delay = Duration::from_millis(700));
        let mut pair = setup.build();
        pair.establish();
        rekeys(pair, end);
    }
}

#[test]
fn when_the_data_plane_tells_of_first_packets() {
    for end in [A, B] {
        let mut pair = Pair::established(13);
        pair.traffic.first_packets = true;
        rekeys(pair, end);
    }
}

#[test]
fn again_and_again_by_turns() {
    let mut pair = Pair::established(14);
    pair.traffic.watch();
    for n in 0..40 {
        let end = n % 2;
        let request = pair.rekey_child(end);
        pair.run_for(LINGER);
        assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
        pair.assert_agreement();
    }
    assert!(pair.traffic.lost.is_empty(), "{:#?}", pair.traffic.lost);
}

#[test]
fn by_both_at_once_leaves_one_child() {
    for seed in 0..64 {
        for skew in [0, 3, 10, 17, 25, 40] {
            let mut pair = Pair::established(seed);
            pair.traffic.watch();
            let first = pair.rekey_child(A);
            pair.run_for(Duration::from_millis(skew));
            let second = pair.hosts[B].children_up().first().map(|child| child.id);
            let second = second.map(|child| pair.command(B, ike_proto::Command::RekeyChild(child)));
            pair.run_for(LINGER * 2);
            assert!(pair.a().done(first).is_some(), "{}", pair.story());
            if let Some(second) = second {
                assert!(pair.b().done(second).is_some(), "{}", pair.story());
            }
            pair.assert_agreement();
            pair.a().child();
            let lost = &pair.traffic.lost;
            assert!(lost.is_empty(), "seed {seed} skew {skew}: {lost:#?}\n{}", pair.story());
            let downs = (pair.a().child_downs(), pair.b().child_downs());
            assert!(downs.0.is_empty() && downs.1.is_empty(), "{}", pair.story());
        }
    }
}
