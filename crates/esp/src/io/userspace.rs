//! The plane with its tasks, which a driver holds.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipsec_types::crypto::{CipherProvider, SecureRandom};
use ipsec_types::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Encapsulation, Event, PolicyId,
    PolicySpec, Reply, TrafficSelector,
};
use routes::{Leftovers, Routes};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use super::RouteOptions;
use super::device::Device;
use super::early::Early;
use super::encap::{EncapSocket, IkeDatagram};
use super::guard::{Guard, GuardOptions, absence};
use super::now;
use super::raw::{ClearSockets, PlainEsp};
use super::routed::Routed;
use super::sender::Sockets;
use super::streams::{Feed, Streams};
use super::tasks::{self, Alarm, Reading, Retired};
use crate::fields::Fields;
use crate::inbound::{Carrier, Outer};
use crate::plane::Plane;
use crate::sad::Path;
use crate::sizes::Ends;
use crate::udp::{Datagram, classify};

/// Datagrams that wait in [`UserspacePlane::inbound_udp`]; more are lost.
const FED_QUEUE: usize = 1024;

/// The parts of a [`UserspacePlane`].
pub struct Config {
    /// Cipher suites.
    pub ciphers: &'static dyn CipherProvider,
    /// Makes a random source, once per outbound task.
    pub rng: fn() -> Box<dyn SecureRandom>,
    /// Sockets of port 4500. The plane receives from them, hands IKE to `ike` and sends ESP through
    /// them; the driver sends IKE with [`EncapSocket::send_ike`].
    pub encap: Vec<Arc<EncapSocket>>,
    /// Where IKE messages from those sockets go.
    pub ike: mpsc::Sender<IkeDatagram>,
    /// Raw sockets for ESP over IP; none turns [`Capabilities::plain_esp`] off.
    pub plain: Vec<Arc<PlainEsp>>,
    /// TCP connections that carry ESP; `None` turns [`Capabilities::tcp_esp`] off. Pass received packets to
    /// [`UserspacePlane::feed`].
    pub streams: Option<Arc<dyn Streams>>,
    /// Sends packets that a pass policy lets out; `None` drops them.
    pub clear: Option<ClearSockets>,
    /// Routes into the device; `None` leaves routing to the caller.
    pub routes: Option<RouteOptions>,
    /// Drops packets that arrive or leave in clear though a policy protects them; `None` leaves that to the caller.
    pub guard: Option<GuardOptions>,
}

/// A userspace data plane in operation. Dropping it ends its tasks, and leaves what [`Self::shutdown`] leaves.
pub struct UserspacePlane {
    plane: Plane,
    notify: Arc<Notify>,
    lost: Arc<Notify>,
    fed: mpsc::Sender<(Outer, Vec<u8>)>,
    plain_esp: bool,
    tcp_esp: bool,
    routes: Option<Routed>,
    guard: Option<Guard>,
    /// Policies whose routes have an MTU of their own.
    narrowed: BTreeMap<PolicyId, (Arc<PolicySpec>, u16)>,
    early: Early,
    retired: mpsc::UnboundedSender<Retired>,
    removals: watch::Sender<()>,
    tasks: JoinSet<()>,
}

