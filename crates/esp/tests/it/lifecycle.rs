//! Limits, counters, events, address changes, and commands out of order.

use std::net::SocketAddr;
use std::time::Duration;

use esp::{Buffer, Carrier, DropReason, Verdict};
use ipsec_types::crypto::Secret;
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Event, Limits, PolicyAction, Reply,
    SaId, Usage,
};

use crate::common::{self, Tunnel, addr, arrival, events};

#[test]
fn soft_and_hard_limits_of_packets() {
    let limits = Limits { soft_packets: 3, hard_packets: 5, ..Limits::default() };
    let tunnel = Tunnel { limits, ..Tunnel::v4() };
    let mut pair = tunnel.connect();
    let id = tunnel.id();
    let mut seen = Vec::new();
    for _ in 0..5 {
        assert!(pair.send(&tunnel.packet(10)).is_ok());
        seen.push((events(&mut pair.left), events(&mut pair.right)));
    }
    let nothing = (vec![], vec![]);
    let soft = (vec![Event::SoftExpire(id)], vec![Event::SoftExpire(id)]);
    let first = (vec![], vec![Event::FirstPacket(id)]);
    assert_eq!(seen, [first, nothing.clone(), soft, nothing.clone(), nothing]);

    for _ in 0..3 {
        let expired = Err(Verdict::Drop(DropReason::SaExpired));
        assert_eq!(pair.seal(&tunnel.packet(10)), expired);
    }
    assert_eq!(events(&mut pair.left), [Event::HardExpire(id)], "once");
    assert_eq!(pair.left.stats().dropped(DropReason::SaExpired), 3);
}

#[test]
fn a_hard_limit_of_octets_is_not_passed_in_either_direction() {
    let limits = Limits { soft_bytes: 150, hard_bytes: 200, ..Limits::default() };
    let tunnel = Tunnel { limits, ..Tunnel::v4() };
    let unlimited = Tunnel { limits: Limits::default(), ..tunnel.clone() };
    let id = tunnel.id();
    let mut pair = tunnel.connect();
    let eighty = tunnel.packet(80 - 28);
    assert!(pair.seal(&eighty).is_ok());
    assert!(pair.seal(&eighty).is_ok());
    assert_eq!(events(&mut pair.left), [Event::SoftExpire(id)]);
    assert_eq!(pair.seal(&eighty), Err(Verdict::Drop(DropReason::SaExpired)));
    assert_eq!(events(&mut pair.left), [Event::HardExpire(id)]);
    // Dead is dead, also for a packet that would still have fitted.
    assert_eq!(pair.seal(&tunnel.packet(0)), Err(Verdict::Drop(DropReason::SaExpired)));

    // A peer that does not stop.
    let mut sender = unlimited.connect();
    for n in 0..4 {
        let (outgoing, esp) = sender.seal(&eighty).unwrap();
        let expected = if n < 2 { Ok(eighty.clone()) } else { Err(DropReason::SaExpired) };
        assert_eq!(pair.open(&outgoing, &esp), expected, "packet {n}");
    }
    assert!(events(&mut pair.right).contains(&Event::HardExpire(id)));
}

#[test]
fn usage_counts_inner_octets_and_idle_time() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let id = tunnel.id();
    let none = Usage::default();
    assert_eq!(pair.left.apply(Command::QueryUsage(id)), Ok(Reply::Usage(id, none)));
    pair.advance(Duration::from_secs(3));
    for _ in 0..4 {
        pair.send(&tunnel.packet(72)).unwrap();
    }
    pair.advance(Duration::from_secs(7));
    for plane in [&mut pair.left, &mut pair.right] {
        plane.set_time(pair.now);
        let usage = Usage { bytes: 400, packets: 4, idle: Some(Duration::from_secs(7)), ..none };
        assert_eq!(plane.apply(Command::QueryUsage(id)), Ok(Reply::Usage(id, usage)));
    }
    let unknown = SaId { spi: 1, dst: addr("192.0.2.1") };
    assert!(pair.left.apply(Command::QueryUsage(unknown)).is_err());
}

