//! IPv4 and IPv6 headers, as far as ESP needs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fields::Fields;

/// IP protocol numbers.
pub mod proto {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 inside IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 inside IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// ESP.
    pub const ESP: u8 = 50;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header: an ESP dummy packet (RFC 4303 §2.6).
    pub const NONE: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6 mobility header.
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDPLITE: u8 = 136;
}

/// Octets of an IPv4 header without options.
pub const IPV4_HEADER: usize = 20;
/// Octets of an IPv6 header.
pub const IPV6_HEADER: usize = 40;

/// The flag of an IPv6 fragment that is not the last.
const MORE: u16 = 1;

/// More extension headers than a real packet has.
const MAX_EXTENSIONS: usize = 8;

/// Whether a packet is a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// A whole packet.
    None,
    /// The first fragment.
    First,
    /// A later fragment: its ports are not there to be seen.
    Later,
}

/// Source and destination selector values of the next layer (RFC 4301 §4.4.1.1): ports; for ICMP the
/// type and code, for MIPv6 the message type in the high octet, the same on both sides.
pub type Ports = Option<(u16, u16)>;

/// The fields of a packet that ESP needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPacket {
    /// Source address.
    pub src: IpAddr,
    /// Destination address; its family is the packet's.
    pub dst: IpAddr,
    /// TOS or traffic class.
    pub tos: u8,
    /// Don't Fragment; always true for IPv6.
    pub dont_fragment: bool,
    /// Next layer protocol, `None` if a fragment hides it.
    pub protocol: Option<u8>,
    /// Ports, ICMP type and code, or mobility header type; `None` if absent or hidden.
    pub ports: Ports,
    /// Fragmentation.
    pub fragment: Fragment,
    /// Octets of the fixed header with IPv4 options, without IPv6 extension headers.
    pub base_len: usize,
    /// The `protocol` or `next header` field of that header.
    pub base_next: u8,
    /// Octets of the packet as its header says.
    pub total_len: usize,
}

/// [`IpPacket::parse`], and then a body that is compiled once for each family, so that what was read stays
/// in registers: an address of either family is written and read again in other pieces, for which the
/// processor waits.
macro_rules! parse_each {
    ($octets:expr, $bad:expr, |$ip:ident| $body:block) => {
        match $octets.first().map(|first| first >> 4) {
            Some(4) => {
                let $ip = IpPacket::parse_v4($octets).map_err($bad)?;
                $body
            }
            Some(6) => {
                let $ip = IpPacket::parse_v6($octets).map_err($bad)?;
                $body
            }
            _ => return Err($bad(BadIp)),
        }
    };
}
pub(crate) use parse_each;

/// Not a well-formed IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadIp;

impl IpPacket {
    /// Reads the headers at the start of `octets`, which may be longer than the packet (TFC padding).
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<Self, BadIp> {
        match octets.first().ok_or(BadIp)? >> 4 {
            4 => Self::parse_v4(octets),
            6 => Self::parse_v6(octets),
            _ => Err(BadIp),
        }
    }

    /// The next header number of this packet inside a tunnel: 4 or 41.
    pub fn tunnel_protocol(&self) -> u8 {
        if self.dst.is_ipv4() { proto::IPV4 } else { proto::IPV6 }
    }

