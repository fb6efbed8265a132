//! Addresses as the kernel has them: sixteen octets and, somewhere else, a family.

use std::net::IpAddr;

use netlink_packet_xfrm::Address;
use netlink_packet_xfrm::constants::{AF_INET, AF_INET6};

/// The family of `address`.
pub(crate) fn family(address: &IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// `address` of `family`, if that is one of IP.
pub(crate) fn decode(address: &Address, family: u16) -> Option<IpAddr> {
    match family {
        AF_INET => Some(address.to_ipv4().into()),
        AF_INET6 => Some(address.to_ipv6().into()),
        _ => None,
    }
}
