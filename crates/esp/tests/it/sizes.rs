//! Packets that are too big for the path to the peer.

use std::net::SocketAddr;
use std::time::Duration;

use esp::{Carrier, Plane, TooBig, Verdict, ip};
use ipsec_types::dataplane::{Command, DataPlane, SaId};

use crate::common::{self, Pair, SUITES, Tunnel, fragment, ts};

/// The octets of a packet of IPv4 with a header of 20 octets, UDP or ICMP.
const HEADERS: usize = 28;

/// The far end of `tunnel`, as the paths of the near one name it.
fn peer(tunnel: &Tunnel) -> SocketAddr {
    SocketAddr::new(tunnel.right, if tunnel.encap { 4500 } else { 0 })
}

/// A pair of planes, of which the sender has a link of `octets`.
fn behind(tunnel: &Tunnel, octets: u16) -> Pair {
    let pair = tunnel.connect();
    pair.left.set_link(tunnel.left, peer(tunnel), octets);
    pair
}

/// An IPv4 packet of `octets` that may be divided.
fn divisible(tunnel: &Tunnel, octets: usize) -> Vec<u8> {
    fragment(tunnel.packet(octets - HEADERS), 0, false)
}

/// Octets outside of what `outgoing` is.
fn outside(outgoing: &esp::Outgoing) -> usize {
    let headers = if outgoing.dst.is_ipv4() { 20 } else { 40 };
    headers + outgoing.encap.map_or(0, |_| 8) + outgoing.len
}

/// RFC 4301 §8.2.1: the sender is told the size inside, and a packet of that size fits outside, with any suite.
///
/// Fault: in `Sa::room`, leave the IP header or the UDP header out.
#[test]
fn the_size_inside_fits_the_path() {
    for base in [Tunnel::v4(), Tunnel::v6()] {
        for (encap, suite) in SUITES.into_iter().flat_map(|suite| [(false, suite), (true, suite)]) {
            let tunnel = Tunnel { encap, suite, left_ts: Tunnel::v4().left_ts, ..base.clone() };
            let tunnel = Tunnel { right_ts: Tunnel::v4().right_ts, ..tunnel };
            for path in [1320, 1450, 1460] {
                let mut pair = behind(&tunnel, path);
                let Err(Verdict::TooBig(most)) = pair.seal(&tunnel.packet(1400)) else {
                    panic!("{suite:?} in {path}")
                };
                let fits = tunnel.packet(usize::from(most) - HEADERS);
                let (outgoing, _) = pair.seal(&fits).unwrap();
                assert!(outgoing.fields.dont_fragment);
                let used = outside(&outgoing);
                assert!(
                    used <= path.into() && used + 16 > path.into(),
                    "{suite:?}: {used} of {path}"
                );
                let over = tunnel.packet(usize::from(most) - HEADERS + 1);
                assert_eq!(pair.seal(&over), Err(Verdict::TooBig(most)));
            }
        }
    }
}

/// What may be divided is divided inside, where fragments pass every NAT; a fragment too.
///
/// Fault: in `outbound::fit`, let `divides` be false. The outside is divided, which many networks drop.
#[test]
fn what_may_be_divided_is_divided_inside() {
    let tunnel = Tunnel::v4();
    let mut pair = behind(&tunnel, 1320);
    let large = divisible(&tunnel, 1400);
    let mut batch = vec![large.clone()];
    batch.extend(common::fragments(&divisible(&tunnel, 4000), 1376));
    let mut sealed = Vec::new();
    let mut out = esp::Buffer::new();
    let packets: Vec<_> = batch.iter().map(Vec::as_slice).collect();
    pair.sender.handle_batch(pair.now, &packets, &mut out, |packet, fate| match fate {
        esp::Fate::Send(of) => {
            assert!(packet.len() <= 1320 && of.fields.dont_fragment == (packet[6] & 0x40 != 0));
            sealed.push(of.len);
        }
        other => panic!("{other:?}"),
    });
    // 1,400 in two; 1,376 in two, 1,376 in two, and the rest.
    assert_eq!(sealed.len(), 2 + 2 + 2 + 1);
    assert!(sealed.iter().all(|len| len + 20 <= 1320));
}

