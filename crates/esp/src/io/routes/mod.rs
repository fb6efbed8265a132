//! Routes into the TUN device.
//!
//! Every remote traffic selector of a policy that protects, traps or drops becomes routes in a table
//! of the device's own, with a preferred source inside the local selectors if this host has such an
//! address. One rule per address family sends everything but marked packets to that table. Both are
//! gone when the [`Routes`] are dropped.
//!
//! A shunt, which stands in for a child that is not up, becomes unreachable (or, if it is silent,
//! black-hole) routes with a metric that lets every other route to the same prefix come first. They do
//! not need the device, so they go on keeping traffic from leaving in clear when the device is gone with
//! a daemon that crashed; the next one removes them.
//!
//! Netlink is spoken on a thread of its own, so that [`Routes::install`] can be called from anywhere
//! and returns when the kernel has answered. The thread also hears of addresses that come and go: the
//! kernel drops the routes whose preferred source has gone.

use std::collections::BTreeSet;
use std::io;
use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::thread;

use futures_util::{Stream, StreamExt};
use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::mpsc;

use super::DEFAULT_MARK;
use super::prefix::cover;
use table::{Route, Table, Via};

mod table;

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
    Install(BTreeSet<Route>, Vec<TrafficSelector>),
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
        let via = match policy.action {
            PolicyAction::Pass => return self.remove(policy.id),
            PolicyAction::Protect { .. } | PolicyAction::Trap | PolicyAction::Drop => Via::Device,
            PolicyAction::Shunt { silent: false } => Via::Unreachable,
            PolicyAction::Shunt { silent: true } => Via::BlackHole,
        };
        let prefixes = policy.remote_ts.iter().flat_map(|ts| cover(ts.start, ts.end));
        let routes = prefixes.map(|prefix| Route { prefix, via }).collect();
        self.ask(policy.id, Change::Install(routes, policy.local_ts.clone()))
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
    let opened = async { Ok((addresses_changed()?, Table::open(index, options).await?)) };
    let (changes, mut table) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            _ = ready.send(Err(error));
            return;
        }
    };
    _ = ready.send(Ok(()));
    let mut changes = pin!(changes);
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => {
                let Some(Request { policy, change, reply }) = request else { break };
                let result = match change {
                    Change::Install(routes, local) => table.install(policy, routes, local).await,
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
            Some(()) = changes.next() => table.refresh().await,
        }
    }
    table.flush().await;
    table.remove_rules().await;
}

/// Yields when this host has got or lost an address.
fn addresses_changed() -> Result<impl Stream<Item = ()>, String> {
    let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
    let (connection, _, messages) =
        new_multicast_connection(&groups).map_err(|e| format!("netlink: {e}"))?;
    tokio::spawn(connection);
    Ok(messages.filter_map(|(message, _)| {
        let changed = matches!(
            message.payload,
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_)
            )
        );
        std::future::ready(changed.then_some(()))
    }))
}
