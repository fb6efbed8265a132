//! Children between two hosts, whose selectors are `dynamic`: they and their traps follow the hosts.

use std::net::IpAddr;

use ike_proto::config::TsSpec;
use ike_proto::dataplane::PolicyAction;
use ike_proto::{Command, Event};
use ike_tests::network::Fate;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair};

use super::{MINUTE, SECOND, assert_at, ip, setup};

/// Two hosts with a child for their own addresses.
fn hosts(seed: u64) -> Pair {
    let mut setup = setup(seed);
    setup.both(|side| {
        let net = side.net();
        (net.local_ts, net.remote_ts) = (vec![TsSpec::DYNAMIC], vec![TsSpec::DYNAMIC]);
    });
    let mut pair = setup.build();
    for host in [A, B] {
        pair.tell_network(host);
    }
    pair
}

fn trap(pair: &mut Pair, host: usize) {
    let (local, remote) = if host == A { (1, 2) } else { (2, 1) };
    let (local, remote) = (address(local), address(remote));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(host, Command::InstallTrap { connection, child, local, remote });
    pair.run_for(SECOND);
}

/// The pairs of addresses for which a host has traps, or policies of its children.
#[track_caller]
fn pairs(pair: &Pair, host: usize, traps: bool) -> Vec<(IpAddr, IpAddr)> {
    let policies = pair.hosts[host].plane.table().policies();
    let is_trap = |action: &PolicyAction| *action == PolicyAction::Trap;
    let wanted = policies.filter(|policy| is_trap(&policy.action) == traps);
    let mut pairs: Vec<_> = wanted
        .flat_map(|policy| {
            let (local, remote) = (policy.local_ts.clone(), policy.remote_ts.clone());
            local.into_iter().flat_map(move |own| {
                remote.clone().into_iter().map(move |peer| {
                    assert_eq!((own.start, peer.start), (own.end, peer.end));
                    (own.start, peer.start)
                })
            })
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// A host moves. Its policies have the new address at once, those of its peer as soon as the host has proven it. A rekey
/// of the child makes SAs for it, the traps have it, and no policy has the former address.
///
/// Faults: in `ChildSa::follow_addresses`, take no child in tunnel mode; in `Established::move_children`, pass no
/// `proven`; in `Established::move_children`, queue no effect; in `Trap::follow`, leave `again` alone.
#[test]
fn children_and_traps_of_hosts_follow_them() {
    let mut pair = hosts(60);
    for host in [A, B] {
        trap(&mut pair, host);
    }
    pair.establish();
    let new = ip("10.0.0.77");
    let here = vec![(new, address(2))];
    pair.roam(A, new);
    // No time has passed: no packet from the new address leaves in clear.
    assert_eq!(pairs(&pair, A, false), here, "{}", pair.story());
    pair.run_for(MINUTE);
    assert_at(&pair, new, address(2));
    for traps in [false, true] {
        assert_eq!(pairs(&pair, A, traps), here, "traps {traps}: {}", pair.story());
        assert_eq!(pairs(&pair, B, traps), [(address(2), new)], "traps {traps}: {}", pair.story());
    }
    let rekeyed = |event: &Event| matches!(event, Event::ChildRekeyed { .. }).then_some(());
    assert!(!pair.a().events(rekeyed).is_empty(), "{}", pair.story());
    assert_eq!(pair.a().child().local_ts, [new.to_string().parse().expect("a selector")]);
    assert_eq!(pair.b().child().remote_ts, pair.a().child().local_ts);
    // And once more, from where it is now.
    pair.roam(A, ip("10.0.0.78"));
    pair.run_for(MINUTE);
    let here = [(ip("10.0.0.78"), address(2))];
    assert_eq!(pairs(&pair, A, false), here);
    assert_eq!(pairs(&pair, A, true), here);
}

/// A host without an IKE SA moves: its trap has the new address, so that no packet leaves in clear.
///
/// Faults: in `Endpoint::on_network`, let no trap leave; in `Endpoint::mobile_peers`, name no peer of a trap; in
/// `Endpoint::on_network`, let a trap leave only when its address is gone.
#[test]
fn a_trap_alone_follows_its_host() {
    let mut pair = hosts(61);
    trap(&mut pair, A);
    assert_eq!(pairs(&pair, A, true), [(address(1), address(2))]);
    pair.roam(A, ip("10.0.0.77"));
    assert_eq!(pairs(&pair, A, true), [(ip("10.0.0.77"), address(2))]);
    // The first address comes back, and the kernel sends from it again. The other one stays.
    pair.add_address(A, ip("10.0.0.77"));
    pair.roam(A, address(1));
    assert_eq!(pairs(&pair, A, true), [(address(1), address(2))]);
}

/// A peer that had moved ends, and will start at its own address: the trap is there again.
///
/// Fault: on `Effect::Ended`, let no trap go home.
#[test]
fn the_trap_for_a_peer_goes_home_when_the_peer_ends() {
    let mut pair = hosts(63);
    trap(&mut pair, B);
    pair.establish();
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(MINUTE);
    assert_eq!(pairs(&pair, B, true), [(address(2), ip("10.0.0.77"))]);
    let ike = pair.ike_id(B);
    pair.command(B, Command::TerminateIke(ike));
    pair.run_for(MINUTE);
    assert_eq!(pairs(&pair, B, true), [(address(2), address(1))], "{}", pair.story());
}

/// Somebody redirects the update of a host, so that it seems to come from a stranger. No policy names the stranger, whose
/// traffic would go to the host otherwise.
///
/// Fault: in `Established::on_update`, hold no children.
#[test]
fn no_policy_names_a_stranger_to_whom_an_update_was_redirected() {
    let mut pair = hosts(62);
    trap(&mut pair, B);
    pair.establish();
    let stranger = ip("203.0.113.66");
    pair.net.tap(move |packet| {
        if packet.from == Some(A) {
            packet.src.set_ip(stranger);
        }
        Fate::Pass
    });
    pair.roam(A, ip("10.0.0.77"));
    for _ in 0..20 {
        pair.run_for(SECOND);
        for traps in [false, true] {
            let all = pairs(&pair, B, traps);
            assert!(all.iter().all(|(_, peer)| *peer == address(1)), "traps {traps}: {all:?}");
        }
    }
}
