//! A connection that holds.

use ike_proto::dataplane::Mode;
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, Payload};
use ike_proto::{Command, Failure};
use ike_tests::network::Nat;
use ike_tests::{A, B, Pair};

use crate::tcp::stage::{
    LONG, NO_STREAMS, assert_on_tcp, block_udp, end, in_tcp, over_tcp, seconds, sent,
};

#[test]
fn all_goes_over_one_connection_and_it_ends_with_the_sa() {
    let mut pair = over_tcp(1).build();
    block_udp(&mut pair);
    pair.establish();
    assert_on_tcp(&pair, in_tcp);
    assert_eq!(sent(&pair), (4, 0), "{}", pair.story());
    assert_eq!(pair.streams.all.len(), 1);
    assert!(pair.streams.all[0].kept, "the responder says that it is in use");
    end(&mut pair);
}

/// RFC 9329 §6.2: nothing is sent again as long as the connection is there, long after it would be over UDP.
#[test]
fn nothing_is_sent_again() {
    let mut setup = over_tcp(2);
    setup.conditions.delay = seconds(4);
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(sent(&pair), (4, 0), "{}", pair.story());
    for _ in 0..3 {
        pair.rekey_child(A);
        pair.run_for(seconds(60));
        pair.rekey_ike(B);
        pair.run_for(seconds(60));
    }
    let mut octets: Vec<_> = pair.net.trace.iter().map(|p| p.octets.clone()).collect();
    let all = octets.len();
    octets.sort();
    octets.dedup();
    assert_eq!(octets.len(), all, "{}", pair.story());
    pair.assert_agreement();
    assert_on_tcp(&pair, in_tcp);
}

#[test]
fn rekeys_and_a_reauthentication() {
    let mut pair = over_tcp(3).build();
    block_udp(&mut pair);
    pair.establish();
    for host in [A, B] {
        pair.rekey_ike(host);
        pair.run_for(seconds(30));
        pair.rekey_child(host);
        pair.run_for(seconds(30));
        pair.assert_agreement();
        assert_on_tcp(&pair, in_tcp);
    }
    assert_eq!(pair.streams.all.len(), 1, "a rekeyed SA stays on the connection");
    // RFC 9329 §6.1: two IKE SAs that are no rekeys of one another have a connection each.
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(seconds(30));
    assert_eq!(pair.streams.all.len(), 2, "{}", pair.story());
    assert_eq!(pair.streams.open(), [1], "the first is closed with its SA");
    pair.assert_agreement();
    end(&mut pair);
}

/// RFC 9329 §6.5, §6.6: a NAT changes nothing, and gets no keepalives.
#[test]
fn behind_a_nat() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        let mut setup = over_tcp(4);
        setup.b.connection.remote_addrs = vec![ike_proto::config::AddressSpec::Any(None)];
        setup.both(|side| {
            side.net().mode = mode;
            if mode == Mode::Transport {
                let net = side.net();
                let dynamic = ike_proto::config::TsSpec::DYNAMIC;
                (net.local_ts, net.remote_ts) = (vec![dynamic], vec![dynamic]);
            }
        });
        let mut pair = setup.build();
        pair.net.nats.push(Nat::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into()));
        pair.establish();
        assert_on_tcp(&pair, in_tcp);
        assert!(pair.a().ike().nat_local && pair.b().ike().nat_remote);
        assert!(!pair.a().ike().nat_remote, "the real port was hashed");
        pair.run_for(seconds(600));
        assert_eq!(pair.a().keepalives + pair.b().keepalives, 0);
        end(&mut pair);
    }
}

/// The real local port goes into the hashes: without a NAT none is seen.
#[test]
fn without_a_nat_none_is_seen() {
    let mut pair = over_tcp(5).build();
    pair.establish();
    for ike in [pair.a().ike(), pair.b().ike()] {
        assert!(!ike.nat_local && !ike.nat_remote, "{ike:?}");
    }
}

/// RFC 9329 §7.5: negotiated, but not used. The largest public values fit into one message.
#[test]
fn large_messages_are_not_cut_up() {
    for proposal in ["aes256gcm16-prfsha384-mlkem1024", "aes256gcm16-prfsha384-frodos5"] {
        let mut setup = over_tcp(6).real();
        setup.both(|side| {
            side.ike_proposals(&[proposal]);
            side.connection.fragmentation = ike_proto::config::Fragmentation::Force;
        });
        let mut pair = setup.build();
        pair.establish();
        assert!(pair.net.trace[0].octets.len() > 1500);
        let fragmented = |packet: &ike_tests::network::Packet| {
            let message = Message::decode(&packet.octets).unwrap();
            message.payloads.iter().any(|p| matches!(p, Payload::Skf(_)))
        };
        assert!(!pair.net.trace.iter().any(fragmented), "{}", pair.story());
        end(&mut pair);
    }
}

