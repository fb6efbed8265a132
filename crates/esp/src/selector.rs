//! Traffic selectors against packets (RFC 4301 §4.4.1.1).

use std::net::IpAddr;

use ipsec_types::dataplane::TrafficSelector;

use crate::ip::IpPacket;

/// One side of a packet, which a selector is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Address.
    pub address: IpAddr,
    /// Port, or ICMP type and code, or MH type; `None` if not there to be seen.
    pub port: Option<u16>,
    /// Next layer protocol, `None` if a fragment hides it.
    pub protocol: Option<u8>,
}

/// Source and destination of `packet`.
#[inline(always)]
pub fn sides(packet: &IpPacket) -> (Side, Side) {
    let side = |address, port| Side { address, port, protocol: packet.protocol };
    (
        side(packet.src, packet.ports.map(|(src, _)| src)),
        side(packet.dst, packet.ports.map(|(_, dst)| dst)),
    )
}

/// True if `selector` takes in `side`. Ports 0 to 65535 are ANY and include packets without ports;
/// 65535 to 0 is OPAQUE, which takes nothing but those.
#[inline(always)]
pub fn matches(selector: &TrafficSelector, side: &Side) -> bool {
    let TrafficSelector { protocol, start_port, end_port, start, end } = *selector;
    let address = match (start, end, side.address) {
        (IpAddr::V4(start), IpAddr::V4(end), IpAddr::V4(a)) => start <= a && a <= end,
        (IpAddr::V6(start), IpAddr::V6(end), IpAddr::V6(a)) => start <= a && a <= end,
        _ => false,
    };
    let protocol = protocol == 0 || side.protocol == Some(protocol);
    let port = match (start_port, end_port, side.port) {
        (0, 65535, _) | (65535, 0, None) => true,
        (start, end, Some(port)) => start <= port && port <= end,
        _ => false,
    };
    address && protocol && port
}

/// True if `selector` takes in some packet with the address of `side`, and with its protocol if that is to be seen.
pub fn admits_some(selector: &TrafficSelector, side: &Side) -> bool {
    let any = TrafficSelector { start_port: 0, end_port: u16::MAX, ..*selector };
    let hidden = TrafficSelector { protocol: 0, ..any };
    matches(if side.protocol.is_none() { &hidden } else { &any }, side)
}

/// True if `selector` takes in packets with some ports, or some types and codes, and not others.
pub fn looks_at_ports(selector: &TrafficSelector) -> bool {
    !selector.any_port() && !is_opaque(selector)
}

/// True if `selector` takes in nothing but packets whose ports are not to be seen.
pub fn is_opaque(selector: &TrafficSelector) -> bool {
    (selector.start_port, selector.end_port) == (u16::MAX, 0)
}

/// True if one selector of each list takes in its side.
#[inline(always)]
pub fn any_match(
    local_ts: &[TrafficSelector],
    local: &Side,
    remote_ts: &[TrafficSelector],
    remote: &Side,
) -> bool {
    local_ts.iter().any(|ts| matches(ts, local)) && remote_ts.iter().any(|ts| matches(ts, remote))
}
