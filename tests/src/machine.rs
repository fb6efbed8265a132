//! What happens to machines: suspends, crashes, wrong clocks, other addresses. Several hosts of a world can be the
//! shards of one machine; then it happens to all of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_proto::config::{AddressSpec, Shard};
use ike_proto::crypto::CryptoProvider;
use ike_proto::dataplane::DataPlane;
use ike_proto::{Answer, Endpoint, IkeSaId, Input, Network, Notice, Registry};

use crate::network::Packet;
use crate::road::Exit;
use crate::world::{Work, World};

/// Datagrams that a socket of a suspended host holds at most.
const SOCKET_QUEUE: usize = 64;

/// Clocks of a host, as far as they are not the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// How far the monotonic clock is behind the world's: the sum of the suspends in which it stood still.
    pub behind: Duration,
    /// Seconds by which the wall clock is ahead of the world's.
    pub wall_ahead: i64,
}

/// A suspended host.
pub(crate) struct Frozen {
    since: Duration,
    /// What its interfaces received meanwhile waits in its sockets.
    queues: bool,
    datagrams: usize,
    /// What it will do when it goes on, in order.
    held: Vec<Work>,
}

/// How a host goes on after a suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The monotonic clock stood still, as in a virtual machine that was paused. Otherwise it counted the time,
    /// as CLOCK_BOOTTIME does.
    pub clock_stood: bool,
    /// Timers that are due run before waiting datagrams are read.
    pub timers_first: bool,
}

/// What a crash leaves of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The program alone ended: the SAs and policies of the kernel stay, beneath those of the next run.
    Program,
    /// Everything is gone.
    Machine,
}

impl Frozen {
    /// A datagram reaches the suspended host.
    pub(crate) fn take(&mut self, host: usize, packet: Packet) {
        if self.queues && self.datagrams < SOCKET_QUEUE {
            self.datagrams += 1;
            self.held.push(Work::Received(host, packet));
        }
    }
}

impl World {
    /// The hosts that are the shards of `machine`, in order.
    pub fn shards_of(&self, machine: usize) -> Vec<usize> {
        (0..self.hosts.len()).filter(|host| self.hosts[*host].machine == machine).collect()
    }

    /// The wall-clock time as a host has it.
    pub fn wall_of(&self, host: usize) -> SystemTime {
        let ahead = self.hosts[host].clock.wall_ahead;
        let step = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 { self.wall() - step } else { self.wall() + step }
    }

    /// True if a host takes its peers' certificates for valid.
    pub(crate) fn finds_valid(&self, host: usize) -> bool {
        let now = self.wall_of(host);
        self.hosts[host].validity.as_ref().is_none_or(|validity| validity.contains(&now))
    }

    /// Sets the wall clock of a machine: so many seconds ahead of the world's.
    pub fn set_wall(&mut self, machine: usize, ahead: i64) {
        self.note(machine, || format!("wall clock {ahead} s ahead"));
        for host in self.shards_of(machine) {
            self.hosts[host].clock.wall_ahead = ahead;
        }
    }

    /// Suspends a machine. With `queues`, datagrams that arrive wait in its sockets; otherwise they are lost.
    pub fn suspend(&mut self, machine: usize, queues: bool) {
        self.note(machine, || format!("suspended, queues: {queues}"));
        let since = self.now();
        for host in self.shards_of(machine) {
            let frozen = Frozen { since, queues, datagrams: 0, held: Vec::new() };
            self.hosts[host].frozen.get_or_insert(frozen);
        }
    }

    /// True while a machine is suspended.
    pub fn is_suspended(&self, machine: usize) -> bool {
        self.shards_of(machine).iter().any(|host| self.hosts[*host].frozen.is_some())
    }

    /// A suspended machine goes on.
    pub fn resume(&mut self, machine: usize, how: Resume) {
        self.note(machine, || format!("{how:?}"));
        let now = self.now();
        for host in self.shards_of(machine) {
            let Some(frozen) = self.hosts[host].frozen.take() else { continue };
            if how.clock_stood {
                let slept = now - frozen.since;
                let end = &mut self.hosts[host];
                end.clock.behind += slept;
                end.wake = end.wake.map(|wake| wake + slept);
            }
            for work in frozen.held {
                self.schedule(now, work);
            }
            if how.timers_first {
                self.handle(host, Input::Timeout);
            }
        }
    }

    /// Holds back what a suspended host would do.
    pub(crate) fn unless_frozen(&mut self, work: Work) -> Option<Work> {
        let host = match &work {
            Work::Batch(host, ..)
            | Work::Answer(host, ..)
            | Work::Eap(host, ..)
            | Work::Received(host, _)
            | Work::Notice(host, ..) => *host,
            _ => return Some(work),
        };
        match &mut self.hosts[host].frozen {
            Some(frozen) => {
                frozen.held.push(work);
                None
            }
            None => Some(work),
        }
    }