    #[inline(always)]
    pub(crate) fn parse_v4(octets: &[u8]) -> Result<Self, BadIp> {
        let (header, _) = octets.split_first_chunk::<IPV4_HEADER>().ok_or(BadIp)?;
        let [vihl, tos, l0, l1, _, _, f0, f1, _, next, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
            *header;
        let base_len = usize::from(vihl & 15) * 4;
        let total_len = usize::from(u16::from_be_bytes([l0, l1]));
        if base_len < IPV4_HEADER || total_len < base_len || total_len > octets.len() {
            return Err(BadIp);
        }
        let flags = u16::from_be_bytes([f0, f1]);
        let (offset, more) = (flags & 0x1fff, flags & 0x2000 != 0);
        // An offset of 8 octets overwrites the TCP flags of the first fragment (RFC 1858 §4).
        if offset == 1 {
            return Err(BadIp);
        }
        let fragment = match (offset, more) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        let payload = octets.get(base_len..total_len).ok_or(BadIp)?;
        Ok(Self {
            src: Ipv4Addr::new(s0, s1, s2, s3).into(),
            dst: Ipv4Addr::new(d0, d1, d2, d3).into(),
            tos,
            dont_fragment: flags & 0x4000 != 0,
            protocol: Some(next),
            ports: if fragment == Fragment::Later { None } else { ports(next, payload) },
            fragment,
            base_len,
            base_next: next,
            total_len,
        })
    }

    #[inline(always)]
    pub(crate) fn parse_v6(octets: &[u8]) -> Result<Self, BadIp> {
        let (header, rest) = octets.split_first_chunk::<IPV6_HEADER>().ok_or(BadIp)?;
        let [b0, b1, _, _, l0, l1, next, _, addresses @ ..] = *header;
        let (src, dst) = addresses.split_first_chunk::<16>().ok_or(BadIp)?;
        let dst: [u8; 16] = dst.try_into().map_err(|_| BadIp)?;
        let payload_len = usize::from(u16::from_be_bytes([l0, l1]));
        let payload = rest.get(..payload_len).ok_or(BadIp)?;
        let upper = Upper::find(next, payload)?;
        Ok(Self {
            src: Ipv6Addr::from(*src).into(),
            dst: Ipv6Addr::from(dst).into(),
            tos: b0 << 4 | b1 >> 4,
            dont_fragment: true,
            protocol: upper.protocol,
            ports: upper.ports,
            fragment: upper.fragment,
            base_len: IPV6_HEADER,
            base_next: next,
            total_len: IPV6_HEADER + payload_len,
        })
    }
}

/// The upper-layer part of an IPv6 packet, behind its extension headers.
struct Upper {
    protocol: Option<u8>,
    ports: Ports,
    fragment: Fragment,
}

impl Upper {
    fn find(mut next: u8, mut rest: &[u8]) -> Result<Self, BadIp> {
        let mut fragment = Fragment::None;
        for _ in 0..MAX_EXTENSIONS {
            match next {
                proto::HOP_BY_HOP | proto::ROUTING | proto::DESTINATION => {
                    let Some(&[following, len]) = rest.first_chunk::<2>() else {
                        return Self::hidden(fragment);
                    };
                    let Some(tail) = rest.get((usize::from(len) + 1) * 8..) else {
                        return Self::hidden(fragment);
                    };
                    (next, rest) = (following, tail);
                }
                proto::FRAGMENT => {
                    let (&[following, _, o0, o1, ..], tail) =
                        rest.split_first_chunk::<8>().ok_or(BadIp)?;
                    let field = u16::from_be_bytes([o0, o1]);
                    if field & !7 != 0 {
                        return Ok(Self::later(following));
                    }
                    // An atomic fragment (RFC 6946) is a whole packet to us, but not to transport mode.
                    fragment = Fragment::First;
                    // All fragments of a packet are treated alike, so the first one hides what the later ones hide.
                    let later = Self::later(following);
                    if field & MORE != 0 && later.protocol.is_none() {
                        return Ok(Self { fragment, ..later });
                    }
                    (next, rest) = (following, tail);
                }
                _ => return Ok(Self { protocol: Some(next), ports: ports(next, rest), fragment }),
            }
        }
        Err(BadIp)
    }

    /// The extension headers run past the packet: legal in a first fragment only.
    fn hidden(fragment: Fragment) -> Result<Self, BadIp> {
        match fragment {
            Fragment::None => Err(BadIp),
            _ => Ok(Self { protocol: None, ports: None, fragment }),
        }
    }

    fn later(next: u8) -> Self {
        let hidden = matches!(next, proto::HOP_BY_HOP | proto::ROUTING | proto::DESTINATION);
        Self { protocol: (!hidden).then_some(next), ports: None, fragment: Fragment::Later }
    }
}

/// Where the fragmentable part of the IPv6 packet `octets` begins, and where the field is that names its first header. A
/// fragment header goes between the two (RFC 8200 §4.5). Returns the field first.
pub(crate) fn fragmentable(octets: &[u8]) -> Option<(usize, usize)> {
    let (mut next_at, mut at) = (6, IPV6_HEADER);
    // Destination options belong to the routers only where a routing header follows them.
    let (mut options_at, mut options) = (None, 0);
    for _ in 0..MAX_EXTENSIONS {
        let next = *octets.get(next_at)?;
        match next {
            proto::HOP_BY_HOP | proto::ROUTING => options_at = None,
            proto::DESTINATION if options_at.is_none() => {
                options_at = Some(next_at);
                options = at;
            }
            proto::DESTINATION => {}
            proto::FRAGMENT => return Some((next_at, at)),
            _ => return Some(options_at.map_or((next_at, at), |next_at| (next_at, options))),
        }
        next_at = at;
        at += (usize::from(*octets.get(at + 1)?) + 1) * 8;
    }
    None
}

#[inline]
fn ports(protocol: u8, payload: &[u8]) -> Ports {
    match protocol {
        proto::TCP | proto::UDP | proto::DCCP | proto::SCTP | proto::UDPLITE => {
            let &[s0, s1, d0, d1] = payload.first_chunk()?;
            Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
        }
        proto::ICMP | proto::ICMPV6 => {
            let value = u16::from_be_bytes(*payload.first_chunk()?);
            Some((value, value))
        }
        proto::MOBILITY => {
            let &[_, _, kind] = payload.first_chunk()?;
            let value = u16::from(kind) << 8;
            Some((value, value))
        }
        _ => None,
    }
}

/// An IP header in front of `payload_len` octets, for transport mode and for tests. Returns the header
/// and its length; lengths over 65,535 octets are cut and must be refused before.
pub fn header(
    src: IpAddr,
    dst: IpAddr,
    tos: u8,
    next: u8,
    payload_len: usize,
) -> Option<([u8; IPV6_HEADER], usize)> {
    let mut out = [0; IPV6_HEADER];
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let len = u16::try_from(payload_len + IPV4_HEADER).ok()?.to_be_bytes();
            let [s0, s1, s2, s3] = src.octets();
            let [d0, d1, d2, d3] = dst.octets();
            let mut v4 = [
                0x45, tos, len[0], len[1], 0, 0, 0x40, 0, HOP_LIMIT, next, 0, 0, s0, s1, s2, s3,
                d0, d1, d2, d3,
            ];
            let [c0, c1] = checksum(&[&v4]).to_be_bytes();
            (v4[10], v4[11]) = (c0, c1);
            out[..IPV4_HEADER].copy_from_slice(&v4);
            Some((out, IPV4_HEADER))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len = u16::try_from(payload_len).ok()?.to_be_bytes();
            out[..8].copy_from_slice(&[
                0x60 | tos >> 4,
                tos << 4,
                0,
                0,
                len[0],
                len[1],
                next,
                HOP_LIMIT,
            ]);
            out[8..24].copy_from_slice(&src.octets());
            out[24..].copy_from_slice(&dst.octets());
            Some((out, IPV6_HEADER))
        }
        _ => None,
    }
}

