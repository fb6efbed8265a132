//! IP headers as selectors see them.

use esp::ip::{BadIp, Fragment, IpPacket, fix_checksum, header, proto};

use crate::common::{addr, packet};

/// An IPv6 packet whose payload begins with these extension headers.
fn v6(first: u8, payload: &[u8]) -> Vec<u8> {
    packet(addr("2001:db8::1"), addr("2001:db8::2"), 0, first, payload)
}

const UDP: [u8; 8] = [0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0];
const PORTS: Option<(u16, u16)> = Some((0x1234, 0x5678));

#[test]
fn what_stands_in_the_port_fields() {
    let (src, dst) = (addr("10.0.0.1"), addr("10.0.0.2"));
    let ports = |protocol, payload: &[u8]| {
        IpPacket::parse(&packet(src, dst, 0, protocol, payload)).unwrap().ports
    };
    for protocol in [proto::TCP, proto::UDP, proto::SCTP, proto::DCCP, proto::UDPLITE] {
        assert_eq!(ports(protocol, &UDP), PORTS);
        assert_eq!(ports(protocol, &UDP[..3]), None, "cut short");
    }
    assert_eq!(ports(proto::ICMP, &[3, 4, 0, 0]), Some((0x0304, 0x0304)));
    assert_eq!(ports(proto::MOBILITY, &[59, 1, 5, 0]), Some((0x0500, 0x0500)));
    assert_eq!(ports(47, &UDP), None);
}

#[test]
fn extension_headers_are_walked() {
    let chain = [&[proto::ROUTING, 0, 0, 0, 0, 0, 0, 0][..], &[proto::DESTINATION, 0], &[0; 6]];
    let chain = [&chain.concat()[..], &[proto::UDP, 1], &[0; 14], &UDP].concat();
    let whole = v6(proto::HOP_BY_HOP, &chain);
    let ip = IpPacket::parse(&whole).unwrap();
    assert_eq!((ip.protocol, ip.ports), (Some(proto::UDP), PORTS));
    assert_eq!((ip.base_len, ip.base_next), (40, proto::HOP_BY_HOP));
    assert_eq!(ip.fragment, Fragment::None);

    // A header that runs past the packet.
    assert_eq!(IpPacket::parse(&v6(proto::DESTINATION, &[17, 3, 0, 0, 0, 0, 0, 0])), Err(BadIp));
    assert_eq!(IpPacket::parse(&v6(proto::DESTINATION, &[17])), Err(BadIp));
    // More of them than anyone sends.
    let endless = [proto::DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(9);
    assert_eq!(IpPacket::parse(&v6(proto::DESTINATION, &endless)), Err(BadIp));
}

#[test]
fn fragments_of_ipv6() {
    let fragment = |next, offset: u16, more: bool, payload: &[u8]| {
        let [o0, o1] = (offset | u16::from(more)).to_be_bytes();
        v6(proto::FRAGMENT, &[&[next, 0, o0, o1, 0, 0, 0, 1], payload].concat())
    };
    let parse =
        |packet: &[u8]| IpPacket::parse(packet).map(|ip| (ip.fragment, ip.protocol, ip.ports));
    assert_eq!(
        parse(&fragment(proto::UDP, 0, true, &UDP)),
        Ok((Fragment::First, Some(proto::UDP), PORTS))
    );
    assert_eq!(
        parse(&fragment(proto::UDP, 8, true, &UDP)),
        Ok((Fragment::Later, Some(proto::UDP), None)),
        "what is there are not ports"
    );
    // RFC 4301 §7: the next layer protocol may be hidden, in a later and even in the first fragment.
    assert_eq!(
        parse(&fragment(proto::DESTINATION, 8, false, &UDP)),
        Ok((Fragment::Later, None, None))
    );
    assert_eq!(
        parse(&fragment(proto::DESTINATION, 0, true, &[17, 9, 0, 0])),
        Ok((Fragment::First, None, None))
    );
    assert_eq!(parse(&v6(proto::FRAGMENT, &[17, 0, 0, 1])), Err(BadIp));
}

#[test]
fn lengths_that_lie() {
    let (src, dst) = (addr("10.0.0.1"), addr("10.0.0.2"));
    let good = packet(src, dst, 0, proto::UDP, &UDP);
    assert!(IpPacket::parse(&good).is_ok());
    for (at, value) in [(0, 0x44), (0, 0x4f), (0, 0x75), (2, 0xff), (3, 19), (3, 29)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(IpPacket::parse(&bad), Err(BadIp), "octet {at} is {value:#x}");
    }
    for cut in 0..good.len() {
        assert_eq!(IpPacket::parse(&good[..cut]), Err(BadIp));
    }
    let long = IpPacket::parse(&[good.as_slice(), &[0; 9]].concat()).unwrap();
    assert_eq!(long.total_len, good.len(), "padding behind is not the packet");
}

#[test]
fn headers_of_packets_that_do_not_fit() {
    let (v4, v6) = (addr("10.0.0.1"), addr("::1"));
    assert!(header(v4, v4, 0, 17, 65515).is_some());
    assert!(header(v4, v4, 0, 17, 65516).is_none());
    assert!(header(v6, v6, 0, 17, 65535).is_some());
    assert!(header(v6, v6, 0, 17, 65536).is_none());
    assert!(header(v4, v6, 0, 17, 1).is_none());
}

/// RFC 768: a UDP checksum of zero means none, and stays none; one that comes out as zero is sent as
/// all ones.
#[test]
fn udp_checksums() {
    let (src, dst) = (addr("10.0.0.1"), addr("10.0.0.2"));
    let mut none = UDP;
    fix_checksum(src, dst, proto::UDP, &mut none);
    assert_eq!(none, UDP);
    let mut datagram = [0, 1, 0, 2, 0, 10, 0xaa, 0xaa, 0, 0];
    fix_checksum(src, dst, proto::UDP, &mut datagram);
    let [.., c0, c1, _, _] = datagram;
    // The data is set to what the checksum was, so that the sum becomes zero.
    datagram[8..].copy_from_slice(&[c0, c1]);
    fix_checksum(src, dst, proto::UDP, &mut datagram);
    assert_eq!(datagram[6..8], [0xff, 0xff]);
}
