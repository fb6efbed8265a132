//! The thread: requests, and changes of the system that routes depend on.

use std::io;
use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use netlink_packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::kernel::{Kernel, Netlink};
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
    leftovers: Leftovers,
    mut inbox: mpsc::UnboundedReceiver<Request>,
    ready: &std_mpsc::SyncSender<Result<Vec<Prefix>, String>>,
) {
    let opened = async {
        let failed = |e: io::Error| format!("netlink: {e}");
        let kernel = Netlink::open().map_err(failed)?;
        let port = kernel.port();
        let served = Served::open(kernel, options, leftovers, Instant::now()).await?;
        Ok((news(options.table, port).map_err(failed)?, served))
    };
    let (news, mut served) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            _ = ready.send(Err(error));
            return;
        }
    };
    _ = ready.send(Ok(served.blocked().await));
    let mut news = pin!(news);
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => {
                let Some(Request { change, reply }) = request else { break };
                _ = reply.send(served.handle(change).await);
            }
            Some(news) = news.next() => served.hear(news, Instant::now()),
            () = sleep_until(served.due().into()) => {
                let begun = Instant::now();
                served.act(begun).await;
                served.pause(begun, Instant::now());
            }
        }
    }
    served.end(Instant::now()).await;
}

/// The table, and when to look at the host. It has no clock of its own.
pub(super) struct Served<K> {
    table: Table<K>,
    leftovers: Leftovers,
    /// When routes of an earlier run go that no policy has.
    settled: Option<Instant>,
    /// The next look.
    look: Instant,
    /// A look at very many routes does not follow the last one at once.
    soonest: Instant,
}

impl<K: Kernel> Served<K> {
    pub(super) async fn open(
        kernel: K,
        options: RouteOptions,
        leftovers: Leftovers,
        now: Instant,
    ) -> Result<Self, String> {
        let table = Table::open(kernel, options, leftovers).await?;
        let settled = (leftovers == Leftovers::Settle).then(|| now + LEFTOVERS_STAY);
        // What nothing tells of is found at the regular looks. Without a rule for IPv6, the first one is at once.
        let look = if table.leads(false) { now + REGULAR } else { now };
        Ok(Self { table, leftovers, settled, look, soonest: now })
    }

    /// What an earlier run has blocked.
    pub(super) async fn blocked(&self) -> Vec<Prefix> {
        self.table.blocked().await
    }

    pub(super) async fn handle(&mut self, change: Change) -> Result<(), String> {
        let table = &mut self.table;
        match change {
            Change::Install(policy, routes, local) => {
                return table.install(policy, routes, local).await;
            }
            Change::Remove(policy) => table.remove(policy).await,
            Change::Flush => table.flush().await,
            Change::ForgetLeftovers => table.forget_leftovers().await,
            Change::Leftovers(what) => self.leftovers = what,
            Change::Block => table.block().await,
        }
        Ok(())
    }

    /// Something on the host has changed.
    pub(super) fn hear(&mut self, news: News, now: Instant) {
        if news == News::Outside {
            self.table.outdated();
        }
        self.look = self.look.min((now + SETTLE).max(self.soonest));
    }

    /// When [`Self::act`] is to be called.
    pub(super) fn due(&self) -> Instant {
        self.settled.into_iter().fold(self.look, Instant::min)
    }

    /// Does what is due at `now`.
    pub(super) async fn act(&mut self, now: Instant) {
        if self.look <= now {
            let due = self.table.mend(now).await;
            // What could not be removed before.
            self.table.forget_others().await;
            let regular = now + REGULAR;
            self.look = due.map_or(regular, |due| due.min(regular));
        }
        if self.settled.is_some_and(|settled| settled <= now) {
            self.settled = None;
            self.table.forget_leftovers().await;
        }
    }

    /// A look has taken from `begun` to `now`.
    fn pause(&mut self, begun: Instant, now: Instant) {
        self.soonest = now + (now - begun).saturating_mul(PAUSE).min(LONGEST);
    }

    /// The process ends. What is to stay is put back first, however often that was done lately.
    pub(super) async fn end(mut self, now: Instant) {
        if self.leftovers != Leftovers::Remove {
            self.table.mend_at_last(now).await;
        }
        match self.leftovers {
            Leftovers::Remove => {
                self.table.flush().await;
                self.table.forget_leftovers().await;
                self.table.remove_rules().await;
            }
            // A start that failed has nothing to leave.
            Leftovers::Settle if self.table.is_empty().await => self.table.remove_rules().await,
            Leftovers::Settle | Leftovers::Keep => {}
        }
    }
}

/// Something on the host has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
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
        let own = message.header.port_number == port;
        let news = match message.payload {
            NetlinkPayload::InnerMessage(message) => heard(&message, own, table),
            // Some were lost.
            NetlinkPayload::Overrun(_) | NetlinkPayload::Error(_) => Some(News::Outside),
            _ => None,
        };
        std::future::ready(news)
    }))
}

/// What a message of the kernel means for the routes in `table`; this thread has caused it if `own` is set.
pub(super) fn heard(message: &RouteNetlinkMessage, own: bool, table: u32) -> Option<News> {
    use RouteNetlinkMessage as Message;
    match message {
        Message::NewAddress(_) | Message::DelAddress(_) => Some(News::Outside),
        Message::NewRoute(route) | Message::DelRoute(route) if table_of(route) != table => {
            Some(News::Outside)
        }
        Message::NewRoute(_) | Message::DelRoute(_) | Message::NewRule(_) | Message::DelRule(_) => {
            (!own).then_some(News::Ours)
        }
        _ => None,
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
