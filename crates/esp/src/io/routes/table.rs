//! The routing table, as the thread keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ike_proto::dataplane::{PolicyId, TrafficSelector};
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleFlags, RuleMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use tracing::{debug, warn};

use super::super::prefix::Prefix;
use super::RouteOptions;

/// Metric of a shunt's routes: after every other route to the same prefix, and ours by it.
const LAST: u32 = 0x7fff_ff22;

/// Where packets to a prefix go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Via {
    Device,
    Unreachable,
    BlackHole,
}

/// One route of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) prefix: Prefix,
    pub(super) via: Via,
}

/// What the thread knows.
pub(super) struct Table {
    handle: Handle,
    index: u32,
    options: RouteOptions,
    /// The routes of each policy, and its local selectors; several may have the same route.
    installed: BTreeMap<PolicyId, (BTreeSet<Route>, Vec<TrafficSelector>)>,
}

impl Table {
    pub(super) async fn open(index: u32, options: RouteOptions) -> Result<Self, String> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|e| format!("netlink: {e}"))?;
        tokio::spawn(connection);
        let table = Self { handle, index, options, installed: BTreeMap::new() };
        table.remove_rules().await;
        table.remove_left_behind().await;
        let mut v4 = table.handle.rule().add().v4();
        *v4.message_mut() = table.rule(true);
        v4.execute().await.map_err(|e| format!("routing rule: {e}"))?;
        let mut v6 = table.handle.rule().add().v6();
        *v6.message_mut() = table.rule(false);
        if let Err(error) = v6.execute().await {
            // A host without IPv6 has nothing to route.
            debug!(%error, "no routing rule for IPv6");
        }
        Ok(table)
    }

    /// Removes our rules, and those a crash left behind.
    pub(super) async fn remove_rules(&self) {
        for ipv4 in [true, false] {
            while self.handle.rule().del(self.rule(ipv4)).execute().await.is_ok() {}
        }
    }

    /// Removes the shunts' routes of a daemon that crashed. The others went with its device.
    async fn remove_left_behind(&self) {
        let any = [
            RouteMessageBuilder::<std::net::Ipv4Addr>::new().table_id(self.options.table).build(),
            RouteMessageBuilder::<std::net::Ipv6Addr>::new().table_id(self.options.table).build(),
        ];
        for request in any {
            let found: Result<Vec<_>, _> =
                self.handle.route().get(request).execute().try_collect().await;
            let ours = |route: &RouteMessage| {
                route.attributes.contains(&RouteAttribute::Priority(LAST))
                    && route.attributes.contains(&RouteAttribute::Table(self.options.table))
            };
            for route in found.unwrap_or_default().into_iter().filter(ours) {
                if let Err(error) = self.handle.route().del(route).execute().await {
                    warn!(%error, "route of an earlier run not removed");
                }
            }
        }
    }

    /// `not fwmark MARK lookup TABLE`.
    fn rule(&self, ipv4: bool) -> RuleMessage {
        let RouteOptions { table, priority, mark } = self.options;
        let rule = self.handle.rule().add();
        let rule =
            rule.table_id(table).priority(priority).fw_mark(mark).action(RuleAction::ToTable);
        let mut message = match ipv4 {
            true => rule.v4().message_mut().clone(),
            false => rule.v6().message_mut().clone(),
        };
        message.header.flags = RuleFlags::Invert;
        message
    }

    pub(super) async fn install(
        &mut self,
        policy: PolicyId,
        routes: BTreeSet<Route>,
        local: Vec<TrafficSelector>,
    ) -> Result<(), String> {
        let (old, _) = self.installed.remove(&policy).unwrap_or_default();
        let addresses = self.addresses().await?;
        for &route in &routes {
            if let Err(error) = self.add_route(route, source_for(&addresses, route, &local)).await {
                // What has been added already goes with the policy's removal.
                self.installed.insert(policy, (&routes | &old, local));
                return Err(error);
            }
        }
        self.installed.insert(policy, (routes, local));
        self.drop_unused(old).await;
        Ok(())
    }

    pub(super) async fn remove(&mut self, policy: PolicyId) {
        let (old, _) = self.installed.remove(&policy).unwrap_or_default();
        self.drop_unused(old).await;
    }

    pub(super) async fn flush(&mut self) {
        let old = std::mem::take(&mut self.installed);
        self.drop_unused(old.into_values().flat_map(|(routes, _)| routes).collect()).await;
    }

    /// Chooses the preferred sources anew: addresses have come or gone.
    pub(super) async fn refresh(&self) {
        let addresses = match self.addresses().await {
            Ok(addresses) => addresses,
            Err(error) => return warn!(%error, "addresses not read"),
        };
        for (routes, local) in self.installed.values() {
            for &route in routes.iter().filter(|route| route.via == Via::Device) {
                let source = source_for(&addresses, route, local);
                if let Err(error) = self.add_route(route, source).await {
                    warn!(%error, "route not set again");
                }
            }
        }
    }

    /// Removes the routes that no policy has.
    async fn drop_unused(&mut self, routes: BTreeSet<Route>) {
        for route in routes {
            if self.installed.values().any(|(used, _)| used.contains(&route)) {
                continue;
            }
            let Ok(message) = self.route(route, None) else { continue };
            match self.handle.route().del(message).execute().await {
                Err(error) if !is_gone(&error) => warn!(%error, ?route, "route not removed"),
                _ => {}
            }
        }
    }

    async fn add_route(&self, route: Route, source: Option<IpAddr>) -> Result<(), String> {
        let Route { prefix, via } = route;
        let text = |error: &dyn std::fmt::Display| {
            format!("route {}/{}: {error}", prefix.address, prefix.len)
        };
        let message = self.route(route, source).map_err(|e| text(&e))?;
        self.handle.route().add(message).replace().execute().await.map_err(|e| text(&e))?;
        debug!(prefix = %prefix.address, len = prefix.len, ?source, ?via, "route");
        Ok(())
    }

    fn route(&self, route: Route, source: Option<IpAddr>) -> Result<RouteMessage, String> {
        let Route { prefix, via } = route;
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(prefix.address, prefix.len)
            .map_err(|e| e.to_string())?
            .table_id(self.options.table);
        let builder = match via {
            Via::Device => builder.output_interface(self.index),
            Via::Unreachable => builder.priority(LAST).kind(RouteType::Unreachable),
            Via::BlackHole => builder.priority(LAST).kind(RouteType::BlackHole),
        };
        match source.filter(|_| via == Via::Device) {
            Some(source) => builder.pref_source(source).map_err(|e| e.to_string()),
            None => Ok(builder),
        }
        .map(RouteMessageBuilder::build)
    }

    /// The addresses of this host.
    async fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let mut found = Vec::new();
        let mut messages = self.handle.address().get().execute();
        while let Some(message) = messages.try_next().await.map_err(|e| e.to_string())? {
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let address = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            found.extend(local.or(address));
        }
        Ok(found)
    }
}

