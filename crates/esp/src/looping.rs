//! Outer packets that come back: a tunnel does not carry its own packets.
//!
//! The packets of a tunnel have a mark, by which the routing rule leads them past the device. A rule of another program
//! that leads to the same table without the mark leads them into it, where each would be protected again, without end.

use std::net::IpAddr;

use ipsec_types::dataplane::{Encapsulation, PolicyAction};

use crate::ip::{IpPacket, proto};
use crate::sad::{Path, Sa, Sad};
use crate::selector::Side;
use crate::spd::Spd;

/// Tunnels in tunnels that are followed.
const DEPTH: usize = 8;

/// True if `packet`, which the outbound SA `carrier` is to carry, is one of the outer packets of `carrier`, or of a
/// tunnel that would carry those of `carrier`.
pub(crate) fn comes_back(sad: &Sad, spd: &Spd, carrier: &Sa, packet: &IpPacket) -> bool {
    if !may_be_outer(packet) {
        return false;
    }
    let mut path = carrier.path;
    for _ in 0..DEPTH {
        if is_outer(packet, &path) {
            return true;
        }
        match next(sad, spd, &path) {
            Some(outer) if outer != carrier.path && outer != path => path = outer,
            _ => return false,
        }
    }
    false
}

/// True if `packet` is an outer packet of any SA.
pub(crate) fn is_own(sad: &Sad, packet: &IpPacket) -> bool {
    may_be_outer(packet) && sad.outbound().any(|sa| is_outer(packet, &sa.path))
}

fn may_be_outer(packet: &IpPacket) -> bool {
    matches!(packet.protocol, Some(proto::ESP | proto::UDP | proto::TCP))
}

/// True if `packet` may be one that an SA with `path` has sent. Later fragments show no ports.
fn is_outer(packet: &IpPacket, path: &Path) -> bool {
    let (protocol, source, destination) = outside(path);
    let same = |seen: Option<u16>, own: Option<u16>| seen.is_none() || own.is_none() || seen == own;
    (packet.src, packet.dst) == (path.src, path.dst)
        && packet.protocol == Some(protocol)
        && same(packet.ports.map(|(from, _)| from), source)
        && same(packet.ports.map(|(_, to)| to), destination)
}

/// The path of the SA that would carry the packets of one with `path`.
fn next(sad: &Sad, spd: &Spd, path: &Path) -> Option<Path> {
    let (protocol, source, destination) = outside(path);
    let side = |address: IpAddr, port| Side { address, port, protocol: Some(protocol) };
    let policy = spd.find(&side(path.src, source), &side(path.dst, destination))?;
    match policy.action {
        PolicyAction::Protect { outbound, .. } => Some(sad.get(outbound?)?.path),
        _ => None,
    }
}

/// Protocol and ports of the outer packets of an SA with `path`. The port from which a TCP connection was opened is not
/// known.
fn outside(path: &Path) -> (u8, Option<u16>, Option<u16>) {
    let known = |port: u16| (port != 0).then_some(port);
    match path.encap {
        None => (proto::ESP, None, None),
        Some(Encapsulation::Udp(ports)) => {
            (proto::UDP, known(ports.src_port), known(ports.dst_port))
        }
        Some(Encapsulation::Tcp(ports)) => {
            (proto::TCP, known(ports.src_port), known(ports.dst_port))
        }
    }
}