/// Sets the TOS or traffic class of the packet at the start of `octets`.
pub fn set_tos(octets: &mut [u8], tos: u8) {
    match octets {
        [vihl, old, _, _, _, _, _, _, _, _, c0, c1, ..] if *vihl >> 4 == 4 => {
            // RFC 1624 equation 3: HC' = ~(~HC + ~m + m').
            let before = u16::from_be_bytes([*vihl, *old]);
            let after = u16::from_be_bytes([*vihl, tos]);
            let sum =
                u32::from(!u16::from_be_bytes([*c0, *c1])) + u32::from(!before) + u32::from(after);
            [*c0, *c1] = (!fold(sum)).to_be_bytes();
            *old = tos;
        }
        [b0, b1, ..] => {
            *b0 = *b0 & 0xf0 | tos >> 4;
            *b1 = *b1 & 0x0f | tos << 4;
        }
        _ => {}
    }
}

/// Sets the known ones of `fields` in the packet at the start of `octets`. An IPv4 header must have no options.
pub(crate) fn set_fields(octets: &mut [u8], fields: &Fields) {
    let Fields { tos, hop_limit, dont_fragment, flow_label } = *fields;
    match octets {
        [vihl, old, _, _, _, _, flags, _, ttl, ..] if *vihl >> 4 == 4 => {
            *old = tos;
            *flags = *flags & !0x40 | u8::from(dont_fragment) << 6;
            *ttl = hop_limit.unwrap_or(*ttl);
            if let Some(sum) = octets.get_mut(10..12) {
                sum.fill(0);
            }
            let sum = checksum(&[octets.get(..IPV4_HEADER).unwrap_or_default()]).to_be_bytes();
            if let Some(place) = octets.get_mut(10..12) {
                place.copy_from_slice(&sum);
            }
        }
        [b0, b1, b2, b3, _, _, _, limit, ..] => {
            let first = 6 << 28 | u32::from(tos) << 20 | flow_label & 0xf_ffff;
            [*b0, *b1, *b2, *b3] = first.to_be_bytes();
            *limit = hop_limit.unwrap_or(*limit);
        }
        _ => {}
    }
}

/// Recomputes the checksum of a TCP or UDP segment whose addresses a NAT changed under transport mode
/// (RFC 3948 §3.1.2).
pub fn fix_checksum(src: IpAddr, dst: IpAddr, protocol: u8, segment: &mut [u8]) {
    let offset = match protocol {
        proto::TCP => 16,
        proto::UDP => 6,
        _ => return,
    };
    match segment.get_mut(offset..offset + 2) {
        // A UDP sender over IPv4 may leave it out, and then it stays out.
        Some(field) if protocol == proto::UDP && *field == [0, 0] => return,
        Some(field) => field.fill(0),
        None => return,
    }
    let mut pseudo = [0; 40];
    let n = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            pseudo[..4].copy_from_slice(&src.octets());
            pseudo[4..8].copy_from_slice(&dst.octets());
            8
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            pseudo[..16].copy_from_slice(&src.octets());
            pseudo[16..32].copy_from_slice(&dst.octets());
            32
        }
        _ => return,
    };
    let len = (segment.len() as u32).to_be_bytes();
    let tail = [len[0], len[1], len[2], len[3], 0, 0, 0, protocol];
    let sum = match checksum(&[&pseudo[..n], &tail, segment]) {
        0 if protocol == proto::UDP => 0xffff,
        sum => sum,
    };
    if let Some(field) = segment.get_mut(offset..offset + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071) over `parts`, each but the last of even length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let mut pairs = part.chunks_exact(2);
        for pair in &mut pairs {
            sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            sum += u64::from(*last) << 8;
        }
    }
    while sum >> 32 != 0 {
        sum = (sum & 0xffff_ffff) + (sum >> 32);
    }
    !fold(sum as u32)
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

const HOP_LIMIT: u8 = 64;