/// True if what was to be removed is not there: the kernel may have removed it, with an address or the
/// device.
fn is_gone(error: &rtnetlink::Error) -> bool {
    const ESRCH: i32 = 3;
    const ENODEV: i32 = 19;
    match error {
        rtnetlink::Error::NetlinkError(message) => {
            matches!(-message.raw_code(), ESRCH | ENODEV)
        }
        _ => false,
    }
}

/// The address that packets over `route` should have: one of ours inside the local selectors, and not
/// one that means something on this host or link only.
fn source_for(addresses: &[IpAddr], route: Route, local: &[TrafficSelector]) -> Option<IpAddr> {
    addresses.iter().copied().find(|&address| {
        let narrow = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        address.is_ipv4() == route.prefix.address.is_ipv4()
            && !narrow
            && local.iter().any(|ts| ts.contains_addr(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_inside_the_selectors_and_of_global_scope() {
        let parse = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let ours: Vec<IpAddr> =
            parse(&["127.0.0.1", "::1", "169.254.1.1", "192.0.2.7", "fe80::1", "2001:db8::7"]);
        let route = |text: &str| Route {
            prefix: Prefix { address: text.parse().unwrap(), len: 8 },
            via: Via::Device,
        };
        let selectors = |texts: &[&str]| -> Vec<TrafficSelector> {
            texts.iter().map(|t| t.parse().unwrap()).collect()
        };
        let source = |to, local: &[&str]| {
            source_for(&ours, route(to), &selectors(local)).map(|a| a.to_string())
        };
        assert_eq!(source("10.0.0.0", &["0.0.0.0/0"]).as_deref(), Some("192.0.2.7"));
        assert_eq!(source("2001:db8::", &["0.0.0.0/0", "::/0"]).as_deref(), Some("2001:db8::7"));
        assert_eq!(source("10.0.0.0", &["10.1.0.0/16"]), None, "a gateway without one");
        assert_eq!(source("2001:db8::", &["0.0.0.0/0"]), None);
    }
}
