//! The host of the daemon: links, addresses and routes, the process on it, and other programs.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esp::io::Routed;
use ike_config::Ends;
use ike_proto::config::ConnectionConfig;
use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, Reply, TrafficSelector,
};
use ike_tests::road::{Exit, Mirror, PolicyChange, Road};
use ike_tokio::net::socket::SocketOptions;
use ike_tokio::net::source::asking;
use routes::sim::{Hand, LOOPBACK, SimHost, SimThread};
use routes::{Leftovers, RouteOptions, Routes};

/// How long the watch of the host waits for more news.
const SETTLE: Duration = Duration::from_millis(100);

/// The router behind the uplink, and the length of its network.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const ANYWHERE: (Ipv4Addr, u8) = (Ipv4Addr::UNSPECIFIED, 0);
/// The address in the network of this host's side.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// The host.
pub struct Host {
    pub sim: SimHost,
    pub options: RouteOptions,
    /// The link to the others, and that of this host's side.
    pub uplink: u32,
    pub lan: u32,
    /// The kernel has nf_tables.
    second_line: bool,
    process: RefCell<Option<Process>>,
    /// When the daemon hears that something has changed.
    news_at: RefCell<Option<Duration>>,
}

/// The daemon's process, as far as it is on the host.
struct Process {
    tunnel: u32,
    routed: Arc<Mutex<Option<Routed>>>,
    thread: SimThread,
}

impl Host {
    /// A host whose links are down.
    pub fn new(second_line: bool, on_loopback: Option<Ipv4Addr>) -> Self {
        let sim = SimHost::new();
        let (uplink, lan) = (sim.add_link(false), sim.add_link(false));
        if let Some(address) = on_loopback {
            sim.add_address(LOOPBACK, address, 32);
        }
        let (process, news_at) = (RefCell::default(), RefCell::default());
        let options = RouteOptions::default();
        Self { sim, options, uplink, lan, second_line, process, news_at }
    }

    // ---- what the network and its programs do ----

    /// The uplink comes up with `address`.
    pub fn connect(&self, address: Ipv4Addr) {
        self.sim.set_link(self.uplink, true);
        self.sim.add_address(self.uplink, address, 24);
        // The link may have been down without the loss of its address.
        self.sim.add_route(Ipv4Addr::new(10, 0, 0, 0), 24, self.uplink, None);
        self.default_route(true);
    }

    /// The default route comes or goes.
    pub fn default_route(&self, is_there: bool) {
        let (to, len) = ANYWHERE;
        match is_there {
            true => self.sim.add_route(to, len, self.uplink, Some(ROUTER)),
            false => self.sim.remove_route(to, len),
        }
    }

    /// The network of this host's side comes up.
    pub fn connect_lan(&self) {
        self.sim.set_link(self.lan, true);
        self.sim.add_address(self.lan, INSIDE, 16);
        self.sim.add_route(Ipv4Addr::new(10, 1, 0, 0), 16, self.lan, None);
    }

    /// Routes come and go that concern nothing of the daemon.
    pub fn stir(&self) {
        for n in 0..5 {
            let other = Ipv4Addr::new(172, 16, n, 0);
            self.sim.add_route(other, 24, self.uplink, Some(ROUTER));
            self.sim.remove_route(other, 24);
        }
    }

    /// Another program takes something of the daemon's away. False if nothing is there.
    pub fn take_away(&self, hand: Hand) -> bool {
        self.sim.take_away(hand) > 0
    }

    // ---- the process ----

    /// The daemon starts: its device, its rules and routes. Returns what an earlier run has blocked.
    pub fn start(&self, now: Instant) -> Vec<(TrafficSelector, TrafficSelector)> {
        let tunnel = self.sim.add_link(false);
        self.sim.set_link(tunnel, true);
        let started = Routes::simulated(&self.sim, self.options, Leftovers::Settle, now);
        let (routes, thread) = started.expect("a host that takes rules");
        let routed = Routed::new(routes, tunnel);
        let any = TrafficSelector::any_v4();
        let blocked = routed.blocked().iter().map(|to| (any, *to)).collect();
        let routed = Arc::new(Mutex::new(Some(routed)));
        self.process.replace(Some(Process { tunnel, routed, thread }));
        blocked
    }

    /// Keeps the routes in step with the policies of a data plane.
    pub fn mirror(&self) -> Mirror {
        let process = self.process.borrow();
        let routed = process.as_ref().map(|process| Arc::clone(&process.routed));
        Mirror(Box::new(move |change| {
            let Some(routed) = &routed else { return Ok(()) };
            route(routed, change)
        }))
    }

    /// A policy of the driver's own.
    pub fn apply(&self, change: &PolicyChange) {
        if let Some(process) = &*self.process.borrow() {
            route(&process.routed, change).expect("routes that a host takes");
        }
    }

