//! What becomes of a packet: which policy it meets, by which SA it leaves, whether the other end takes it.
//!
//! The shards of a machine have a data plane each here, and packets meet the policies of all of them, as they would
//! in the one data plane that a daemon has.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::dataplane::precedence::Order;
use ike_proto::dataplane::{Event, PolicyAction, PolicyId, SaId, TrafficSelector};

use crate::plane::{Candidate, Plane, Since};
use crate::road::Exit;
use crate::world::World;

/// Source and destination of a packet inside a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inner {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
}

impl Inner {
    /// A packet of the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }
}

/// What a machine does with a packet that is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by this SA of this host.
    Sealed {
        /// The shard that has the SA.
        host: usize,
        /// The SA.
        sa: SaId,
        /// Hash of its keys.
        key: u64,
        /// Outer source and destination.
        outer: (SocketAddr, SocketAddr),
    },
    /// It met a trap of this host.
    Trapped(usize, PolicyId),
    /// It is dropped, and no shunt had to see to that.
    Dropped,
    /// It is dropped by a policy of the driver that stands in for a child.
    Shunted,
    /// It leaves as it is.
    Clear,
}

/// A packet that left in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// When.
    pub at: Duration,
    /// The machine.
    pub machine: usize,
    /// The child that was to protect it.
    pub child: String,
}

/// Watches that no packet leaves in clear that is to be protected.
#[derive(Debug, Default)]
pub struct Guard {
    protected: Vec<(usize, String, Inner)>,
    /// Packets that left in clear.
    pub leaks: Vec<Leak>,
    /// Packets that met a shunt: but for that they had left in clear.
    pub shunted: u64,
    /// Packets looked at.
    pub packets: u64,
}

impl Guard {
    /// From now on `machine` sends no packet like `inner` in clear: it is for `child`.
    pub fn protect(&mut self, machine: usize, child: &str, inner: Inner) {
        let entry = (machine, child.to_owned(), inner);
        if !self.protected.contains(&entry) {
            self.protected.push(entry);
        }
    }

    /// A machine starts anew, with a data plane that has never protected anything.
    pub fn forget(&mut self, machine: usize) {
        self.protected.retain(|(of, ..)| *of != machine);
    }

    /// Nobody wants `child` of `machine` any more.
    pub fn release(&mut self, machine: usize, child: &str) {
        self.protected.retain(|(of, name, _)| (*of, name.as_str()) != (machine, child));
    }
}

impl World {
    /// What `machine` does with a packet that is to leave.
    pub fn verdict(&self, machine: usize, inner: Inner) -> Verdict {
        match self.exit(machine, inner.dst) {
            Exit::Tunnel => self.by_policy(machine, inner),
            Exit::Nowhere => Verdict::Dropped,
            Exit::Outside if !self.second_line(machine) => Verdict::Clear,
            Exit::Outside => match self.by_policy(machine, inner) {
                Verdict::Clear => Verdict::Clear,
                _ => Verdict::Dropped,
            },
        }
    }

    /// What the policies of `machine` do with a packet.
    fn by_policy(&self, machine: usize, inner: Inner) -> Verdict {
        let mut best: Option<(Rank, usize, Candidate<'_>)> = None;
        for host in (0..self.hosts.len()).filter(|host| self.hosts[*host].machine == machine) {
            for candidate in self.hosts[host].plane.candidates() {
                let Some(order) = order(&candidate, inner) else { continue };
                let rank = (order, candidate.policy.standby, Reverse(candidate.since));
                if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
                    best = Some((rank, host, candidate));
                }
            }
        }
        let Some((_, host, Candidate { policy, plane, .. })) = best else { return Verdict::Clear };
        match policy.action {
            PolicyAction::Protect { outbound: Some(sa), .. } => sealed(host, sa, plane),
            PolicyAction::Protect { outbound: None, .. } | PolicyAction::Drop => Verdict::Dropped,
            PolicyAction::Trap => Verdict::Trapped(host, policy.id),
            PolicyAction::Shunt { .. } | PolicyAction::Hold { .. } => Verdict::Shunted,
            PolicyAction::Pass => Verdict::Clear,
        }
    }

    /// Sends a packet of `octets` from one machine to another, at once and without loss: it counts on the SAs that it
    /// travels by, refreshes the mappings of NATs, and meets traps.
    ///
    /// # Errors
    ///
    /// Where the packet ended, in words.
    pub fn send_packet(
        &mut self,
        from: usize,
        to: usize,
        inner: Inner,
        octets: u64,
    ) -> Result<(), String> {
        let (host, sa, key, (src, dst)) = match self.verdict(from, inner) {
            Verdict::Sealed { host, sa, key, outer } => (host, sa, key, outer),
            Verdict::Trapped(host, policy) => {
                let local = TrafficSelector::host(inner.src);
                let remote = TrafficSelector::host(inner.dst);
                self.plane_event(host, Event::Acquire { policy, local, remote, cpu: None });
                return Err("it met a trap".to_owned());
            }
            verdict => return Err(format!("{verdict:?}")),
        };
        if !self.sends(host, src.ip(), dst.ip()) {
            return Err(format!(
                "{:08x} sends from {}: not an own address, or no route",
                sa.spi,
                src.ip()
            ));
        }
        let now = self.now();
        let spent = self.hosts[host].plane.spend(sa, octets, now);
        let src = self.net.outward(self.now(), src);
        let arrived = self.admit(to, inner, (sa, key), (src, dst));
        if let Some(event) = spent {
            self.plane_event(host, event);
        }
        let (receiver, id) = arrived?;
        let first = !self.hosts[receiver].plane.was_used(id);
        let spent = self.hosts[receiver].plane.spend(id, octets, now);
        if first && self.traffic.first_packets {
            self.plane_event(receiver, Event::FirstPacket(id));
        }
        if let Some(event) = spent {
            self.plane_event(receiver, event);
        }
        self.notice_mapping(receiver, id, src);
        Ok(())
    }

