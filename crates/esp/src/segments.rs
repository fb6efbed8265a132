//! TCP segments that are divided to fit a path.
//!
//! A sender learns the size of the path by Packet Too Big, but a sender of IPv6 never learns of less than 1,280 octets. Until
//! the sender knows the size, several small segments replace a large one. This needs no fragments, which many paths drop. The
//! receiver sees the same segments as with a smaller maximum segment size (RFC 9293 §3.7.1).

use crate::ip::{self, Fragment, IpPacket, proto};
use crate::mss;

/// Octets of a TCP header without options.
const TCP_HEADER: usize = 20;
/// The least payload of a segment. Smaller ones would be mostly headers.
const LEAST: usize = 256;

/// Flags of a TCP header.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;
/// In the octet before.
const AE: u8 = 0x01;

/// Divides the TCP segment `packet` into packets of `most` octets at the most. `None` if it is none, or cannot be divided:
/// it opens or resets a connection, has urgent data or a wrong checksum, or is signed (RFC 2385, RFC 5925).
pub(crate) fn divide(packet: &[u8], most: u16) -> Option<Vec<Vec<u8>>> {
    let ip = IpPacket::parse(packet).ok()?;
    let packet = packet.get(..ip.total_len)?;
    let segment = packet.get(ip.base_len..)?;
    if ip.base_next != proto::TCP || ip.fragment != Fragment::None {
        return None;
    }
    let (header, flags) = (usize::from(segment.get(12)? >> 4) * 4, *segment.get(13)?);
    let options = segment.get(TCP_HEADER..header)?;
    if flags & (SYN | RST | URG) != 0 || mss::is_signed(options) || !is_whole(&ip, segment) {
        return None;
    }
    let (headers, payload) = packet.split_at_checked(ip.base_len + header)?;
    let room = usize::from(most).checked_sub(headers.len()).filter(|room| *room >= LEAST)?;
    let last = payload.len().checked_sub(1)? / room;
    let counter = counts_ce(segment, options);
    let pieces = payload.chunks(room).enumerate().map(|(number, data)| {
        let of_last = if number == last { 0 } else { FIN | PSH };
        let of_first = if number == 0 || counter { 0 } else { CWR };
        piece(&ip, headers, (number, number * room), data, of_last | of_first)
    });
    pieces.collect()
}

/// True if AE, CWR and ECE are the ACE field, the counter of AccECN (RFC 9768 §3.2.2), and not the flags of RFC 3168. AE has
/// no other use (RFC 8311 §3.3), and only AccECN has the options 172 and 174.
///
/// All pieces have the same counter, as all segments have until the next packet with CE comes: the other end adds up how the
/// counter has changed. With CWR in the first piece alone, the counter would seem to have gone round. A counter of 2 or 3
/// without the options cannot be told from a CWR of RFC 3168. There CWR is in the first piece alone, as in the segments that
/// network devices make, because RFC 3168 is what most hosts use.
fn counts_ce(segment: &[u8], options: &[u8]) -> bool {
    const ACCECN_0: u8 = 172;
    const ACCECN_1: u8 = 174;
    let has_ae = segment.get(12).is_some_and(|octet| octet & AE != 0);
    has_ae || mss::has_any(options, &[ACCECN_0, ACCECN_1])
}

/// True if the checksum is right. The pieces get new ones, which must not make octets right that were damaged before.
fn is_whole(ip: &IpPacket, segment: &[u8]) -> bool {
    let mut right = segment.to_vec();
    ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut right);
    right == segment
}