    /// A machine crashes and starts again at once: its engines know nothing of before.
    pub fn crash(&mut self, machine: usize, crypto: &Arc<CryptoProvider>, what: Crash) {
        self.note(machine, || format!("crash: {what:?}"));
        let registry = Registry::default();
        for host in self.shards_of(machine) {
            let rng = Box::new(self.rng.fork());
            let end = &mut self.hosts[host];
            end.plane.crash(what);
            let capabilities = end.plane.capabilities();
            let config = end.endpoint.config().clone();
            end.endpoint =
                Endpoint::shard(config, Arc::clone(crypto), rng, capabilities, registry.clone());
            (end.batches, end.wake, end.frozen) = (0, None, None);
        }
        let hosts = self.shards_of(machine);
        self.queue.retain(|_, work| match work {
            Work::Batch(host, ..)
            | Work::Answer(host, ..)
            | Work::Eap(host, ..)
            | Work::Received(host, _)
            | Work::Notice(host, ..) => !hosts.contains(host),
            _ => true,
        });
        if what == Crash::Machine {
            self.guard.forget(machine);
        }
    }

    /// Gives a machine another address, or none. It learns of that only if it is told.
    pub fn relocate(&mut self, machine: usize, address: Option<IpAddr>, told: bool) {
        self.note(machine, || format!("address {address:?}, told: {told}"));
        for host in self.shards_of(machine) {
            match address {
                Some(address) => {
                    self.offline.remove(&host);
                    self.set_address(host, address);
                }
                None => _ = self.offline.insert(host),
            }
        }
        for host in self.shards_of(machine).into_iter().filter(|_| told) {
            self.tell_network(host);
        }
    }

    /// What one shard says to the shard that has `ike`.
    pub(crate) fn pass_on(&mut self, host: usize, ike: IkeSaId, notice: Notice) {
        let Shard { count, .. } = self.hosts[host].shard;
        let index = Shard::of_number(count, ike.0);
        let shards = self.shards_of(self.hosts[host].machine);
        let to = shards.into_iter().find(|shard| self.hosts[*shard].shard.index == index);
        if let Some(to) = to {
            self.hosts[host].notices += 1;
            self.schedule(self.now(), Work::Notice(to, ike, notice));
        }
    }

    /// Keeps for the story what happened to a machine.
    fn note(&mut self, machine: usize, what: impl FnOnce() -> String) {
        if self.net.tracing {
            let first = self.shards_of(machine).first().copied().unwrap_or_default();
            self.commands.push((self.now(), first, what()));
        }
    }
}

impl World {
    /// Tells a host what its addresses are, as its driver would: every way leads out by the first one of the
    /// peer's family, if the host has no road.
    pub fn tell_network(&mut self, host: usize) {
        let addresses = match self.roads.get(&host) {
            Some(road) => road.addresses(),
            None => self.own_addresses(host),
        };
        let peers = self.hosts[host].endpoint.mobile_peers(&addresses);
        let source = |peer: &IpAddr| match self.roads.get(&host) {
            Some(road) => Some((*peer, road.source(*peer)?)),
            None => {
                let family = |own: &&IpAddr| own.is_ipv4() == peer.is_ipv4();
                addresses.iter().find(family).map(|own| (*peer, *own))
            }
        };
        let sources = peers.iter().filter_map(source).collect();
        self.handle(host, Input::Network(&Network { addresses, sources }));
    }

    /// The addresses that a driver would start a connection between now: those of the configuration, else where
    /// this host is.
    pub(crate) fn ends(
        &self,
        host: usize,
        connection: &str,
        last: Option<(IpAddr, IpAddr)>,
    ) -> Answer {
        let config = self.hosts[host].endpoint.config();
        let Some(found) = config.connections.iter().find(|other| other.name == connection) else {
            return Answer::Failed(format!("no connection {connection}"));
        };
        let last = last.map(|(_, remote)| remote);
        if let Some(road) = self.roads.get(&host) {
            return match road.ends(found, last) {
                Ok((local, remote)) => Answer::Ends { local, remote },
                Err(why) => Answer::Failed(why),
            };
        }
        let fixed = |specs: &[AddressSpec]| specs.iter().find_map(|spec| spec.host());
        let Some(remote) = fixed(&found.remote_addrs).or(last) else {
            return Answer::Failed("remote_addrs has no address to initiate to".to_owned());
        };
        let own = self.known_addresses(host);
        let here = own.into_iter().find(|own| own.is_ipv4() == remote.is_ipv4());
        match fixed(&found.local_addrs).or(here) {
            Some(_) if self.offline.contains(&host) => Answer::Failed("no route".to_owned()),
            Some(local) => Answer::Ends { local, remote },
            None => Answer::Failed("no address of that family".to_owned()),
        }
    }

    /// True if the kernel of a host takes a packet of its daemon from `local` to `remote`.
    pub(crate) fn sends(&self, host: usize, local: IpAddr, remote: IpAddr) -> bool {
        match self.roads.get(&host) {
            Some(road) => road.sends(local, remote),
            None => self.has_address(host, local),
        }
    }

    /// Where a packet to `to` goes that hosts behind a machine send.
    pub(crate) fn exit(&self, machine: usize, to: IpAddr) -> Exit {
        let first = self.shards_of(machine).first().copied();
        let road = first.and_then(|host| self.roads.get(&host));
        road.map_or(Exit::Tunnel, |road| road.exit(to))
    }

    /// True if a machine has a second line behind its routes.
    pub(crate) fn second_line(&self, machine: usize) -> bool {
        let first = self.shards_of(machine).first().copied();
        first.and_then(|host| self.roads.get(&host)).is_some_and(|road| road.second_line())
    }
}
