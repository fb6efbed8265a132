//! The routing table, as the thread keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ipsec_types::dataplane::patience::Patience;
use ipsec_types::dataplane::{PolicyId, TrafficSelector};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use tracing::{debug, warn};

use super::holders::{Fate, Holders};
use super::hop::{Hop, source_for};
use super::kernel::Kernel;
use super::mended::{Mended, Thing};
use super::message::{LAST, OURS, code, is_gone, is_off, place_of, table_of};
use super::picture::{Picture, Place, Rule, Step, Way};
use super::prefix::Prefix;
use super::route::{Route, Via};
use super::{Leftovers, RouteOptions};

mod others;

/// Requests of a flush that are sent before the first one is answered: their answers fit into the socket's buffer.
const AT_ONCE: usize = 64;
/// How long until a next try at what has failed.
const AGAIN: Duration = Duration::from_secs(1);
const EEXIST: i32 = 17;
/// The smallest MTU that IPv6 knows (RFC 8200 §5).
const LEAST_V6: u16 = 1280;

/// What the thread knows.
pub(super) struct Table<K> {
    kernel: K,
    options: RouteOptions,
    /// The routes of each policy, and its local selectors; several may have the same route.
    installed: Holders,
    /// The addresses of this host and the ways to peers, until something changes.
    addresses: Option<Vec<IpAddr>>,
    hops: BTreeMap<(IpAddr, IpAddr), Option<Hop>>,
    /// Those that have their rules, in the order of their rules.
    walls: Vec<Prefix>,
    /// The routes that were set, as they were set last. What is missing of them another program has taken away.
    set: BTreeMap<Place, Way>,
    patience: Patience<Thing>,
    /// What could not be set at the last try.
    failing: BTreeSet<Thing>,
    /// Prefixes that have no route, because IPv6 is disabled on the device. Packets to them are refused until a look at
    /// the routes after IPv6 is enabled.
    off: BTreeSet<Prefix>,
    /// True if the kernel has rules for IPv6.
    ipv6: bool,
    /// True while routes of an earlier run stay.
    keeps: bool,
    /// True while some of them may be in other tables.
    others: bool,
}

/// A picture, and what its parts are to the kernel.
#[derive(Default)]
struct Seen {
    picture: Picture,
    rules: BTreeMap<Rule, RuleMessage>,
    routes: BTreeMap<Place, RouteMessage>,
}

impl<K: Kernel> Table<K> {
    pub(super) async fn open(
        kernel: K,
        options: RouteOptions,
        leftovers: Leftovers,
    ) -> Result<Self, String> {
        let mut table = Self {
            kernel,
            options,
            installed: Holders::default(),
            addresses: None,
            hops: BTreeMap::new(),
            walls: Vec::new(),
            set: BTreeMap::new(),
            patience: Patience::default(),
            failing: BTreeSet::new(),
            off: BTreeSet::new(),
            ipv6: true,
            keeps: leftovers != Leftovers::Remove,
            others: false,
        };
        let v4 = table.add_rule(true).await;
        v4.map_err(|e| format!("routing rule: {e}"))?;
        match table.add_rule(false).await {
            Ok(()) => {}
            Err(error) if is_off(&error) => {
                // A host without IPv6 has nothing to route.
                debug!(%error, "no routing rule for IPv6");
                table.ipv6 = false;
            }
            Err(error) => {
                let thing = Thing::Rules { ipv4: false };
                warn!(%error, "{thing}: not set; the next try is at once");
                table.failing.insert(thing);
            }
        }
        if leftovers == Leftovers::Remove {
            table.forget_leftovers().await;
            table.remove_other_rules(|_| false).await;
        }
        table.replace_others(table.keeps).await;
        Ok(table)
    }

    /// False if a rule of this family could not be set: perhaps nothing leads to this table.
    pub(super) fn leads(&self, ipv4: bool) -> bool {
        !self.failing.contains(&Thing::Rules { ipv4 })
    }

