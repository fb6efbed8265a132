//! NATs that appear, vanish and forget.

use std::net::SocketAddr;
use std::time::Duration;

use ike_proto::Event;
use ike_proto::dataplane::Event as Plane;
use ike_tests::network::Nat;
use ike_tests::setup::address;
use ike_tests::{A, B};

use super::{MINUTE, SECOND, assert_at, established, ip, setup};

#[test]
fn a_nat_appears_and_vanishes() {
    let mut pair = established(30);
    let outside = ip("192.0.2.1");
    pair.net.nats.push(Nat::new(ip("192.168.1.5"), outside));
    pair.roam(A, ip("192.168.1.5"));
    pair.run_for(SECOND);
    pair.assert_agreement();
    assert!(pair.a().ike().nat_local && pair.b().ike().nat_remote);
    assert_eq!(pair.b().ike().path.remote.ip(), outside);
    for host in [A, B] {
        assert!(pair.hosts[host].child().encap.is_some(), "ESP goes in UDP");
    }
    assert_eq!(pair.b().child().outbound.dst, outside);
    let before = pair.a().keepalives;
    pair.run_for(MINUTE);
    assert!(pair.a().keepalives > before);
    // Home again.
    pair.roam(A, address(1));
    pair.run_for(SECOND);
    assert!(!pair.a().ike().nat_local && !pair.b().ike().nat_remote);
    for host in [A, B] {
        assert!(pair.hosts[host].child().encap.is_none());
    }
    let after = pair.a().keepalives;
    pair.run_for(MINUTE);
    assert_eq!(pair.a().keepalives, after);
    assert_at(&pair, address(1), address(2));
}

/// The NAT forgets its mapping: the next liveness check of the initiator finds out.
#[test]
fn a_liveness_check_finds_another_mapping() {
    let mut behind = setup(31);
    behind.a.connection.dpd_delay = Duration::from_secs(10);
    let mut pair = behind.build();
    pair.net.nats.push(Nat::new(address(1), ip("192.0.2.1")));
    pair.establish();
    pair.run_for(15 * SECOND);
    pair.net.nats[0].rebind();
    pair.net.nats[0].outside = ip("192.0.2.9");
    pair.run_for(25 * SECOND);
    let there = pair.b().ike().path.remote;
    assert_eq!(there.ip(), ip("192.0.2.9"), "{}", pair.story());
    assert_eq!(pair.b().child().outbound.dst, there.ip());
}

/// The same address in another network: nothing shows it but that something has changed.
#[test]
fn another_network_with_the_same_addresses() {
    let mut pair = established(32);
    pair.net.nats.push(Nat::new(ip("192.168.1.5"), ip("192.0.2.1")));
    pair.roam(A, ip("192.168.1.5"));
    pair.run_for(SECOND);
    pair.tell_network(A);
    pair.run_for(SECOND);
    pair.net.nats[0] = Nat::new(ip("192.168.1.5"), ip("198.51.100.1"));
    pair.tell_network(A);
    pair.run_for(5 * SECOND);
    assert_eq!(pair.b().ike().path.remote.ip(), ip("198.51.100.1"), "{}", pair.story());
    assert_eq!(pair.b().child().outbound.dst, ip("198.51.100.1"));
}

/// As before, and there was no liveness check between IKE_SA_INIT and the new mapping.
#[test]
fn the_first_liveness_check_finds_another_mapping() {
    let mut behind = setup(33);
    behind.a.connection.dpd_delay = Duration::from_secs(10);
    let mut pair = behind.build();
    pair.net.nats.push(Nat::new(address(1), ip("192.0.2.1")));
    pair.establish();
    pair.run_for(SECOND);
    pair.net.nats[0].rebind();
    pair.net.nats[0].outside = ip("192.0.2.9");
    pair.run_for(30 * SECOND);
    assert_eq!(pair.b().ike().path.remote.ip(), ip("192.0.2.9"), "{}", pair.story());
    assert_eq!(pair.b().child().outbound.dst, ip("192.0.2.9"));
}

/// ESP shows another mapping: ESP goes there, and IKE does only once the initiator says so.
#[test]
fn esp_alone_follows_esp() {
    let mut behind = setup(34);
    behind.a.connection.dpd_delay = Duration::from_secs(10);
    let mut pair = behind.build();
    pair.net.nats.push(Nat::new(address(1), ip("192.0.2.1")));
    pair.establish();
    let before = pair.b().ike().path;
    let remote = SocketAddr::new(ip("192.0.2.9"), 40_000);
    let changes = |event: &Event| matches!(event, Event::PathChanged { .. }).then_some(());
    let changed = pair.b().events(changes).len();
    let sa = pair.b().child().inbound;
    pair.plane_event(B, Plane::Mapping { sa, remote });
    pair.run_for(SECOND);
    assert_eq!(pair.b().ike().path, before, "{}", pair.story());
    assert_eq!(pair.b().events(changes).len(), changed);
    assert_eq!(pair.b().child().outbound.dst, remote.ip());
    // It is there after a rekey of the child, and of the IKE SA.
    pair.rekey_child(B);
    pair.run_for(SECOND);
    assert!(pair.b().children_up().iter().all(|child| child.outbound.dst == remote.ip()));
    pair.rekey_ike(B);
    pair.run_for(SECOND);
    pair.rekey_child(B);
    pair.run_for(SECOND);
    assert!(pair.b().children_up().iter().all(|child| child.outbound.dst == remote.ip()));
    assert_eq!(pair.b().ike().path, before);
    // The initiator's update has the last word.
    pair.run_for(MINUTE);
    assert_eq!(pair.b().child().outbound.dst, before.remote.ip(), "{}", pair.story());
}

/// Nobody checks liveness, the mapping changes, and the gateway has something to say: it finds the client where
/// its ESP comes from, once the old mapping gives no answer.
#[test]
fn a_request_without_an_answer_goes_where_esp_comes_from() {
    let behind = setup(35);
    let mut pair = behind.build();
    pair.net.nats.push(Nat::new(address(1), ip("192.0.2.1")));
    pair.establish();
    let before = pair.b().ike().path.remote;
    pair.net.nats[0].rebind();
    // The next keepalive makes the new mapping.
    pair.run_for(MINUTE);
    let port = pair.net.nats[0].mappings().map(|(_, port)| port).last().expect("a mapping");
    let remote = SocketAddr::new(ip("192.0.2.1"), port);
    assert_ne!(remote, before);
    let sa = pair.b().child().inbound;
    pair.plane_event(B, Plane::Mapping { sa, remote });
    pair.run_for(SECOND);
    assert_eq!(pair.b().ike().path.remote, before, "ESP alone moves no IKE");
    pair.rekey_child(B);
    pair.run_for(MINUTE);
    assert_eq!(pair.b().ike().path.remote, remote, "{}", pair.story());
    assert_eq!(pair.b().child_rekeys().len(), 1);
    pair.assert_agreement();
}