/// Fault: in `Plane::usage`, leave `path_mtu` out, or the direction.
#[test]
fn usage_tells_the_mtu_of_the_path_outwards() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    pair.left.set_link(tunnel.left, SocketAddr::new(tunnel.right, 0), 1450);
    pair.right.set_link(tunnel.right, SocketAddr::new(tunnel.left, 0), 1450);
    let told = [&mut pair.left, &mut pair.right].map(|plane| {
        match plane.apply(Command::QueryUsage(tunnel.id())) {
            Ok(Reply::Usage(_, usage)) => usage.path_mtu,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(told, [Some(1450), None]);
}

/// Neither forgeries nor replays count as use.
#[test]
fn only_authentic_packets_count() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let (outgoing, esp) = pair.seal(&tunnel.packet(5)).unwrap();
    let mut forged = esp.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(pair.open(&outgoing, &forged), Err(DropReason::Integrity));
    assert_eq!(events(&mut pair.right), []);
    pair.open(&outgoing, &esp).unwrap();
    assert_eq!(pair.open(&outgoing, &esp), Err(DropReason::Replay));
    let Ok(Reply::Usage(_, usage)) = pair.right.apply(Command::QueryUsage(tunnel.id())) else {
        panic!("no usage");
    };
    assert_eq!(usage.packets, 1);
    assert_eq!(events(&mut pair.right), [Event::FirstPacket(tunnel.id())]);
}

/// Whoever sends packets of no SA is named, once in a while, however many there are.
#[test]
fn packets_of_no_sa_are_told_of_now_and_then() {
    let mut pair = Tunnel::v4().connect();
    let (outgoing, mut esp) = pair.seal(&Tunnel::v4().packet(5)).unwrap();
    esp[..4].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let outer = arrival(&outgoing);
    let told = Event::UnknownSpi {
        spi: 0xdead_beef,
        local: outer.dst,
        remote: outer.src,
        octets: esp.len(),
    };
    for again in [true, false, false] {
        for _ in 0..100 {
            assert_eq!(pair.open_from(&outer, &esp), Err(DropReason::UnknownSpi));
        }
        let expected: &[Event] = if again { &[told] } else { &[] };
        assert_eq!(events(&mut pair.right), expected);
    }
    pair.now += Duration::from_secs(2);
    assert_eq!(pair.open_from(&outer, &esp), Err(DropReason::UnknownSpi));
    assert_eq!(events(&mut pair.right), [told]);
    // From many addresses there are no more than that many of those at a time.
    pair.now += Duration::from_secs(2);
    for n in 0..10_000_u32 {
        let src = SocketAddr::new(std::net::IpAddr::from(n.to_be_bytes()), 0);
        _ = pair.open_from(&esp::Outer { src, ..outer }, &esp);
    }
    assert!((100..=128).contains(&events(&mut pair.right).len()));
}

/// RFC 7296 §2.23: a NAT that gives the peer another port is followed, by the newest packet alone.
#[test]
fn a_new_mapping_is_reported_once_and_only_by_the_newest_packet() {
    let tunnel = Tunnel { encap: true, ..Tunnel::v4() };
    let mut pair = tunnel.connect();
    let id = tunnel.id();
    let sealed: Vec<_> = (0..8).map(|_| pair.seal(&tunnel.packet(5)).unwrap()).collect();
    let from = |n: usize, remote: &str| {
        let remote: SocketAddr = remote.parse().unwrap();
        esp::Outer { src: remote, ..arrival(&sealed[n].0) }
    };
    let mapping = |remote: &str| Event::Mapping { sa: id, remote: remote.parse().unwrap() };
    let (home, moved, third) = ("192.0.2.1:4500", "192.0.2.1:61000", "203.0.113.5:4500");

    pair.open_from(&from(0, home), &sealed[0].1).unwrap();
    assert_eq!(events(&mut pair.right), [Event::FirstPacket(id)]);
    pair.open_from(&from(2, moved), &sealed[2].1).unwrap();
    assert_eq!(events(&mut pair.right), [mapping(moved)]);
    pair.open_from(&from(3, moved), &sealed[3].1).unwrap();
    assert_eq!(events(&mut pair.right), [], "it was told already");
    // Overtaken on the way, from the old address.
    pair.open_from(&from(1, third), &sealed[1].1).unwrap();
    assert_eq!(events(&mut pair.right), []);
    // A forged packet moves nothing.
    let mut forged = sealed[4].1.clone();
    forged[30] ^= 1;
    assert!(pair.open_from(&from(4, third), &forged).is_err());
    assert_eq!(events(&mut pair.right), []);

    let update = Command::UpdateSa {
        id,
        src: moved.parse().unwrap(),
        dst: SocketAddr::new(tunnel.right, 4500),
        encap: Some(Encapsulation::Udp(EncapPorts { src_port: 61000, dst_port: 4500 })),
    };
    pair.right.apply(update).unwrap();
    pair.open_from(&from(4, moved), &sealed[4].1).unwrap();
    assert_eq!(events(&mut pair.right), []);
    pair.open_from(&from(5, home), &sealed[5].1).unwrap();
    assert_eq!(events(&mut pair.right), [mapping(home)], "and back again");
    // Replays are still found out after the move.
    assert_eq!(pair.open_from(&from(3, moved), &sealed[3].1), Err(DropReason::Replay));
}

/// RFC 9329 §6.1: the peer is where its newest packet came from, by TCP and by nothing else.
#[test]
fn another_tcp_connection_is_reported_and_another_carrier_is_not() {
    let tunnel = Tunnel { encap: true, ..Tunnel::v4() };
    let mut pair = tunnel.connect();
    let id = tunnel.id();
    let home: SocketAddr = "192.0.2.1:40000".parse().unwrap();
    let encap = Some(Encapsulation::Tcp(EncapPorts { src_port: 40000, dst_port: 4500 }));
    let dst = SocketAddr::new(tunnel.right, 4500);
    pair.right.apply(Command::UpdateSa { id, src: home, dst, encap }).unwrap();
    let again: SocketAddr = "192.0.2.1:40001".parse().unwrap();
    let mapping = Event::Mapping { sa: id, remote: again };
    let arrivals = [
        (home, Carrier::Tcp, vec![Event::FirstPacket(id)]),
        (again, Carrier::Udp, vec![]),
        (again, Carrier::Tcp, vec![mapping]),
        (again, Carrier::Tcp, vec![]),
        (home, Carrier::Ip, vec![]),
    ];
    for (src, carrier, expected) in arrivals {
        let (outgoing, esp) = pair.seal(&tunnel.packet(5)).unwrap();
        let outer = esp::Outer { src, carrier, ..arrival(&outgoing) };
        pair.open_from(&outer, &esp).unwrap();
        assert_eq!(events(&mut pair.right), expected, "{src} {carrier:?}");
    }
}

#[test]
fn without_encapsulation_there_is_no_mapping() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let (outgoing, esp) = pair.seal(&tunnel.packet(1)).unwrap();
    let mut outer = arrival(&outgoing);
    outer.src = "203.0.113.77:0".parse().unwrap();
    pair.open_from(&outer, &esp).unwrap();
    assert_eq!(events(&mut pair.right), [Event::FirstPacket(tunnel.id())]);
}

