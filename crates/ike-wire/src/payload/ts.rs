//! Traffic Selector payloads (RFC 7296 §3.13).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::codec::{DecodeError, Reader};
use crate::registry::TsType;

mod text;

pub use text::TsParseError;

/// One traffic selector: a protocol, a port range and an address range. OPAQUE ports are start
/// 65535, end 0; ICMP type and code are coded into the port fields as RFC 7296 §3.13.1 says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// IP protocol; 0 is any.
    pub protocol: u8,
    /// First port.
    pub start_port: u16,
    /// Last port.
    pub end_port: u16,
    /// First address.
    pub start: IpAddr,
    /// Last address, of the same family.
    pub end: IpAddr,
}

impl TrafficSelector {
    /// Any protocol and port from `start` to `end`; `None` if they are of two families or in the
    /// wrong order.
    pub fn from_range(start: IpAddr, end: IpAddr) -> Option<Self> {
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(Self {
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
            start,
            end,
        })
    }

    /// Any protocol and port of a subnet; host bits of `address` are ignored. `None` if
    /// `prefix_len` is too long.
    pub fn from_cidr(address: IpAddr, prefix_len: u8) -> Option<Self> {
        let (start, end) = match address {
            IpAddr::V4(v4) => {
                let host = host_mask(u32::BITS, prefix_len)? as u32;
                let bits = u32::from(v4);
                (Ipv4Addr::from(bits & !host).into(), Ipv4Addr::from(bits | host).into())
            }
            IpAddr::V6(v6) => {
                let host = host_mask(u128::BITS, prefix_len)?;
                let bits = u128::from(v6);
                (Ipv6Addr::from(bits & !host).into(), Ipv6Addr::from(bits | host).into())
            }
        };
        Self::from_range(start, end)
    }

    /// Everything IPv4.
    pub const fn any_v4() -> Self {
        Self {
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
            start: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            end: IpAddr::V4(Ipv4Addr::BROADCAST),
        }
    }

    /// Everything IPv6.
    pub const fn any_v6() -> Self {
        Self {
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
            start: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            end: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
        }
    }

    /// Any protocol and port of one host.
    pub const fn host(address: IpAddr) -> Self {
        Self { protocol: 0, start_port: 0, end_port: u16::MAX, start: address, end: address }
    }

    /// True for OPAQUE ports: those that cannot be seen, as in fragments but the first.
    pub fn is_opaque(&self) -> bool {
        self.start_port == u16::MAX && self.end_port == 0
    }

    /// True if the ports are ANY, which includes OPAQUE.
    pub fn any_port(&self) -> bool {
        self.start_port == 0 && self.end_port == u16::MAX
    }

    /// True if `other` lies within this selector.
    pub fn contains(&self, other: &Self) -> bool {
        let protocol = self.protocol == 0 || self.protocol == other.protocol;
        let ports = self.any_port()
            || (self.start_port, self.end_port) == (other.start_port, other.end_port)
            || (!self.is_opaque()
                && !other.is_opaque()
                && self.start_port <= other.start_port
                && other.end_port <= self.end_port);
        protocol
            && ports
            && self.start.is_ipv4() == other.start.is_ipv4()
            && self.start <= other.start
            && other.end <= self.end
    }

    /// True if `address` is in the address range.
    pub fn contains_addr(&self, address: IpAddr) -> bool {
        self.start.is_ipv4() == address.is_ipv4() && self.start <= address && address <= self.end
    }

