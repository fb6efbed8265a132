//! Outer packets that come back: a tunnel does not carry its own packets.
//!
//! The packets of a tunnel have a mark, by which the routing rule leads them past the device. A rule of another program
//! that leads to the same table without the mark leads them into it, where each would be protected again, without end.

use std::net::IpAddr;

use ipsec_types::dataplane::PolicyAction;

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

/// True if `packet` may be an outer packet of any SA.
pub(crate) fn may_be_own_outer(sad: &Sad, packet: &IpPacket) -> bool {
    may_be_outer(packet) && sad.may_have_sent(packet)
}

fn may_be_outer(packet: &IpPacket) -> bool {
    matches!(packet.protocol, Some(proto::ESP | proto::UDP | proto::TCP))
}

/// True if `packet` may be one that an SA with `path` has sent. Later fragments show no ports.
fn is_outer(packet: &IpPacket, path: &Path) -> bool {
    let (protocol, source, destination) = path.outside();
    let same = |seen: Option<u16>, own: Option<u16>| seen.is_none() || own.is_none() || seen == own;
    (packet.src, packet.dst) == (path.src, path.dst)
        && packet.protocol == Some(protocol)
        && same(packet.ports.map(|(from, _)| from), source)
        && same(packet.ports.map(|(_, to)| to), destination)
}

/// The path of the SA that would carry the packets of one with `path`.
fn next(sad: &Sad, spd: &Spd, path: &Path) -> Option<Path> {
    let (protocol, source, destination) = path.outside();
    let side = |address: IpAddr, port| Side { address, port, protocol: Some(protocol) };
    let policy = spd.find(&side(path.src, source), &side(path.dst, destination))?;
    match policy.action {
        PolicyAction::Protect { outbound, .. } => Some(sad.get(outbound?)?.path),
        _ => None,
    }
}
