//! The networks that this host reaches without its default route, and notice of changes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use rtnetlink::{Handle, RouteMessageBuilder, new_connection};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::message::{OURS, table_of};
use super::serve::changes;

/// The table of the kernel's own routes to addresses of this host.
const LOCAL: u32 = 255;

/// How long the watch collects changes before it reads the routes: changes come in bursts.
const SETTLE: Duration = Duration::from_millis(20);

/// The least time between two readings: a router may have very many routes.
const PAUSE: Duration = Duration::from_millis(200);

/// How long until a failed reading is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// A network with a route in the main table, or an address of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    /// Its first address.
    pub address: IpAddr,
    /// The length of its prefix in bits; not 0.
    pub len: u8,
    /// True if the network is on a link of this host, without a router before it.
    pub attached: bool,
    /// True if it is an address of this host itself. Addresses of the loopback device are left out.
    pub own: bool,
}

/// Watches the networks with routes in the main table. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct NearWatch {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    found: Mutex<BTreeSet<Near>>,
    changed: AtomicBool,
    /// Somebody wants to know. Until then nothing is read.
    wanted: AtomicBool,
    stir: Notify,
    end: Notify,
}

impl NearWatch {
    /// Begins to watch. Changes of routes in `table` are ignored. The thread of the watch calls `bell` when
    /// [`Self::take`] has new networks. Needs no privilege.
    ///
    /// # Errors
    /// Netlink is not available.
    pub fn start(table: u32, bell: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (ready, started) = std_mpsc::sync_channel(1);
        let known = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ike-near".into())
            .spawn(move || run(table, &known, &bell, &ready))?;
        let died = || io::Error::other("the thread that watches routes died");
        started.recv().map_err(|_| died())?.map_err(io::Error::other)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Turns the watch on or off. The first reading of the routes follows soon after it is turned on.
    pub fn want(&self, wanted: bool) {
        if !self.shared.wanted.swap(wanted, Ordering::AcqRel) && wanted {
            self.shared.stir.notify_one();
        }
    }

    /// The networks, if they have changed since the last call.
    pub fn take(&self) -> Option<BTreeSet<Near>> {
        let changed = self.shared.changed.swap(false, Ordering::AcqRel);
        changed.then(|| self.shared.lock().clone())
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<Near>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NearWatch {
    fn drop(&mut self) {
        self.shared.end.notify_one();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn run(
    table: u32,
    shared: &Shared,
    bell: &impl Fn(),
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error.to_string()))),
    };
    runtime.block_on(async {
        tokio::select! {
            () = shared.end.notified() => {}
            result = watch(table, shared, bell, ready) => if let Err(error) = result {
                _ = ready.send(Err(error));
            }
        }
    });
}

async fn watch(
    table: u32,
    shared: &Shared,
    bell: &impl Fn(),
    ready: &std_mpsc::SyncSender<Result<(), String>>,
) -> Result<(), String> {
    let (connection, handle, _) = new_connection().map_err(|e| format!("netlink: {e}"))?;
    tokio::spawn(connection);
    let mut news = std::pin::pin!(changes(table)?);
    _ = ready.send(Ok(()));
    let mut failed = false;
    loop {
        if shared.wanted.load(Ordering::Acquire) {
            settle(&mut news).await;
            match read(&handle).await {
                Ok(now) => {
                    failed = false;
                    let mut found = shared.lock();
                    if *found != now {
                        debug!(networks = ?now, "routes of the main table");
                        *found = now;
                        drop(found);
                        shared.changed.store(true, Ordering::Release);
                        bell();
                    }
                }
                Err(error) => {
                    if !failed {
                        warn!(%error, "main routing table: cannot be read; exemptions from tunnels stay as they are until a later try");
                    }
                    failed = true;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        let retry = async {
            match failed {
                true => tokio::time::sleep(AGAIN).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.stir.notified() => {}
            news = news.next() => if news.is_none() {
                warn!("main routing table: netlink has ended; restart the daemon to follow changes of routes");
                return std::future::pending().await;
            },
            () = retry => {}
        }
    }
}

/// Lets a burst pass.
async fn settle(news: &mut (impl Stream<Item = ()> + Unpin)) {
    let more = async { while news.next().await.is_some() {} };
    _ = tokio::time::timeout(SETTLE, more).await;
}

/// The networks with routes in the main table, and this host's addresses. Needs no privilege. Blocks until the kernel has
/// answered; not for a thread of an asynchronous runtime.
///
/// # Errors
/// Netlink is not available.
pub fn networks() -> io::Result<BTreeSet<Near>> {
    let ask = async {
        let (connection, handle, _) = new_connection()?;
        tokio::spawn(connection);
        read(&handle).await.map_err(io::Error::other)
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ask)
}

/// The prefixes of the main table, without default routes, and this host's addresses. The kernel tells of all tables.
async fn read(handle: &Handle) -> Result<BTreeSet<Near>, String> {
    let main = u32::from(RouteHeader::RT_TABLE_MAIN);
    let any = [
        RouteMessageBuilder::<Ipv4Addr>::new().table_id(main).build(),
        RouteMessageBuilder::<Ipv6Addr>::new().table_id(main).build(),
    ];
    let (mut found, mut all) = (BTreeMap::new(), BTreeSet::new());
    for request in any {
        let routes: Vec<RouteMessage> =
            match handle.route().get(request).execute().try_collect().await {
                Ok(routes) => routes,
                // A host without IPv6.
                Err(error) if !found.is_empty() => {
                    debug!(%error, "no routes of IPv6");
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
        for (address, len, attached) in
            routes.iter().filter(|r| table_of(r) == main).filter_map(near)
        {
            // Of several routes to one network one is enough.
            *found.entry((address, len)).or_insert(attached) |= attached;
        }
        all.extend(routes.iter().filter_map(own));
    }
    let near = |((address, len), attached)| Near { address, len, attached, own: false };
    all.extend(found.into_iter().map(near));
    Ok(all)
}

fn own(route: &RouteMessage) -> Option<Near> {
    let len = route.header.destination_prefix_length;
    if route.header.kind != RouteType::Local || table_of(route) != LOCAL {
        return None;
    }
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(IpAddr::from(*to)),
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some(IpAddr::from(*to)),
        _ => None,
    })?;
    let whole = len == if address.is_ipv4() { 32 } else { 128 };
    (whole && !address.is_loopback()).then_some(Near { address, len, attached: true, own: true })
}

fn near(route: &RouteMessage) -> Option<(IpAddr, u8, bool)> {
    let len = route.header.destination_prefix_length;
    if route.header.kind != RouteType::Unicast || route.header.protocol == OURS || len == 0 {
        return None;
    }
    let (mut address, mut routed) = (None, false);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(to)) => address = Some((*to).into()),
            RouteAttribute::Destination(RouteAddress::Inet6(to)) => address = Some((*to).into()),
            // A nexthop object may be a router, which the kernel does not always name beside it.
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::NhId(_) => routed = true,
            _ => {}
        }
    }
    Some((address?, len, !routed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(more: &[RouteAttribute]) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.destination_prefix_length = 16;
        route.header.kind = RouteType::Unicast;
        let to = RouteAddress::Inet(Ipv4Addr::new(10, 20, 0, 0));
        route.attributes = vec![RouteAttribute::Destination(to)];
        route.attributes.extend_from_slice(more);
        route
    }

    /// Faults: in `own`, take routes of any kind; of any table.
    #[test]
    fn an_address_of_this_host_has_a_route_of_the_kernels() {
        let local = |address: &str, len, table, kind| {
            let to = RouteAddress::Inet(address.parse().unwrap());
            let mut route = route(&[RouteAttribute::Table(table)]);
            route.attributes[0] = RouteAttribute::Destination(to);
            (route.header.destination_prefix_length, route.header.kind) = (len, kind);
            own(&route).map(|near| near.address.to_string())
        };
        let kind = RouteType::Local;
        assert_eq!(local("192.0.2.1", 32, 255, kind).as_deref(), Some("192.0.2.1"));
        assert_eq!(local("127.0.0.1", 32, 255, kind), None);
        assert_eq!(local("10.0.0.0", 8, 255, kind), None);
        assert_eq!(local("192.0.2.1", 32, 7, kind), None);
        assert_eq!(local("192.0.2.255", 32, 255, RouteType::Broadcast), None);
    }

    /// With `net.ipv4.nexthop_compat_mode = 0` a route by a nexthop object has its number alone. Taken for a network of a
    /// link, it would be exempt from a full tunnel and reached in clear.
    ///
    /// Fault: in `near`, leave `NhId` out.
    #[test]
    fn a_route_by_a_nexthop_object_is_no_network_of_a_link() {
        let attached = |more: &[RouteAttribute]| near(&route(more)).map(|(.., attached)| attached);
        assert_eq!(attached(&[RouteAttribute::Oif(2)]), Some(true));
        assert_eq!(attached(&[RouteAttribute::NhId(7)]), Some(false));
        let router = RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(
            attached(&[RouteAttribute::Gateway(router), RouteAttribute::Oif(2)]),
            Some(false)
        );
    }
}
