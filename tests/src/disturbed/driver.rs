//! What a daemon does around the engines of one machine: tells them what is wanted, passes on what one shard has to say
//! to another, and drops the packets of children that are not up. When a wanted child is started, and started again, is
//! the engines' part alone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Action, ChildConfig, FailureShunt};
use ike_proto::dataplane::{Flow, PolicyAction, PolicyId, PolicySpec};
use ike_proto::{Command, Event, RequestId};

use super::plan::{CHILDREN, CONNECTION};
use crate::packets::Inner;
use crate::world::World;

/// Numbers of the driver's own policies: engines never get there.
const FIRST_SHUNT: u64 = 1 << 63;

/// The daemon of one machine.
pub struct Driver {
    /// Its machine.
    pub machine: usize,
    /// The shard that knows what is wanted and has the traps.
    pub home: usize,
    /// The peer's address, as configured.
    pub remote: IpAddr,
    /// Children that it wants up, or has trapped.
    pub wanted: Vec<Arc<ChildConfig>>,
    /// Commands given and not known to have ended.
    pub requests: Vec<(usize, RequestId)>,
    /// Traps that are being installed.
    trapping: Vec<(RequestId, String)>,
    /// Children whose traps are in place.
    trapped: BTreeSet<String>,
    /// What was seen of each shard's log.
    seen: Vec<usize>,
    /// Children to be trapped once there is an address.
    waiting: BTreeSet<String>,
    retry_at: Option<Duration>,
}

impl Driver {
    /// A daemon that has not started yet.
    pub fn new(world: &World, machine: usize, remote: IpAddr, home: usize) -> Self {
        let shards = world.shards_of(machine);
        let config = world.hosts[home].endpoint.config();
        let wants = |child: &&Arc<ChildConfig>| child.start_action != Action::None;
        let wanted = config.connections[0].children.iter().filter(wants).cloned().collect();
        Self {
            machine,
            home,
            remote,
            wanted,
            requests: Vec::new(),
            trapping: Vec::new(),
            trapped: BTreeSet::new(),
            seen: vec![0; shards.len()],
            waiting: BTreeSet::new(),
            retry_at: None,
        }
    }

    /// Starts, or starts again after a crash: what was asked before is forgotten.
    pub fn start(&mut self, world: &mut World) {
        self.requests.clear();
        self.waiting.clear();
        self.trapping.clear();
        self.trapped.clear();
        self.retry_at = None;
        for (seen, host) in self.seen.iter_mut().zip(world.shards_of(self.machine)) {
            *seen = world.hosts[host].log.len();
        }
        for host in world.shards_of(self.machine) {
            world.tell_network(host);
        }
        for child in self.wanted.clone() {
            match child.start_action {
                Action::Trap => _ = self.waiting.insert(child.name.clone()),
                Action::Start => self.want(world, self.home, &child.name),
                Action::None => {}
            }
        }
        self.set_traps(world);
    }

    /// Wants a child up. The engine knows from then on.
    fn want(&mut self, world: &mut World, host: usize, child: &str) {
        let (connection, child) = (CONNECTION.to_owned(), child.to_owned());
        let _ = self.command(world, host, Command::Want { connection, child });
    }

    /// Installs the traps that wait for an address, if there is one by now.
    fn set_traps(&mut self, world: &mut World) {
        if self.waiting.is_empty() {
            return;
        }
        if world.offline.contains(&self.home) {
            let wait = world.hosts[self.home].endpoint.config().retry_initiate_interval;
            self.retry_at = Some(world.now() + wait);
            return;
        }
        self.retry_at = None;
        for child in std::mem::take(&mut self.waiting) {
            self.install_trap(world, &child);
        }
    }

    /// When it does something by itself next.
    pub fn wake(&self) -> Option<Duration> {
        self.retry_at
    }

    /// The shard that has an IKE SA with the peer; the one at home, if none has or several have.
    fn shard_with(&self, world: &World) -> usize {
        let serves = |host: &usize| world.hosts[*host].endpoint.serves(CONNECTION, self.remote);
        let serving: Vec<_> = world.shards_of(self.machine).into_iter().filter(serves).collect();
        match serving.contains(&self.home) {
            true => self.home,
            false => serving.first().copied().unwrap_or(self.home),
        }
    }

    /// Brings up a child that a packet wants, on the shard that has an IKE SA for it.
    fn acquire(&mut self, world: &mut World, child: &str, packet: Flow) {
        if world.offline.contains(&self.home) {
            // There is no route; the next packet meets the trap again.
            return;
        }
        let host = self.shard_with(world);
        let (connection, child) = (CONNECTION.to_owned(), Some(child.to_owned()));
        let (local, remote, packet) = (world.address(host), self.remote, Some(packet));
        let initiate = Command::Initiate { connection, child, local, remote, packet };
        let _ = self.command(world, host, initiate);
    }

    /// A shard wants a child that another shard can make on an IKE SA that it has.
    fn restart(&mut self, world: &mut World, child: &str, (local, remote): (IpAddr, IpAddr)) {
        let has = |host: &usize| world.hosts[*host].endpoint.carries(CONNECTION, Some(child));
        let mut carriers = world.shards_of(self.machine);
        carriers.retain(has);
        for host in &carriers {
            // It is wanted there from now on.
            self.want(world, *host, child);
        }
        if !carriers.is_empty() {
            return;
        }
        let host = self.shard_with(world);
        let (connection, child) = (CONNECTION.to_owned(), child.to_owned());
        let _ = self.command(world, host, Command::Ensure { connection, child, local, remote });
    }

