//! draft-ietf-ipsecme-ikev2-reliable-transport: IKE over TCP, ESP as without it.

use std::net::SocketAddr;

use ike_proto::config::{AddressSpec, SeparateTransports, TcpUse};
use ike_proto::dataplane::{Encapsulation, Event};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, Payload, encode_message};
use ike_proto::{DropReason, Failure, Transport};
use ike_tests::network::{Fate, Nat};
use ike_tests::{A, B, Pair, Setup};

use crate::tcp::stage::{
    LONG, assert_on_tcp, block_udp, comes_up, end, in_ip, in_tcp, in_udp, seconds, sent, separate,
};

fn nat_before_a(mut setup: Setup) -> Pair {
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into()));
    pair
}

/// §3.1: IKE_SA_INIT over UDP port 4500, everything else over TCP.
#[test]
fn begun_over_udp() {
    let mut pair = separate(1).build();
    pair.establish();
    assert_eq!(sent(&pair), (2, 2), "{}", pair.story());
    assert!(pair.net.trace[..2].iter().all(|p| p.stream.is_none() && p.marker));
    assert_on_tcp(&pair, in_ip);
    for host in [A, B] {
        pair.rekey_ike(host);
        pair.run_for(seconds(30));
        pair.rekey_child(host);
        pair.run_for(seconds(30));
        pair.assert_agreement();
        assert_on_tcp(&pair, in_ip);
    }
    assert_eq!(sent(&pair).1, 2, "{}", pair.story());
    end(&mut pair);
}

/// §3.2: over TCP from the start.
#[test]
fn begun_over_tcp() {
    let mut setup = separate(2);
    setup.a.connection.enable_tcp = TcpUse::Yes;
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(sent(&pair), (4, 0), "{}", pair.story());
    assert_on_tcp(&pair, in_ip);
    end(&mut pair);
}

/// §3.6: behind a NAT ESP is in UDP on port 4500, and the mapping is kept for it, though IKE is elsewhere.
#[test]
fn behind_a_nat() {
    for tcp in [false, true] {
        let mut setup = separate(3);
        if tcp {
            setup.a.connection.enable_tcp = TcpUse::Yes;
        }
        let mut pair = nat_before_a(setup);
        pair.establish();
        assert_on_tcp(&pair, in_udp);
        let Some(Encapsulation::Udp(ports)) = pair.b().child().encap else { panic!() };
        let mapped = pair.net.nats[0].mappings().find(|(inside, _)| inside.port() == 4500);
        if !tcp {
            assert_eq!(ports.dst_port, mapped.unwrap().1, "as IKE_SA_INIT showed it");
        }
        pair.run_for(seconds(100));
        assert!(pair.a().keepalives >= 4 && pair.b().keepalives == 0);
        let last = pair.net.trace.last().unwrap();
        assert_eq!((last.src.port(), last.dst.port()), (4500, 4500));
        // The first ESP packet shows the port where it could not be known.
        let elsewhere: SocketAddr = "192.0.2.1:41234".parse().unwrap();
        let sa = pair.b().child().inbound;
        let path = pair.b().ike().path;
        pair.plane_event(B, Event::Mapping { sa, remote: elsewhere });
        pair.run_for(seconds(1));
        let Some(Encapsulation::Udp(ports)) = pair.b().child().encap else { panic!() };
        assert_eq!(ports.dst_port, 41234, "{}", pair.story());
        assert_eq!(pair.b().ike().path, path, "IKE stays on its connection");
        end(&mut pair);
    }
}

/// The connection breaks: IKE comes back by another, and ESP does not notice.
#[test]
fn esp_stays_where_it_is() {
    let mut pair = separate(4).build();
    pair.establish();
    let before: Vec<_> = pair.b().plane.table().sas().map(|(id, sa)| (id, sa.encap)).collect();
    pair.cut(0);
    pair.run_for(seconds(10));
    let after: Vec<_> = pair.b().plane.table().sas().map(|(id, sa)| (id, sa.encap)).collect();
    assert_eq!(before, after);
    assert_eq!(pair.streams.open(), [1]);
    pair.assert_agreement();
}

/// A peer that does not know the notify: UDP as ever, or both in TCP.
#[test]
fn a_peer_that_takes_none() {
    let mut setup = separate(5);
    setup.b.connection.separate_transports = SeparateTransports::No;
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(sent(&pair).0, 0);
    assert_eq!(pair.a().ike().path.transport, Transport::UdpEncap);

    let mut setup = separate(5);
    setup.b.connection.separate_transports = SeparateTransports::No;
    setup.a.connection.enable_tcp = TcpUse::Yes;
    let mut pair = setup.build();
    pair.establish();
    assert_on_tcp(&pair, in_tcp);

    // Where ESP cannot be in TCP that is the end.
    let mut setup = separate(5);
    setup.b.connection.separate_transports = SeparateTransports::No;
    setup.a.connection.enable_tcp = TcpUse::Yes;
    setup.a.plane.capabilities.tcp_esp = false;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(seconds(30));
    assert!(matches!(pair.a().done(request), Some(Err(Failure::Policy(_)))), "{}", pair.story());
}

