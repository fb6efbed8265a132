//! The tables of a simulated host, and what its kernel does with them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::LOOPBACK;
use crate::message::{OURS, place_of, table_of};
use crate::picture::{Rule, Way};
use crate::prefix::Prefix;
use crate::watch::usable;

/// The priority of the rule that leads to the main table.
const MAIN_RULE: u32 = 32_766;
const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
const ESRCH: i32 = 3;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EEXIST: i32 = 17;

/// A message of the kernel, and whether this program has caused it.
pub(super) type News = (RouteNetlinkMessage, bool);

/// What another program takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// The rules of this priority.
    Rules(u32),
    /// The routes of this table.
    Table(u32),
    /// One route of this table, by its number among them.
    Route(u32, usize),
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Road {
    /// The link by which it leaves.
    pub device: u32,
    /// Its source, if it has none yet. None if the host has no address for it.
    pub source: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    up: bool,
    loopback: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    table: u32,
    prefix: Prefix,
    metric: u32,
    kind: RouteType,
    way: Way,
    message: RouteMessage,
}

#[derive(Debug, Default)]
pub(super) struct State {
    links: BTreeMap<u32, Link>,
    addresses: Vec<(u32, Ipv4Addr)>,
    /// In the order in which the kernel goes through them.
    rules: Vec<(Rule, RuleMessage)>,
    routes: Vec<Entry>,
    /// All tables together cannot be read, as if the socket had no room for them.
    pub(super) unreadable: bool,
    /// It has rules for IPv6.
    pub(super) ipv6: bool,
    /// It takes no rule for IPv6, or for IPv4.
    pub(super) rules_full: Option<bool>,
    /// This table takes no route of this program.
    pub(super) full: Option<u32>,
    /// What the thread of the routes has not heard yet,
    pub(super) for_routes: Vec<News>,
    /// and what the watch of the host has not.
    pub(super) for_watch: Vec<News>,
}

impl State {
    fn tell(&mut self, message: RouteNetlinkMessage, own: bool) {
        self.for_routes.push((message.clone(), own));
        self.for_watch.push((message, own));
    }

    pub(super) fn add_link(&mut self, loopback: bool) -> u32 {
        let index = self.links.keys().next_back().map_or(LOOPBACK, |last| last + 1);
        self.links.insert(index, Link { up: false, loopback });
        self.tell(RouteNetlinkMessage::NewLink(LinkMessage::default()), false);
        index
    }

    fn is_up(&self, index: u32) -> bool {
        self.links.get(&index).is_some_and(|link| link.up)
    }

    pub(super) fn set_link(&mut self, index: u32, up: bool) {
        if let Some(link) = self.links.get_mut(&index)
            && std::mem::replace(&mut link.up, up) != up
        {
            self.tell(RouteNetlinkMessage::NewLink(LinkMessage::default()), false);
            if !up {
                self.remove_routes(|entry| entry.way.device == Some(index));
            }
        }
    }

    pub(super) fn remove_link(&mut self, index: u32) {
        self.set_link(index, false);
        let gone: Vec<_> = self.addresses.iter().filter(|(of, _)| *of == index).copied().collect();
        for (_, address) in gone {
            self.remove_address(address);
        }
        self.links.remove(&index);
        self.tell(RouteNetlinkMessage::DelLink(LinkMessage::default()), false);
    }

    pub(super) fn add_address(&mut self, index: u32, address: Ipv4Addr, len: u8) {
        if self.has(address.into()) {
            return;
        }
        self.addresses.push((index, address));
        self.tell(RouteNetlinkMessage::NewAddress(AddressMessage::default()), false);
        if len < 32 {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let network = Ipv4Addr::from(u32::from(address) & mask);
            self.add_main_route(Prefix { address: network.into(), len }, index, None);
        }
    }

