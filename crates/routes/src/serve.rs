//! The thread: requests, and changes of the system that routes depend on.

use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::table::{Table, table_of};
use super::{Change, Leftovers, Request, RouteOptions};

/// Changes come in bursts, on a router with a dynamic protocol in very long ones.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) fn run(
    options: RouteOptions,
    leftovers: Leftovers,
    inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(options, leftovers, inbox, ready)),
        Err(error) => _ = ready.send(Err(error.to_string())),
    }
}

async fn serve(
    options: RouteOptions,
    mut leftovers: Leftovers,
    mut inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) {
    let opened = async { Ok((changes(options.table)?, Table::open(options, leftovers).await?)) };
    let (changes, mut table) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            _ = ready.send(Err(error));
            return;
        }
    };
    _ = ready.send(Ok(()));
    let mut changes = pin!(changes);
    let mut refresh: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => {
                let Some(Request { change, reply }) = request else { break };
                _ = reply.send(handle(&mut table, &mut leftovers, change).await);
            }
            Some(()) = changes.next() => {
                table.outdated();
                refresh = refresh.or_else(|| Instant::now().checked_add(SETTLE));
            }
            () = due(refresh) => {
                refresh = None;
                table.refresh().await;
            }
        }
    }
    if leftovers == Leftovers::Remove {
        table.flush().await;
        table.forget_leftovers().await;
        table.remove_rules().await;
    }
}

async fn handle(
    table: &mut Table,
    leftovers: &mut Leftovers,
    change: Change,
) -> Result<(), String> {
    match change {
        Change::Install(policy, routes, local) => {
            return table.install(policy, routes, local).await;
        }
        Change::Remove(policy) => table.remove(policy).await,
        Change::Flush => table.flush().await,
        Change::ForgetLeftovers => table.forget_leftovers().await,
        Change::Leftovers(what) => *leftovers = what,
    }
    Ok(())
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Yields when this host has got or lost an address, or a route outside `table`.
pub(super) fn changes(table: u32) -> Result<impl Stream<Item = ()>, String> {
    let groups = [
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let (connection, _, messages) =
        new_multicast_connection(&groups).map_err(|e| format!("netlink: {e}"))?;
    tokio::spawn(connection);
    Ok(messages.filter_map(move |(message, _)| {
        let changed = match message.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_),
            ) => true,
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route),
            ) => table_of(&route) != table,
            // Some were lost.
            NetlinkPayload::Overrun(_) | NetlinkPayload::Error(_) => true,
            _ => false,
        };
        std::future::ready(changed.then_some(()))
    }))
}