    fn install_trap(&mut self, world: &mut World, child: &str) {
        let (local, remote) = (world.address(self.home), self.remote);
        let (connection, name) = (CONNECTION.to_owned(), child.to_owned());
        let command = Command::InstallTrap { connection, child: name, local, remote };
        let request = self.command(world, self.home, command);
        self.trapping.push((request, child.to_owned()));
    }

    /// From the moment its trap is installed nothing of a child leaves in clear.
    fn protect_trapped(&mut self, world: &mut World) {
        let (home, machine) = (self.home, self.machine);
        let trapped = &mut self.trapped;
        self.trapping.retain(|(request, child)| {
            let done = world.hosts[home].done(*request);
            if let (Some(Ok(())), Some(inner)) = (&done, packet_of(machine, child)) {
                world.guard.protect(machine, child, inner);
                trapped.insert(child.clone());
            }
            done.is_none()
        });
    }

    /// Gives a command to a shard.
    pub fn command(&mut self, world: &mut World, host: usize, command: Command) -> RequestId {
        let request = world.command(host, command);
        self.requests.push((host, request));
        request
    }

    /// Acts on what its engines have said since.
    pub fn react(&mut self, world: &mut World) {
        if world.is_suspended(self.machine) {
            return;
        }
        if self.retry_at.is_some_and(|at| at <= world.now()) {
            self.set_traps(world);
        }
        self.protect_trapped(world);
        for (index, host) in world.shards_of(self.machine).into_iter().enumerate() {
            while let Some((_, event)) = world.hosts[host].log.get(self.seen[index]) {
                self.seen[index] += 1;
                let event = Said::of(event);
                self.on_event(world, host, event);
            }
        }
    }

    fn on_event(&mut self, world: &mut World, host: usize, event: Said) {
        match event {
            Said::Up(child) => self.on_child_up(world, host, child),
            Said::Restart(child, ends) => self.restart(world, &child, ends),
            Said::Trap(child) => self.install_trap(world, &child),
            Said::Acquire(child, packet) => self.acquire(world, &child, packet),
            Said::Other => {}
        }
    }

    /// From now on the child's traffic is protected, or does not leave, as `failureshunt` says. Where there is a trap
    /// the engine alone sees to that here, so that its order of commands is put to the test.
    fn on_child_up(&mut self, world: &mut World, host: usize, child: ike_proto::ChildSaId) {
        let ikes = world.hosts[host].ikes();
        let found = ikes.iter().flat_map(|ike| &ike.children).find(|other| other.id == child);
        let Some(name) = found.map(|child| child.name.clone()) else { return };
        let Some(config) = self.wanted.iter().find(|child| child.name == name) else { return };
        let Some(inner) = packet_of(self.machine, &name) else { return };
        if config.failure_shunt == FailureShunt::Passthrough {
            return;
        }
        if !self.trapped.contains(&name) {
            self.arm(world, &config.clone());
        }
        world.guard.protect(self.machine, &name, inner);
        world.look_for_clear_of(self.machine);
    }

    /// Drops the child's packets where no other policy is.
    fn arm(&self, world: &mut World, config: &ChildConfig) {
        let here = world.address(self.home);
        let shunt = PolicySpec {
            id: PolicyId(FIRST_SHUNT),
            child: config.name.clone(),
            owner: CONNECTION.to_owned(),
            local_ts: config.local_ts.iter().map(|ts| ts.resolve(here)).collect(),
            remote_ts: config.remote_ts.iter().map(|ts| ts.resolve(self.remote)).collect(),
            action: PolicyAction::Shunt { silent: false },
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        };
        world.hosts[self.home].plane.shunts.insert(config.name.clone(), shunt);
    }

    /// A command that has not ended, if there is one.
    pub fn pending(&mut self, world: &World) -> Option<String> {
        self.requests.retain(|(host, request)| world.hosts[*host].done(*request).is_none());
        let (host, request) = self.requests.first()?;
        Some(format!("{request:?} of host {host} never ended"))
    }
}

/// What of an event concerns a driver.
enum Said {
    Up(ike_proto::ChildSaId),
    Restart(String, (IpAddr, IpAddr)),
    Trap(String),
    Acquire(String, Flow),
    Other,
}

impl Said {
    fn of(event: &Event) -> Self {
        match event {
            Event::ChildUp { child, .. } => Self::Up(*child),
            Event::Restart { child, local, remote, .. } => {
                Self::Restart(child.clone(), (*local, *remote))
            }
            Event::Trap { child, .. } => Self::Trap(child.clone()),
            Event::Acquire { child, packet, .. } => Self::Acquire(child.clone(), *packet),
            _ => Self::Other,
        }
    }
}

/// A packet that `machine` sends and the child with this name is for.
pub fn packet_of(machine: usize, child: &str) -> Option<Inner> {
    let (_, net) = CHILDREN.iter().find(|(name, _)| *name == child)?;
    let inside = |machine: usize| {
        let machine = u8::try_from(machine).expect("two machines");
        IpAddr::from([10, machine + 1 + net, 0, 5])
    };
    Some(Inner { src: inside(machine), dst: inside(1 - machine) })
}