    pub(super) fn remove_address(&mut self, address: Ipv4Addr) {
        if let Some(at) = self.addresses.iter().position(|(_, other)| *other == address) {
            let (link, _) = self.addresses.remove(at);
            self.tell(RouteNetlinkMessage::DelAddress(AddressMessage::default()), false);
            // A link without an address has no routes.
            let is_last = !self.addresses.iter().any(|(of, _)| *of == link);
            self.remove_routes(|entry| {
                entry.way.source == Some(address.into())
                    || is_last && entry.way.device == Some(link)
            });
        }
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(_, own)| IpAddr::from(*own) == address)
    }

    pub(super) fn usable(&self) -> Vec<IpAddr> {
        let link = |(index, link): (&u32, &Link)| {
            let mut message = LinkMessage::default();
            message.header.index = *index;
            let up = LinkFlags::Up | LinkFlags::LowerUp;
            message.header.flags = if link.up { up } else { LinkFlags::empty() };
            if link.loopback {
                message.header.flags |= LinkFlags::Loopback;
            }
            message
        };
        let address = |(index, address): &(u32, Ipv4Addr)| {
            let mut message = AddressMessage::default();
            message.header.index = *index;
            message.attributes = vec![AddressAttribute::Local((*address).into())];
            message
        };
        let links: Vec<_> = self.links.iter().map(link).collect();
        usable(&links, &self.addresses.iter().map(address).collect::<Vec<_>>())
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|(_, address)| (*address).into()).collect()
    }

    // ---- rules ----

    pub(super) fn rules(&self, ipv4: bool) -> Vec<RuleMessage> {
        let of = self.rules.iter().filter(|(rule, _)| rule.ipv4 == ipv4);
        of.map(|(_, message)| message.clone()).collect()
    }

    pub(super) fn add_rule(&mut self, message: RuleMessage, again: bool) -> Result<(), i32> {
        let rule = Rule::of(&message);
        if !again && self.rules.iter().any(|(other, _)| *other == rule) {
            return Err(EEXIST);
        }
        let at = self.rules.iter().position(|(other, _)| other.priority > rule.priority);
        self.rules.insert(at.unwrap_or(self.rules.len()), (rule, message.clone()));
        self.tell(RouteNetlinkMessage::NewRule(message), true);
        Ok(())
    }

    pub(super) fn remove_rule(&mut self, message: &RuleMessage) -> Result<(), i32> {
        let rule = Rule::of(message);
        let at = self.rules.iter().position(|(other, _)| *other == rule);
        // The kernel's answer, ENOENT.
        let (_, gone) = self.rules.remove(at.ok_or(2)?);
        self.tell(RouteNetlinkMessage::DelRule(gone), true);
        Ok(())
    }

    // ---- routes ----

    pub(super) fn routes(&self, table: u32, protocol: RouteProtocol) -> Vec<RouteMessage> {
        let asked = self.routes.iter().filter(|entry| {
            (table == 0 || entry.table == table)
                && (protocol == RouteProtocol::Unspec || entry.message.header.protocol == protocol)
        });
        asked.map(|entry| entry.message.clone()).collect()
    }

    pub(super) fn set_route(&mut self, message: RouteMessage, own: bool) -> Result<(), i32> {
        let (prefix, _) = place_of(&message).ok_or(EINVAL)?;
        let (table, metric, way) = (table_of(&message), metric(&message), Way::of(&message));
        if way.device.is_some_and(|device| !self.is_up(device)) {
            return Err(ENODEV);
        }
        if way.source.is_some_and(|source| !self.has(source)) {
            return Err(EINVAL);
        }
        let kind = message.header.kind;
        let entry = Entry { table, prefix, metric, kind, way, message: message.clone() };
        let same = |e: &&mut Entry| (e.table, e.prefix, e.metric) == (table, prefix, metric);
        match self.routes.iter_mut().find(same) {
            Some(old) => *old = entry,
            None => self.routes.push(entry),
        }
        self.tell(RouteNetlinkMessage::NewRoute(message), own);
        Ok(())
    }

    pub(super) fn remove_route(&mut self, message: &RouteMessage) -> Result<(), i32> {
        let (prefix, _) = place_of(message).ok_or(EINVAL)?;
        let (table, way) = (table_of(message), Way::of(message));
        let by_metric = message.attributes.iter().any(|a| matches!(a, RouteAttribute::Priority(_)));
        let at = self.routes.iter().position(|entry| {
            (entry.table, entry.prefix, entry.kind) == (table, prefix, message.header.kind)
                && (!by_metric || entry.metric == metric(message))
                && (way.device.is_none() || way.device == entry.way.device)
        });
        let gone = self.routes.remove(at.ok_or(ESRCH)?);
        self.tell(RouteNetlinkMessage::DelRoute(gone.message), true);
        Ok(())
    }

    fn remove_routes(&mut self, which: impl Fn(&Entry) -> bool) -> usize {
        let (gone, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.routes).into_iter().partition(|entry| which(entry));
        self.routes = rest;
        let count = gone.len();
        for entry in gone {
            self.tell(RouteNetlinkMessage::DelRoute(entry.message), false);
        }
        count
    }

    pub(super) fn add_main_route(&mut self, to: Prefix, device: u32, gateway: Option<Ipv4Addr>) {
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(to.address, to.len)
            .expect("a prefix of IPv4")
            .table_id(MAIN)
            .output_interface(device);
        let builder = match gateway {
            Some(gateway) => builder.gateway(gateway.into()).expect("of the same family"),
            None => builder,
        };
        // One by a link that is down is refused.
        _ = self.set_route(builder.build(), false);
    }

    pub(super) fn remove_main_route(&mut self, to: Prefix) {
        self.remove_routes(|entry| entry.table == MAIN && entry.prefix == to);
    }

    pub(super) fn take_away(&mut self, hand: Hand) -> usize {
        match hand {
            Hand::Rules(priority) => {
                let rules = std::mem::take(&mut self.rules);
                let (gone, rest): (Vec<_>, Vec<_>) =
                    rules.into_iter().partition(|(rule, _)| rule.priority == priority);
                self.rules = rest;
                let count = gone.len();
                for (_, message) in gone {
                    self.tell(RouteNetlinkMessage::DelRule(message), false);
                }
                count
            }
            Hand::Table(table) => self.remove_routes(|entry| entry.table == table),
            Hand::Route(table, number) => {
                let all: Vec<_> = self.routes.iter().filter(|entry| entry.table == table).collect();
                let Some(chosen) = all.get(number % all.len().max(1)) else { return 0 };
                let (prefix, metric) = (chosen.prefix, chosen.metric);
                self.remove_routes(|entry| {
                    (entry.table, entry.prefix, entry.metric) == (table, prefix, metric)
                })
            }
        }
    }

    // ---- packets ----

    pub(super) fn road(&self, from: Option<IpAddr>, to: IpAddr, mark: u32) -> Option<Road> {
        if from.is_some_and(|from| !self.has(from)) {
            return None;
        }
        if self.has(to) {
            return Some(Road { device: LOOPBACK, source: from.or(Some(to)) });
        }
        let main = Rule { action: RuleAction::ToTable.into(), table: MAIN, ..self.main_rule() };
        let rules = self.rules.iter().map(|(rule, _)| *rule).filter(|rule| rule.ipv4);
        for rule in rules.chain([main]) {
            let is_marked = mark & rule.mask == rule.mark & rule.mask;
            let is_there = rule.to.is_none_or(|prefix| prefix.contains(to));
            if (is_marked && is_there) == rule.inverted {
                continue;
            }
            if rule.action != u8::from(RuleAction::ToTable) {
                return None;
            }
            let Some(found) = self.find(rule.table, to) else { continue };
            if rule.suppressed != u32::MAX && u32::from(found.prefix.len) <= rule.suppressed {
                continue;
            }
            match found.kind {
                RouteType::Unicast => {
                    let device = found.way.device?;
                    let source = from.or(found.way.source).or_else(|| self.first_of(device));
                    return Some(Road { device, source });
                }
                RouteType::Throw => {}
                _ => return None,
            }
        }
        None
    }

    /// The rule of the main table, which every host has.
    fn main_rule(&self) -> Rule {
        let mut message = RuleMessage::default();
        message.header.family = rtnetlink::packet_route::AddressFamily::Inet;
        message.attributes = vec![RuleAttribute::Priority(MAIN_RULE)];
        Rule::of(&message)
    }

    /// The route of a table for `to`: the longest prefix, and of these the smallest metric.
    fn find(&self, table: u32, to: IpAddr) -> Option<&Entry> {
        let all = self.routes.iter().filter(|e| e.table == table && e.prefix.contains(to));
        all.min_by_key(|entry| (u8::MAX - entry.prefix.len, entry.metric))
    }

    /// The source that the kernel takes for packets by a link: an address of it, else any other but of the loopback.
    fn first_of(&self, device: u32) -> Option<IpAddr> {
        let on = |wanted: bool| {
            let of = move |(index, _): &&(u32, Ipv4Addr)| (*index == device) == wanted;
            self.addresses.iter().find(of).map(|(_, address)| IpAddr::from(*address))
        };
        on(true).or_else(|| on(false))
    }

    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        for (rule, _) in &self.rules {
            _ = writeln!(story, "{rule:?}");
        }
        for Entry { table, prefix, metric, kind, way, message } in &self.routes {
            let ours = message.header.protocol == OURS;
            _ = writeln!(
                story,
                "table {table} {}/{} metric {metric} {kind:?} {way:?} ours: {ours}",
                prefix.address, prefix.len
            );
        }
        _ = writeln!(story, "{:?} {:?}", self.links, self.addresses);
        story
    }
}

fn metric(message: &RouteMessage) -> u32 {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        })
        .unwrap_or(0)
}