/// RFC 8200 §5: IPv6 inside is never told less than 1,280 octets. What is not larger goes in fragments outside.
///
/// Fault: in `outbound::fit`, leave `max(LEAST_V6)` out.
#[test]
fn ipv6_inside_is_told_no_less_than_1280() {
    let mut tunnel = Tunnel::v4();
    (tunnel.left_ts, tunnel.right_ts) = (Tunnel::v6().left_ts, Tunnel::v6().right_ts);
    let mut pair = behind(&tunnel, 1300);
    let of = |octets: usize| tunnel.packet(octets - 48);
    assert_eq!(pair.seal(&of(1281)), Err(Verdict::TooBig(1280)));
    let (outgoing, _) = pair.seal(&of(1280)).unwrap();
    assert!(outside(&outgoing) > 1300 && !outgoing.fields.dont_fragment);
    let (outgoing, _) = pair.seal(&of(1200)).unwrap();
    assert!(outgoing.fields.dont_fragment);
}

/// Later fragments do not go through an SA with ports, and none go through transport mode.
///
/// Fault: in `outbound::fit`, leave `looks_at_ports` out.
#[test]
fn with_ports_and_in_transport_mode_the_outside_is_divided() {
    let ported = Tunnel { right_ts: vec![ts("10.2.0.0/16[udp/2000]")], ..Tunnel::v4() };
    for tunnel in [ported, Tunnel::v4().transport()] {
        let mut pair = behind(&tunnel, 1300);
        let large = divisible(&tunnel, 1390);
        let (outgoing, esp) = pair.seal(&large).unwrap();
        assert!(!outgoing.fields.dont_fragment);
        assert_eq!(pair.open(&outgoing, &esp), Ok(large));
        assert!(matches!(pair.seal(&tunnel.packet(1390 - HEADERS)), Err(Verdict::TooBig(_))));
    }
}

/// Both ends of a connection are told the size, whichever opens it.
///
/// Fault: in `outbound::judge` or in `inbound::tunnel`, leave `mss::opens` out.
#[test]
fn segment_sizes_are_lowered_both_ways() {
    for tunnel in [Tunnel::v4(), Tunnel::v6()] {
        let (src, dst) = (tunnel.left_ts[0].start, tunnel.right_ts[0].start);
        let syn = |options: &[u8]| {
            let mut segment = vec![0; 20];
            segment.extend_from_slice(options);
            (segment[12], segment[13]) = (0x60, 2);
            ip::fix_checksum(src, dst, ip::proto::TCP, &mut segment);
            common::packet(src, dst, 0, ip::proto::TCP, &segment)
        };
        let packet = syn(&[2, 4, 0x5, 0xb4]);
        let [wide, sender, receiver] = [1500, 1300, 1300].map(|size| behind(&tunnel, size));
        assert_eq!({ wide }.send(&packet), Ok(packet.clone()));
        // 1,300 less 20 or 40, less 34 of ESP, down to four octets and less two, less the headers of IP and TCP.
        let lowered = if src.is_ipv4() { 1206_u16 } else { 1166 };
        let expected = syn(&[[2, 4], lowered.to_be_bytes()].concat());
        assert_eq!({ sender }.send(&packet), Ok(expected.clone()));
        let mut narrow = receiver;
        let (outgoing, esp) = tunnel.connect().seal(&packet).unwrap();
        narrow.right.set_link(tunnel.right, SocketAddr::new(tunnel.left, 0), 1300);
        assert_eq!(narrow.open(&outgoing, &esp), Ok(expected));
    }
}

fn report<'a>(tunnel: &Tunnel, octets: u16, quoted: &'a [u8]) -> TooBig<'a> {
    let carrier = if tunnel.encap { Carrier::Udp } else { Carrier::Ip };
    TooBig { peer: peer(tunnel), carrier, octets, quoted }
}

