//! The addresses of a pool: a range, of which the ends are kept and nothing else.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses of one family, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

impl Range {
    /// Parses `addrs` of swanctl.conf(5): a subnet, `from-to`, or one address. In a subnet the addresses
    /// below the one that is written are left out, and so are the first and the last of it, which mean the
    /// subnet itself and all of its hosts.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((first, last)) = text.split_once('-') {
            let first: IpAddr = first.trim().parse().ok()?;
            let last: IpAddr = last.trim().parse().ok()?;
            let good =
                first.is_ipv4() == last.is_ipv4() && first <= last && !first.is_unspecified();
            return good.then_some(Self { first, last });
        }
        let Some((address, length)) = text.split_once('/') else {
            let only: IpAddr = text.parse().ok()?;
            return (!only.is_unspecified()).then_some(Self { first: only, last: only });
        };
        let address: IpAddr = address.parse().ok()?;
        let length: u32 = length.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let host = width - Some(length).filter(|length| *length <= width)?;
        let hosts = u128::MAX.checked_shr(128 - host).unwrap_or(0);
        let (start, network) = (bits(address), bits(address) & !hosts);
        let (mut first, mut last) = (start, network | hosts);
        if host > 1 {
            first = first.max(network + 1);
            last -= u128::from(address.is_ipv4());
        }
        let at = |bits| from_bits(bits, address.is_ipv4());
        (first <= last && first != 0).then(|| Self { first: at(first), last: at(last) })
    }

    /// The first address.
    pub fn base(&self) -> IpAddr {
        self.first
    }

    /// How many there are; `u128::MAX` for that many and one.
    pub fn size(&self) -> u128 {
        (bits(self.last) - bits(self.first)).saturating_add(1)
    }

    /// True if the addresses are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// True if `address` is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && self.first <= address && address <= self.last
    }

    /// The place of `address` in the range.
    pub fn offset(&self, address: IpAddr) -> Option<u128> {
        self.contains(address).then(|| bits(address) - bits(self.first))
    }

    /// The address at a place.
    pub fn at(&self, offset: u128) -> Option<IpAddr> {
        let bits = bits(self.first).checked_add(offset)?;
        (bits <= self::bits(self.last)).then(|| from_bits(bits, self.is_ipv4()))
    }

    /// True for `0.0.0.0/0` and `::/0`.
    pub fn has_all(&self) -> bool {
        let width = if self.is_ipv4() { 32 } else { 128 };
        let ends = (bits(self.first), bits(self.last));
        // The ends of a subnet may be left out.
        ends.0 <= 1 && ends.1 >= (u128::MAX >> (128 - width)) - 1
    }

    /// True if there is an address in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_ipv4() == other.is_ipv4() && self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn from_bits(bits: u128, ipv4: bool) -> IpAddr {
    // What is IPv4 began as 32 bits and stays below the end of its range.
    if ipv4 { Ipv4Addr::from(bits as u32).into() } else { Ipv6Addr::from(bits).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_field() {
        let of = |text: &str| Range::parse(text).map(|range| (range.to_string(), range.size()));
        let some = |text: &str, size| Some((text.to_owned(), size));
        assert_eq!(of("10.3.0.0/24"), some("10.3.0.1-10.3.0.254", 254));
        assert_eq!(of("10.3.0.5/24"), some("10.3.0.5-10.3.0.254", 250));
        assert_eq!(of("10.3.0.0/31"), some("10.3.0.0-10.3.0.1", 2));
        assert_eq!(of("10.3.0.7/32"), some("10.3.0.7-10.3.0.7", 1));
        assert_eq!(of("10.3.0.7"), some("10.3.0.7-10.3.0.7", 1));
        assert_eq!(of("10.0.0.0/8"), some("10.0.0.1-10.255.255.254", (1 << 24) - 2));
        assert_eq!(of("10.3.0.9-10.3.0.12"), some("10.3.0.9-10.3.0.12", 4));
        assert_eq!(of("fec3::/64"), some("fec3::1-fec3::ffff:ffff:ffff:ffff", (1 << 64) - 1));
        assert_eq!(of("fec3::10/120"), some("fec3::10-fec3::ff", 240));
        for bad in
            ["", "10.3.0.0/33", "10.3.0.9-10.3.0.1", "10.0.0.1-fec3::1", "a/8", "0.0.0.0", "-"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
        let has_all = |text: &str| Range::parse(text).map(|range| range.has_all());
        for all in ["::/0", "0.0.0.0/0", "0.0.0.1-255.255.255.255"] {
            assert_eq!(has_all(all), Some(true), "{all}");
        }
        for less in ["::/1", "0.0.0.0/1", "128.0.0.0/1", "0.0.0.2/0"] {
            assert_eq!(has_all(less), Some(false), "{less}");
        }
    }
}
