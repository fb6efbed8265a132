//! The ICMP message that tells a sender that its packet is too big (RFC 4301 §8.2.1): type 3, code 4 (RFC 792, RFC 1191),
//! or ICMPv6 type 2 (RFC 4443 §3.2).

use crate::buffer::Buffer;
use crate::refusal::message;

/// Types and codes of IPv4 and IPv6.
const TOO_BIG: [[u8; 2]; 2] = [[3, 4], [2, 0]];

/// Appends to `out` the answer to `packet`, which is longer than `mtu`, as [`message`] does.
pub(crate) fn answer(packet: &[u8], mtu: u16, out: &mut Buffer) -> Option<()> {
    message(packet, TOO_BIG, mtu.into(), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{self, IpPacket, proto};

    fn answer(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut out = Buffer::new();
        super::answer(packet, mtu, &mut out).map(|()| out.to_vec())
    }

    fn packet(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["10.1.0.1", "10.2.0.1"] };
        let [src, dst] = ends.map(|end| end.parse().unwrap());
        let (head, len) = ip::header(src, dst, 0, protocol, payload.len()).unwrap();
        [&head[..len], payload].concat()
    }

    /// Fault: in `refusal::message`, leave the quoted packet whole, or the size out of the checksum.
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
            if v6 {
                let pseudo = [&reply[8..40], &[0, 0, 4, 0xd8, 0, 0, 0, proto::ICMPV6][..]].concat();
                assert_eq!(ip::checksum(&[&pseudo, icmp]), 0);
            } else {
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