/// RFC 4301 §6.1.1: an attacker who sees no packet of the SA cannot make packets smaller.
///
/// Fault: in `Plane::too_big`, leave `sent_lately` out, or the port.
#[test]
fn too_big_is_believed_of_packets_that_were_sent_alone() {
    for encap in [false, true] {
        let tunnel = Tunnel { encap, ..Tunnel::v4() };
        let mut pair = behind(&tunnel, 1500);
        let mut last = Vec::new();
        for n in 0..5000 {
            if n == 904 {
                pair.advance(Duration::from_secs(2));
            }
            last = pair.seal(&tunnel.packet(9)).unwrap().1;
        }
        let plane = pair.left.clone();
        let size = |plane: &Plane| plane.path_mtu(tunnel.left, peer(&tunnel));
        let numbered = |number: u32| [&last[..4], &number.to_be_bytes()].concat();
        let mut forged = last.clone();
        forged[0] ^= 1;
        for quoted in [&forged, &numbered(5001), &numbered(904), &numbered(0), &last[..4].to_vec()]
        {
            assert_eq!(plane.too_big(pair.now, &report(&tunnel, 600, quoted)), None);
        }
        let mut elsewhere = report(&tunnel, 600, &last);
        elsewhere.peer.set_port(4501);
        assert_eq!(plane.too_big(pair.now, &elsewhere), None);
        elsewhere = report(&Tunnel { encap: !encap, ..tunnel.clone() }, 600, &last);
        assert_eq!(plane.too_big(pair.now, &elsewhere), None);
        assert_eq!(size(&plane), Some(1500));
        plane.believe_icmp(false);
        assert_eq!(plane.too_big(pair.now, &report(&tunnel, 1400, &last)), None);
        plane.believe_icmp(true);

        let id = Some(tunnel.id());
        assert_eq!(plane.too_big(pair.now, &report(&tunnel, 1400, &numbered(905))), id);
        assert_eq!(plane.too_big(pair.now, &report(&tunnel, 1300, &last)), None, "in one second");
        pair.advance(Duration::from_secs(1));
        assert_eq!(plane.too_big(pair.now, &report(&tunnel, 68, &last)), id);
        assert_eq!(size(&plane), Some(576));
        pair.advance(Duration::from_secs(599));
        plane.try_larger(pair.now);
        assert_eq!(size(&plane), Some(576));
        pair.advance(Duration::from_secs(1));
        plane.try_larger(pair.now);
        assert_eq!(size(&plane), Some(1500));
        assert!(pair.seal(&tunnel.packet(1300)).is_ok());
    }
}

/// A path is that of one peer: another one's keeps its size, and so does an SA that comes later on the same path.
///
/// Fault: in `Sad::refit`, leave the filter out, or in `Sad::sized` take no notice of the sizes.
#[test]
fn a_size_is_of_one_path_and_of_all_its_sas() {
    let tunnel = Tunnel::v4();
    let mut pair = behind(&tunnel, 1500);
    let other = SocketAddr::new(common::addr("198.51.100.7"), 0);
    pair.left.set_link(tunnel.left, other, 1500);
    let (_, esp) = pair.seal(&tunnel.packet(9)).unwrap();
    assert!(pair.left.too_big(pair.now, &report(&tunnel, 1300, &esp)).is_some());
    assert_eq!(pair.left.path_mtu(tunnel.left, other), Some(1500));
    let large = tunnel.packet(1300);
    let Err(Verdict::TooBig(most)) = pair.seal(&large) else { panic!("it fits") };

    let next = SaId { spi: 77, ..tunnel.id() };
    let mut sa = tunnel.sa(ipsec_types::dataplane::Direction::Out);
    sa.id = next;
    pair.left.apply(Command::InstallSa(Box::new(sa))).unwrap();
    let mut policy = tunnel.policy();
    if let ipsec_types::dataplane::PolicyAction::Protect { outbound, .. } = &mut policy.action {
        *outbound = Some(next);
    }
    pair.left.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
    assert_eq!(pair.seal(&large), Err(Verdict::TooBig(most)));
}