    /// The process ends: killed, or in order. What is `kept` stays blocked.
    pub fn end(&self, end: End, now: Instant) {
        let Some(Process { tunnel, routed, thread }) = self.process.take() else { return };
        let mut routed = routed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut routed) = routed.take() {
            match end {
                End::Killed => {}
                End::Restart => routed.block().expect("a thread that runs"),
                End::Stop => routed.flush().expect("a thread that runs"),
            }
        }
        if end != End::Killed {
            thread.end(now);
        }
        self.sim.remove_link(tunnel);
        self.news_at.replace(None);
    }

    /// How many rules and routes there are of the daemon.
    pub fn left(&self) -> usize {
        self.sim.take_away(Hand::Rules(self.options.priority))
            + self.sim.take_away(Hand::Table(self.options.table))
    }

    /// When something happens by itself. Time is `origin` and that long.
    pub fn wake(&self, origin: Instant) -> Option<Duration> {
        let due = self.process.borrow().as_ref().and_then(|process| process.thread.due());
        let due = due.map(|at| at.saturating_duration_since(origin));
        due.into_iter().chain(*self.news_at.borrow()).min()
    }

    /// Does what is due by `now`. True if the daemon hears that something has changed.
    pub fn act(&self, origin: Instant, now: Duration) -> bool {
        let process = self.process.borrow();
        let Some(process) = &*process else { return false };
        process.thread.hear(origin + now);
        process.thread.act_until(origin + now);
        let mut news_at = self.news_at.borrow_mut();
        if self.sim.has_news(self.options.table) && news_at.is_none() {
            *news_at = Some(now + SETTLE);
        }
        news_at.take_if(|at| *at <= now).is_some()
    }

    /// The daemon's sockets.
    fn sockets(&self) -> SocketOptions {
        SocketOptions { mark: Some(self.options.mark), bypass: false, esp: true }
    }

    fn ask(&self, remote: IpAddr) -> io::Result<IpAddr> {
        let mark = asking(self.sockets()).mark.unwrap_or(0);
        let road = self.sim.road(None, remote, mark);
        road.and_then(|road| road.source).ok_or_else(|| io::ErrorKind::HostUnreachable.into())
    }

    /// Between which addresses a connection is started.
    pub fn choose(
        &self,
        connection: &ConnectionConfig,
        last: Option<IpAddr>,
    ) -> Result<(IpAddr, IpAddr), String> {
        let local = connection.local_addrs.clone();
        let ends = Ends { local, remote: connection.remote_addrs.clone() };
        let source = |remote| self.ask(remote);
        ike_control::choose_again(&ends, last, &source).map_err(|error| error.to_string())
    }
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Killed,
    Restart,
    Stop,
}

fn route(routed: &Mutex<Option<Routed>>, change: &PolicyChange) -> Result<(), DataPlaneError> {
    let mut routed = routed.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(routed) = routed.as_mut() else { return Ok(()) };
    match change {
        PolicyChange::Set(policy) => routed.set(policy, None),
        PolicyChange::Removed(id) => routed.remove(*id),
    }
}

impl Road for Host {
    fn has(&self, address: IpAddr) -> bool {
        // What is for the loopback's address comes by the uplink, too. The others have no route to this host's side.
        self.process.borrow().is_some()
            && address != IpAddr::from(INSIDE)
            && self.sim.has(address)
            && self.sim.road(None, ROUTER.into(), self.options.mark).is_some()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.sim.usable()
    }

    fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        self.ask(remote).ok()
    }

    fn sends(&self, local: IpAddr, remote: IpAddr) -> bool {
        let mark = self.sockets().mark.unwrap_or(0);
        let road = self.sim.road(Some(local), remote, mark);
        // An answer to this host's side does not come back.
        local != IpAddr::from(INSIDE) && road.is_some_and(|road| road.device == self.uplink)
    }

    fn ends(
        &self,
        connection: &ConnectionConfig,
        last: Option<IpAddr>,
    ) -> Result<(IpAddr, IpAddr), String> {
        self.choose(connection, last)
    }

    fn exit(&self, to: IpAddr) -> Exit {
        let tunnel = self.process.borrow().as_ref().map(|process| process.tunnel);
        match self.sim.road(None, to, 0) {
            Some(road) if Some(road.device) == tunnel => Exit::Tunnel,
            Some(road) if road.device == self.uplink => Exit::Outside,
            _ => Exit::Nowhere,
        }
    }

    fn second_line(&self) -> bool {
        self.second_line && self.process.borrow().is_some()
    }
}

/// Takes the commands of the shunts, to be carried out by the life.
#[derive(Clone, Default)]
pub struct Queue(Arc<Mutex<Vec<PolicyChange>>>);

impl Queue {
    pub fn take(&self) -> Vec<PolicyChange> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DataPlane for Queue {
    fn capabilities(&self) -> Capabilities {
        esp::Plane::CAPABILITIES
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(PolicyChange::of(&command));
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
