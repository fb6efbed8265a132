//! Lowers the maximum segment size that TCP announces (RFC 9293 §3.7.1) to what fits the path.

use crate::ip::{Fragment, IpPacket, proto};

/// Octets of a TCP header without options, and of an IPv4 or IPv6 header.
const TCP_HEADER: usize = 20;
const SYN: u8 = 0x02;
/// Options: end of list, no-operation, and maximum segment size with its length.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const SEGMENT_SIZE: u8 = 2;
const SEGMENT_SIZE_LEN: usize = 4;
/// A signature of the segment (RFC 2385).
const MD5: u8 = 19;
/// The Authentication Option, whose MAC mostly covers the options (RFC 5925 §5.1): no change passes.
const AUTHENTICATION: u8 = 29;
/// The size is never lowered below this, the least that Linux uses.
const LEAST: u16 = 88;

/// True if `packet`, whose header is `ip`, is a TCP SYN or SYN-ACK.
#[inline]
pub(crate) fn opens(packet: &[u8], ip: &IpPacket) -> bool {
    ip.protocol == Some(proto::TCP)
        && ip.fragment == Fragment::None
        && segment_at(packet, ip).and_then(|at| packet.get(at + 13)).is_some_and(|f| f & SYN != 0)
}

/// Lowers the segment size in the TCP SYN `packet`, so that the packets of the connection have `most` octets at most. True
/// if it was larger.
pub(crate) fn lower(packet: &mut [u8], most: u16) -> bool {
    let Ok(ip) = IpPacket::parse(packet) else { return false };
    if !opens(packet, &ip) {
        return false;
    }
    let Some(at) = segment_at(packet, &ip) else { return false };
    let room = usize::from(most).saturating_sub(ip.base_len + TCP_HEADER);
    let size = u16::try_from(room).unwrap_or(u16::MAX).max(LEAST);
    let segment = packet.get_mut(at..ip.total_len).unwrap_or_default();
    lower_in(segment, size).is_some()
}

/// Where the TCP header begins, if it follows the IP header directly.
#[inline]
fn segment_at(packet: &[u8], ip: &IpPacket) -> Option<usize> {
    (ip.base_next == proto::TCP && packet.len() >= ip.base_len + TCP_HEADER).then_some(ip.base_len)
}

fn lower_in(segment: &mut [u8], size: u16) -> Option<()> {
    let at = segment_size_at(segment)?;
    let field = segment.get_mut(at..at + 2)?;
    let old = u16::from_be_bytes(*field.first_chunk()?);
    if old <= size {
        return None;
    }
    field.copy_from_slice(&size.to_be_bytes());
    // At an odd place the octets of the sum are the other way round.
    let (old, new) =
        if at.is_multiple_of(2) { (old, size) } else { (old.swap_bytes(), size.swap_bytes()) };
    let sum = segment.get_mut(16..18)?;
    let before = u16::from_be_bytes(*sum.first_chunk()?);
    sum.copy_from_slice(&updated(before, old, new).to_be_bytes());
    Some(())
}

/// True if a MAC over the segment is among the `options` of a TCP header.
pub(crate) fn is_signed(options: &[u8]) -> bool {
    has_any(options, &[MD5, AUTHENTICATION])
}

/// True if an option of one of `kinds` is among the `options` of a TCP header.
pub(crate) fn has_any(mut options: &[u8], kinds: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match *kind {
            END => return false,
            NO_OPERATION => options = rest,
            kind if kinds.contains(&kind) => return true,
            _ => {
                let len = rest.first().map_or(2, |len| usize::from(*len).max(2));
                options = options.get(len..).unwrap_or_default();
            }
        }
    }
    false
}

/// Where the segment size stands that may be changed.
fn segment_size_at(segment: &[u8]) -> Option<usize> {
    let end = (usize::from(segment.get(12)? >> 4) * 4).min(segment.len());
    let (mut at, mut found) = (TCP_HEADER, None);
    while at < end {
        match *segment.get(at)? {
            END => break,
            NO_OPERATION => at += 1,
            AUTHENTICATION => return None,
            kind => {
                let len = usize::from(*segment.get(at + 1)?);
                if kind == SEGMENT_SIZE && len == SEGMENT_SIZE_LEN && at + len <= end {
                    found = found.or(Some(at + 2));
                }
                // An option has two octets at least.
                at += if len < 2 { return found } else { len };
            }
        }
    }
    found
}

/// The checksum after one word has changed (RFC 1624 equation 3).
fn updated(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::ip;

    fn syn(v6: bool, flags: u8, options: &[u8]) -> Vec<u8> {
        let ends = if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["10.1.0.1", "10.2.0.1"] };
        let [src, dst]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
        let mut segment = vec![0; 20];
        segment.extend_from_slice(options);
        segment[12] = (segment.len() as u8 / 4) << 4;
        segment[13] = flags;
        ip::fix_checksum(src, dst, proto::TCP, &mut segment);
        let (head, len) = ip::header(src, dst, 0, proto::TCP, segment.len()).unwrap();
        [&head[..len], &segment].concat()
    }

    fn with_right_checksum(packet: &[u8]) -> bool {
        let ip = IpPacket::parse(packet).unwrap();
        let mut again = packet.to_vec();
        ip::fix_checksum(ip.src, ip.dst, proto::TCP, &mut again[ip.base_len..]);
        again == packet
    }

    /// Fault: in `lower_in`, leave the checksum as it was, or do not heed an option at an odd place.
    #[test]
    fn the_segment_size_is_lowered_and_never_raised() {
        let places: [&[u8]; 3] = [
            &[2, 4, 5, 0x78],
            &[1, 2, 4, 5, 0x78, 1, 1, 0],
            &[3, 3, 7, 1, 4, 2, 2, 4, 5, 0x78, 0, 0],
        ];
        for (options, flags) in places.into_iter().zip([SYN, SYN | 0x10, SYN]) {
            for v6 in [false, true] {
                let before = syn(v6, flags, options);
                let mut packet = before.clone();
                assert!(lower(&mut packet, 1300));
                let size = if v6 { 1240_u16 } else { 1260 };
                assert!(with_right_checksum(&packet));
                let at = options.windows(2).position(|two| two == [2, 4]).unwrap();
                let at = if v6 { 60 } else { 40 } + at + 2;
                assert_eq!(packet[at..at + 2], size.to_be_bytes());
                assert!(!lower(&mut packet, 1300), "it is low enough");
                let mut fits = before.clone();
                assert!(!lower(&mut fits, 1500));
                assert_eq!(fits, before);
            }
        }
    }

    /// Fault: in `segment_size_at`, leave `AUTHENTICATION` out. The peer drops the SYN.
    #[test]
    fn nothing_but_whole_syns_with_the_option_changes() {
        for before in [
            syn(false, 0x10, &[2, 4, 5, 0x78]),
            syn(false, SYN, &[]),
            syn(false, SYN, &[8, 0, 0, 0]),
            syn(false, SYN, &[0, 0, 2, 4]),
            syn(true, SYN, &[1, 1, 2, 4]),
            syn(false, SYN, &[29, 8, 1, 1, 9, 9, 9, 9, 2, 4, 5, 0x78]),
            syn(true, SYN, &[2, 4, 5, 0x78, 29, 8, 1, 1, 9, 9, 9, 9]),
        ] {
            let mut packet = before.clone();
            assert!(!lower(&mut packet, 600));
            assert_eq!(packet, before);
        }
    }
}
