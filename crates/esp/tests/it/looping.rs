//! A tunnel does not carry its own packets.
#![expect(clippy::unwrap_used, reason = "test code")]

use esp::{Buffer, DropReason, Plane, Verdict, ip};
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Mode, PolicyAction, PolicyId,
    PolicySpec, SaId, SaSpec,
};

use crate::common::{CIPHERS, Counting, Tunnel, addr, fragments, packet, start, tcp, ts, udp};

/// A tunnel from 192.0.2.1 to `peer` that carries `remote`.
fn tunnel(plane: &mut Plane, id: u64, peer: &str, remote: &str, encap: Option<Encapsulation>) {
    tunnel_of(plane, id, peer, ["0.0.0.0/0", remote], encap);
}

/// The same, which carries packets between `sides` only.
fn tunnel_of(
    plane: &mut Plane,
    id: u64,
    peer: &str,
    [local, remote]: [&str; 2],
    encap: Option<Encapsulation>,
) {
    let base = Tunnel {
        right: addr(peer),
        left_ts: vec![ts(local)],
        right_ts: vec![ts(remote)],
        ..Tunnel::v4()
    };
    let sa = SaId { spi: id as u32, dst: addr(peer) };
    let spec = SaSpec { id: sa, policy: PolicyId(id), encap, ..base.sa(Direction::Out) };
    plane.apply(Command::InstallSa(Box::new(spec))).unwrap();
    let (local, remote, mode) = (base.left, base.right, base.mode);
    let action = PolicyAction::Protect { mode, local, remote, outbound: Some(sa) };
    let policy = PolicySpec { id: PolicyId(id), owner: peer.to_owned(), action, ..base.policy() };
    plane.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
}

fn plane() -> Plane {
    Plane::new(start(), &CIPHERS)
}

fn dropped(plane: &Plane, packet: &[u8]) -> bool {
    let mut worker = plane.outbound(Box::new(Counting(1)));
    match worker.handle(start(), packet, &mut Buffer::new()) {
        Verdict::Send(_) => false,
        Verdict::Drop(DropReason::OwnOuter) => true,
        other => panic!("{other:?}"),
    }
}

const NAT: EncapPorts = EncapPorts { src_port: 4500, dst_port: 4500 };

/// A routing rule of another program without the mark leads the packets of a full tunnel into its device.
///
/// Fault: in `decide`, leave `comes_back` out: each packet makes the next one, without end.
#[test]
fn a_tunnel_does_not_carry_its_own_packets() {
    let (host, peer, other) = (addr("192.0.2.1"), addr("198.51.100.1"), addr("198.51.100.2"));
    let esp = |from, to| packet(from, to, 0, ip::proto::ESP, &[0; 64]);

    let mut plain = plane();
    tunnel(&mut plain, 1, "198.51.100.1", "0.0.0.0/0", None);
    assert!(dropped(&plain, &esp(host, peer)));
    for passes in [
        esp(host, other),
        esp(peer, host),
        esp(addr("10.1.0.1"), peer),
        udp(host, peer, 4500, 4500, 64),
    ] {
        assert!(!dropped(&plain, &passes));
    }

    let mut in_udp = plane();
    tunnel(&mut in_udp, 1, "198.51.100.1", "0.0.0.0/0", Some(Encapsulation::Udp(NAT)));
    let large = udp(host, peer, 4500, 4500, 3000);
    assert!(dropped(&in_udp, &large));
    // Later fragments show no ports, so the packet is judged when it is whole.
    let mut worker = in_udp.outbound(Box::new(Counting(1)));
    let mut out = Buffer::new();
    let pieces = fragments(&large, 1280);
    let mut verdicts: Vec<_> =
        pieces.iter().map(|piece| worker.handle(start(), piece, &mut out)).collect();
    assert_eq!(verdicts.pop(), Some(Verdict::Drop(DropReason::OwnOuter)));
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Held), "{verdicts:?}");
    for passes in [
        udp(host, peer, 4500, 53, 64),
        udp(host, peer, 40_000, 4500, 64),
        udp(host, other, 4500, 4500, 64),
    ] {
        assert!(!dropped(&in_udp, &passes));
    }

    let mut in_tcp = plane();
    let ports = EncapPorts { src_port: 0, dst_port: 443 };
    tunnel(&mut in_tcp, 1, "198.51.100.1", "0.0.0.0/0", Some(Encapsulation::Tcp(ports)));
    assert!(dropped(&in_tcp, &tcp(host, peer, 51_000, 443)));
    assert!(!dropped(&in_tcp, &tcp(host, peer, 51_000, 80)));
}