/// One that accepts no connections does not say that it takes separate transports.
#[test]
fn a_peer_that_does_not_listen() {
    let mut setup = separate(6);
    setup.b.settings.accepts_tcp = false;
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(sent(&pair).0, 0, "{}", pair.story());
    assert!(pair.streams.all.is_empty());
}

/// Data planes without ESP in TCP are no obstacle.
#[test]
fn without_esp_in_tcp() {
    for tcp in [false, true] {
        let mut setup = separate(7);
        setup.both(|side| side.plane.capabilities.tcp_esp = false);
        if tcp {
            setup.a.connection.enable_tcp = TcpUse::Yes;
        }
        let mut pair = setup.build();
        pair.establish();
        assert_on_tcp(&pair, in_ip);
    }
}

/// §3.1: TCP does not get through; the SA is made over UDP, without separate transports.
#[test]
fn tcp_is_refused() {
    for swallow in [false, true] {
        let mut pair = separate(8).build();
        pair.streams.swallow = swallow;
        if !swallow {
            pair.streams.refuse.insert(B);
        }
        comes_up(&mut pair);
        assert_eq!(pair.a().ike().path.transport, Transport::UdpEncap, "{}", pair.story());
        let requests = pair.net.trace.iter().filter(|p| p.is(ExchangeType::IKE_SA_INIT, false));
        let mut asks: Vec<bool> = requests.map(|p| asks_for_separate(&p.octets)).collect();
        asks.dedup();
        assert_eq!(asks, [true, false], "{}", pair.story());
        assert_eq!(pair.a().ike_downs(), []);
    }
}

fn asks_for_separate(octets: &[u8]) -> bool {
    let message = Message::decode(octets).unwrap();
    let kind = NotifyType(51_524);
    message.payloads.iter().any(|p| matches!(p, Payload::Notify(n) if n.kind == kind))
}

/// UDP is blocked, so ESP in UDP would be as well: the fallback does not ask for it.
#[test]
fn after_a_fallback_esp_is_in_tcp() {
    let mut setup = separate(9);
    setup.a.connection.enable_tcp = TcpUse::Fallback(seconds(5));
    let mut pair = setup.build();
    block_udp(&mut pair);
    pair.establish();
    assert_on_tcp(&pair, in_tcp);
    let request = pair.net.trace.iter().find(|p| p.stream.is_some()).unwrap();
    assert!(!asks_for_separate(&request.octets));
}

/// Somebody on the way takes the notify out of the request, which AUTH shows, or out of the response, and
/// the responder waits for TCP: there is no SA over UDP that both wanted over TCP.
#[test]
fn a_downgrade_fails() {
    for response in [false, true] {
        let mut pair = separate(10).build();
        pair.net.tap(move |packet| {
            if packet.is(ExchangeType::IKE_SA_INIT, response) {
                let mut message = Message::decode(&packet.octets).unwrap();
                let kind = NotifyType(51_524);
                message.payloads.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == kind));
                let octets = encode_message(&message.header, &message.payloads);
                packet.octets = octets.into();
            }
            Fate::Pass
        });
        let request = pair.initiate(A, Some("net"));
        pair.run_for(LONG);
        assert_ne!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        assert!(pair.a().children().is_empty() && pair.b().children().is_empty());
    }
}

/// What comes over UDP after both have agreed on TCP is not for this SA.
#[test]
fn ike_auth_over_udp_is_not_taken() {
    let mut pair = separate(11).build();
    pair.net.tap(
        |packet| {
            if packet.is(ExchangeType::IKE_AUTH, false) { Fate::Drop } else { Fate::Pass }
        },
    );
    pair.initiate(A, Some("net"));
    let seen =
        |w: &ike_tests::World| w.net.trace.iter().any(|p| p.is(ExchangeType::IKE_AUTH, false));
    assert!(pair.run_until(seconds(5), seen));
    let auth = pair.net.trace.iter().find(|p| p.is(ExchangeType::IKE_AUTH, false)).unwrap();
    let udp = ike_proto::Path {
        local: pair.socket(B, 4500),
        remote: pair.socket(A, 4500),
        transport: Transport::UdpEncap,
    };
    let octets = auth.octets.clone();
    pair.receive(B, udp, &octets);
    assert!(pair.b().children().is_empty());
    assert_eq!(pair.b().dropped.last(), Some(&DropReason::WrongTransport));
}