    /// The intersection of this and `other`; `None` if it is empty.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let protocol = match (self.protocol, other.protocol) {
            (0, p) | (p, 0) => p,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (start_port, end_port) = self.common_ports(other)?;
        if self.start.is_ipv4() != other.start.is_ipv4() {
            return None;
        }
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start <= end).then_some(Self { protocol, start_port, end_port, start, end })
    }

    fn common_ports(&self, other: &Self) -> Option<(u16, u16)> {
        match (self.any_port(), other.any_port()) {
            (true, _) => return Some((other.start_port, other.end_port)),
            (_, true) => return Some((self.start_port, self.end_port)),
            _ => {}
        }
        match (self.is_opaque(), other.is_opaque()) {
            (true, true) => Some((u16::MAX, 0)),
            (false, false) => {
                let start = self.start_port.max(other.start_port);
                let end = self.end_port.min(other.end_port);
                (start <= end).then_some((start, end))
            }
            _ => None,
        }
    }

    fn decode(kind: TsType, mut r: Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let protocol = r.u8("traffic selector")?;
        let length = usize::from(r.u16("traffic selector")?);
        let wanted = match kind {
            TsType::IPV4_ADDR_RANGE => IPV4_LEN,
            TsType::IPV6_ADDR_RANGE => IPV6_LEN,
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
            //# If the type of Traffic Selector proposed is unknown, the responder ignores that
            //# Traffic Selector, so that the unknown type is not returned in the narrowed set.
            // An unknown type is ignored, so that it is not in the narrowed set (RFC 7296 §2.9).
            _ => return Ok(None),
        };
        if length != wanted {
            return Err(DecodeError::Invalid("traffic selector length"));
        }
        let start_port = r.u16("traffic selector")?;
        let end_port = r.u16("traffic selector")?;
        let (start, end): (IpAddr, IpAddr) = if kind == TsType::IPV4_ADDR_RANGE {
            let start = r.array::<4>("traffic selector")?;
            (start.into(), r.array::<4>("traffic selector")?.into())
        } else {
            let start = r.array::<16>("traffic selector")?;
            (start.into(), r.array::<16>("traffic selector")?.into())
        };
        r.all("traffic selector")?;
        let ts = Self { protocol, start_port, end_port, start, end };
        if start > end || (start_port > end_port && !ts.is_opaque()) {
            return Err(DecodeError::Invalid("traffic selector range"));
        }
        Ok(Some(ts))
    }

    /// A last address of another family than the first is written as the first.
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { protocol, start_port, end_port, start, end } = *self;
        let (kind, length) = match start {
            IpAddr::V4(_) => (TsType::IPV4_ADDR_RANGE, IPV4_LEN),
            IpAddr::V6(_) => (TsType::IPV6_ADDR_RANGE, IPV6_LEN),
        };
        out.extend_from_slice(&[kind.0, protocol, 0, length as u8]);
        out.extend_from_slice(&start_port.to_be_bytes());
        out.extend_from_slice(&end_port.to_be_bytes());
        match (start, end) {
            (IpAddr::V4(start), end) => {
                let end = if let IpAddr::V4(end) = end { end } else { start };
                out.extend_from_slice(&start.octets());
                out.extend_from_slice(&end.octets());
            }
            (IpAddr::V6(start), end) => {
                let end = if let IpAddr::V6(end) = end { end } else { start };
                out.extend_from_slice(&start.octets());
                out.extend_from_slice(&end.octets());
            }
        }
    }
}

/// Decodes the body of a TSi or TSr payload. Selectors of unknown types are left out, so the list may
/// be empty.
pub fn decode(body: &[u8]) -> Result<Vec<TrafficSelector>, DecodeError> {
    let mut r = Reader::new(body);
    let count = r.u8("TS payload")?;
    r.take(3, "TS payload")?; // RESERVED
    let mut selectors = Vec::new();
    for _ in 0..count {
        let kind = TsType(r.clone().u8("traffic selector")?);
        let mut peek = r.clone();
        peek.take(2, "traffic selector")?;
        let length = usize::from(peek.u16("traffic selector")?);
        if length < HEADER_LEN {
            return Err(DecodeError::Invalid("traffic selector length"));
        }
        let mut one = Reader::new(r.take(length, "traffic selector")?);
        one.u8("traffic selector")?;
        selectors.extend(TrafficSelector::decode(kind, one)?);
    }
    r.all("the last traffic selector")?;
    Ok(selectors)
}

/// Appends the body of a TSi or TSr payload; the first 255 of `selectors` fit.
pub fn encode(selectors: &[TrafficSelector], out: &mut Vec<u8>) {
    let count = u8::try_from(selectors.len()).unwrap_or(u8::MAX);
    out.extend_from_slice(&[count, 0, 0, 0]);
    for ts in selectors.iter().take(usize::from(count)) {
        ts.encode(out);
    }
}

fn host_mask(width: u32, prefix_len: u8) -> Option<u128> {
    let host_bits = width.checked_sub(u32::from(prefix_len))?;
    Some(u128::MAX.checked_shr(u128::BITS - host_bits).unwrap_or(0))
}