    /// The host of machine `to` and its inbound SA that take a packet of `sa`, sent from and to these outer ends.
    fn admit(
        &self,
        to: usize,
        inner: Inner,
        (sa, key): (SaId, u64),
        (src, dst): (SocketAddr, SocketAddr),
    ) -> Result<(usize, SaId), String> {
        let name = format!("{:08x} from {src} to {dst}", sa.spi);
        let Some(dst) = self.net.leads_to(dst) else {
            return Err(format!("{name}: no NAT has a mapping for it"));
        };
        let shards = self.shards_of(to);
        if !shards.iter().any(|shard| self.has_address(*shard, dst.ip())) {
            return Err(format!("{name}: not the peer's address"));
        }
        if self.is_suspended(to) {
            return Err(format!("{name}: the peer is suspended"));
        }
        let taking = shards.iter().find_map(|shard| {
            let (id, plane) = self.hosts[*shard].plane.taking(sa.spi, key)?;
            Some((*shard, id, plane.table().sa(id)?.policy, plane))
        });
        let Some((receiver, id, policy, plane)) = taking else {
            return Err(format!("{name}: no inbound SA takes it"));
        };
        if id.dst != dst.ip() {
            return Err(format!("{name}: its inbound SA is for {}", id.dst));
        }
        let back = inner.reversed();
        let admits = plane.table().policy(policy).is_some_and(|policy| {
            let protects = matches!(policy.action, PolicyAction::Protect { .. });
            protects && within(&policy.local_ts, back.src) && within(&policy.remote_ts, back.dst)
        });
        if admits { Ok((receiver, id)) } else { Err(format!("{name}: no policy admits it")) }
    }

    /// Tells an engine that packets of `id` come from somewhere else than its SA says, as a NAT makes them.
    fn notice_mapping(&mut self, receiver: usize, id: SaId, src: SocketAddr) {
        let plane = &self.hosts[receiver].plane;
        let Some(ports) = plane.table().sa(id).and_then(|sa| Some(sa.encap?.ports())) else {
            return;
        };
        let known = plane.source_of(id).map(|ip| SocketAddr::new(ip, ports.src_port));
        if known.is_some_and(|known| known != src) {
            self.plane_event(receiver, Event::Mapping { sa: id, remote: src });
        }
    }

    /// The tables of a host have changed: no packet that is to be protected leaves in clear now.
    pub(crate) fn look_for_clear(&mut self, host: usize) {
        let machine = self.hosts[host].machine;
        self.look_for_clear_of(machine);
    }

    /// The same after something else has changed.
    pub fn look_for_clear_of(&mut self, machine: usize) {
        let mut guard = std::mem::take(&mut self.guard);
        for (of, child, inner) in guard.protected.iter().filter(|(of, ..)| *of == machine) {
            guard.packets += 1;
            match self.verdict(*of, *inner) {
                Verdict::Clear => {
                    let (at, child) = (self.now(), child.clone());
                    guard.leaks.push(Leak { at, machine, child });
                }
                Verdict::Shunted => guard.shunted += 1,
                _ => {}
            }
        }
        self.guard = guard;
    }
}

fn sealed(host: usize, sa: SaId, plane: &Plane) -> Verdict {
    let installed = plane.table().sa(sa).zip(plane.key_of(sa)).zip(plane.source_of(sa));
    // An SA that is not there, or has reached a limit, sends nothing; nor does another one in its place.
    let Some(((known, key), src)) = installed.filter(|_| !plane.has_expired(sa)) else {
        return Verdict::Dropped;
    };
    let ports = known.encap.map(|encap| encap.ports());
    let (from, to) = ports.map_or((0, 0), |ports| (ports.src_port, ports.dst_port));
    let outer = (SocketAddr::new(src, from), SocketAddr::new(sa.dst, to));
    Verdict::Sealed { host, sa, key, outer }
}

/// The order of its selectors, whether it is on standby, and since when it is there.
type Rank = (Order, bool, Reverse<Since>);

/// Where the candidate stands for a packet; `None` if it does not match.
fn order(candidate: &Candidate<'_>, inner: Inner) -> Option<Order> {
    let policy = candidate.policy;
    let mut best: Option<Order> = None;
    for local in policy.local_ts.iter().filter(|ts| holds(ts, inner.src)) {
        for remote in policy.remote_ts.iter().filter(|ts| holds(ts, inner.dst)) {
            let order = Order::of(policy, local, remote);
            best = Some(best.map_or(order, |best| best.min(order)));
        }
    }
    best
}

fn within(selectors: &[TrafficSelector], address: IpAddr) -> bool {
    selectors.iter().any(|ts| holds(ts, address))
}

fn holds(ts: &TrafficSelector, address: IpAddr) -> bool {
    ts.start.is_ipv4() == address.is_ipv4() && ts.start <= address && address <= ts.end
}
