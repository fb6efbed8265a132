//! Addresses that change, at any time.

use std::time::Duration;

use ike_proto::config::{SeparateTransports, TcpUse};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Event, Transport};
use ike_tests::network::Conditions;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair};

use super::{MINUTE, SECOND, assert_at, established, ip, responses, setup};

#[test]
fn both_announce_it_and_go_to_port_4500_at_once() {
    let pair = established(1);
    for host in [A, B] {
        let path = pair.hosts[host].ike().path;
        assert_eq!((path.transport, path.local.port()), (Transport::UdpEncap, 4500));
        assert_eq!(path.remote.port(), 4500);
        assert!(pair.hosts[host].child().encap.is_none(), "there is no NAT");
    }
    // Not where one end does not want it.
    let mut one = setup(1);
    one.b.connection.mobike = false;
    let mut pair = one.build();
    pair.establish();
    assert!(!pair.a().ike().mobike && !pair.b().ike().mobike);
    // What is wanted would be begun anew from the new address.
    pair.command(A, Command::Unwant { connection: "ab".to_owned(), child: None });
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    assert_eq!(pair.a().ike().path.local.ip(), address(1), "it stays where it was");
}

#[test]
fn the_initiator_moves_and_takes_its_children_along() {
    let mut pair = established(2);
    let first = pair.a().child();
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.77"), address(2));
    let now = pair.a().child();
    assert_eq!((now.id, now.inbound.spi), (first.id, first.inbound.spi), "the same SA");
    // An update, and the responder's check: two exchanges.
    assert_eq!(responses(&pair, ExchangeType::INFORMATIONAL), 2, "{}", pair.story());
    let moved = |event: &Event| matches!(event, Event::PathChanged { .. }).then_some(());
    assert_eq!(pair.b().events(moved).len(), 1);
    // And it goes on as ever.
    pair.rekey_child(A);
    pair.run_for(MINUTE);
    pair.rekey_ike(B);
    pair.run_for(MINUTE);
    assert_at(&pair, ip("10.0.0.77"), address(2));
}

#[test]
fn without_the_check_one_exchange_is_enough() {
    let mut unchecked = setup(3);
    unchecked.b.settings.return_routability = false;
    let mut pair = unchecked.build();
    pair.establish();
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.77"), address(2));
    assert_eq!(responses(&pair, ExchangeType::INFORMATIONAL), 1);
}