/// A host sends datagrams in fragments to its peer, through a tunnel between the two or in transport mode. ESP is in UDP, too.
///
/// Faults: in `decide`, drop fragments that `comes_back` names, or ask it about the ports that first fragments show.
#[test]
fn fragments_from_a_host_to_its_peer_are_carried() {
    for hosts in [Tunnel::v4().transport(), Tunnel::v6().transport()] {
        for mode in [Mode::Transport, Mode::Tunnel] {
            let tunnel = Tunnel { mode, encap: true, ..hosts.clone() };
            let mut pair = tunnel.connect();
            for port in [53, 4500] {
                let whole = udp(tunnel.left, tunnel.right, port, 53, 4000);
                let mut pieces = fragments(&whole, 1280);
                let last = pieces.pop().unwrap();
                for piece in pieces {
                    assert_eq!(pair.seal(&piece), Err(Verdict::Held), "{mode:?}");
                }
                let came = pair.send(&last).expect("opened");
                // The datagram; of the IP header Don't Fragment has changed.
                assert!(came.ends_with(&whole[whole.len() - 4008..]), "{mode:?}");
                assert_eq!(came.len(), whole.len(), "{mode:?}");
            }
        }
    }
}

/// The tunnel of a road warrior carries its virtual IP alone, and the outer packets have another address. If they come back
/// to the device, they are dropped as outer packets, so that the log says so.
///
/// Faults: in `decide`, leave `may_be_own_outer` out, or ask it without a policy alone: the test panics with another reason.
#[test]
fn outer_packets_that_no_tunnel_covers_are_dropped_as_outer_packets() {
    let (host, peer) = (addr("192.0.2.1"), addr("198.51.100.1"));
    let mut plane = plane();
    tunnel_of(&mut plane, 1, "198.51.100.1", ["10.3.0.1/32", "0.0.0.0/0"], None);
    let esp = |from, to| packet(from, to, 0, ip::proto::ESP, &[0; 64]);
    assert!(dropped(&plane, &esp(host, peer)));
    // The block of the child is for the host's other addresses.
    let (local_ts, remote_ts) = (vec![ts("192.0.2.1/32")], vec![ts("0.0.0.0/0")]);
    let action = PolicyAction::Shunt { silent: false };
    let block =
        PolicySpec { id: PolicyId(2), local_ts, remote_ts, action, ..Tunnel::v4().policy() };
    plane.apply(Command::InstallPolicy(Box::new(block))).unwrap();
    assert!(dropped(&plane, &esp(host, peer)));
    plane.apply(Command::RemovePolicy(PolicyId(2))).unwrap();
    let mut worker = plane.outbound(Box::new(Counting(1)));
    let stray = worker.handle(start(), &esp(host, addr("198.51.100.2")), &mut Buffer::new());
    assert!(matches!(stray, Verdict::Drop(DropReason::NoPolicy)), "{stray:?}");
}

/// Two tunnels, each of which would carry the packets of the other one.
///
/// Fault: in `comes_back`, look at the path of `carrier` alone.
#[test]
fn two_tunnels_do_not_carry_the_packets_of_one_another() {
    let (host, first, second) = (addr("192.0.2.1"), addr("198.51.100.1"), addr("203.0.113.1"));
    let mut ring = plane();
    let udp_in = Some(Encapsulation::Udp(NAT));
    tunnel(&mut ring, 1, "198.51.100.1", "203.0.113.0/24", udp_in);
    // Without the second one, its packets may go through the first one.
    assert!(!dropped(&ring, &udp(host, second, 4500, 4500, 64)));
    tunnel(&mut ring, 2, "203.0.113.1", "198.51.100.0/24", udp_in);
    assert!(dropped(&ring, &udp(host, second, 4500, 4500, 64)), "of the second, into the first");
    assert!(dropped(&ring, &udp(host, first, 4500, 4500, 64)));
    assert!(!dropped(&ring, &udp(host, second, 4500, 53, 64)));
}
