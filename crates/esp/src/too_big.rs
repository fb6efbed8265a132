//! The ICMP message that tells a sender that its packet is too big (RFC 4301 §8.2.1): type 3, code 4 (RFC 792, RFC 1191),
//! or ICMPv6 type 2 (RFC 4443 §3.2).

use std::net::IpAddr;

use crate::ip::{self, Fragment, IPV4_HEADER, IPV6_HEADER, IpPacket, proto};

/// The smallest MTU that IPv6 knows (RFC 8200 §5).
pub(crate) const LEAST_V6: u16 = 1280;
/// The smallest MTU of an IPv4 path: every host takes packets of this size (RFC 791 §3.1).
pub(crate) const LEAST_V4: u16 = 576;

/// Octets of an ICMP header.
const ICMP_HEADER: usize = 8;
/// The most octets of the answer: every host takes as many.
const LONGEST_V4: usize = 576;

/// The answer to `packet`, which is longer than `mtu`. Its source is the destination of the packet, because this host would
/// drop an answer from an address of its own. `None` for packets that must not be answered (RFC 1122 §3.2.2, RFC 4443
/// §2.4).
pub(crate) fn answer(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let ip = IpPacket::parse(packet).ok()?;
    let packet = packet.get(..ip.total_len)?;
    if ip.fragment == Fragment::Later || !is_answered(packet, &ip) {
        return None;
    }
    let (protocol, kind, code, longest, header) = match ip.dst {
        IpAddr::V4(_) => (proto::ICMP, 3, 4, LONGEST_V4, IPV4_HEADER),
        IpAddr::V6(_) => (proto::ICMPV6, 2, 0, usize::from(LEAST_V6), IPV6_HEADER),
    };
    let quoted = packet.get(..longest - header - ICMP_HEADER).unwrap_or(packet);
    let [m0, m1] = mtu.to_be_bytes();
    let mut message = vec![kind, code, 0, 0, 0, 0, m0, m1];
    message.extend_from_slice(quoted);
    let (head, len) = ip::header(ip.dst, ip.src, 0, protocol, message.len())?;
    let sum = match (ip.dst, ip.src) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = (message.len() as u32).to_be_bytes();
            let tail = [0, 0, 0, protocol];
            ip::checksum(&[&from.octets(), &to.octets(), &length, &tail, &message])
        }
        _ => ip::checksum(&[&message]),
    };
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    Some([head.get(..len)?, &message].concat())
}

/// True unless it is an ICMP error, or has more than one sender or receiver.
fn is_answered(packet: &[u8], ip: &IpPacket) -> bool {
    let kind = packet.get(ip.base_len).copied();
    let error = match (ip.protocol, kind) {
        (Some(proto::ICMP), kind) => kind.is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12)),
        (Some(proto::ICMPV6), _) => ip.ports.is_none_or(|(kind, _)| kind >> 8 < 128),
        _ => false,
    };
    let one = |address: IpAddr| match address {
        IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
        // RFC 4443 would allow an answer to a multicast packet.
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast()),
    };
    !error && one(ip.src) && (one(ip.dst))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["10.1.0.1", "10.2.0.1"] };
        let [src, dst] = ends.map(|end| end.parse().unwrap());
        let (head, len) = ip::header(src, dst, 0, protocol, payload.len()).unwrap();
        [&head[..len], payload].concat()
    }

    /// Fault: in `answer`, leave the quoted packet whole, or the checksum out.
    #[test]
    fn the_answer_has_size_and_quote() {
        for v6 in [false, true] {
            let large = packet(v6, proto::UDP, &[9; 1360]);
            let reply = answer(&large, 1300).unwrap();
            let ip = IpPacket::parse(&reply).unwrap();
            let asked = IpPacket::parse(&large).unwrap();
            assert_eq!((ip.src, ip.dst), (asked.dst, asked.src));
            let icmp = &reply[ip.base_len..];
            assert_eq!(icmp[..2], if v6 { [2, 0] } else { [3, 4] });
            assert_eq!(icmp[4..8], [0, 0, 5, 0x14]);
            assert!(large.starts_with(&icmp[8..]));
            assert_eq!(reply.len(), if v6 { 1280 } else { 576 });
            if !v6 {
                assert_eq!(ip::checksum(&[icmp]), 0);
            }
        }
    }

    #[test]
    fn errors_and_packets_to_many_have_no_answer() {
        assert_eq!(answer(&packet(false, proto::ICMP, &[3; 900]), 600), None);
        assert_eq!(answer(&packet(true, proto::ICMPV6, &[1; 1300]), 1280), None);
        assert!(answer(&packet(false, proto::ICMP, &[8; 900]), 600).is_some());
        assert!(answer(&packet(true, proto::ICMPV6, &[128; 1300]), 1280).is_some());
        let mut many = packet(false, proto::UDP, &[1; 900]);
        many[16] = 224;
        assert_eq!(answer(&many, 600), None);
    }
}
