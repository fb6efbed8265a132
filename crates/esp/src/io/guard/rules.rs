//! The content of the table.

use std::ffi::CStr;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipsec_types::dataplane::TrafficSelector;

use super::batch::{Batch, Hook};
use super::expressions::Expressions;
use super::{Handles, Names};
use crate::ip::proto;
use crate::plane::ClearRule;

const INPUT: &CStr = c"input";
const FORWARD: &CStr = c"forward";
const ENCAP: &CStr = c"encap";
const ENCAP_TCP: &CStr = c"encap-tcp";
const CLEAR: &CStr = c"clear";
const LEAVE: &CStr = c"leave";
const LEAVE_CLEAR: &CStr = c"leave-clear";
const BEFORE_SNAT: &CStr = c"before-snat";
const AFTER_SNAT: &CStr = c"after-snat";

/// Where ports and flags are in the headers of UDP and TCP.
pub(super) const SOURCE: u32 = 0;
const DESTINATION: u32 = 2;
const FLAGS: u32 = 13;

/// NFPROTO_IPV4, and where its addresses are.
pub(super) const IPV4: (u8, u32, u32) = (2, 12, 16);
/// NFPROTO_IPV6, and where its addresses are.
pub(super) const IPV6: (u8, u32, u32) = (10, 8, 24);

/// The index of `lo` in every network namespace.
pub(super) const LOOPBACK: u32 = 1;

/// True if there is something that `rule` could apply to: packets of one family.
pub(super) fn applies(rule: &ClearRule) -> bool {
    rule.local.start.is_ipv4() == rule.remote.start.is_ipv4()
}

/// The rules before which new ones come; at the end if there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) arriving: Option<u64>,
    pub(super) leaving: Option<u64>,
}

/// Adds a rule of the SPD that [`applies`]. True if it has become two: the other one is for what leaves.
pub(super) fn add(batch: &mut Batch, names: &Names, rule: &ClearRule, before: Next) -> bool {
    if let Some(expressions) = clear(rule, Way::Arriving) {
        batch.rule(&names.table, CLEAR, &expressions, before.arriving);
    }
    let leaving = clear(rule, Way::Leaving).filter(|_| names.mark.is_some() && is_exact(rule));
    if let Some(expressions) = &leaving {
        batch.rule(&names.table, LEAVE_CLEAR, expressions, before.leaving);
    }
    leaving.is_some()
}

/// Removes the rules of these handles.
pub(super) fn remove(batch: &mut Batch, names: &Names, handles: Handles) {
    let Handles { arriving, leaving } = handles;
    batch.del_rule(&names.table, CLEAR, Some(arriving));
    if leaving.is_some() {
        batch.del_rule(&names.table, LEAVE_CLEAR, leaving);
    }
}

/// Removes all rules of the SPD.
pub(super) fn flush(batch: &mut Batch, names: &Names) {
    batch.del_rule(&names.table, CLEAR, None);
    if names.mark.is_some() {
        batch.del_rule(&names.table, LEAVE_CLEAR, None);
    }
}

/// Writes chains and fixed rules into a table that is empty.
pub(super) fn write(batch: &mut Batch, names: &Names) {
    let Names { table, device, ports, tcp, mark } = names;
    batch.new_chain(table, ENCAP, None);
    batch.new_chain(table, CLEAR, None);
    let new = Expressions::new;
    for &port in ports {
        batch.rule(table, ENCAP, &new().transport(DESTINATION, port..=port).accept(), None);
    }
    batch.new_chain(table, ENCAP_TCP, None);
    for &port in &tcp.local {
        batch.rule(table, ENCAP_TCP, &new().transport(DESTINATION, port..=port).accept(), None);
    }
    for &port in &tcp.remote {
        for flags in answers() {
            let answer = new().transport(SOURCE, port..=port).transport(FLAGS, flags);
            batch.rule(table, ENCAP_TCP, &answer.accept(), None);
        }
    }

    batch.new_chain(table, FORWARD, Some(Hook::Forward));
    batch.rule(table, FORWARD, &new().arrived_by(*device).accept(), None);
    batch.rule(table, FORWARD, &new().jump(CLEAR), None);
    batch.new_chain(table, INPUT, Some(Hook::Input));
    batch.rule(table, INPUT, &new().arrived_by(*device).accept(), None);
    batch.rule(table, INPUT, &new().arrived_by(LOOPBACK).accept(), None);
    batch.rule(table, INPUT, &new().protocol(proto::ESP).accept(), None);
    batch.rule(table, INPUT, &new().protocol(proto::UDP).jump(ENCAP), None);
    batch.rule(table, INPUT, &new().protocol(proto::TCP).jump(ENCAP_TCP), None);
    batch.rule(table, INPUT, &neighbor_discovery().accept(), None);
    for protocol in [proto::ESP, proto::UDP] {
        batch.rule(table, INPUT, &later_fragment(protocol).accept(), None);
    }
    batch.rule(table, INPUT, &new().jump(CLEAR), None);

    if let Some(mark) = *mark {
        batch.new_chain(table, LEAVE_CLEAR, None);
        batch.new_chain(table, LEAVE, None);
        let passes = [
            new().leaves_by(*device),
            new().leaves_by(LOOPBACK),
            new().marked(mark),
            neighbor_discovery(),
        ];
        for passes in passes {
            batch.rule(table, LEAVE, &passes.accept(), None);
        }
        batch.rule(table, LEAVE, &new().jump(LEAVE_CLEAR), None);
        // Before: a packet that another address would hide. After: one that has become a protected one.
        let hooks = [(BEFORE_SNAT, Hook::LeavingUntranslated), (AFTER_SNAT, Hook::Leaving)];
        for (chain, hook) in hooks {
            batch.new_chain(table, chain, Some(hook));
            batch.rule(table, chain, &new().jump(LEAVE), None);
        }
    }
}

