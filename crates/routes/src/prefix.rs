//! Address ranges as routes want them: prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipsec_types::dataplane::TrafficSelector;

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Prefix {
    /// First address.
    pub address: IpAddr,
    /// Length in bits.
    pub len: u8,
}

impl Prefix {
    /// True if `address` is one of its addresses.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, true),
            IpAddr::V6(ip) => (u128::from(ip), false),
        };
        let ((first, four), (other, other_four)) = (octets(self.address), octets(address));
        let differ = (first ^ other).checked_shr(128 - u32::from(self.len)).unwrap_or(0);
        four == other_four && differ == 0
    }

    /// Its addresses, for all protocols and ports.
    pub(crate) fn selector(&self) -> TrafficSelector {
        let end = match self.address {
            IpAddr::V4(first) => {
                let host = u32::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Ipv4Addr::from(u32::from(first) | host).into()
            }
            IpAddr::V6(first) => {
                let host = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Ipv6Addr::from(u128::from(first) | host).into()
            }
        };
        TrafficSelector { protocol: 0, start_port: 0, end_port: u16::MAX, start: self.address, end }
    }
}

/// The fewest prefixes that make up `start` to `end`; none if they are not a range of one family.
pub(crate) fn cover(start: IpAddr, end: IpAddr) -> Vec<Prefix> {
    let (first, last, width) = match (start, end) {
        (IpAddr::V4(s), IpAddr::V4(e)) => (u128::from(u32::from(s)), u128::from(u32::from(e)), 32),
        (IpAddr::V6(s), IpAddr::V6(e)) => (u128::from(s), u128::from(e), 128),
        _ => return Vec::new(),
    };
    let mut prefixes = Vec::new();
    let mut next = Some(first);
    while let Some(first) = next.filter(|&first| first <= last) {
        // The largest block that begins here and does not pass the end.
        let aligned = first.trailing_zeros().min(width);
        let room = last - first;
        let fits = if room == u128::MAX { 128 } else { (room + 1).ilog2() };
        let bits = aligned.min(fits);
        let address = if width == 32 {
            Ipv4Addr::from(first as u32).into()
        } else {
            Ipv6Addr::from(first).into()
        };
        prefixes.push(Prefix { address, len: (width - bits) as u8 });
        next = 1u128.checked_shl(bits).and_then(|size| first.checked_add(size));
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(start: &str, end: &str) -> Vec<String> {
        let prefixes = cover(start.parse().unwrap(), end.parse().unwrap());
        prefixes.iter().map(|p| format!("{}/{}", p.address, p.len)).collect()
    }

    #[test]
    fn ranges_become_prefixes() {
        assert_eq!(text("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(text("10.0.0.5", "10.0.0.5"), ["10.0.0.5/32"]);
        assert_eq!(
            text("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(text("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(text("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(text("2001:db8::", "2001:db8::ffff"), ["2001:db8::/112"]);
        assert_eq!(text("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert!(text("10.0.0.2", "10.0.0.1").is_empty());
        assert!(text("10.0.0.2", "::1").is_empty());
    }
}