#[test]
fn an_updated_sa_sends_to_the_new_address_and_keeps_counting() {
    let tunnel = Tunnel { encap: true, ..Tunnel::v4() };
    let mut pair = tunnel.connect();
    pair.seal(&tunnel.packet(1)).unwrap();
    let encap = Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 12345 }));
    let (src, dst) = ("192.0.2.9:4500", "198.51.100.9:12345");
    let update = Command::UpdateSa {
        id: tunnel.id(),
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        encap,
    };
    pair.left.apply(update).unwrap();
    assert_eq!(pair.seal(&tunnel.packet(1)), Err(Verdict::Drop(DropReason::NoSa)), "not yet");
    let moved = SaId { dst: addr("198.51.100.9"), ..tunnel.id() };
    let mut policy = tunnel.policy();
    if let PolicyAction::Protect { outbound, .. } = &mut policy.action {
        *outbound = Some(moved);
    }
    pair.left.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
    let (outgoing, esp) = pair.seal(&tunnel.packet(1)).unwrap();
    assert_eq!((outgoing.src, outgoing.dst), (addr("192.0.2.9"), addr("198.51.100.9")));
    assert_eq!(outgoing.encap, encap);
    assert_eq!(outgoing.sa, moved, "the destination is part of its name");
    assert_eq!(esp[4..8], [0, 0, 0, 2], "and its sequence numbers go on");
    // The receiver was told nothing and finds the SA by its SPI.
    assert!(pair.open(&outgoing, &esp).is_ok());
}

/// Two peers behind one NAT may choose one SPI. The packets of the first must not leave under the keys
/// of the second.
#[test]
fn an_sa_is_not_replaced_by_one_of_its_name() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let mut other = tunnel.sa(Direction::Out);
    let key = other.encr_key.expose().iter().map(|octet| !octet).collect();
    other.encr_key = Secret::new(key);
    assert!(pair.left.apply(Command::InstallSa(Box::new(other))).is_err());
    assert!(pair.send(&tunnel.packet(1)).is_ok());
}