/// RFC 792 asks of a router to quote eight octets, which are all UDP header: no more than the address and port of a peer,
/// which strangers may know. That has packets be fragmented for a minute, and no size change.
///
/// Fault: in `Plane::too_big`, leave `divide` out, or do not ask for UDP over IPv4; or in `outbound::judge`, `divided`.
#[test]
fn a_report_that_quotes_too_little_allows_fragments_for_a_minute() {
    for (v4, encap) in [(true, true), (true, false), (false, true)] {
        let tunnel = Tunnel { encap, ..if v4 { Tunnel::v4() } else { Tunnel::v6() } };
        let mut pair = behind(&tunnel, 1500);
        let plane = pair.left.clone();
        let (small, large) = (tunnel.packet(9), tunnel.packet(1300));
        assert!(pair.seal(&small).unwrap().0.fields.dont_fragment);
        let mut of_other = report(&tunnel, 600, &[]);
        of_other.peer.set_port(4501);
        for report in [of_other, report(&tunnel, 600, &[])] {
            assert!(pair.seal(&large).unwrap().0.fields.dont_fragment);
            assert_eq!(plane.too_big(pair.now, &report), None);
        }
        let (outgoing, esp) = pair.seal(&large).unwrap();
        assert_eq!(!outgoing.fields.dont_fragment, v4 && encap);
        assert_eq!(plane.path_mtu(tunnel.left, peer(&tunnel)), Some(1500));
        assert_eq!(pair.open(&outgoing, &esp), Ok(large.clone()));
        pair.advance(Duration::from_secs(60));
        // Again within the minute makes it no longer.
        pair.left.too_big(pair.now - Duration::from_secs(1), &report(&tunnel, 600, &[]));
        plane.try_larger(pair.now);
        assert!(pair.seal(&large).unwrap().0.fields.dont_fragment);
    }
}

/// Neighbours behind one NAT share its address, and may have paths of their own behind it.
///
/// Fault: in `Path::ends`, take port 0.
#[test]
fn neighbours_of_one_address_have_a_size_each() {
    let tunnel = Tunnel { encap: true, ..Tunnel::v4() };
    let mut pair = behind(&tunnel, 1500);
    let neighbour = SocketAddr::new(tunnel.right, 4501);
    pair.left.set_link(tunnel.left, neighbour, 1500);
    let (_, esp) = pair.seal(&tunnel.packet(9)).unwrap();
    assert!(pair.left.too_big(pair.now, &report(&tunnel, 1300, &esp)).is_some());
    assert_eq!(pair.left.path_mtu(tunnel.left, neighbour), Some(1500));
    assert_eq!(pair.left.path_mtu(tunnel.left, peer(&tunnel)), Some(1300));
}

/// Fault: in `Sad::link`, forget the path whose link it is.
#[test]
fn a_link_is_known_before_its_sa_is_installed() {
    let plane = Tunnel::v4().connect().left;
    for n in 1..=255 {
        let peer = SocketAddr::new([203, 0, 113, n].into(), 4500);
        plane.set_link(common::addr("192.0.2.1"), peer, 1500);
        assert_eq!(plane.path_mtu(common::addr("192.0.2.1"), peer), Some(1500), "{n}");
    }
}

/// The kernel would refuse it, and say so with the MTU of the path for that of the link.
///
/// Fault: in `outbound::Item::of`, leave `longest` out.
#[test]
fn a_packet_that_no_packet_outside_has_room_for_is_counted() {
    let v6 = (vec![ts("2001:db8:1::/48[udp]")], vec![ts("2001:db8:2::/48[udp/2000]")]);
    let v4 = (vec![ts("10.1.0.0/16[udp]")], vec![ts("10.2.0.0/16[udp/2000]")]);
    for (base, (left_ts, right_ts)) in [(Tunnel::v4(), v4), (Tunnel::v6(), v6)] {
        for encap in [false, true] {
            let tunnel = Tunnel {
                encap,
                left_ts: left_ts.clone(),
                right_ts: right_ts.clone(),
                ..base.clone()
            };
            let mut pair = tunnel.connect();
            let whole = |payload| {
                let whole = tunnel.packet(payload);
                if whole[0] >> 4 == 4 { fragment(whole, 0, false) } else { whole }
            };
            for (payload, fits) in [(65_000, true), (65_535 - 20 - 8, false)] {
                let pieces = common::fragments(&whole(payload), 1352);
                let (last, others) = pieces.split_last().unwrap();
                for piece in others {
                    assert_eq!(pair.seal(piece), Err(Verdict::Held));
                }
                let sealed = pair.seal(last);
                let dropped = Err(Verdict::Drop(esp::DropReason::TooBig));
                assert!(if fits { sealed.is_ok() } else { sealed == dropped }, "{sealed:?}");
            }
            assert_eq!(pair.left.stats().dropped(esp::DropReason::TooBig), 1);
        }
    }
}
