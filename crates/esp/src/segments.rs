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

/// A TCP segment that may be divided.
struct Segment<'a> {
    ip: IpPacket,
    /// Those of IP and TCP.
    headers: &'a [u8],
    payload: &'a [u8],
    flags: u8,
    /// The flag CWR belongs to a counter.
    counts: bool,
}

/// Divides the TCP segment `packet` into packets of `most` octets at the most. `None` if it is none, or cannot be divided:
/// it opens or resets a connection, has urgent data or a wrong checksum, or is signed (RFC 2385, RFC 5925).
///
/// The segments at the start of `after` that continue it are divided together with it, and the number of them is returned.
/// A sender hands over a run of equal segments. Each by itself would leave a small piece, whose headers cost a tenth of the
/// path.
pub(crate) fn divide(packet: &[u8], after: &[&[u8]], most: u16) -> Option<(Vec<Vec<u8>>, usize)> {
    let first = Segment::parse(packet)?;
    let room = usize::from(most).checked_sub(first.headers.len()).filter(|room| *room >= LEAST)?;
    let (mut payload, mut flags) = (first.payload.to_vec(), first.flags);
    let mut joined = 0;
    for packet in after {
        let next = Segment::parse(packet).filter(|next| first.goes_on(flags, payload.len(), next));
        let Some(next) = next else { break };
        payload.extend_from_slice(next.payload);
        flags = first.flags | next.flags;
        joined += 1;
    }
    let headers = &mut first.headers.to_vec();
    *headers.get_mut(first.ip.base_len + 13)? = flags;
    let last = payload.len().checked_sub(1)? / room;
    let pieces = payload.chunks(room).enumerate().map(|(number, data)| {
        let of_last = if number == last { 0 } else { FIN | PSH };
        let of_first = if number == 0 || first.counts { 0 } else { CWR };
        piece(&first.ip, headers, (number, number * room), data, of_last | of_first)
    });
    Some((pieces.collect::<Option<_>>()?, joined))
}

impl<'a> Segment<'a> {
    fn parse(packet: &'a [u8]) -> Option<Self> {
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
        let counts = counts_ce(segment, options);
        let (headers, payload) = packet.split_at_checked(ip.base_len + header)?;
        Some(Self { ip, headers, payload, flags, counts })
    }

    /// True if `next` has the octets that follow the `octets` of this segment, and the same headers. `flags` are those of the
    /// segment before `next`: a segment with FIN or PSH is the last of a run.
    fn goes_on(&self, flags: u8, octets: usize, next: &Self) -> bool {
        let own = if self.counts { self.flags } else { self.flags & !CWR };
        let same = next.flags & !(FIN | PSH) == own && next.counts == self.counts;
        let sequence = self.sequence().zip(u32::try_from(octets).ok());
        let follows = sequence
            .is_some_and(|(first, octets)| next.sequence() == Some(first.wrapping_add(octets)));
        let [own, next] = [self, next].map(Self::fixed);
        flags & (FIN | PSH) == 0 && same && follows && own == next
    }

    fn sequence(&self) -> Option<u32> {
        let sequence = self.headers.get(self.ip.base_len + 4..)?.first_chunk()?;
        Some(u32::from_be_bytes(*sequence))
    }

    /// The headers without what differs from one segment of a run to the next: lengths, identification, sequence number, flags
    /// and checksums.
    fn fixed(&self) -> Vec<u8> {
        let mut headers = self.headers.to_vec();
        let tcp = self.ip.base_len;
        let of_ip: &[_] = if self.ip.dst.is_ipv4() { &[2..6, 10..12] } else { &[4..6, 4..6] };
        let of_tcp = [tcp + 4..tcp + 8, tcp + 13..tcp + 14, tcp + 16..tcp + 18];
        for field in of_ip.iter().cloned().chain(of_tcp) {
            headers.get_mut(field).unwrap_or_default().fill(0);
        }
        headers
    }
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
                let (pieces, joined) = divide(&whole, &[], most).unwrap();
                assert_eq!(joined, 0);
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

    /// What a sender hands over at once is divided at once.
    ///
    /// Faults: in `divide`, join none, or leave out the last flags; in `goes_on`, leave out a condition; in `fixed`, leave out a
    /// field (nothing is joined), or blank the acknowledgment.
    #[test]
    fn a_run_of_segments_is_divided_together() {
        const ACK: u8 = 0x10;
        let stamp = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        for v6 in [false, true] {
            let whole = segment(v6, ACK | FIN | PSH | CWR, &stamp, 6000);
            let headers = whole.len() - 6000;
            let (run, _) = divide(&whole, &[], 1220).unwrap();
            let run: Vec<_> = run.iter().map(Vec::as_slice).collect();
            let (pieces, joined) = divide(run[0], &run[1..], 1180).unwrap();
            assert_eq!(joined, run.len() - 1);
            assert_eq!(pieces, divide(&whole, &[], 1180).unwrap().0);
            let pieces = |after: &[&[u8]]| {
                let (pieces, joined) = divide(run[0], after, 1180).unwrap();
                assert_eq!(pieces.len(), (joined * 1220 + 1220 - headers).div_ceil(1180 - headers));
                joined
            };
            assert_eq!([pieces(&run[1..3]), pieces(&run[2..]), pieces(&[])], [2, 0, 0]);
            // Another acknowledgment, window, service, address or port.
            let (tos, source) = if v6 { (1, 8) } else { (1, 12) };
            let tcp = headers - TCP_HEADER - stamp.len();
            for at in [tcp + 9, tcp + 14, tos, source, tcp, headers - 1] {
                let mut other = run[1].to_vec();
                other[at] ^= 1;
                let ip = IpPacket::parse(&other).unwrap();
                ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut other[tcp..]);
                assert_eq!(pieces(&[&other, run[2]]), 0, "octet {at}");
            }
            // Flags, on the segment and on the one before it.
            for flag in [CWR, FIN, PSH, 0x40] {
                let mut other = run[1].to_vec();
                other[tcp + 13] |= flag;
                let ip = IpPacket::parse(&other).unwrap();
                ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut other[tcp..]);
                let last = usize::from(flag & (FIN | PSH) != 0);
                assert_eq!(pieces(&[&other, run[2]]), last, "flag {flag:x}");
            }
            let mut damaged = run[1].to_vec();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(pieces(&[&damaged]), 0);
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
                let (pieces, _) = divide(&whole, &[], 800).unwrap();
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
                assert_eq!(divide(&segment(v6, flags, &[], 1400), &[], 1000), None, "{flags:x}");
            }
            for signed in [&md5, &authentication] {
                assert_eq!(divide(&segment(v6, 0x10, signed, 1400), &[], 1000), None);
            }
            assert_eq!(divide(&segment(v6, 0x10, &[], 1400), &[], 290), None);
            assert_eq!(divide(&segment(v6, 0x10, &[], 0), &[], 1000), None);
            let mut damaged = segment(v6, 0x10, &[], 1400);
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(divide(&damaged, &[], 1000), None);
        }
        let udp = ip::header(
            "10.1.0.1".parse().unwrap(),
            "10.2.0.1".parse().unwrap(),
            0,
            proto::UDP,
            1400,
        );
        let (head, len) = udp.unwrap();
        assert_eq!(divide(&[&head[..len], &[0; 1400]].concat(), &[], 1000), None);
    }
}