    /// One that is there already is as good.
    async fn add_rule(&self, ipv4: bool) -> Result<(), rtnetlink::Error> {
        let added = self.kernel.add_rule(self.rule(ipv4), false).await;
        match added {
            Err(error) if code(&error) == Some(EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes our rules.
    pub(super) async fn remove_rules(&self) {
        for ipv4 in [true, false] {
            while self.kernel.remove_rule(self.rule(ipv4)).await.is_ok() {}
        }
    }

    /// Removes the routes of an earlier run that no policy has.
    pub(super) async fn forget_leftovers(&mut self) {
        self.keeps = false;
        let found = self.in_kernel().await;
        let found =
            found.inspect_err(|error| warn!(%error, "routes of an earlier run not removed"));
        for route in found.unwrap_or_default() {
            if place_of(&route).is_some_and(|place| self.installed.has(&place)) {
                continue;
            }
            if let Err(error) = self.kernel.remove_route(route).await
                && !is_gone(&error)
            {
                warn!(%error, "route of an earlier run not removed");
            }
        }
        self.forget_others().await;
    }

    /// The destinations of blocks that an earlier run left, without those of walls, and of children that were never up.
    pub(super) async fn blocked(&self) -> Vec<Prefix> {
        let found = self.in_kernel().await.unwrap_or_default();
        let refuses = |kind| matches!(kind, RouteType::Unreachable | RouteType::BlackHole);
        let blocks = found.iter().filter(|route| refuses(route.header.kind));
        blocks.filter_map(|route| place_of(route).map(|(prefix, _)| prefix)).collect()
    }

    /// True if the kernel has no routes of ours.
    pub(super) async fn is_empty(&self) -> bool {
        self.in_kernel().await.is_ok_and(|routes| routes.is_empty())
    }

    /// Our routes as the kernel has them.
    async fn in_kernel(&self) -> Result<Vec<RouteMessage>, rtnetlink::Error> {
        let table = self.options.table;
        let mut ours = self.kernel.routes(table, RouteProtocol::Unspec).await?;
        ours.retain(|route| {
            table_of(route) == table
                && (route.header.protocol == OURS
                    || route.attributes.contains(&RouteAttribute::Priority(LAST)))
        });
        Ok(ours)
    }

    /// `not fwmark MARK lookup TABLE`.
    fn rule(&self, ipv4: bool) -> RuleMessage {
        let RouteOptions { table, priority, mark } = self.options;
        let mut message = RuleMessage::default();
        message.header.family = if ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Priority(priority), RuleAttribute::FwMark(mark)];
        match u8::try_from(table) {
            Ok(short) => message.header.table = short,
            Err(_) => {
                message.header.table = RouteHeader::RT_TABLE_MAIN;
                message.attributes.push(RuleAttribute::Table(table));
            }
        }
        message.header.flags = RuleFlags::Invert;
        message.attributes.push(RuleAttribute::Protocol(OURS));
        message
    }

    pub(super) async fn install(
        &mut self,
        policy: PolicyId,
        routes: BTreeSet<Route>,
        local: Vec<TrafficSelector>,
    ) -> Result<(), String> {
        let (old, _) = self.installed.remove(policy);
        let mut failure = Ok(());
        for &route in &routes {
            if self.installed.yields(&routes, route) {
                continue;
            }
            let added = self.add_route(route, &local).await;
            failure = failure.and(added);
        }
        if failure.is_err() {
            // What has been added goes with the policy's removal.
            self.installed.insert(policy, (&routes | &old, local));
            return failure;
        }
        self.installed.insert(policy, (routes, local));
        self.drop_unused(old, None).await;
        self.set_walls().await;
        Ok(())
    }

    pub(super) async fn remove(&mut self, policy: PolicyId) {
        let (old, local) = self.installed.remove(policy);
        self.drop_unused(old, Some(&local)).await;
        self.set_walls().await;
    }

    pub(super) async fn flush(&mut self) {
        let old = std::mem::take(&mut self.installed);
        let routes: BTreeSet<Route> = old.all().flat_map(|(routes, _)| routes).copied().collect();
        self.set.clear();
        let refused = std::mem::take(&mut self.off).into_iter();
        let refused = refused.map(|prefix| Route { prefix, via: Via::Unreachable });
        let routes: Vec<Route> = routes.into_iter().chain(refused).collect();
        for some in routes.chunks(AT_ONCE) {
            join_all(some.iter().map(|route| self.delete_in_kernel(*route))).await;
        }
        self.set_walls().await;
    }

    /// Blocks what no policy blocks, for the time after this process. From now on no look removes a route that no policy has.
    pub(super) async fn block(&mut self) {
        self.keeps = true;
        for prefix in self.installed.unblocked() {
            let Ok(message) = self.message(Route { prefix, via: Via::Unreachable }, None, None)
            else {
                continue;
            };
            if let Err(error) = self.kernel.set_route(message).await {
                warn!(%error, "{}/{}: not blocked", prefix.address, prefix.len);
            }
        }
    }

    /// Gives the walls that there are their rules, and takes those of others away. Without them packets to a
    /// network whose route has just gone would leave by the default route until the policy that lets them
    /// pass is gone as well.
    async fn set_walls(&mut self) {
        let wanted = self.installed.walls();
        if self.walls.len() == wanted.len()
            && self.walls.iter().all(|wall| wanted.contains_key(wall))
        {
            return;
        }
        let wanted: BTreeSet<Prefix> = wanted.keys().copied().collect();
        let mut walls = std::mem::take(&mut self.walls);
        for &gone in walls.iter().filter(|wall| !wanted.contains(wall)) {
            for rule in self.wall(gone) {
                if let Err(error) = self.kernel.remove_rule(rule).await {
                    debug!(%error, "rule of a wall not removed");
                }
            }
        }
        walls.retain(|wall| wanted.contains(wall));
        let new: Vec<_> = wanted.into_iter().filter(|wall| !walls.contains(wall)).collect();
        for &new in &new {
            for rule in self.wall(new) {
                match self.kernel.add_rule(rule, false).await {
                    Err(error) if code(&error) != Some(EEXIST) => {
                        warn!(%error, "routing rule for {}/{} not made: decrypted packets to it may leave by the default route", new.address, new.len);
                    }
                    _ => {}
                }
            }
        }
        walls.extend(new);
        self.walls = walls;
    }

    /// `to PREFIX fwmark 0 lookup main suppress_prefixlength LEN-1` and `to PREFIX fwmark 0 unreachable`, in
    /// this order, behind the rule that leads to our table.
    fn wall(&self, prefix: Prefix) -> [RuleMessage; 2] {
        let ipv4 = prefix.address.is_ipv4();
        let of = |action| {
            let mut message = self.rule(ipv4);
            message.header.flags = RuleFlags::empty();
            message.header.action = action;
            message.header.dst_len = prefix.len;
            message.attributes.retain(|attribute| {
                !matches!(attribute, RuleAttribute::Table(_) | RuleAttribute::FwMark(_))
            });
            message.attributes.extend([
                RuleAttribute::Destination(prefix.address),
                RuleAttribute::FwMark(0),
                RuleAttribute::FwMask(u32::MAX),
            ]);
            message
        };
        let mut near = of(RuleAction::ToTable);
        near.header.table = RouteHeader::RT_TABLE_MAIN;
        let less = u32::from(prefix.len.saturating_sub(1));
        near.attributes.push(RuleAttribute::SuppressPrefixLen(less));
        let mut nowhere = of(RuleAction::Unreachable);
        nowhere.header.table = 0;
        [near, nowhere]
    }

    /// Addresses or routes have come or gone.
    pub(super) fn outdated(&mut self) {
        self.addresses = None;
        self.hops.clear();
    }

    /// The last look: another program may have taken something away a moment ago.
    pub(super) async fn mend_at_last(&mut self, now: Instant) {
        self.patience = Patience::default();
        self.mend(now).await;
    }

    /// Sees to it that what is to be on the host is there. Returns when to look again although nothing has changed.
    pub(super) async fn mend(&mut self, now: Instant) -> Option<Instant> {
        let mut present = match self.present().await {
            Ok(present) => present,
            Err(error) => {
                warn!(
                    %error,
                    "routing rules and routes cannot be read; they are read again in a second"
                );
                return now.checked_add(AGAIN);
            }
        };
        let mut mended = Mended::default();
        let mut wanted = self.wanted().await;
        // Rules that could not be set, or removed. What is there in their place stays.
        let mut unmet = Vec::new();
        for step in wanted.picture.steps(&present.picture, !self.keeps) {
            let thing = match step {
                Step::AddRule(Rule { ipv4, .. }) | Step::RemoveRule(Rule { ipv4, .. }) => {
                    Thing::Rules { ipv4 }
                }
                Step::SetRoute(place, _) | Step::RemoveRoute(place) => Thing::Route(place),
            };
            let lost = match step {
                // Nobody has taken away what could not be set.
                Step::AddRule(_) | Step::RemoveRule(_) => !self.failing.contains(&thing),
                Step::SetRoute(place, way) => self.set.get(&place) == Some(&way),
                Step::RemoveRoute(_) => false,
            };
            let stays = match step {
                // Its way to the peer is not known at present.
                Step::RemoveRoute(_) => self.failing.contains(&thing),
                // A rule of an earlier run with another mark stays, too, until this run has all its rules of the family.
                Step::RemoveRule(rule) => {
                    let of_family = |one: &Rule| one.ipv4 == rule.ipv4;
                    let foreign = !wanted.rules.contains_key(&rule);
                    unmet.contains(&rule) || (foreign && unmet.iter().any(of_family))
                }
                _ => false,
            };
            if stays {
                continue;
            }
            if lost && !mended.may_put_back(&mut self.patience, thing, now) {
                continue;
            }
            match self.take(step, &mut wanted, &mut present).await {
                Ok(()) if matches!(thing, Thing::Route(_)) => _ = self.failing.remove(&thing),
                // Another rule of the family may have failed.
                Ok(()) => {}
                // News of addresses, or the next regular look, is the next try.
                Err(error) if is_off(&error) => match step {
                    // Another route of the host may carry what the kernel's policies protect.
                    Step::SetRoute((prefix, false), _) if !self.leads_to_peer(prefix) => {
                        self.hold(prefix, &error).await;
                    }
                    _ => debug!(%error, "{thing}: IPv6 is off"),
                },
                Err(error) => {
                    mended.again(now.checked_add(AGAIN));
                    if let Step::AddRule(rule) | Step::RemoveRule(rule) = step {
                        unmet.push(rule);
                    }
                    if self.failing.insert(thing) {
                        warn!(%error, "{thing}: not as it is to be; the next try is in a second");
                    }
                }
            }
        }
        for ipv4 in [true, false] {
            if unmet.iter().all(|rule| rule.ipv4 != ipv4) {
                self.failing.remove(&Thing::Rules { ipv4 });
            }
        }
        self.patience.forget(now);
        mended.tell(self.options.table);
        mended.due
    }

    async fn take(
        &mut self,
        step: Step,
        wanted: &mut Seen,
        present: &mut Seen,
    ) -> Result<(), rtnetlink::Error> {
        let done = match step {
            Step::AddRule(rule) => {
                let Some(message) = wanted.rules.get(&rule) else { return Ok(()) };
                // Also if there is one like it, which goes afterwards.
                self.kernel.add_rule(message.clone(), true).await
            }
            Step::RemoveRule(rule) => {
                let Some(message) = present.rules.get(&rule) else { return Ok(()) };
                self.kernel.remove_rule(message.clone()).await
            }
            Step::SetRoute(place, way) => {
                let Some(message) = wanted.routes.remove(&place) else { return Ok(()) };
                self.set.remove(&place);
                let done = self.kernel.set_route(message).await;
                if done.is_ok() {
                    self.set.insert(place, way);
                    self.off.remove(&place.0);
                }
                done
            }
            Step::RemoveRoute(place) => {
                let Some(message) = present.routes.remove(&place) else { return Ok(()) };
                self.kernel.remove_route(message).await
            }
        };
        match done {
            Err(error) if !is_gone(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// What is to be on the host.
    async fn wanted(&mut self) -> Seen {
        let mut wanted = Seen::default();
        for ipv4 in [true, false].into_iter().filter(|ipv4| *ipv4 || self.ipv6) {
            let walls = self.walls.iter().filter(|wall| wall.address.is_ipv4() == ipv4);
            let walls = walls.flat_map(|wall| self.wall(*wall));
            [self.rule(ipv4)].into_iter().chain(walls).for_each(|message| wanted.add_rule(message));
        }
        for &prefix in &self.off {
            let held = self.message(Route { prefix, via: Via::Unreachable }, None, None);
            held.into_iter().for_each(|message| wanted.add_route(message));
        }
        let all: Vec<_> = self.installed.all().cloned().collect();
        for (routes, local) in all {
            for &route in &routes {
                if self.installed.yields(&routes, route) {
                    continue;
                }
                let thing = Thing::Route(route.place());
                match self.resolve(route, &local).await {
                    Ok(Some(message)) => wanted.add_route(message),
                    Ok(None) => {}
                    Err(error) if self.failing.insert(thing) => {
                        warn!(error, "{thing}: not set; it is set once its way is known");
                    }
                    Err(_) => {}
                }
            }
        }
        wanted
    }

    /// What of it is on the host. Rules of another priority are not looked at: another run of this program may have them.
    async fn present(&self) -> Result<Seen, rtnetlink::Error> {
        let mut present = Seen::default();
        for ipv4 in [true, false].into_iter().filter(|ipv4| *ipv4 || self.ipv6) {
            let found = match self.kernel.rules(ipv4).await {
                Err(error) if !ipv4 && is_off(&error) => continue,
                found => found?,
            };
            let priority = RuleAttribute::Priority(self.options.priority);
            // `replace_others` removes a rule that leads to the routes of an earlier run, once none of these routes is to
            // stay.
            let is_kept = |rule: &RuleMessage| {
                let leads = rule.header.flags.contains(RuleFlags::Invert);
                self.others && leads && Rule::of(rule).table != self.options.table
            };
            let ours = |rule: &RuleMessage| {
                rule.attributes.contains(&RuleAttribute::Protocol(OURS))
                    && rule.attributes.contains(&priority)
                    && !is_kept(rule)
            };
            found.into_iter().filter(ours).for_each(|message| present.add_rule(message));
        }
        for route in self.in_kernel().await? {
            present.add_route(route);
        }
        Ok(present)
    }

    /// Removes the routes that no policy has; where another policy has one to the same prefix, that one
    /// takes its place.
    async fn drop_unused(&mut self, routes: BTreeSet<Route>, gone: Option<&[TrafficSelector]>) {
        for route in routes {
            match self.installed.fate(route, gone) {
                Fate::Stays => {}
                Fate::Heir(other, local) => {
                    if let Err(error) = self.add_route(other, &local).await {
                        warn!(%error, "route not set again");
                    }
                }
                Fate::Goes => self.delete(route).await,
            }
        }
    }

    /// True if a policy of the kernel protects what goes to `prefix` by the way to a peer.
    fn leads_to_peer(&self, prefix: Prefix) -> bool {
        self.installed.to(prefix).any(|route| matches!(route.via, Via::Peer { .. }))
    }

    /// There cannot be a route to `prefix`, because IPv6 is disabled on the device: packets to `prefix` are refused. The
    /// rest of the policy is as it is to be.
    async fn hold(&mut self, prefix: Prefix, error: &rtnetlink::Error) {
        if self.off.is_empty() {
            warn!(
                %error,
                "route {}/{}: IPv6 is disabled on the device: IPv6 packets to networks of tunnels are refused until it is \
                 enabled (sysctl disable_ipv6)",
                prefix.address, prefix.len
            );
        }
        self.off.insert(prefix);
        let held = Route { prefix, via: Via::Unreachable };
        let message = match self.message(held, None, None) {
            Ok(message) => message,
            Err(error) => return warn!(%error, "{}: not held", Thing::Route(held.place())),
        };
        let way = Way::of(&message);
        match self.kernel.set_route(message).await {
            Ok(()) => _ = self.set.insert(held.place(), way),
            Err(error) if is_off(&error) => debug!(%error, "no IPv6 in the kernel"),
            Err(error) => warn!(%error, "{}: not held", Thing::Route(held.place())),
        }
    }

    async fn delete(&mut self, route: Route) {
        if self.off.contains(&route.prefix) {
            // In place of the route of another policy stands the one that refuses packets.
            let is_refused = |other: Route| !matches!(other.via, Via::Peer { .. });
            if self.installed.to(route.prefix).any(is_refused) {
                return;
            }
            self.off.remove(&route.prefix);
            self.remove_one(Route { via: Via::Unreachable, ..route }).await;
        }
        self.remove_one(route).await;
    }

    async fn remove_one(&mut self, route: Route) {
        self.set.remove(&route.place());
        self.delete_in_kernel(route).await;
    }

    async fn delete_in_kernel(&self, route: Route) {
        let Ok(message) = self.message(route, None, None) else { return };
        match self.kernel.remove_route(message).await {
            Err(error) if !is_gone(&error) => warn!(%error, ?route, "route not removed"),
            _ => {}
        }
    }

    async fn add_route(&mut self, route: Route, local: &[TrafficSelector]) -> Result<(), String> {
        let Some(message) = self.resolve(route, local).await? else { return Ok(()) };
        let place = route.place();
        self.set.remove(&place);
        let way = Way::of(&message);
        match self.kernel.set_route(message).await {
            Err(error) if is_off(&error) && !matches!(route.via, Via::Peer { .. }) => {
                self.hold(route.prefix, &error).await;
                return Ok(());
            }
            done => done.map_err(|e| text(route.prefix, &e))?,
        }
        let (_, is_block) = place;
        if !is_block {
            self.off.remove(&route.prefix);
        }
        self.set.insert(place, way);
        debug!(?route, ?way, "route");
        Ok(())
    }

    /// A route as the kernel takes it; none if the peer is on this host: packets to it need no help.
    async fn resolve(
        &mut self,
        route: Route,
        local: &[TrafficSelector],
    ) -> Result<Option<RouteMessage>, String> {
        let Route { prefix, via } = route;
        let addresses = match self.addresses.take() {
            Some(addresses) => addresses,
            None => self.kernel.addresses().await.map_err(|e| e.to_string())?,
        };
        let source = source_for(&addresses, prefix.address, local);
        self.addresses = Some(addresses);
        let hop = match via {
            Via::Peer { local, remote } => match self.hop(local, remote).await? {
                Some(hop) => Some(hop),
                None => return Ok(None),
            },
            _ => None,
        };
        self.message(route, source, hop).map(Some).map_err(|error| text(prefix, &error))
    }

    async fn hop(&mut self, local: IpAddr, remote: IpAddr) -> Result<Option<Hop>, String> {
        if let Some(known) = self.hops.get(&(local, remote)) {
            return Ok(*known);
        }
        let found = self.kernel.towards(local, remote, self.options.mark).await;
        let found = found.map_err(|e| e.to_string())?;
        self.hops.insert((local, remote), found);
        Ok(found)
    }

    fn message(
        &self,
        route: Route,
        source: Option<IpAddr>,
        hop: Option<Hop>,
    ) -> io::Result<RouteMessage> {
        let Route { prefix, via } = route;
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(prefix.address, prefix.len)
            .map_err(io::Error::other)?
            .protocol(OURS)
            .table_id(self.options.table);
        match via {
            Via::Device(index) | Via::Narrow { device: index, .. } => {
                builder = builder.output_interface(index);
            }
            Via::Peer { .. } => {}
            Via::Elsewhere => return Ok(builder.kind(RouteType::Throw).build()),
            Via::Unreachable | Via::Wall => {
                return Ok(builder.priority(LAST).kind(RouteType::Unreachable).build());
            }
            Via::Prohibited => return Ok(builder.priority(LAST).kind(RouteType::Prohibit).build()),
            Via::BlackHole => return Ok(builder.priority(LAST).kind(RouteType::BlackHole).build()),
        }
        if let Some(Hop { gateway, interface }) = hop {
            builder = builder.output_interface(interface);
            // A gateway of the other family takes another attribute, which old kernels lack.
            if let Some(gateway) = gateway.filter(|g| g.is_ipv4() == prefix.address.is_ipv4()) {
                builder = builder.gateway(gateway).map_err(io::Error::other)?.onlink();
            }
        }
        if let Some(source) = source {
            builder = builder.pref_source(source).map_err(io::Error::other)?;
        }
        let mut message = builder.build();
        if let Via::Narrow { mtu, .. } = via {
            let mtu = if prefix.address.is_ipv4() { mtu } else { mtu.max(LEAST_V6) };
            let metrics = vec![RouteMetric::Mtu(mtu.into())];
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        Ok(message)
    }
}

impl Seen {
    fn add_rule(&mut self, message: RuleMessage) {
        let rule = Rule::of(&message);
        self.picture.rule(rule);
        self.rules.insert(rule, message);
    }

    fn add_route(&mut self, message: RouteMessage) {
        if let Some(place) = place_of(&message) {
            self.picture.route(place, Way::of(&message));
            self.routes.insert(place, message);
        }
    }
}

/// An error about the route to `prefix`.
fn text(prefix: Prefix, error: &dyn std::fmt::Display) -> String {
    format!("route {}/{}: {error}", prefix.address, prefix.len)
}
