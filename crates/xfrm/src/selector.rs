//! Selectors as the kernel has them: prefixes, one port or any, an interface.

use std::net::IpAddr;

use netlink_packet_xfrm::Address;

use crate::address;

/// An address and the number of its leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Address; bits behind the prefix are zero.
    pub address: IpAddr,
    /// Length in bits.
    pub length: u8,
}

/// A port and the bits of it that count; the zero mask is any port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Port {
    /// Port. ICMP: the type in the source port, the code in the destination port.
    pub value: u16,
    /// Mask.
    pub mask: u16,
}

/// Which packets a state or policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// Source addresses.
    pub src: Prefix,
    /// Destination addresses, of the same family.
    pub dst: Prefix,
    /// IP protocol; 0 is any.
    pub protocol: u8,
    /// Source port.
    pub src_port: Port,
    /// Destination port.
    pub dst_port: Port,
    /// Interface index; 0 is any.
    pub ifindex: u32,
}

impl Prefix {
    /// The first `length` bits of `address`, the rest zero. A length over the address's is taken as that.
    pub fn new(address: IpAddr, length: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let length = length.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Self { address: IpAddr::V4((v4.to_bits() & mask).into()), length }
            }
            IpAddr::V6(v6) => {
                let length = length.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Self { address: IpAddr::V6((v6.to_bits() & mask).into()), length }
            }
        }
    }

    /// `address` alone.
    pub fn host(address: IpAddr) -> Self {
        Self::new(address, u8::MAX)
    }
}

impl Port {
    /// `value` alone.
    pub fn exact(value: u16) -> Self {
        Self { value, mask: u16::MAX }
    }
}

impl Selector {
    /// Any protocol and port between two prefixes.
    pub fn between(src: Prefix, dst: Prefix) -> Self {
        let any = Port::default();
        Self { src, dst, protocol: 0, src_port: any, dst_port: any, ifindex: 0 }
    }

    /// True if both prefixes are of one family; the kernel takes no other.
    pub fn is_consistent(&self) -> bool {
        self.src.address.is_ipv4() == self.dst.address.is_ipv4()
    }

    /// As the kernel has it.
    pub(crate) fn encode(&self) -> netlink_packet_xfrm::Selector {
        netlink_packet_xfrm::Selector {
            daddr: Address::from_ip(&self.dst.address),
            saddr: Address::from_ip(&self.src.address),
            dport: self.dst_port.value,
            dport_mask: self.dst_port.mask,
            sport: self.src_port.value,
            sport_mask: self.src_port.mask,
            family: address::family(&self.src.address),
            prefixlen_d: self.dst.length,
            prefixlen_s: self.src.length,
            proto: self.protocol,
            ifindex: self.ifindex.cast_signed(),
            user: 0,
        }
    }

    /// Decodes the kernel's selector; `None` if it has no family.
    pub(crate) fn decode(kernel: &netlink_packet_xfrm::Selector) -> Option<Self> {
        Some(Self {
            src: Prefix {
                address: address::decode(&kernel.saddr, kernel.family)?,
                length: kernel.prefixlen_s,
            },
            dst: Prefix {
                address: address::decode(&kernel.daddr, kernel.family)?,
                length: kernel.prefixlen_d,
            },
            protocol: kernel.proto,
            src_port: Port { value: kernel.sport, mask: kernel.sport_mask },
            dst_port: Port { value: kernel.dport, mask: kernel.dport_mask },
            ifindex: kernel.ifindex.cast_unsigned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_zeros_behind() {
        let prefix = |text: &str, length| Prefix::new(text.parse().unwrap(), length);
        for (got, wanted, length) in [
            (prefix("10.1.2.3", 32), "10.1.2.3", 32),
            (prefix("10.1.2.3", 33), "10.1.2.3", 32),
            (prefix("10.1.2.3", 23), "10.1.2.0", 23),
            (prefix("10.1.2.3", 0), "0.0.0.0", 0),
            (prefix("2001:db8::ffff", 128), "2001:db8::ffff", 128),
            (prefix("2001:db8::ffff", 121), "2001:db8::ff80", 121),
            (prefix("2001:db8::ffff", 0), "::", 0),
        ] {
            assert_eq!((got.address, got.length), (wanted.parse().unwrap(), length));
        }
        assert_eq!(Prefix::host("::1".parse().unwrap()).length, 128);
    }

    #[test]
    fn a_selector_without_a_family_is_none() {
        assert_eq!(Selector::decode(&netlink_packet_xfrm::Selector::default()), None);
    }
}