/// TCP segments with ACK, as numbers of 16 bits from the octet of flags and the next one. All segments of a peer
/// on a connection that this end opened have ACK, and no segment that opens a connection has it. So the exemption
/// of a peer's port reaches no service of this host, except one that uses that very port.
fn answers() -> impl Iterator<Item = RangeInclusive<u16>> {
    (1..16).step_by(2).map(|nibble: u16| nibble << 12..=nibble << 12 | 0x0fff)
}

/// Router and neighbor discovery, and redirects, from this link (RFC 4861). Without them, a neighbor with an
/// address that a policy covers could not be reached, not even by ESP.
pub(super) fn neighbor_discovery() -> Expressions {
    const HOP_LIMIT: u32 = 7;
    const TYPES: RangeInclusive<u16> = 133 << 8..=(137 << 8 | 0xff);
    Expressions::new()
        .family(IPV6.0)
        .protocol(proto::ICMPV6)
        .network(HOP_LIMIT, &[255], &[255])
        .transport(0, TYPES)
}

/// A fragment but the first, of an IPv6 packet of this protocol. Its ports are not there to be seen, and
/// without its first fragment it is nothing. (IPv4 is put together before the hook.)
fn later_fragment(protocol: u8) -> Expressions {
    // In the base header, and in the Fragment header behind it (RFC 8200 §4.5).
    const NEXT_HEADER: u32 = 6;
    const NEXT_AFTER: u32 = 40;
    const OFFSET: u32 = 42;
    Expressions::new()
        .family(IPV6.0)
        .network(NEXT_HEADER, &[proto::FRAGMENT], &[proto::FRAGMENT])
        .network(NEXT_AFTER, &[protocol], &[protocol])
        .network(OFFSET, &[0, 8], &[0xff, 0xff])
}

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the remote to the local side.
    Arriving,
    /// From the local to the remote side.
    Leaving,
}

/// One rule of the SPD for packets that go this way.
fn clear(rule: &ClearRule, way: Way) -> Option<Expressions> {
    let ClearRule { local, remote, pass, leaving_only } = rule;
    let (source, destination) = match way {
        Way::Arriving => (remote, local),
        Way::Leaving => (local, remote),
    };
    let expressions = addresses(source, destination)?;
    let expressions = match [source.protocol, destination.protocol].into_iter().max() {
        Some(0) | None => expressions,
        Some(protocol) => expressions.protocol(protocol),
    };
    let expressions = ports(expressions, source, true);
    let expressions = ports(expressions, destination, false);
    let passes = *pass || *leaving_only && way == Way::Arriving;
    Some(if passes { expressions.accept() } else { expressions.counter().drop() })
}

/// False if nf_tables cannot make all distinctions of `rule`. What then leaves in clear may not be what the policy
/// protects, so nothing of it is dropped.
fn is_exact(rule: &ClearRule) -> bool {
    let exact = |ts: &TrafficSelector| {
        let any = (ts.start_port, ts.end_port) == (0, u16::MAX);
        any || (ts.start_port <= ts.end_port && ts.protocol != proto::MOBILITY)
    };
    rule.pass || exact(&rule.local) && exact(&rule.remote)
}

/// Packets from `source` to `destination`; `None` if they are not of one family.
fn addresses(source: &TrafficSelector, destination: &TrafficSelector) -> Option<Expressions> {
    let ((family, source_at, destination_at), source, destination) = match (source, destination) {
        (TrafficSelector { start: IpAddr::V4(s), end: IpAddr::V4(e), .. }, to) => {
            let (IpAddr::V4(start), IpAddr::V4(end)) = (to.start, to.end) else { return None };
            let octets = |a: &std::net::Ipv4Addr| a.octets().to_vec();
            (IPV4, (octets(s), octets(e)), (octets(&start), octets(&end)))
        }
        (TrafficSelector { start: IpAddr::V6(s), end: IpAddr::V6(e), .. }, to) => {
            let (IpAddr::V6(start), IpAddr::V6(end)) = (to.start, to.end) else { return None };
            let octets = |a: &std::net::Ipv6Addr| a.octets().to_vec();
            (IPV6, (octets(s), octets(e)), (octets(&start), octets(&end)))
        }
        _ => return None,
    };
    let expressions = Expressions::new()
        .family(family)
        .network(source_at, &source.0, &source.1)
        .network(destination_at, &destination.0, &destination.1);
    Some(expressions)
}

/// The ports of `selector`, or the ICMP type and code. Distinctions that nf_tables cannot make (OPAQUE, the type
/// of a mobility header) are left out, so the rule may drop more than the policy protects.
fn ports(expressions: Expressions, selector: &TrafficSelector, source: bool) -> Expressions {
    let TrafficSelector { protocol, start_port, end_port, .. } = *selector;
    let any = (start_port, end_port) == (0, u16::MAX) || start_port > end_port;
    if any || protocol == proto::MOBILITY {
        return expressions;
    }
    let icmp = matches!(protocol, proto::ICMP | proto::ICMPV6);
    let offset = if source || icmp { 0 } else { 2 };
    expressions.transport(offset, start_port..=end_port)
}
