//! Traffic Selector payloads (RFC 7296 §3.13).

use std::net::IpAddr;

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