impl UserspacePlane {
    /// Starts the tasks between `device` and the sockets; must be called inside a tokio runtime.
    pub fn start(config: Config, device: Device) -> io::Result<Self> {
        let Config { ciphers, rng, encap, ike, plain, streams, clear, routes, guard } = config;
        let Device { readers, writer, interface, mtu } = device;
        let (routes, guard) = match interface {
            Some((name, index)) => (
                match routes {
                    Some(options) => {
                        Some(Routed::new(Routes::start(options, Leftovers::Settle)?, index))
                    }
                    None => None,
                },
                guard.and_then(|options| start_guard(&name, index, options)),
            ),
            None => (None, None),
        };
        let plane = Plane::new(now(), ciphers);
        plane.set_mtu(mtu);
        let (notify, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (ring, give_up) = (Arc::clone(&notify), Arc::clone(&lost));
        let alarm = Alarm { plane: plane.clone(), notify: ring, lost: give_up };
        let (fed, inbox) = mpsc::channel(FED_QUEUE);
        let early = Early::new(plane.clone(), fed.clone());
        let plain_esp = !plain.is_empty();
        let tcp_esp = streams.is_some();
        let clear = clear.map(Arc::new);
        let sockets = Sockets { encap, plain, streams, raw: clear.clone() };

        let (removals, seen) = watch::channel(());
        let mut tasks = JoinSet::new();
        for reader in readers {
            let worker = plane.outbound(rng());
            let reading = Reading { reader, writer: writer.clone() };
            let (sockets, clear) = (sockets.clone(), clear.clone());
            let (alarm, seen) = (alarm.clone(), seen.clone());
            let task = tasks::outbound(reading, worker, sockets, clear, alarm, seen);
            tasks.spawn(task);
        }
        for socket in sockets.encap {
            let (worker, writer) = (plane.inbound(), writer.clone());
            tasks.spawn(tasks::inbound_udp(
                socket,
                worker,
                writer,
                ike.clone(),
                early.clone(),
                alarm.clone(),
                seen.clone(),
            ));
        }
        for socket in sockets.plain {
            let (worker, writer) = (plane.inbound(), writer.clone());
            tasks.spawn(tasks::inbound_plain(
                socket,
                worker,
                writer,
                early.clone(),
                alarm.clone(),
                seen.clone(),
            ));
        }
        tasks.spawn(tasks::try_larger(alarm.clone()));
        tasks.spawn(tasks::inbound_fed(inbox, plane.inbound(), writer, early.clone(), alarm, seen));
        let retired = tasks::forget_retired(&mut tasks, plane.clone(), removals.clone());
        Ok(Self {
            plane,
            notify,
            lost,
            fed,
            plain_esp,
            tcp_esp,
            routes,
            guard,
            narrowed: BTreeMap::new(),
            early,
            retired,
            removals,
            tasks,
        })
    }

    /// Woken when [`DataPlane::poll_event`] may have an event. A wake-up without a waiter is kept.
    pub fn event_ready(&self) -> Arc<Notify> {
        Arc::clone(&self.notify)
    }

    /// Woken when the device has been deleted by another program. The plane then carries no packets any more.
    pub fn lost(&self) -> Arc<Notify> {
        Arc::clone(&self.lost)
    }

    /// The plane itself: counters, and further workers.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The destinations that an earlier run blocked, and that are blocked still.
    pub fn blocked(&self) -> Vec<TrafficSelector> {
        self.routes.as_ref().map(|routes| routes.blocked().to_vec()).unwrap_or_default()
    }

    /// Takes the ESP that arrives on TCP connections.
    pub fn feed(&self) -> Feed {
        Feed::new(self.fed.clone(), self.plane.clone())
    }

    /// Takes a datagram of port 4500 that the caller received. False if it is not ESP and so remains
    /// the caller's.
    pub fn inbound_udp(&self, datagram: &[u8], src: SocketAddr, dst: SocketAddr) -> bool {
        match classify(datagram) {
            Datagram::Ike(_) => false,
            Datagram::Keepalive | Datagram::Runt => true,
            Datagram::Esp(esp) => {
                let fields = Fields::default();
                let outer = Outer { src, dst: dst.ip(), fields, carrier: Carrier::Udp };
                _ = self.fed.try_send((outer, esp.to_vec()));
                true
            }
        }
    }

    /// True if it is about ESP in TCP and there is no TCP.
    fn cannot_carry(&self, command: &Command) -> bool {
        let encap = match command {
            Command::InstallSa(spec) => spec.encap,
            Command::UpdateSa { encap, .. } => *encap,
            _ => None,
        };
        matches!(encap, Some(Encapsulation::Tcp(_))) && !self.tcp_esp
    }

    /// Takes the link of an SA to be a usual one.
    fn set_link(&self, path: &Path, direction: Direction) {
        let Ends { peer, local } = path.ends(direction);
        self.plane.set_link(local, peer, self.plane.usual_link());
    }

    /// Passes the current SPD to the guard.
    fn guard(&mut self) -> Result<(), DataPlaneError> {
        let Some(guard) = &mut self.guard else { return Ok(()) };
        let set = guard.set(self.plane.clear_rules());
        set.map_err(|error| DataPlaneError(format!("nf_tables: {error}")))
    }

    /// Routes the packets of `policy` to the device, and exempt packets as without the device.
    fn route(&mut self, policy: &PolicySpec) -> Result<(), DataPlaneError> {
        let Some(routes) = &mut self.routes else { return Ok(()) };
        let (id, narrow) = (policy.id, self.plane.narrow_limit(policy));
        match narrow {
            Some(mtu) => self.narrowed.insert(id, (Arc::new(policy.clone()), mtu)),
            None => self.narrowed.remove(&id),
        };
        routes.set(policy, narrow)
    }

    fn unroute(&mut self, id: PolicyId) -> Result<(), DataPlaneError> {
        self.narrowed.remove(&id);
        self.routes.as_mut().map_or(Ok(()), |routes| routes.remove(id))
    }

    /// Gives the routes of policies the MTU of their SAs, which the kernel then tells senders.
    fn resize_routes(&mut self) {
        let now = self.plane.narrowed();
        let before = std::mem::replace(&mut self.narrowed, now.clone());
        let news = now.iter().filter(|(id, _)| !before.contains_key(id));
        for (id, (policy, _)) in before.iter().chain(news) {
            let [was, is] = [&before, &now].map(|of| of.get(id).map(|(_, mtu)| *mtu));
            if was != is
                && let Some(routes) = &self.routes
                && let Err(error) = routes.resize(policy, is)
            {
                let child = &policy.child;
                warn!(%error, child, "the MTU of the child's path is not that of its routes");
                // The next change of a size tries again.
                match before.get(id) {
                    Some(former) => _ = self.narrowed.insert(*id, former.clone()),
                    None => _ = self.narrowed.remove(id),
                }
            }
        }
    }

    /// Ends the tasks and waits for them. Routes into the device go with it. Routes that block stay, unless
    /// [`Command::Flush`] came before: what they block does not leave in clear until another run protects it.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Without nf_tables in the kernel the tunnel works as well, only less safely.
fn start_guard(name: &str, index: u32, options: GuardOptions) -> Option<Guard> {
    let behind_routes = options.mark.is_some();
    match Guard::start(name, index, options) {
        Ok(guard) => Some(guard),
        Err(error) => {
            if behind_routes {
                absence::set(Some(format!("table ike-{name} of nf_tables not made: {error}")));
            }
            warn!(%error, "no nf_tables: packets in clear for protected addresses are not dropped, and there is no \
                second line behind the routes; set rp_filter to 1 on outer interfaces, or filter");
            None
        }
    }
}

impl DataPlane for UserspacePlane {
    fn capabilities(&self) -> Capabilities {
        let Self { plain_esp, tcp_esp, .. } = *self;
        // The kernel sends many packets over UDP in one call (UDP_SEGMENT), and over a raw socket one by one.
        Capabilities { plain_esp, tcp_esp, udp_costs_less: true, ..self.plane.capabilities() }
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        self.plane.set_time(now());
        match command {
            _ if self.cannot_carry(&command) => {
                Err(DataPlaneError("ESP in TCP: this data plane has no TCP connections".to_owned()))
            }
            // The policy before its route, so that no packet meets an SPD that does not know it.
            Command::InstallPolicy(spec) => {
                let policy = (*spec).clone();
                self.plane.apply(Command::InstallPolicy(spec))?;
                let outside = self.guard().and_then(|()| self.route(&policy));
                if let Err(error) = outside {
                    _ = self.unroute(policy.id);
                    self.plane.apply(Command::RemovePolicy(policy.id))?;
                    // It drops too much rather than too little if this fails too.
                    _ = self.guard();
                    return Err(error);
                }
                Ok(Reply::Done)
            }
            Command::RemovePolicy(id) => {
                self.unroute(id)?;
                self.plane.apply(command)?;
                self.guard().map(|()| Reply::Done)
            }
            Command::Flush => {
                self.narrowed.clear();
                if let Some(routes) = &mut self.routes {
                    routes.flush()?;
                }
                self.plane.apply(command)?;
                self.removals.send_replace(());
                self.guard().map(|()| Reply::Done)
            }
            Command::RemoveSas => {
                if let Some(routes) = &self.routes {
                    routes.block()?;
                }
                self.plane.apply(command)
            }
            Command::RemoveSa(id) => {
                if let Some(sa) = self.plane.retire(id) {
                    // Its task ends with the plane only.
                    _ = self.retired.send((now(), sa));
                    return Ok(Reply::Done);
                }
                let reply = self.plane.apply(command);
                self.removals.send_replace(());
                reply
            }
            Command::UpdateSa { src, dst, encap, .. } => {
                let path = Path { src: src.ip(), dst: dst.ip(), encap };
                // Of an inbound SA the peer is the source.
                for direction in [Direction::Out, Direction::In] {
                    self.set_link(&path, direction);
                }
                self.plane.apply(command)
            }
            Command::InstallSa(spec) => {
                let path = Path { src: spec.src, dst: spec.id.dst, encap: spec.encap };
                self.set_link(&path, spec.direction);
                let inbound = (spec.direction == Direction::In).then_some(spec.id.spi);
                let reply = self.plane.apply(Command::InstallSa(spec))?;
                if let Some(spi) = inbound {
                    self.early.release(now(), spi);
                }
                Ok(reply)
            }
            Command::PathProbed(..) => {
                let reply = self.plane.apply(command);
                // The plane may ask for the next probe, and the routes may need another MTU.
                self.notify.notify_one();
                reply
            }
            other => self.plane.apply(other),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.plane.is_resized() {
            self.resize_routes();
        }
        self.plane.poll_event()
    }
}

impl fmt::Debug for UserspacePlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserspacePlane").field("plane", &self.plane).finish_non_exhaustive()
    }
}
