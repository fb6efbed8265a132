//! Fragments of a whole packet (RFC 791 §2.3, RFC 8200 §4.5).

use crate::ip::{self, IPV4_HEADER, proto};

/// Octets of the fragment header of IPv6.
const FRAGMENT_HEADER: usize = 8;

/// IPv4 options: end of list, and no-operation.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The flag of options that every fragment has.
const COPIED: u8 = 0x80;

/// Divides `packet` into fragments of `most` octets at the most. Those of IPv6 get the identification `id`; an IPv4 packet
/// has its own. `None` if the packet cannot be divided: a fragment of IPv6, for example.
pub(crate) fn split(packet: &[u8], most: usize, id: u32) -> Option<Vec<Vec<u8>>> {
    match packet.first()? >> 4 {
        4 => split_v4(packet, most),
        _ => split_v6(packet, most, id),
    }
}

fn split_v4(packet: &[u8], most: usize) -> Option<Vec<Vec<u8>>> {
    let len = usize::from(packet.first()? & 15) * 4;
    let (header, payload) = packet.split_at_checked(len)?;
    // It may be a fragment itself.
    let field = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
    let (begin, follows) = (field & 0x1fff, field & 0x2000 != 0);
    let mut later = header.to_vec();
    drop_first_options(later.get_mut(IPV4_HEADER..)?);
    let room = most.checked_sub(len)? & !7;
    pieces(payload, room, |offset, more, data| {
        let more = more || follows;
        let mut piece = if offset == 0 { header.to_vec() } else { later.clone() };
        let total = u16::try_from(len + data.len()).ok()?;
        let at = begin.checked_add(u16::try_from(offset / 8).ok()?).filter(|at| *at <= 0x1fff)?;
        let field = at | if more { 0x2000 } else { 0 };
        piece.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        piece.get_mut(6..8)?.copy_from_slice(&field.to_be_bytes());
        piece.get_mut(10..12)?.fill(0);
        let sum = ip::checksum(&[&piece]);
        piece.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        piece.extend_from_slice(data);
        Some(piece)
    })
}

/// Overwrites the options that only the first fragment has. Malformed options stay as they are.
fn drop_first_options(mut options: &mut [u8]) {
    while let Some((option, rest)) = first_option(std::mem::take(&mut options)) {
        if option.first().is_some_and(|kind| kind & COPIED == 0) {
            option.fill(NO_OPERATION);
        }
        options = rest;
    }
}

/// The first of the options, and the others.
fn first_option(options: &mut [u8]) -> Option<(&mut [u8], &mut [u8])> {
    let len = match *options.first()? {
        END => 0,
        NO_OPERATION => 1,
        _ => usize::from(*options.get(1)?),
    };
    options.split_at_mut_checked(len).filter(|_| len > 0)
}

fn split_v6(packet: &[u8], most: usize, id: u32) -> Option<Vec<Vec<u8>>> {
    let (next_at, len) = ip::fragmentable(packet)?;
    let next = *packet.get(next_at)?;
    if next == proto::FRAGMENT {
        return None;
    }
    let (header, payload) = packet.split_at_checked(len)?;
    let room = most.checked_sub(len + FRAGMENT_HEADER)? & !7;
    pieces(payload, room, |offset, more, data| {
        let mut piece = header.to_vec();
        let behind = len.checked_sub(ip::IPV6_HEADER)? + FRAGMENT_HEADER + data.len();
        piece.get_mut(4..6)?.copy_from_slice(&u16::try_from(behind).ok()?.to_be_bytes());
        *piece.get_mut(next_at)? = proto::FRAGMENT;
        let field = u16::try_from(offset).ok()? | u16::from(more);
        piece.extend_from_slice(&[next, 0]);
        piece.extend_from_slice(&field.to_be_bytes());
        piece.extend_from_slice(&id.to_be_bytes());
        piece.extend_from_slice(data);
        Some(piece)
    })
}

/// One piece for every `room` octets of `payload`, which is a multiple of eight.
fn pieces(
    payload: &[u8],
    room: usize,
    piece: impl Fn(usize, bool, &[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<Vec<u8>>> {
    if room == 0 {
        return None;
    }
    let count = payload.len().div_ceil(room);
    let each = payload.chunks(room).enumerate();
    each.map(|(n, data)| piece(n * room, n + 1 < count, data)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{IpPacket, header};
    use crate::reassembly::Reassembler;

    fn packet(version: u8, extensions: &[u8], next: u8) -> Vec<u8> {
        let (src, dst) = match version {
            4 => ("10.1.0.1", "10.2.0.1"),
            _ => ("2001:db8::1", "2001:db8::2"),
        };
        let payload = [extensions, &[7; 3000]].concat();
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let (mut head, len) = header(src, dst, 0, next, payload.len()).unwrap();
        if version == 4 {
            // The sender allows fragments.
            (head[6], head[10], head[11]) = (0, 0, 0);
            let sum = ip::checksum(&[&head[..len]]).to_be_bytes();
            head[10..12].copy_from_slice(&sum);
        }
        [&head[..len], &payload].concat()
    }

    /// Fault: in `Piece::read`, let `next_at` be 6 for IPv6. A packet with extension headers comes out damaged.
    #[test]
    fn what_is_split_comes_together_again() {
        let routing = [proto::ROUTING, 0, 1, 4, 0, 0, 0, 0, proto::UDP, 0, 0, 0, 0, 0, 0, 0];
        let options = [proto::UDP, 0, 1, 4, 0, 0, 0, 0];
        for whole in [
            packet(4, &[], proto::UDP),
            packet(6, &[], proto::UDP),
            packet(6, &options, proto::HOP_BY_HOP),
            packet(6, &options, proto::DESTINATION),
            packet(6, &routing, proto::DESTINATION),
        ] {
            let mut pieces = split(&whole, 1300, 9).unwrap();
            assert_eq!(pieces.len(), 3);
            let smaller = split(&pieces[1], 600, 9);
            assert_eq!(smaller.is_some(), whole[0] >> 4 == 4, "a router divides fragments of IPv4");
            if let Some(smaller) = smaller {
                pieces.splice(1..2, smaller);
            }
            assert!(pieces.iter().all(|piece| piece.len() <= 1300));
            pieces.rotate_left(1);
            let mut together = Reassembler::default();
            let last = pieces.iter().filter_map(|piece| {
                let ip = IpPacket::parse(piece).unwrap();
                together.add(0, piece, &ip).unwrap()
            });
            let last: Vec<_> = last.collect();
            assert_eq!(last.len(), 1);
            assert!(last[0].packet == whole);
            assert!((1290..=1300).contains(&last[0].largest));
        }
    }

    #[test]
    fn options_of_the_first_fragment_alone() {
        let mut options = [NO_OPERATION, 7, 3, 4, 0x83, 3, 4, END];
        drop_first_options(&mut options);
        assert_eq!(options, [1, 1, 1, 1, 0x83, 3, 4, END]);
        let mut endless = [7, 0, 0, 0];
        drop_first_options(&mut endless);
        assert_eq!(endless, [7, 0, 0, 0]);
    }
}