impl fmt::Debug for TrafficSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Octets of a selector's type, protocol and length.
const HEADER_LEN: usize = 4;
const IPV4_LEN: usize = 16;
const IPV6_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Payload, assert_round_trip};

    fn ts(text: &str) -> TrafficSelector {
        text.parse().unwrap()
    }

    #[test]
    fn round_trip() {
        let selectors = vec![ts("10.1.0.0/16[tcp/80]"), ts("2001:db8::/64")];
        let mut body = vec![2, 0, 0, 0];
        body.extend([7, 6, 0, 16, 0, 80, 0, 80, 10, 1, 0, 0, 10, 1, 255, 255]);
        body.extend([8, 0, 0, 40, 0, 0, 255, 255, 0x20, 0x01, 0x0d, 0xb8]);
        body.extend([0; 12]);
        body.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0]);
        body.extend([0xff; 8]);
        assert_round_trip(&Payload::TsI(selectors.clone()), &body);
        assert_round_trip(&Payload::TsR(selectors), &body);
    }

    #[test]
    fn unknown_types_are_skipped() {
        let mut body = vec![2, 0, 0, 0];
        body.extend([10, 0, 0, 6, 1, 2]);
        body.extend([7, 0, 0, 16, 0, 0, 255, 255, 10, 0, 0, 1, 10, 0, 0, 1]);
        assert_eq!(decode(&body), Ok(vec![ts("10.0.0.1")]));
        assert_eq!(decode(&[1, 0, 0, 0, 9, 0, 0, 4]), Ok(Vec::new()));
    }

    #[test]
    fn lengths_counts_and_ranges_must_agree() {
        let good = [1, 0, 0, 0, 7, 0, 0, 16, 0, 0, 255, 255, 10, 0, 0, 1, 10, 0, 0, 9];
        let with = |changes: &[(usize, u8)]| {
            let mut body = good;
            changes.iter().for_each(|(at, octet)| body[*at] = *octet);
            decode(&body)
        };
        let length = Err(DecodeError::Invalid("traffic selector length"));
        let range = Err(DecodeError::Invalid("traffic selector range"));
        assert_eq!(with(&[]), Ok(vec![ts("10.0.0.1..10.0.0.9")]));
        assert_eq!(with(&[(0, 0)]), Err(DecodeError::Trailing("the last traffic selector")));
        assert_eq!(with(&[(0, 2)]), Err(DecodeError::Truncated("traffic selector")));
        assert_eq!(with(&[(4, 8)]), length, "IPv6 in the length of IPv4");
        assert_eq!(with(&[(7, 15)]), length);
        assert_eq!(with(&[(7, 17)]), Err(DecodeError::Truncated("traffic selector")));
        assert_eq!(with(&[(7, 3)]), length);
        assert_eq!(with(&[(15, 10)]), range, "addresses in falling order");
        assert_eq!(with(&[(8, 1), (10, 0)]), range, "ports in falling order");
        let opaque = with(&[(8, 255), (9, 255), (10, 0), (11, 0)]).unwrap();
        assert!(opaque[0].is_opaque());
        assert_eq!(decode(&[0, 0, 0]), Err(DecodeError::Truncated("TS payload")));
    }

    #[test]
    fn containment_and_intersection() {
        let contained = [
            ("10.0.0.0/8", "10.1.0.0/16"),
            ("10.0.0.0/8", "10.1.0.0/16[tcp/80]"),
            ("10.0.0.0/8[tcp]", "10.0.0.0/8[tcp/80-90]"),
            ("10.0.0.0/8[tcp]", "10.0.0.0/8[tcp/opaque]"),
            ("10.0.0.0/8[icmp/8]", "10.0.0.0/8[icmp/8(3)]"),
        ];
        for (outer, inner) in contained {
            let (outer, inner) = (ts(outer), ts(inner));
            assert!(outer.contains(&inner) && !inner.contains(&outer), "{outer} {inner}");
            assert_eq!(outer.intersect(&inner), Some(inner));
            assert_eq!(inner.intersect(&outer), Some(inner));
        }
        let overlapping = [
            ("10.0.0.1..10.0.0.9", "10.0.0.5..10.0.0.20", "10.0.0.5..10.0.0.9"),
            ("10.0.0.0/8[tcp/1-80]", "10.1.0.0/16[/80-90]", "10.1.0.0/16[tcp/80]"),
            ("10.0.0.0/8[/opaque]", "10.1.0.0/16[udp]", "10.1.0.0/16[udp/opaque]"),
            ("::/0[ipv6-icmp]", "fe80::/10[/34560-34815]", "fe80::/10[ipv6-icmp/135]"),
        ];
        for (a, b, common) in overlapping {
            assert_eq!(ts(a).intersect(&ts(b)), Some(ts(common)));
            assert_eq!(ts(b).intersect(&ts(a)), Some(ts(common)));
        }
        let disjoint = [
            ("10.0.0.0/8", "11.0.0.0/8"),
            ("0.0.0.0/0", "::/0"),
            ("10.0.0.0/8[tcp]", "10.0.0.0/8[udp]"),
            ("10.0.0.0/8[tcp/80]", "10.0.0.0/8[tcp/81]"),
            ("10.0.0.0/8[tcp/opaque]", "10.0.0.0/8[tcp/80]"),
        ];
        for (a, b) in disjoint {
            assert_eq!(ts(a).intersect(&ts(b)), None, "{a} {b}");
            assert_eq!(ts(b).intersect(&ts(a)), None, "{b} {a}");
        }
    }
}