/// The piece of a segment with this number, whose `data` begins at `offset` in the payload, without the flags in `cleared`.
fn piece(
    ip: &IpPacket,
    headers: &[u8],
    (number, offset): (usize, usize),
    data: &[u8],
    cleared: u8,
) -> Option<Vec<u8>> {
    let mut piece = [headers, data].concat();
    let (head, segment) = piece.split_at_mut_checked(ip.base_len)?;
    let sequence = segment.get_mut(4..8)?;
    let first = u32::from_be_bytes(*sequence.first_chunk()?);
    sequence.copy_from_slice(&first.wrapping_add(u32::try_from(offset).ok()?).to_be_bytes());
    *segment.get_mut(13)? &= !cleared;
    ip::fix_checksum(ip.src, ip.dst, proto::TCP, segment);
    let octets = segment.len();
    if ip.dst.is_ipv4() {
        let total = u16::try_from(head.len() + octets).ok()?;
        head.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        let id = head.get_mut(4..6)?;
        let own = u16::from_be_bytes(*id.first_chunk()?).wrapping_add(number as u16);
        id.copy_from_slice(&own.to_be_bytes());
        head.get_mut(10..12)?.fill(0);
        let sum = ip::checksum(&[head]);
        head.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    } else {
        let length = u16::try_from(head.len() + octets - ip::IPV6_HEADER).ok()?;
        head.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
    }
    Some(piece)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::ip::IPV4_HEADER;

    const FIRST: u32 = u32::MAX - 500;

    /// A segment of `octets` with a timestamp option and `options`.
    fn segment(v6: bool, flags: u8, options: &[u8], octets: usize) -> Vec<u8> {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["10.1.0.1", "10.2.0.1"] };
        let [src, dst]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
        let mut segment = vec![0; TCP_HEADER];
        segment.extend_from_slice(options);
        segment[4..8].copy_from_slice(&FIRST.to_be_bytes());
        segment[12] = (segment.len() as u8 / 4) << 4;
        segment[13] = flags;
        segment.extend((0..octets).map(|n| (n % 251) as u8));
        ip::fix_checksum(src, dst, proto::TCP, &mut segment);
        let (head, len) = ip::header(src, dst, 0, proto::TCP, segment.len()).unwrap();
        [&head[..len], &segment].concat()
    }

    /// Fault: in `piece`, leave out the offset, a flag, the identification or a checksum; or in `divide`, let `room` be
    /// `most`.
    #[test]
    fn the_pieces_make_up_the_segment() {
        let stamp = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        for v6 in [false, true] {
            for (octets, most) in [(1, 1240), (1388, 1240), (1388, 800), (60_000, 1240)] {
                let whole = segment(v6, 0x10 | FIN | PSH | CWR, &stamp, octets);
                let pieces = divide(&whole, most).unwrap();
                let headers = whole.len() - octets;
                assert_eq!(pieces.len(), octets.div_ceil(usize::from(most) - headers));
                let (mut data, mut ids) = (Vec::new(), Vec::new());
                for (n, piece) in pieces.iter().enumerate() {
                    assert!(piece.len() <= usize::from(most));
                    let ip = IpPacket::parse(piece).unwrap();
                    assert_eq!(ip.total_len, piece.len());
                    let mut tcp = piece[ip.base_len..].to_vec();
                    let sequence = u32::from_be_bytes(*tcp[4..].first_chunk().unwrap());
                    assert_eq!(sequence, FIRST.wrapping_add(data.len() as u32));
                    let (first, last) = (n == 0, n + 1 == pieces.len());
                    let mut flags = 0x10;
                    flags |= if first { CWR } else { 0 } | if last { FIN | PSH } else { 0 };
                    assert_eq!(tcp[13], flags);
                    assert_eq!(tcp[TCP_HEADER..TCP_HEADER + stamp.len()], stamp);
                    let sum = tcp.clone();
                    ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut tcp);
                    assert_eq!(tcp, sum);
                    if !v6 {
                        assert_eq!(ip::checksum(&[&piece[..IPV4_HEADER]]), 0);
                        ids.push(u16::from_be_bytes([piece[4], piece[5]]));
                    }
                    data.extend_from_slice(&piece[headers..]);
                }
                assert_eq!(data, whole[headers..]);
                assert!(ids.windows(2).all(|two| two[1] == two[0].wrapping_add(1)), "{ids:?}");
            }
        }
    }

    /// In RFC 3168, CWR says once that the sender has slowed down. In AccECN it is a bit of a counter that each segment has.
    ///
    /// Faults: in `divide`, let `counter` be false: the other end counts marks that no packet had. Let it be true: CWR in each
    /// piece ends the ECE that a marked piece has just begun.
    #[test]
    fn the_counter_of_accecn_is_in_each_piece_and_cwr_of_rfc_3168_in_the_first_alone() {
        const ECE: u8 = 0x40;
        let orders = [172, 174].map(|kind| [1, kind, 11, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
        let stamp = [1, 1, 8, 10, 0, 0, 0, 172, 0, 0, 0, 174];
        let all = [(false, stamp), (true, orders[0]), (true, orders[1])];
        for (v6, (has_option, options)) in
            [false, true].into_iter().flat_map(|v6| all.map(|of| (v6, of)))
        {
            for ace in 0..8 {
                let bit = |at: u8, flag: u8| if ace & at == 0 { 0 } else { flag };
                let (ae, others) = (bit(4, AE), bit(2, CWR) | bit(1, ECE));
                let mut whole = segment(v6, 0x10 | others, &options, 1388);
                let ip = IpPacket::parse(&whole).unwrap();
                whole[ip.base_len + 12] |= ae;
                ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut whole[ip.base_len..]);
                let pieces = divide(&whole, 800).unwrap();
                let seen = |piece: &Vec<u8>| {
                    [piece[ip.base_len + 12] & AE, piece[ip.base_len + 13] & 0xc0]
                };
                let later = if ae != 0 || has_option { others } else { others & !CWR };
                let seen: Vec<_> = pieces.iter().map(seen).collect();
                assert_eq!(seen, [[ae, others], [ae, later]], "{ace}, {has_option}");
            }
        }
    }

    /// Fault: in `divide`, leave one of the flags, `is_signed` or `is_whole` out, or `LEAST`.
    #[test]
    fn some_segments_stay_whole() {
        let md5 = [&[19, 18][..], &[7; 16], &[1, 0]].concat();
        let authentication = [&[1, 1, 29, 16][..], &[7; 14], &[1, 0]].concat();
        for v6 in [false, true] {
            for flags in [SYN, SYN | 0x10, RST, 0x10 | URG] {
                assert_eq!(divide(&segment(v6, flags, &[], 1400), 1000), None, "{flags:x}");
            }
            for signed in [&md5, &authentication] {
                assert_eq!(divide(&segment(v6, 0x10, signed, 1400), 1000), None);
            }
            assert_eq!(divide(&segment(v6, 0x10, &[], 1400), 290), None);
            assert_eq!(divide(&segment(v6, 0x10, &[], 0), 1000), None);
            let mut damaged = segment(v6, 0x10, &[], 1400);
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(divide(&damaged, 1000), None);
        }
        let udp = ip::header(
            "10.1.0.1".parse().unwrap(),
            "10.2.0.1".parse().unwrap(),
            0,
            proto::UDP,
            1400,
        );
        let (head, len) = udp.unwrap();
        assert_eq!(divide(&[&head[..len], &[0; 1400]].concat(), 1000), None);
    }
}
