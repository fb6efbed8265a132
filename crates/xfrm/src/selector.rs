//! Selectors as the kernel has them: prefixes, one port or any, an interface.

use std::net::IpAddr;

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
