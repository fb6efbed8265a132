//! MOBIKE in TCP (RFC 9329 §7.1): in another network UDP is tried first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ike_proto::Transport;
use ike_proto::config::{AddressSpec, TcpUse};
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::{Fate, Nat};
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup};

use crate::tcp::stage::{NO_STREAMS, assert_on_tcp, end, in_tcp, seconds};

/// A has fallen back to TCP. What it may not do is set until it is let.
fn fallen_back(seed: u64, enable_tcp: TcpUse) -> (Pair, Arc<AtomicBool>) {
    let mut setup = Setup::new(seed);
    setup.a.connection.enable_tcp = enable_tcp;
    setup.both(|side| {
        side.connection.mobike = true;
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
        side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    });
    let mut pair = setup.build();
    let blocked = Arc::new(AtomicBool::new(true));
    let its = Arc::clone(&blocked);
    pair.net.tap(move |packet| {
        let drop = packet.stream.is_none() && its.load(Ordering::Relaxed);
        if drop { Fate::Drop } else { Fate::Pass }
    });
    pair.tell_network(A);
    pair.establish();
    assert_on_tcp(&pair, in_tcp);
    (pair, blocked)
}

const FALLBACK: TcpUse = TcpUse::Fallback(std::time::Duration::from_secs(5));

/// Both ends have IKE and ESP on UDP, and no connection is left.
#[track_caller]
fn assert_on_udp(pair: &Pair) {
    for host in [pair.a(), pair.b()] {
        assert_eq!(host.ike().path.transport, Transport::UdpEncap, "{}", pair.story());
        assert!(host.children().iter().all(|child| !in_tcp(&child.encap)), "{}", pair.story());
        assert!(host.plane.table().sas().all(|(_, sa)| !in_tcp(&sa.encap)), "{}", pair.story());
    }
    assert_eq!(pair.streams.open(), NO_STREAMS, "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn where_udp_works_again_it_is_used() {
    for natted in [false, true] {
        let (mut pair, blocked) = fallen_back(1, FALLBACK);
        if natted {
            pair.net.nats.push(Nat::new(address(9), [192, 0, 2, 1].into()));
        }
        blocked.store(false, Ordering::Relaxed);
        pair.roam(A, address(9));
        pair.run_for(seconds(4));
        assert_on_udp(&pair);
        assert_eq!((pair.a().ike().nat_local, pair.b().ike().nat_remote), (natted, natted));
        let outer = if natted { [192, 0, 2, 1].into() } else { address(9) };
        assert_eq!(pair.b().ike().path.remote.ip(), outer);
        pair.rekey_ike(B);
        pair.run_for(seconds(10));
        pair.rekey_child(A);
        pair.run_for(seconds(10));
        assert_on_udp(&pair);
        end(&mut pair);
    }
}

/// The request is the one that was sent over UDP.
#[test]
fn where_it_does_not_the_same_request_goes_over_tcp() {
    let (mut pair, _blocked) = fallen_back(2, FALLBACK);
    let from = pair.net.trace.len();
    pair.roam(A, address(9));
    let moved = pair.now();
    pair.run_until(seconds(60), |w| w.hosts[B].ike().path.remote.ip() == address(9));
    let took = pair.now() - moved;
    assert!(took >= seconds(5) && took < seconds(7), "{took:?}\n{}", pair.story());
    let asked = pair.net.trace[from..].iter();
    let asked = asked.filter(|p| p.from == Some(A) && p.is(ExchangeType::INFORMATIONAL, false));
    let (udp, tcp): (Vec<_>, Vec<_>) = asked.partition(|packet| packet.stream.is_none());
    assert!(udp.len() >= 3, "several times: {}", pair.story());
    assert!(udp.iter().all(|packet| packet.octets == tcp[0].octets), "{}", pair.story());
    pair.run_for(seconds(10));
    assert_on_tcp(&pair, in_tcp);
    pair.assert_agreement();
    assert_eq!(pair.streams.open().len(), 1);
    end(&mut pair);
}

/// B hears over UDP and is not heard: both ends are on TCP in the end.
#[test]
fn where_only_one_way_works() {
    let (mut pair, blocked) = fallen_back(3, FALLBACK);
    pair.net.tap(|packet| {
        if packet.stream.is_none() && packet.from == Some(B) { Fate::Drop } else { Fate::Pass }
    });
    blocked.store(false, Ordering::Relaxed);
    pair.roam(A, address(9));
    pair.run_for(seconds(30));
    assert_on_tcp(&pair, in_tcp);
    pair.assert_agreement();
    end(&mut pair);
}

/// From one network to the next, with UDP and without it.
#[test]
fn to_and_fro() {
    for seed in 10..20 {
        let (mut pair, blocked) = fallen_back(seed, FALLBACK);
        pair.net.conditions.loss = 100;
        for (n, without) in
            [(9, false), (10, true), (11, true), (12, false), (13, false), (14, true)]
        {
            blocked.store(without, Ordering::Relaxed);
            if n % 2 == 0 {
                pair.rekey_ike(if n % 4 == 0 { A } else { B });
            }
            pair.roam(A, address(n));
            pair.run_for(seconds(40));
            assert_eq!(pair.b().ikes().len(), 1, "{n}: {}", pair.story());
            let tcp = pair.a().ike().path.transport == Transport::Tcp;
            assert_eq!(tcp, without, "{n}: {}", pair.story());
            if tcp {
                assert_on_tcp(&pair, in_tcp)
            } else {
                assert_on_udp(&pair)
            }
            pair.assert_agreement();
        }
        pair.net.conditions.loss = 0;
        end(&mut pair);
    }
}

/// Who has configured it from the start stays with it.
#[test]
fn tcp_alone_stays_tcp() {
    let (mut pair, blocked) = fallen_back(4, TcpUse::Yes);
    blocked.store(false, Ordering::Relaxed);
    pair.roam(A, address(9));
    pair.run_for(seconds(10));
    assert_on_tcp(&pair, in_tcp);
    pair.assert_agreement();
    end(&mut pair);
}

/// An SA that is on TCP answers over UDP whoever has its keys, and goes there by UPDATE_SA_ADDRESSES alone.
#[test]
fn what_is_played_back_over_udp_moves_nothing() {
    let (mut pair, blocked) = fallen_back(5, FALLBACK);
    blocked.store(false, Ordering::Relaxed);
    pair.rekey_child(A);
    pair.run_for(seconds(5));
    let mine = pair.net.trace.iter().filter(|p| p.from == Some(A) && p.stream.is_some());
    let mine: Vec<_> = mine.filter(|p| p.header().unwrap().message_id > 0).cloned().collect();
    assert!(mine.len() >= 3);
    let (src, dst) = (pair.socket(A, 4500), pair.socket(B, 4500));
    for packet in mine {
        let octets = packet.octets.to_vec();
        pair.inject(ike_tests::network::Packet::forged(src, dst, octets));
    }
    pair.run_for(seconds(5));
    assert_on_tcp(&pair, in_tcp);
    pair.assert_agreement();
}
