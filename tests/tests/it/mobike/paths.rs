//! Paths that break though both addresses are there.

use std::time::Duration;

use ike_proto::IkeState;
use ike_tests::network::Fate;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair};

use super::{MINUTE, SECOND, assert_at, established, ip, setup};

/// Nothing gets through between these two any more.
fn cut(pair: &mut Pair, one: &str, other: &str) {
    let (one, other) = (ip(one), ip(other));
    pair.net.tap(move |packet| {
        let ends = (packet.src.ip(), packet.dst.ip());
        if ends == (one, other) || ends == (other, one) { Fate::Drop } else { Fate::Pass }
    });
}

#[test]
fn another_path_is_found_when_one_breaks() {
    let mut multi = setup(40);
    multi.a.connection.dpd_delay = Duration::from_secs(5);
    let mut pair = multi.build();
    pair.add_address(A, ip("172.16.0.1"));
    pair.add_address(B, ip("172.16.0.2"));
    for host in [A, B] {
        pair.tell_network(host);
    }
    pair.establish();
    cut(&mut pair, "10.0.0.1", "10.0.0.2");
    cut(&mut pair, "10.0.0.1", "172.16.0.2");
    cut(&mut pair, "172.16.0.1", "10.0.0.2");
    pair.run_for(MINUTE);
    assert_at(&pair, ip("172.16.0.1"), ip("172.16.0.2"));
}

#[test]
fn the_peer_is_given_up_where_no_path_is_left() {
    let mut alone = setup(41);
    alone.a.connection.dpd_delay = Duration::from_secs(5);
    let mut pair = alone.build();
    for host in [A, B] {
        pair.tell_network(host);
    }
    pair.establish();
    cut(&mut pair, "10.0.0.1", "10.0.0.2");
    pair.run_for(5 * MINUTE);
    assert_eq!(pair.a().ikes_in(IkeState::Established).len(), 0);
    assert_eq!(pair.a().plane.inbound_spis(), Vec::<u32>::new());
}

#[test]
fn the_list_of_addresses_is_kept_up_to_date() {
    let mut pair = established(42);
    pair.add_address(B, ip("172.16.0.2"));
    pair.tell_network(B);
    pair.run_for(SECOND);
    // Nobody moves for that.
    assert_at(&pair, address(1), address(2));
    let known = pair.a().endpoint.mobile_peers(&[address(1)]);
    assert!(known.contains(&ip("172.16.0.2")), "{known:?}");
    pair.remove_address(B, ip("172.16.0.2"));
    pair.tell_network(B);
    pair.run_for(SECOND);
    let known = pair.a().endpoint.mobile_peers(&[address(1)]);
    assert!(!known.contains(&ip("172.16.0.2")), "{known:?}");
}

/// `prefer_best_path`: the routes lead elsewhere, and the address is there yet.
#[test]
fn the_best_path_is_taken_only_if_asked_for() {
    for prefer in [false, true] {
        let mut better = setup(43);
        better.a.settings.prefer_best_path = prefer;
        let mut pair = better.build();
        pair.tell_network(A);
        pair.establish();
        pair.add_address(A, address(1));
        pair.set_address(A, ip("172.16.0.1"));
        pair.tell_network(A);
        pair.run_for(5 * SECOND);
        let at = if prefer { ip("172.16.0.1") } else { address(1) };
        assert_at(&pair, at, address(2));
    }
}

/// An update gets to the peer by one path, and its answer back by another: the peer is not where that says.
#[test]
fn an_update_that_left_by_several_paths_is_made_again() {
    let mut pair = established(44);
    pair.add_address(A, ip("172.16.0.1"));
    pair.tell_network(A);
    pair.run_for(SECOND);
    let (here, there) = (ip("10.0.0.5"), ip("172.16.0.1"));
    let end = pair.now() + 40 * SECOND;
    pair.net.tap(move |packet| {
        let first = packet.src.ip() == here && packet.sent < end;
        if first || packet.dst.ip() == there { Fate::Drop } else { Fate::Pass }
    });
    pair.roam(A, here);
    pair.run_for(40 * SECOND);
    assert_eq!(pair.b().ike().path.remote.ip(), there, "{}", pair.story());
    pair.run_for(2 * MINUTE);
    assert_at(&pair, here, address(2));
}
