//! A host for tests: links, addresses of IPv4, routing rules and routes, which other programs may change as well.
//!
//! The rules and routes of this program are in its tables like those of others, set by the code that sets them on a real
//! host. So a question that this program asks meets its own routes here, too. There is no clock: the caller says when
//! [`SimThread`] acts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::FutureExt;
use ipsec_types::dataplane::DataPlaneError;

use super::prefix::Prefix;
use super::serve::Served;
use super::{Ask, Change, Leftovers, RouteOptions, Routes};
use state::{News, State};

mod kernel;
mod state;
#[cfg(test)]
mod tests;

use kernel::SimKernel;
pub use state::{Hand, Road};

/// The index of the loopback device.
pub const LOOPBACK: u32 = 1;

/// A simulated host. Clones are the same host.
#[derive(Clone, Default)]
pub struct SimHost(Arc<Mutex<State>>);

impl SimHost {
    /// A host with a loopback device and nothing else.
    pub fn new() -> Self {
        let host = Self::default();
        host.add_link(true);
        host.set_link(LOOPBACK, true);
        host
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a link that is down. Returns its index.
    pub fn add_link(&self, loopback: bool) -> u32 {
        self.lock().add_link(loopback)
    }

    /// Sets a link up or down. Its routes go with it; its addresses stay.
    pub fn set_link(&self, index: u32, up: bool) {
        self.lock().set_link(index, up);
    }

    /// Removes a link with all that it has.
    pub fn remove_link(&self, index: u32) {
        self.lock().remove_link(index);
    }

    /// Gives a link an address, and, if it is up, the route to the network of `len` bits.
    pub fn add_address(&self, index: u32, address: Ipv4Addr, len: u8) {
        self.lock().add_address(index, address, len);
    }

    /// Removes an address, and the routes that name it as their source; with the last of a link all routes by that.
    pub fn remove_address(&self, address: Ipv4Addr) {
        self.lock().remove_address(address);
    }

    /// Adds a route of another program to the main table, by a link that is up.
    pub fn add_route(&self, to: Ipv4Addr, len: u8, device: u32, gateway: Option<Ipv4Addr>) {
        self.lock().add_main_route(Prefix { address: to.into(), len }, device, gateway);
    }

    /// Removes such a route.
    pub fn remove_route(&self, to: Ipv4Addr, len: u8) {
        self.lock().remove_main_route(Prefix { address: to.into(), len });
    }

    /// Another program takes something away. Returns how many rules and routes it was.
    pub fn take_away(&self, hand: Hand) -> usize {
        self.lock().take_away(hand)
    }

    /// Where a packet with `mark` goes. `from` is its source, if it has one yet. None if the host has no route, or one that
    /// leads nowhere.
    pub fn road(&self, from: Option<IpAddr>, to: IpAddr, mark: u32) -> Option<Road> {
        self.lock().road(from, to, mark)
    }

    /// The addresses that the watch of this host tells of ([`HostWatch::addresses`](super::HostWatch::addresses)).
    pub fn usable(&self) -> Vec<IpAddr> {
        self.lock().usable()
    }

    /// True if the host has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.lock().has(address)
    }

    /// True if there was news for [`HostWatch`](super::HostWatch) since the last call. `table` is that of this program.
    pub fn has_news(&self, table: u32) -> bool {
        let news = std::mem::take(&mut self.lock().for_watch);
        news.iter().any(|(message, _)| super::watch::is_news(message, table))
    }

    /// The rules and routes, one a line, for the story of a failure.
    pub fn story(&self) -> String {
        self.lock().story()
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimHost")
    }
}

/// The thread of [`Routes`] on a simulated host. It does nothing by itself. A process that dies drops it.
#[derive(Clone)]
pub struct SimThread {
    served: Arc<Mutex<Option<Served<SimKernel>>>>,
    host: SimHost,
    table: u32,
}

/// A future that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a simulated kernel answers at once")
}

impl Routes {
    /// The routes of all policies of one data plane on a simulated host. `now` is when that begins.
    ///
    /// # Errors
    /// The host refuses the rules.
    pub fn simulated(
        host: &SimHost,
        options: RouteOptions,
        leftovers: Leftovers,
        now: Instant,
    ) -> Result<(Self, SimThread), String> {
        let served = at_once(Served::open(SimKernel(host.clone()), options, leftovers, now))?;
        let blocked = at_once(served.blocked()).iter().map(Prefix::selector).collect();
        // It hears what comes after its start.
        host.lock().for_routes.clear();
        let served = Arc::new(Mutex::new(Some(served)));
        let thread = SimThread { served, host: host.clone(), table: options.table };
        Ok((Self { keeper: Box::new(thread.clone()), blocked }, thread))
    }
}

impl SimThread {
    fn lock(&self) -> MutexGuard<'_, Option<Served<SimKernel>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what has changed on the host.
    pub fn hear(&self, now: Instant) {
        let news: Vec<News> = std::mem::take(&mut self.host.lock().for_routes);
        let mut served = self.lock();
        for (message, own) in &news {
            if let (Some(news), Some(served)) =
                (super::serve::heard(message, *own, self.table), served.as_mut())
            {
                served.hear(news, now);
            }
        }
    }

    /// When it acts next.
    pub fn due(&self) -> Option<Instant> {
        self.lock().as_ref().map(Served::due)
    }

    /// Does what is due up to `until`.
    pub fn act_until(&self, until: Instant) {
        let mut served = self.lock();
        while let Some((due, served)) = served.as_mut().map(|one| (one.due(), one))
            && due <= until
        {
            at_once(served.act(due));
        }
    }

    /// The process ends in order at `now`.
    pub fn end(&self, now: Instant) {
        let served = self.lock().take();
        if let Some(served) = served {
            at_once(served.end(now));
        }
    }
}

impl Ask for SimThread {
    fn ask(&self, change: Change) -> Result<(), DataPlaneError> {
        match self.lock().as_mut() {
            Some(served) => at_once(served.handle(change)).map_err(DataPlaneError),
            None => Err(DataPlaneError("the process has ended".into())),
        }
    }
}

impl fmt::Debug for SimThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimThread")
    }
}
