//! ESP in UDP where there is no NAT (`encap`).

use std::sync::Arc;

use ike_proto::config::{EspInUdp, TicketKey};
use ike_proto::crypto::Secret;
use ike_tests::network::{Fate, Packet};
use ike_tests::setup::{Side, address};
use ike_tests::{A, B, Pair, Setup};

use super::{MINUTE, SECOND, assert_at, ip, setup};

/// Two ends for which ESP in UDP costs less.
fn fast(seed: u64) -> Setup {
    let mut setup = setup(seed);
    setup.both(|side| side.plane.capabilities.udp_costs_less = true);
    setup
}

fn up(setup: Setup) -> Pair {
    let mut pair = setup.build();
    for host in [A, B] {
        pair.tell_network(host);
    }
    pair.establish();
    pair
}

/// Both ends send ESP in UDP, or none does. Neither end says that there is a NAT.
#[track_caller]
fn assert_udp(pair: &Pair, udp: bool) {
    pair.assert_agreement();
    for host in &pair.hosts {
        let ike = host.ike();
        assert!(!ike.nat_local && !ike.nat_remote, "{}", pair.story());
        assert_eq!(ike.esp_in_udp, udp, "{}", pair.story());
        assert!(ike.children.iter().all(|child| child.encap.is_some() == udp), "{}", pair.story());
        assert!(host.plane.table().sas().all(|(_, sa)| sa.encap.is_some() == udp));
    }
}

/// Each end sends keepalives, although nothing else has been sent.
#[track_caller]
fn assert_keepalives(pair: &mut Pair) {
    let before = [A, B].map(|host| pair.hosts[host].keepalives);
    pair.run_for(MINUTE);
    for host in [A, B] {
        assert!(pair.hosts[host].keepalives > before[host], "host {host}: {}", pair.story());
    }
}

/// Faults: in `Agreement::is_shared_by`, agree to nothing; in `Channel::succeed`, leave `prefers_udp` out; in
/// `Route::puts_esp_in_udp`, ask for NATs alone; in `Channel::arm_keepalive`, ask for a NAT alone; in `on_response` of the initiator or `Channel::succeed`, set no timer.
#[test]
fn two_fast_ends_agree_and_rekeys_keep_it() {
    let mut pair = up(fast(80));
    assert_udp(&pair, true);
    assert_keepalives(&mut pair);
    for host in [A, B] {
        pair.rekey_ike(host);
        assert_keepalives(&mut pair);
        assert_udp(&pair, true);
        pair.rekey_child(host);
        pair.run_for(10 * SECOND);
        assert_udp(&pair, true);
        pair.rekey_ike(host);
        pair.run_for(10 * SECOND);
        assert_udp(&pair, true);
        pair.rekey_child(host);
        pair.run_for(10 * SECOND);
        assert_udp(&pair, true);
    }
    // A move keeps it.
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(MINUTE);
    assert_at(&pair, ip("10.0.0.77"), address(2));
    assert_udp(&pair, true);
}

/// Fault: in `Agreement::of`, leave one condition out.
#[test]
fn one_end_keeps_both_from_it() {
    type Change = fn(&mut Side);
    let changes: [(&str, Change); 4] = [
        ("data plane", |side| side.plane.capabilities.udp_costs_less = false),
        ("encap = no", |side| side.connection.encap = EspInUdp::No),
        ("numbers of another project", |side| side.settings.fragment_ack = None),
        ("port 500", |side| side.connection.mobike = false),
    ];
    for (number, (what, change)) in (81..).zip(changes) {
        for host in [A, B] {
            let mut setup = fast(number);
            change(if host == A { &mut setup.a } else { &mut setup.b });
            let pair = up(setup);
            // An end without MOBIKE stays on port 4500 if its peer begins there.
            println!("{what} at host {host}");
            assert_udp(&pair, what == "port 500" && host == B);
        }
    }
}

/// `encap = yes` of either end needs no consent, and says that there is a NAT.
#[test]
fn forced_by_one_end() {
    for host in [A, B] {
        let mut setup = setup(90);
        let side = if host == A { &mut setup.a } else { &mut setup.b };
        side.connection.encap = EspInUdp::Yes;
        let pair = up(setup);
        assert!(pair.hosts[host].ike().nat_local);
        assert!(!pair.hosts[host].ike().esp_in_udp, "a NAT is the reason");
        assert!(pair.hosts.iter().all(|host| host.child().encap.is_some()));
    }
}

/// A session that is resumed agrees again, and does not if the other end has changed its mind.
#[test]
fn resumption_agrees_again() {
    for still in [true, false] {
        let mut setup = fast(91);
        setup.both(|side| side.connection.session_resumption = true);
        let key = TicketKey { id: [1; 8], secret: Secret::new(vec![1; 32]) };
        setup.b.settings.resumption.keys = vec![Arc::new(key)];
        setup.a.connection.dpd_delay = 10 * SECOND;
        let mut config = setup.b.config();
        if !still {
            for connection in &mut config.connections {
                Arc::make_mut(connection).encap = EspInUdp::No;
            }
        }
        let mut pair = up(setup);
        assert_udp(&pair, true);
        pair.net.tap(|_: &mut Packet| Fate::Drop);
        pair.run_until(10 * MINUTE, |world| world.hosts[A].ikes().is_empty());
        pair.net.taps.clear();
        pair.reload(B, config);
        pair.initiate(A, Some("net"));
        pair.run_for(MINUTE);
        assert!(pair.a().ike().resumed, "{}", pair.story());
        let (ike, child) = (pair.a().ike(), pair.a().child());
        assert_eq!((ike.esp_in_udp, child.encap.is_some()), (still, still), "{}", pair.story());
    }
}
