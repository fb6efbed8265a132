//! What the daemon does around its engine: blocks and holds, routes, the starts of children.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ike_control::StartWaits;
use ike_proto::dataplane::Flow;
use ike_proto::{ChildSaId, Command, Event, IkeSaId, RequestId};
use ike_tests::World;
use ike_tests::road::PolicyChange;
use ike_tokio::ShuntsAlone;

use super::host::{End, Host, Queue};
use super::plan::{HERE, Plan, TUNNELS, Tunnel};

/// The daemon.
pub struct Driver {
    pub host: Rc<Host>,
    shunts: Option<ShuntsAlone>,
    queue: Queue,
    /// What was seen of the engine's log.
    seen: usize,
    /// Connections whose traps wait for a way to the peer.
    waiting: BTreeMap<&'static str, (StartWaits, Duration)>,
    /// Traps that the engine is about to have.
    trapping: Vec<(RequestId, &'static str)>,
    /// The tunnels whose traffic does not leave in clear any more. Without `hold` that begins with the trap, or when the child
    /// is up.
    closed: BTreeMap<&'static str, Closed>,
}

/// What keeps the traffic of a tunnel that is down from leaving in clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closed {
    /// Its trap. It ends with a process that is killed.
    Trapped,
    /// A block of its own.
    Blocked,
}

impl Driver {
    pub fn new(host: Rc<Host>) -> Self {
        let queue = Queue::default();
        let (waiting, trapping, closed) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { host, shunts: None, queue, seen: 0, waiting, trapping, closed }
    }

    /// True if nothing of `tunnel` may leave in clear now.
    pub fn is_closed(&self, tunnel: &Tunnel) -> bool {
        self.closed.contains_key(tunnel.name)
    }

    fn close(&mut self, world: &mut World, tunnel: &Tunnel, by: Closed) {
        let closed = self.closed.entry(tunnel.name).or_insert(by);
        *closed = by.max(*closed);
        world.guard.protect(HERE, tunnel.name, tunnel.out());
    }

    /// True while the process runs.
    pub fn runs(&self) -> bool {
        self.shunts.is_some()
    }

    /// The process starts.
    pub fn start(&mut self, world: &mut World, plan: &Plan) {
        let blocked = self.host.start(world.instant());
        world.hosts[HERE].plane.mirror = Some(self.host.mirror());
        self.seen = world.hosts[HERE].log.len();
        let config = world.hosts[HERE].endpoint.config();
        let plane = Box::new(self.queue.clone());
        self.shunts = Some(ShuntsAlone::new(config, blocked, plane));
        self.shunt(world, |shunts| shunts.arm_first());
        for tunnel in plan.tunnels() {
            // What an earlier run has blocked has been given to its child by now.
            if plan.holds(tunnel) || self.is_closed(tunnel) {
                self.close(world, tunnel, Closed::Blocked);
            }
        }
        world.look_for_clear_of(HERE);
        world.tell_network(HERE);
        for tunnel in plan.tunnels() {
            let name = tunnel.name.to_owned();
            if plan.traps {
                self.waiting.insert(tunnel.name, (StartWaits::default(), world.now()));
            } else {
                world.command(HERE, Command::Want { connection: name.clone(), child: name });
            }
        }
        self.react(world);
    }

    /// The process ends. Its engine knows nothing any more. What it leaves keeps its promise, unless it was stopped.
    pub fn end(&mut self, world: &mut World, end: End) {
        self.shunts = None;
        self.waiting.clear();
        self.trapping.clear();
        self.host.end(end, world.instant());
        self.closed.retain(|_, by| match end {
            End::Killed => *by == Closed::Blocked,
            End::Restart => true,
            End::Stop => false,
        });
        for tunnel in TUNNELS.iter().filter(|tunnel| self.closed.contains_key(tunnel.name)) {
            world.guard.protect(HERE, tunnel.name, tunnel.out());
        }
        world.look_for_clear_of(HERE);
    }

    /// Has the shunts do something, and carries it out.
    fn shunt(&mut self, world: &mut World, what: impl FnOnce(&mut ShuntsAlone)) {
        let Some(shunts) = &mut self.shunts else { return };
        what(shunts);
        for change in self.queue.take() {
            let name = |id| format!("{id:?}");
            let shunts = &mut world.hosts[HERE].plane.shunts;
            // The policy before its route, as the data plane has it.
            match &change {
                PolicyChange::Set(policy) => {
                    shunts.insert(name(policy.id), (**policy).clone());
                    self.host.apply(&change);
                }
                PolicyChange::Removed(id) => {
                    self.host.apply(&change);
                    shunts.remove(&name(*id));
                }
            }
        }
        world.look_for_clear_of(HERE);
    }

