//! The thread: requests, and changes of the system that routes depend on.

use std::io;
use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::message::table_of;
use super::prefix::Prefix;
use super::table::Table;
use super::{Change, Leftovers, Request, RouteOptions, SETTLE as LEFTOVERS_STAY};

/// Changes come in bursts, on a router with a dynamic protocol in very long ones.
const SETTLE: Duration = Duration::from_millis(100);

/// How long until a look at the host that no change has called for.
const REGULAR: Duration = Duration::from_secs(60);

/// The pause after a look, in its own length, and at most: what is missing is to be back within a second.
const PAUSE: u32 = 20;
const LONGEST: Duration = Duration::from_millis(600);

pub(super) fn run(
    options: RouteOptions,
    leftovers: Leftovers,
    inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<Vec<Prefix>, String>>,
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
    ready: &std_mpsc::SyncSender<Result<Vec<Prefix>, String>>,
) {
    let opened = async {
        let table = Table::open(options, leftovers).await?;
        let news = news(options.table, table.port()).map_err(|e| format!("netlink: {e}"))?;
        Ok((news, table))
    };
    let (news, mut table) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            _ = ready.send(Err(error));
            return;
        }
    };
    _ = ready.send(Ok(table.blocked().await));
    let mut news = pin!(news);
    let mut settled = (leftovers == Leftovers::Settle).then(|| Instant::now() + LEFTOVERS_STAY);
    // What nothing tells of is found here.
    let mut look = Instant::now() + REGULAR;
    // A look at very many routes does not follow the last one at once.
    let mut soonest = Instant::now();
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => {
                let Some(Request { change, reply }) = request else { break };
                _ = reply.send(handle(&mut table, &mut leftovers, change).await);
            }
            Some(news) = news.next() => {
                if news == News::Outside {
                    table.outdated();
                }
                look = look.min((Instant::now() + SETTLE).max(soonest));
            }
            () = sleep_until(look) => {
                let begun = Instant::now();
                let due = table.mend().await;
                let now = Instant::now();
                soonest = now + (now - begun).saturating_mul(PAUSE).min(LONGEST);
                look = due.map_or(now + REGULAR, |due| Instant::from_std(due).min(now + REGULAR));
            }
            () = sleep_until(settled.unwrap_or(look)), if settled.is_some() => {
                settled = None;
                table.forget_leftovers().await;
            }
        }
    }
    match leftovers {
        Leftovers::Remove => {
            table.flush().await;
            table.forget_leftovers().await;
            table.remove_rules().await;
        }
        // A start that failed has nothing to leave.
        Leftovers::Settle if table.is_empty().await => table.remove_rules().await,
        Leftovers::Settle | Leftovers::Keep => {}
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
        Change::Block => table.block().await,
    }
    Ok(())
}

/// Something on the host has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Perhaps an address, or a way to a peer.
    Outside,
    /// A rule, or a route of our table, and another program has changed it.
    Ours,
}

/// Yields when another program than this thread, whose netlink port is `port`, has changed addresses, routes or rules.
fn news(table: u32, port: u32) -> io::Result<impl Stream<Item = News>> {
    let groups = [
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
        MulticastGroup::Ipv4Rule,
        MulticastGroup::Ipv6Rule,
    ];
    let (connection, _, messages) = new_multicast_connection(&groups)?;
    tokio::spawn(connection);
    Ok(messages.filter_map(move |(message, _)| {
        use RouteNetlinkMessage as Message;
        let own = message.header.port_number == port;
        let news = match message.payload {
            NetlinkPayload::InnerMessage(Message::NewAddress(_) | Message::DelAddress(_)) => {
                Some(News::Outside)
            }
            NetlinkPayload::InnerMessage(Message::NewRoute(route) | Message::DelRoute(route)) => {
                match table_of(&route) == table {
                    true => (!own).then_some(News::Ours),
                    false => Some(News::Outside),
                }
            }
            NetlinkPayload::InnerMessage(Message::NewRule(_) | Message::DelRule(_)) => {
                (!own).then_some(News::Ours)
            }
            // Some were lost.
            NetlinkPayload::Overrun(_) | NetlinkPayload::Error(_) => Some(News::Outside),
            _ => None,
        };
        std::future::ready(news)
    }))
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