/// The engine may repeat a command; it must not cost the SA its state.
#[test]
fn commands_can_be_repeated() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let (first, esp) = pair.seal(&tunnel.packet(1)).unwrap();
    pair.open(&first, &esp).unwrap();
    pair.left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
    pair.right.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::In)))).unwrap();
    let (outgoing, again) = pair.seal(&tunnel.packet(1)).unwrap();
    assert_eq!(again[4..8], [0, 0, 0, 2], "an IV under one key is not used twice");
    assert_eq!(pair.open(&first, &esp), Err(DropReason::Replay), "nor is a replay let in");
    assert!(pair.open(&outgoing, &again).is_ok());

    for _ in 0..2 {
        assert_eq!(pair.right.apply(Command::RemoveSa(tunnel.id())), Ok(Reply::Done));
        assert_eq!(pair.right.apply(Command::RemovePolicy(common::POLICY)), Ok(Reply::Done));
    }
    assert!(!pair.right.has_sa(tunnel.id()));
    let (outgoing, esp) = pair.seal(&tunnel.packet(1)).unwrap();
    assert_eq!(pair.open(&outgoing, &esp), Err(DropReason::UnknownSpi));
}

#[test]
fn an_spi_cannot_serve_both_directions() {
    let tunnel = Tunnel::v4();
    let mut pair = tunnel.connect();
    let inbound = Command::InstallSa(Box::new(tunnel.sa(Direction::In)));
    assert!(pair.left.apply(inbound).is_err());
    assert!(pair.seal(&tunnel.packet(1)).is_ok(), "the first one is untouched");
}

#[test]
fn what_cannot_be_installed_is_refused_without_its_keys_in_the_error() {
    let mut plane = Tunnel::v4().connect().left;
    let mut spec = Tunnel { right: addr("192.0.2.77"), ..Tunnel::v4() }.sa(Direction::Out);
    spec.suite.key_bits = 256;
    let error = plane.apply(Command::InstallSa(Box::new(spec))).unwrap_err();
    assert_eq!(error.0, "keying AES_GCM_16: wrong key, IV or buffer length");
    let mut spec = Tunnel::v4().sa(Direction::In);
    spec.id.dst = addr("192.0.2.78");
    spec.replay_window = u32::MAX;
    assert!(plane.apply(Command::InstallSa(Box::new(spec))).is_err());
    assert_eq!(plane.sa_count(), 1);
}

/// Two inbound SAs with one SPI, to two of our addresses.
#[test]
fn the_destination_tells_sas_of_one_spi_apart() {
    let one = Tunnel::v4();
    let two = Tunnel { right: addr("198.51.100.2"), ..Tunnel::v4() };
    let (mut a, mut b) = (one.connect(), two.connect());
    b.seal(&two.packet(1)).unwrap();
    a.right.apply(Command::InstallSa(Box::new(two.sa(Direction::In)))).unwrap();
    let (outgoing, esp) = b.seal(&two.packet(1)).unwrap();
    assert!(a.open(&outgoing, &esp).is_ok());
    let usage = |plane: &mut esp::Plane, id| match plane.apply(Command::QueryUsage(id)) {
        Ok(Reply::Usage(_, usage)) => usage.packets,
        other => panic!("{other:?}"),
    };
    assert_eq!(usage(&mut a.right, one.id()), 0);
    assert_eq!(usage(&mut a.right, two.id()), 1);
    a.right.apply(Command::RemoveSa(two.id())).unwrap();
    assert!(a.right.has_sa(one.id()));
    assert!(a.send(&one.packet(1)).is_ok());
}

/// Workers on several threads share one SA: no sequence number is used twice and all packets arrive.
#[test]
fn workers_share_an_sa() {
    let tunnel = Tunnel { window: 100_000, ..Tunnel::v4() };
    let pair = tunnel.connect();
    let packet = tunnel.packet(100);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut sender = pair.left.outbound(Box::new(common::Counting(7)));
            let mut receiver = pair.right.inbound();
            let (packet, now) = (&packet, pair.now);
            scope.spawn(move || {
                let (mut esp, mut inner) = (Buffer::new(), Buffer::new());
                for _ in 0..5000 {
                    esp.clear();
                    inner.clear();
                    let Verdict::Send(outgoing) = sender.handle(now, packet, &mut esp) else {
                        panic!("not sent");
                    };
                    let opened = receiver.handle(now, &arrival(&outgoing), &esp, &mut inner);
                    assert_eq!(opened, Ok(packet.len()));
                }
            });
        }
    });
    assert_eq!(pair.right.stats().opened(), 20_000);
    assert_eq!(pair.right.stats().drops().count(), 0);
}