    /// When something happens by itself.
    pub fn wake(&self, world: &World) -> Option<Duration> {
        if !self.runs() {
            return None;
        }
        let starts = self.waiting.values().map(|(_, at)| *at).min();
        self.host.wake(origin(world)).into_iter().chain(starts).min()
    }

    /// Does what is due.
    pub fn react(&mut self, world: &mut World) {
        if !self.runs() {
            return;
        }
        loop {
            let news = self.host.act(origin(world), world.now());
            world.look_for_clear_of(HERE);
            if news {
                world.tell_network(HERE);
            }
            self.run_starts(world);
            self.close_trapped(world);
            let Some((_, event)) = world.hosts[HERE].log.get(self.seen) else { return };
            self.seen += 1;
            match Said::of(event) {
                Said::Up(ike, child) => {
                    let status = world.hosts[HERE].endpoint.ike_sa(ike);
                    if let Some(status) = status {
                        let tunnel = named(&status.connection);
                        self.shunt(world, |shunts| shunts.child_up(status, child));
                        self.close(world, tunnel, Closed::Blocked);
                        world.look_for_clear_of(HERE);
                    }
                }
                Said::Restart(connection, child, (local, remote)) => {
                    let ensure = Command::Ensure { connection, child, local, remote };
                    world.command(HERE, ensure);
                }
                Said::Trap(connection, child, ends) => self.trap(world, connection, child, ends),
                Said::Acquire(connection, child, packet) => {
                    if let Ok((local, remote)) = self.choose(world, &connection) {
                        let (child, packet) = (Some(child), Some(packet));
                        let up = Command::Initiate { connection, child, local, remote, packet };
                        world.command(HERE, up);
                    }
                }
                Said::Other => {}
            }
        }
    }

    fn choose(&self, world: &World, name: &str) -> Result<(IpAddr, IpAddr), String> {
        let config = world.hosts[HERE].endpoint.config();
        let found = config.connections.iter().find(|it| it.name == name);
        self.host.choose(found.expect("one of its own"), None)
    }

    /// Children with traps whose time has come.
    fn run_starts(&mut self, world: &mut World) {
        let now = world.now();
        let due: Vec<_> =
            self.waiting.iter().filter(|(_, (_, at))| *at <= now).map(|(name, _)| *name).collect();
        for name in due {
            match self.choose(world, name) {
                Ok(ends) => {
                    self.waiting.remove(name);
                    self.trap(world, name.to_owned(), name.to_owned(), ends);
                }
                Err(_) => {
                    let interval = world.hosts[HERE].endpoint.config().retry_initiate_interval;
                    if let Some((waits, at)) = self.waiting.get_mut(name) {
                        *at = now + waits.next(interval);
                    }
                }
            }
        }
    }

    fn trap(
        &mut self,
        world: &mut World,
        connection: String,
        child: String,
        ends: (IpAddr, IpAddr),
    ) {
        self.shunt(world, |shunts| shunts.trap(&connection, &child, ends));
        let (local, remote) = ends;
        let name = named(&connection).name;
        let trap = Command::InstallTrap { connection, child, local, remote };
        self.trapping.push((world.command(HERE, trap), name));
    }

    /// From the moment a trap is there nothing of its child leaves in clear.
    fn close_trapped(&mut self, world: &mut World) {
        for (request, name) in std::mem::take(&mut self.trapping) {
            match world.hosts[HERE].done(request) {
                Some(Ok(())) => self.close(world, named(name), Closed::Trapped),
                Some(Err(_)) => {}
                None => self.trapping.push((request, name)),
            }
        }
    }
}

fn named(name: &str) -> &'static Tunnel {
    TUNNELS.iter().find(|tunnel| tunnel.name == name).expect("one of its own")
}

/// The instant of time zero.
fn origin(world: &World) -> std::time::Instant {
    world.instant() - world.now()
}

/// What of an event concerns the daemon.
enum Said {
    Up(IkeSaId, ChildSaId),
    Restart(String, String, (IpAddr, IpAddr)),
    Trap(String, String, (IpAddr, IpAddr)),
    Acquire(String, String, Flow),
    Other,
}

impl Said {
    fn of(event: &Event) -> Self {
        match event {
            Event::ChildUp { ike, child } => Self::Up(*ike, *child),
            Event::Restart { connection, child, local, remote } => {
                Self::Restart(connection.clone(), child.clone(), (*local, *remote))
            }
            Event::Trap { connection, child, local, remote } => {
                Self::Trap(connection.clone(), child.clone(), (*local, *remote))
            }
            Event::Acquire { connection, child, packet } => {
                Self::Acquire(connection.clone(), child.clone(), *packet)
            }
            _ => Self::Other,
        }
    }
}
