//! What the kernel's messages about rules and routes say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleFlags, RuleMessage};

use super::picture::{Place, Rule, Way};
use super::prefix::Prefix;

/// Metric of a shunt's routes: after every other route to the same prefix, and ours by it.
pub(super) const LAST: u32 = 0x7fff_ff22;
/// Who made a route or rule, as the kernel keeps it.
pub(super) const OURS: RouteProtocol = RouteProtocol::Other(122);
/// A route of IPv6 by a device on which IPv6 is disabled.
const EACCES: i32 = 13;
pub(super) const ENOENT: i32 = 2;
pub(super) const EOPNOTSUPP: i32 = 95;
pub(super) const EAFNOSUPPORT: i32 = 97;

impl Rule {
    pub(super) fn of(message: &RuleMessage) -> Self {
        let RuleMessage { header, attributes, .. } = message;
        let ipv4 = header.family == AddressFamily::Inet;
        let mut rule = Self {
            ipv4,
            action: header.action.into(),
            table: u32::from(header.table),
            priority: 0,
            inverted: header.flags.contains(RuleFlags::Invert),
            to: None,
            mark: 0,
            mask: 0,
            suppressed: u32::MAX,
        };
        let mut mask = None;
        for attribute in attributes {
            match attribute {
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::FwMark(mark) => rule.mark = *mark,
                RuleAttribute::FwMask(bits) => mask = Some(*bits),
                RuleAttribute::SuppressPrefixLen(len) => rule.suppressed = *len,
                RuleAttribute::Destination(address) => {
                    rule.to = Some(Prefix { address: *address, len: header.dst_len });
                }
                _ => {}
            }
        }
        // The kernel's own default.
        rule.mask = mask.unwrap_or(if rule.mark == 0 { 0 } else { u32::MAX });
        rule
    }
}

impl Way {
    pub(super) fn of(route: &RouteMessage) -> Self {
        let address = |address: &RouteAddress| match address {
            RouteAddress::Inet(address) => Some(IpAddr::from(*address)),
            RouteAddress::Inet6(address) => Some(IpAddr::from(*address)),
            _ => None,
        };
        let kind = route.header.kind;
        let mut way =
            Self { kind: kind.into(), device: None, gateway: None, source: None, mtu: None };
        for attribute in &route.attributes {
            match attribute {
                // The kernel gives routes of IPv6 that lead nowhere a device.
                RouteAttribute::Oif(index) if kind == RouteType::Unicast => {
                    way.device = Some(*index)
                }
                RouteAttribute::Gateway(gateway) => way.gateway = address(gateway),
                RouteAttribute::PrefSource(source) => way.source = address(source),
                RouteAttribute::Metrics(metrics) => {
                    way.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) => Some(*mtu),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        way
    }
}

/// The table of a route.
pub(super) fn table_of(route: &RouteMessage) -> u32 {
    let long = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    long.unwrap_or_else(|| u32::from(route.header.table))
}

/// The same route in another table, as the kernel takes it.
pub(super) fn in_table(route: &RouteMessage, table: u32) -> RouteMessage {
    use RouteAttribute as A;
    let mut route = route.clone();
    route.header.flags &= RouteFlags::Onlink;
    route.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    let leads = route.header.kind == RouteType::Unicast;
    // Of the rest the kernel only tells.
    route.attributes.retain(|attribute| match attribute {
        A::Destination(_) | A::Priority(_) => true,
        A::Oif(_) | A::Gateway(_) | A::Via(_) | A::PrefSource(_) | A::Metrics(_) => leads,
        _ => false,
    });
    route.attributes.push(A::Table(table));
    route
}

/// Where a route of the kernel's has its place, if it is one we could have made.
pub(super) fn place_of(route: &RouteMessage) -> Option<Place> {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    });
    let address = match (destination, route.header.address_family) {
        (Some(address), _) => address,
        (None, AddressFamily::Inet) => Ipv4Addr::UNSPECIFIED.into(),
        (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
        (None, _) => return None,
    };
    let prefix = Prefix { address, len: route.header.destination_prefix_length };
    let last = route.attributes.contains(&RouteAttribute::Priority(LAST));
    Some((prefix, last))
}

/// True if the kernel's `rule` is what `wanted` asks for.
pub(super) fn same(rule: &RuleMessage, wanted: &RuleMessage) -> bool {
    let table = |message: &RuleMessage| {
        let long = message.attributes.iter().find_map(|attribute| match attribute {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
        long.unwrap_or_else(|| u32::from(message.header.table))
    };
    let has = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::Table(_) => true,
        other => rule.attributes.contains(other),
    };
    table(rule) == table(wanted)
        && rule.header.flags.contains(RuleFlags::Invert)
        && wanted.attributes.iter().all(has)
}

/// The error number of the kernel's answer.
pub(super) fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => Some(-message.raw_code()),
        _ => None,
    }
}

/// True if the kernel has no IPv6, or if it is disabled on the device.
pub(super) fn is_off(error: &rtnetlink::Error) -> bool {
    matches!(code(error), Some(EACCES | EOPNOTSUPP | EAFNOSUPPORT))
}

/// True if what was to be removed is not there: the kernel may have removed it, with an address or the
/// device.
pub(super) fn is_gone(error: &rtnetlink::Error) -> bool {
    const ESRCH: i32 = 3;
    const ENODEV: i32 = 19;
    matches!(code(error), Some(ESRCH | ENODEV))
}
