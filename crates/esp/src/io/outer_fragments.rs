//! Fragments of ESP packets over IPv6 (RFC 8200 §4.5), made here.
//!
//! Over IPv6 only the sender fragments, and the kernel does so by the path MTU that it knows. It learns of none where ICMP is
//! dropped, and it follows a lower one of the socket (IPV6_MTU) only for packets that are larger than the link's.

use ipsec_types::dataplane::Encapsulation;

use crate::ip::{self, proto};
use crate::outbound::Outgoing;
use crate::sizes::LEAST_V6;
use crate::split::split;

/// Octets of a UDP header.
const UDP_HEADER: usize = 8;

/// True if this host may have to divide packets of this kind, because nobody else does.
pub(super) fn is_divisible(to: &Outgoing) -> bool {
    let tcp = matches!(to.encap, Some(Encapsulation::Tcp(_)));
    !to.fields.dont_fragment && to.dst.is_ipv6() && !to.src.is_unspecified() && !tcp
}

/// The packets that carry `esp` to its peer in fragments that every path takes. `None` if it is small enough, or is not
/// [divisible](is_divisible).
pub(super) fn fragments(to: &Outgoing, esp: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !is_divisible(to) {
        return None;
    }
    let Outgoing { src, dst, encap, fields, .. } = to;
    let (next, payload) = match encap {
        None => (proto::ESP, esp.to_vec()),
        Some(Encapsulation::Udp(ports)) => {
            let length = u16::try_from(UDP_HEADER + esp.len()).ok()?;
            // A checksum that is not 0 is made.
            let header = [ports.src_port, ports.dst_port, length, 1].map(u16::to_be_bytes);
            let mut datagram = [header.as_flattened(), esp].concat();
            ip::fix_checksum(*src, *dst, proto::UDP, &mut datagram);
            (proto::UDP, datagram)
        }
        Some(Encapsulation::Tcp(_)) => return None,
    };
    let (mut header, len) = ip::header(*src, *dst, fields.tos, next, payload.len())?;
    ip::set_fields(&mut header, fields);
    if len + payload.len() <= usize::from(LEAST_V6) {
        return None;
    }
    // The end of the ICV cannot be foreseen, as RFC 7739 wants it of an identification.
    let id = u32::from_be_bytes(*esp.last_chunk()?);
    split(&[header.get(..len)?, &payload].concat(), LEAST_V6.into(), id)
}

#[cfg(test)]
mod tests {
    use ipsec_types::dataplane::{EncapPorts, SaId};

    use super::*;
    use crate::fields::Fields;
    use crate::ip::IpPacket;
    use crate::reassembly::Reassembler;

    fn outgoing(v6: bool, encap: Option<Encapsulation>, dont_fragment: bool) -> Outgoing {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
        let [src, dst] = ends.map(|end| end.parse().unwrap());
        let fields = Fields { tos: 0x2e, hop_limit: Some(9), dont_fragment, flow_label: 0x12345 };
        Outgoing { sa: SaId { spi: 1, dst }, src, dst, encap, fields, len: 0 }
    }

    /// Fault: in `fragments`, leave out a field, the checksum or the size, or take one identification for all packets.
    #[test]
    fn a_packet_that_is_too_big_arrives_in_fragments_of_1280_octets() {
        let ports = EncapPorts { src_port: 4500, dst_port: 40_000 };
        for encap in [None, Some(Encapsulation::Udp(ports))] {
            let mut ids = Vec::new();
            for octets in [1241, 1282, 1500, 9000] {
                let esp: Vec<u8> = (0..octets).map(|n| (n % 253) as u8).collect();
                let to = outgoing(true, encap, false);
                let pieces = fragments(&to, &esp).unwrap();
                let mut together = Reassembler::default();
                let mut whole = None;
                for piece in &pieces {
                    assert!(piece.len() <= 1280);
                    assert_eq!(
                        Fields::of(piece),
                        Some(Fields { dont_fragment: true, ..to.fields })
                    );
                    let ip = IpPacket::parse(piece).unwrap();
                    assert_eq!((ip.src, ip.dst), (to.src, to.dst));
                    whole = whole.or(together.add(0, piece, &ip).unwrap());
                }
                let whole = whole.unwrap();
                ids.push(whole.id);
                let mut payload = whole.packet[ip::IPV6_HEADER..].to_vec();
                if encap.is_some() {
                    let sent = payload.clone();
                    ip::fix_checksum(to.src, to.dst, proto::UDP, &mut payload);
                    assert_eq!(payload, sent);
                    let ports = [4500u16, 40_000].map(u16::to_be_bytes);
                    assert_eq!(payload[..4], *ports.as_flattened());
                    assert_eq!(
                        usize::from(u16::from_be_bytes([payload[4], payload[5]])),
                        payload.len()
                    );
                    payload.drain(..UDP_HEADER);
                }
                assert_eq!(payload, esp);
            }
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 4);
        }
    }

    /// Fault: in `is_divisible`, leave a condition out; or in `fragments`, the size.
    #[test]
    fn other_packets_go_whole() {
        let ports = EncapPorts { src_port: 4500, dst_port: 4500 };
        let (udp, tcp) = (Some(Encapsulation::Udp(ports)), Some(Encapsulation::Tcp(ports)));
        let cases = [
            (true, None, false, 1240),
            (true, udp, false, 1232),
            (true, None, true, 1500),
            (true, tcp, false, 1500),
            (false, None, false, 1500),
            (false, udp, false, 1500),
        ];
        for (v6, encap, dont_fragment, octets) in cases {
            let to = outgoing(v6, encap, dont_fragment);
            assert_eq!(fragments(&to, &vec![7; octets]), None, "{v6} {encap:?} {octets}");
        }
        let mut to = outgoing(true, None, false);
        to.src = std::net::Ipv6Addr::UNSPECIFIED.into();
        assert_eq!(fragments(&to, &[7; 1500]), None);
    }
}