/// RFC 9329 §6.3: no cookie, unless it is always wanted; the port is not in it.
#[test]
fn cookies() {
    for (threshold, requests) in [(0, 1), (1, 2), (2, 1)] {
        let mut setup = over_tcp(7);
        setup.b.settings.cookie_threshold = threshold;
        let mut pair = setup.build();
        pair.establish();
        let init = pair.net.trace.iter().filter(|p| p.is(ExchangeType::IKE_SA_INIT, false));
        assert_eq!(init.count(), requests, "threshold {threshold}");
    }
    // Between the demand and the second request the connection breaks: the next has another port.
    let mut setup = over_tcp(7);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    let mut cut = false;
    pair.net.tap(move |packet| {
        let second = packet.is(ExchangeType::IKE_SA_INIT, false)
            && Message::decode(&packet.octets).unwrap().payloads.iter().any(
                |payload| matches!(payload, Payload::Notify(n) if n.kind == NotifyType::COOKIE),
            );
        if second && !std::mem::replace(&mut cut, true) {
            return ike_tests::network::Fate::Drop;
        }
        ike_tests::network::Fate::Pass
    });
    pair.establish();
    assert_eq!(pair.streams.all.len(), 2);
}

/// RFC 9329 §6.4: over TCP an error is believed at once.
#[test]
fn an_error_of_ike_sa_init_ends_it_at_once() {
    let mut setup = over_tcp(8);
    setup.a.ike_proposals(&["aes128gcm16-prfsha256-x25519"]);
    setup.b.ike_proposals(&["aes128gcm16-prfsha256-ecp256"]);
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(std::time::Duration::from_millis(500));
    let failure = Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN);
    assert_eq!(pair.a().done(request), Some(Err(failure)), "{}", pair.story());
    pair.run_for(seconds(10));
    assert_eq!(pair.streams.open(), NO_STREAMS);
}

#[test]
fn another_method_is_asked_for_on_the_same_connection() {
    let mut setup = over_tcp(9);
    setup.a.ike_proposals(&["aes128gcm16-prfsha256-x25519-ecp256"]);
    setup.b.ike_proposals(&["aes128gcm16-prfsha256-ecp256"]);
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(pair.streams.all.len(), 1, "{}", pair.story());
}

/// DPD is by messages, not by the connection (RFC 9329 §6.7).
#[test]
fn liveness_is_asked_for_over_tcp() {
    let mut setup = over_tcp(10);
    setup.both(|side| side.connection.dpd_delay = seconds(10));
    let mut pair = setup.build();
    pair.establish();
    let before = sent(&pair);
    pair.run_for(seconds(60));
    assert!(sent(&pair).0 >= before.0 + 6 && sent(&pair).1 == 0, "{}", pair.story());
    // The peer is gone, and its host says nothing: the usual time, and no longer.
    pair.streams.swallow = true;
    pair.run_for(LONG);
    for host in [A, B] {
        assert!(pair.hosts[host].ikes().is_empty(), "{}", pair.story());
        assert_eq!(pair.hosts[host].ike_downs()[0].1, Failure::Timeout);
    }
}

/// Where the data plane has no ESP in TCP the answer is no, in words, at either end.
#[test]
fn without_esp_in_tcp() {
    let mut setup = over_tcp(11);
    setup.a.plane.capabilities.tcp_esp = false;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    let Some(Err(Failure::Config(why))) = pair.a().done(request) else { panic!() };
    assert!(why.contains("separate_transports"), "{why}");
    assert!(pair.streams.all.is_empty());

    let mut setup = over_tcp(11);
    setup.b.plane.capabilities.tcp_esp = false;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(seconds(5));
    let failure = Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN);
    assert_eq!(pair.a().done(request), Some(Err(failure)), "{}", pair.story());
}

/// Two IKE SAs to one peer have a connection each, under names of their own.
#[test]
fn two_connections_to_one_peer() {
    let mut setup = over_tcp(12);
    let mut second = setup.a.connection.clone();
    second.name = "second".to_owned();
    second.children = vec![std::sync::Arc::new(ike_tests::setup::child("net", 1, 2))];
    setup.a.more.push(second);
    let mut pair = setup.build();
    pair.establish();
    let (local, remote) = (pair.address(A), pair.address(B));
    let connection = "second".to_owned();
    let command = Command::Initiate { connection, child: None, local, remote, packet: None };
    let request = pair.command(A, command);
    pair.run_for(seconds(10));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let [first, second] = [0, 1].map(|n| pair.streams.all[n].opener.1);
    assert_ne!(first, second);
}

/// An attempt that is cancelled closes what it has opened.
#[test]
fn a_cancelled_attempt_closes_its_connection() {
    let mut setup = over_tcp(13);
    setup.conditions.delay = seconds(3);
    let mut pair = setup.build();
    for time in [1, 8, 11] {
        pair.initiate(A, Some("net"));
        pair.run_for(seconds(time));
        let ikes = pair.a().ikes();
        pair.command(A, Command::TerminateIke(ikes[0].id));
        pair.run_for(seconds(100));
        assert_eq!(pair.streams.open(), NO_STREAMS, "{}", pair.story());
        assert!(pair.b().ikes().is_empty());
    }
}

/// The pair of a pair: who was asked asks, while the first connection is there.
#[test]
fn both_ends_begin() {
    let mut setup = over_tcp(14);
    setup.both(|side| side.connection.enable_tcp = ike_proto::config::TcpUse::Yes);
    let mut pair: Pair = setup.build();
    let requests = [pair.initiate(A, Some("net")), pair.initiate(B, Some("net"))];
    pair.run_for(seconds(60));
    assert_eq!(pair.a().done(requests[0]), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.b().done(requests[1]), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.streams.all.len(), 2);
}