#[test]
fn it_moves_from_ipv4_to_ipv6_and_back() {
    let mut pair = established(4);
    pair.add_address(B, ip("2001:db8::2"));
    pair.tell_network(B);
    pair.run_for(SECOND);
    pair.roam(A, ip("2001:db8::1"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("2001:db8::1"), ip("2001:db8::2"));
    pair.roam(A, ip("10.0.0.9"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.9"), address(2));
}

#[test]
fn the_responder_moves() {
    let mut pair = established(5);
    pair.roam(B, ip("10.0.0.88"));
    pair.run_for(5 * SECOND);
    assert_at(&pair, address(1), ip("10.0.0.88"));
}

#[test]
fn both_move_at_once_if_one_was_announced_before() {
    let mut pair = established(6);
    pair.add_address(A, ip("10.0.0.71"));
    pair.add_address(B, ip("10.0.0.72"));
    pair.tell_network(A);
    pair.tell_network(B);
    pair.run_for(SECOND);
    pair.remove_address(A, ip("10.0.0.71"));
    pair.remove_address(B, ip("10.0.0.72"));
    pair.set_address(A, ip("10.0.0.71"));
    pair.set_address(B, ip("10.0.0.72"));
    pair.tell_network(A);
    pair.tell_network(B);
    pair.run_for(MINUTE);
    assert_at(&pair, ip("10.0.0.71"), ip("10.0.0.72"));
}

/// The address changes at every point of a rekey, of a child and of the IKE SA, begun by either end, over a
/// link that loses some and takes its time, with additional key exchanges or without.
#[test]
fn it_moves_in_the_middle_of_rekeys() {
    for additional in [false, true] {
        for ike in [false, true] {
            for by in [A, B] {
                for step in 0..8u32 {
                    let mut between = setup(7 + u64::from(step));
                    if additional {
                        between.both(|side| {
                            side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ke1_mlkem768"]);
                            side.esp_proposals(&["aes256gcm16-x25519-ke1_mlkem768"]);
                        });
                    }
                    between.conditions.loss = if step % 2 == 0 { 0 } else { 100 };
                    let between = if additional { between.real() } else { between };
                    let mut pair = between.build();
                    pair.establish();
                    if ike {
                        pair.rekey_ike(by);
                    } else {
                        pair.rekey_child(by);
                    }
                    pair.run_for(Duration::from_millis(7) * step);
                    pair.roam(A, ip("10.0.0.77"));
                    pair.run_for(3 * MINUTE);
                    let what = format!("additional {additional} ike {ike} by {by} step {step}");
                    let at = pair.a().ike().path.local.ip();
                    assert_eq!(at, ip("10.0.0.77"), "{what}\n{}", pair.story());
                    assert_at(&pair, ip("10.0.0.77"), address(2));
                }
            }
        }
    }
}

/// Fragments of a request and of its response are under way when the address goes.
#[test]
fn it_moves_while_fragments_are_in_flight() {
    for by in [A, B] {
        for wait in [5, 15, 25, 35] {
            let mut large = setup(20);
            large.both(|side| {
                side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ke1_frodoa3"]);
                side.settings.fragment_size = Some(1280);
            });
            let mut pair = large.real().build();
            pair.establish();
            pair.rekey_ike(by);
            pair.run_for(Duration::from_millis(20 + wait));
            pair.roam(A, ip("10.0.0.77"));
            pair.run_for(3 * MINUTE);
            assert_at(&pair, ip("10.0.0.77"), address(2));
        }
    }
}

/// Over TCP it opens another connection from its new address; ESP goes along, in it or beside it.
#[test]
fn it_moves_over_tcp() {
    for separate in [false, true] {
        let mut tcp = setup(60);
        tcp.a.connection.enable_tcp = TcpUse::Yes;
        tcp.b.settings.accepts_tcp = true;
        if separate {
            tcp.a.connection.separate_transports = SeparateTransports::Yes;
        }
        let mut pair = tcp.build();
        pair.tell_network(A);
        pair.establish();
        assert_eq!(pair.a().ike().path.transport, Transport::Tcp);
        pair.roam(A, ip("10.0.0.77"));
        pair.run_for(MINUTE);
        assert_at(&pair, ip("10.0.0.77"), address(2));
        assert_eq!(pair.b().ike().path.transport, Transport::Tcp);
        pair.rekey_child(B);
        pair.run_for(MINUTE);
        assert_at(&pair, ip("10.0.0.77"), address(2));
    }
}

/// The address changes before there is MOBIKE, at every point of IKE_AUTH.
#[test]
fn it_moves_during_ike_auth() {
    for step in 0..8u64 {
        for moves in [false, true] {
            let mut pair = setup(70 + step).build();
            for host in [A, B] {
                pair.tell_network(host);
            }
            let request = pair.initiate(A, Some("net"));
            pair.run_for(Duration::from_millis(5 * step));
            pair.add_address(A, ip("10.0.0.77"));
            if moves {
                pair.set_address(A, ip("10.0.0.77"));
                pair.run_for(Duration::from_millis(1));
            }
            pair.tell_network(A);
            // What was under way still gets there.
            pair.add_address(A, address(1));
            pair.run_for(MINUTE);
            assert_eq!(pair.a().done(request), Some(Ok(())), "step {step}\n{}", pair.story());
            let at = if moves { ip("10.0.0.77") } else { address(1) };
            assert_at(&pair, at, address(2));
            let known = pair.b().endpoint.mobile_peers(&[]);
            assert!(known.contains(&ip("10.0.0.77")), "step {step} {known:?}");
        }
    }
}

/// One change after another, each before the exchange about the last one is over.
#[test]
fn it_moves_again_and_again() {
    let mut pair = established(8);
    for n in 0..20u8 {
        pair.roam(A, [10, 0, 1, n].into());
        pair.run_for(Duration::from_millis(u64::from(n) * 3));
    }
    pair.run_for(MINUTE);
    assert_at(&pair, ip("10.0.1.19"), address(2));
}

/// Nothing leads to the peer for a while.
#[test]
fn it_waits_for_a_way() {
    let mut pair = established(9);
    pair.set_address(A, ip("2001:db8::1"));
    pair.tell_network(A);
    pair.run_for(MINUTE);
    assert_eq!(pair.a().ike().path.local.ip(), address(1));
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.77"), address(2));
}

/// A hundred children on ten IKE SAs: none is lost, and neither is a packet that is sent once they have moved.
#[test]
fn a_hundred_children_move_without_loss() {
    let mut many = setup(10);
    for n in 10..109u8 {
        many.a.add_child(&format!("c{n}"), n, n + 100);
        many.b.add_child(&format!("c{n}"), n + 100, n);
    }
    let mut pair: Pair = many.build();
    pair.establish();
    for n in 10..109u8 {
        pair.initiate(A, Some(&format!("c{n}")));
    }
    pair.run_for(MINUTE);
    assert_eq!(pair.a().children_up().len(), 100);
    pair.traffic.watch();
    pair.roam(A, ip("10.0.0.77"));
    pair.run_for(SECOND);
    assert_at(&pair, ip("10.0.0.77"), address(2));
    assert_eq!(pair.a().children_up().len(), 100);
    assert!(pair.traffic.arrived > 0);
    assert_eq!(pair.traffic.lost, []);
}

/// Lives of moving, rekeying and loss, by seed.
#[test]
fn moving_lives_at_loss() {
    for seed in 0..60u64 {
        let mut life = setup(1000 + seed);
        life.conditions = Conditions {
            loss: 100,
            duplication: 50,
            delay: Duration::from_millis(10),
            jitter: Duration::from_millis(30),
        };
        let mut pair = life.build();
        pair.establish();
        let mut at = address(1);
        for n in 0..6u8 {
            match (seed.rotate_right(n.into()) ^ u64::from(n)) % 4 {
                0 => _ = pair.rekey_ike(A),
                1 => _ = pair.rekey_ike(B),
                2 => _ = pair.rekey_child(B),
                _ => _ = pair.rekey_child(A),
            }
            pair.run_for(Duration::from_millis((seed * 13 + u64::from(n) * 29) % 120));
            at = [10, 0, 2, n].into();
            pair.roam(A, at);
            pair.run_for(2 * MINUTE);
            assert_at(&pair, at, address(2));
        }
        pair.net.conditions = Conditions::default();
        pair.run_for(MINUTE);
        assert_at(&pair, at, address(2));
    }
}
