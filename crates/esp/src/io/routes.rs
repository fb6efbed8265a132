//! Routes into the TUN device.
//!
//! Every remote traffic selector of a policy that protects, traps or drops becomes routes in a table
//! of the device's own, with a preferred source inside the local selectors if this host has such an
//! address. One rule per address family sends everything but marked packets to that table. Both are
//! gone when the [`Routes`] are dropped.
//!
//! Netlink is spoken on a thread of its own, so that [`Routes::install`] can be called from anywhere
//! and returns when the kernel has answered.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc as std_mpsc;
use std::thread;

use futures_util::TryStreamExt;
use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::rule::{RuleAction, RuleFlags, RuleMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::DEFAULT_MARK;
use super::prefix::{Prefix, cover};

/// Where routes go; the defaults are strongSwan's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOptions {
    /// `routing_table`.
    pub table: u32,
    /// `routing_table_prio`: priority of the rule.
    pub priority: u32,
    /// `fwmark`: packets with it are not sent to the device.
    pub mark: u32,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self { table: 220, priority: 220, mark: DEFAULT_MARK }
    }
}

/// The routes of one device.
#[derive(Debug)]
pub struct Routes {
    requests: Option<mpsc::UnboundedSender<Request>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
enum Change {
    Install(Vec<Prefix>, Vec<TrafficSelector>),
    Remove,
    Flush,
}

#[derive(Debug)]
struct Request {
    policy: PolicyId,
    change: Change,
    reply: std_mpsc::SyncSender<Result<(), String>>,
}

impl Routes {
    /// Sets the rules up for the device with this interface index. Needs CAP_NET_ADMIN.
    pub fn start(index: u32, options: RouteOptions) -> io::Result<Self> {
        let (requests, inbox) = mpsc::unbounded_channel();
        let (ready, started) = std_mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("ike-routes".into())
            .spawn(move || run(index, options, inbox, &ready))?;
        let died = || io::Error::other("the route thread died");
        started.recv().map_err(|_| died())?.map_err(io::Error::other)?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Adds the routes of `policy`, in the place of those its id had.
    pub fn install(&self, policy: &PolicySpec) -> Result<(), DataPlaneError> {
        if policy.action == PolicyAction::Pass {
            return self.remove(policy.id);
        }
        let mut prefixes: Vec<_> =
            policy.remote_ts.iter().flat_map(|ts| cover(ts.start, ts.end)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        self.ask(policy.id, Change::Install(prefixes, policy.local_ts.clone()))
    }

    /// Removes the routes of a policy.
    pub fn remove(&self, policy: PolicyId) -> Result<(), DataPlaneError> {
        self.ask(policy, Change::Remove)
    }

    /// Removes the routes of all policies.
    pub fn flush(&self) -> Result<(), DataPlaneError> {
        self.ask(PolicyId(0), Change::Flush)
    }

    fn ask(&self, policy: PolicyId, change: Change) -> Result<(), DataPlaneError> {
        let (reply, answer) = std_mpsc::sync_channel(1);
        let gone = || DataPlaneError("the route thread died".into());
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(Request { policy, change, reply }).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?.map_err(DataPlaneError)
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// The thread.
fn run(
    index: u32,
    options: RouteOptions,
    inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(index, options, inbox, ready)),
        Err(error) => _ = ready.send(Err(error.to_string())),
    }
}

async fn serve(
    index: u32,
    options: RouteOptions,
    mut inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) {
    let mut table = match Table::open(index, options).await {
        Ok(table) => table,
        Err(error) => {
            _ = ready.send(Err(error));
            return;
        }
    };
    _ = ready.send(Ok(()));
    while let Some(Request { policy, change, reply }) = inbox.recv().await {
        let result = match change {
            Change::Install(prefixes, local) => table.install(policy, prefixes, &local).await,
            Change::Remove => {
                table.remove(policy).await;
                Ok(())
            }
            Change::Flush => {
                table.flush().await;
                Ok(())
            }
        };
        _ = reply.send(result);
    }
    table.flush().await;
    table.remove_rules().await;
}

/// What the thread knows.
struct Table {
    handle: Handle,
    index: u32,
    options: RouteOptions,
    /// The prefixes of each policy; several may have the same one.
    installed: BTreeMap<PolicyId, BTreeSet<Prefix>>,
}

impl Table {
    async fn open(index: u32, options: RouteOptions) -> Result<Self, String> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|e| format!("netlink: {e}"))?;
        tokio::spawn(connection);
        let table = Self { handle, index, options, installed: BTreeMap::new() };
        table.remove_rules().await;
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
    async fn remove_rules(&self) {
        for ipv4 in [true, false] {
            while self.handle.rule().del(self.rule(ipv4)).execute().await.is_ok() {}
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

    async fn install(
        &mut self,
        policy: PolicyId,
        prefixes: Vec<Prefix>,
        local: &[TrafficSelector],
    ) -> Result<(), String> {
        let old = self.installed.remove(&policy).unwrap_or_default();
        let addresses = self.addresses().await?;
        let new: BTreeSet<_> = prefixes.into_iter().collect();
        for &prefix in &new {
            let source = source_for(&addresses, prefix, local);
            self.add_route(prefix, source).await?;
        }
        self.installed.insert(policy, new);
        self.drop_unused(old).await;
        Ok(())
    }

    async fn remove(&mut self, policy: PolicyId) {
        let old = self.installed.remove(&policy).unwrap_or_default();
        self.drop_unused(old).await;
    }

    async fn flush(&mut self) {
        let old = std::mem::take(&mut self.installed);
        self.drop_unused(old.into_values().flatten().collect()).await;
    }

    /// Removes the routes of `prefixes` that no policy has.
    async fn drop_unused(&mut self, prefixes: BTreeSet<Prefix>) {
        for prefix in prefixes {
            if self.installed.values().any(|used| used.contains(&prefix)) {
                continue;
            }
            let Ok(route) = self.route(prefix, None) else { continue };
            if let Err(error) = self.handle.route().del(route).execute().await {
                warn!(%error, ?prefix, "route not removed");
            }
        }
    }

    async fn add_route(&self, prefix: Prefix, source: Option<IpAddr>) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| {
            format!("route {}/{}: {error}", prefix.address, prefix.len)
        };
        let route = self.route(prefix, source).map_err(|e| text(&e))?;
        self.handle.route().add(route).replace().execute().await.map_err(|e| text(&e))?;
        debug!(prefix = %prefix.address, len = prefix.len, ?source, "route into the device");
        Ok(())
    }

    fn route(
        &self,
        prefix: Prefix,
        source: Option<IpAddr>,
    ) -> Result<rtnetlink::packet_route::route::RouteMessage, String> {
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(prefix.address, prefix.len)
            .map_err(|e| e.to_string())?
            .output_interface(self.index)
            .table_id(self.options.table);
        match source {
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

/// The address that packets to `prefix` should have: one of ours inside the local selectors, and not
/// one that means something on this host or link only.
fn source_for(addresses: &[IpAddr], prefix: Prefix, local: &[TrafficSelector]) -> Option<IpAddr> {
    addresses.iter().copied().find(|&address| {
        let narrow = match address {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
        };
        address.is_ipv4() == prefix.address.is_ipv4()
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
        let prefix = |text: &str| Prefix { address: text.parse().unwrap(), len: 8 };
        let selectors = |texts: &[&str]| -> Vec<TrafficSelector> {
            texts.iter().map(|t| t.parse().unwrap()).collect()
        };
        let source = |to, local: &[&str]| {
            source_for(&ours, prefix(to), &selectors(local)).map(|a| a.to_string())
        };
        assert_eq!(source("10.0.0.0", &["0.0.0.0/0"]).as_deref(), Some("192.0.2.7"));
        assert_eq!(source("2001:db8::", &["0.0.0.0/0", "::/0"]).as_deref(), Some("2001:db8::7"));
        assert_eq!(source("10.0.0.0", &["10.1.0.0/16"]), None, "a gateway without one");
        assert_eq!(source("2001:db8::", &["0.0.0.0/0"]), None);
    }
}
