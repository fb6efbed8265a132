//! Would a packet sent now arrive? Packets here are SPIs and hashes of keys.
//!
//! A host sends by the SA its policy names. The packet arrives if, when it gets there, the receiver
//! has an inbound SA with that SPI and those keys.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ike_proto::Input;
use ike_proto::dataplane::{self, PolicyId, SaId};

use crate::host::Host;
use crate::world::{Work, World};

/// An ESP packet under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// When it was sent.
    pub sent: Duration,
    /// The host that sent it.
    pub from: usize,
    /// The policy it was sent by.
    pub policy: PolicyId,
    /// The SA it was sent by.
    pub sa: SaId,
    /// Hash of that SA's keys.
    pub key: u64,
    /// Octets; 0 for one that is not counted.
    pub octets: u64,
}

/// A packet that did not make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// When it arrived, or would have.
    pub at: Duration,
    /// The packet.
    pub probe: Probe,
}

/// Watches traffic.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Sends packets before and after every change of a table.
    pub watching: bool,
    /// Tells engines of the first packet on an inbound SA, as the userspace data plane does.
    pub first_packets: bool,
    /// Packets lost since watching began.
    pub lost: Vec<Lost>,
    /// Packets that came before their receiver could know of a new child. IKEv2 cannot prevent that:
    /// the responder of a new child is ready first.
    pub early: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// The first SA each policy sent by.
    first_routes: HashMap<(usize, PolicyId), SaId>,
    /// SPI and keys of every inbound SA there ever was.
    known: HashSet<(u32, u64)>,
}

impl Traffic {
    /// Starts to watch, and forgets what was lost.
    pub fn watch(&mut self) {
        self.watching = true;
        self.lost.clear();
    }

    /// The host that takes a packet.
    pub(crate) fn receiver(probe: &Probe, hosts: &[Host]) -> Option<usize> {
        hosts.iter().enumerate().find_map(|(index, host)| {
            let takes = |(id, key): (SaId, u64)| id.spi == probe.sa.spi && key == probe.key;
            (index != probe.from && host.plane.inbound().any(takes)).then_some(index)
        })
    }

    /// The tables of `host` have changed: what is under way to it must still arrive.
    pub(crate) fn after_change(&mut self, now: Duration, host: usize, hosts: &[Host]) {
        let inbound = hosts[host].plane.inbound();
        self.known.extend(inbound.map(|(id, key)| (id.spi, key)));
        for from in (0..hosts.len()).filter(|from| *from != host) {
            for probe in self.routes(now, from, hosts) {
                if Self::receiver(&probe, hosts).is_none() {
                    self.lose(now, probe);
                }
            }
        }
    }

    /// One packet by each route of `from`.
    pub(crate) fn routes(&mut self, now: Duration, from: usize, hosts: &[Host]) -> Vec<Probe> {
        let plane = &hosts[from].plane;
        let mut probes = Vec::new();
        for (policy, route) in plane.routes_in_use() {
            let Some(sa) = route else { continue };
            self.first_routes.entry((from, policy)).or_insert(sa);
            let key = plane.key_of(sa);
            let probe = Probe { sent: now, from, policy, sa, key: key.unwrap_or(0), octets: 0 };
            match key {
                Some(_) => probes.push(probe),
                // A policy that names an SA not installed.
                None => self.lost.push(Lost { at: now, probe }),
            }
        }
        probes
    }

    /// A packet arrives. Returns the host and its SA if it is the first there and to be told.
    pub(crate) fn arrive(
        &mut self,
        now: Duration,
        probe: Probe,
        hosts: &mut [Host],
    ) -> Option<(usize, SaId)> {
        let Some(to) = Self::receiver(&probe, hosts) else {
            self.lose(now, probe);
            return None;
        };
        self.arrived += 1;
        let (sa, _) = hosts[to].plane.inbound().find(|(id, _)| id.spi == probe.sa.spi)?;
        let first = !hosts[to].plane.was_used(sa);
        if probe.octets > 0 || self.first_packets {
            hosts[to].plane.count(sa, probe.octets, now);
        }
        (first && self.first_packets).then_some((to, sa))
    }

    fn lose(&mut self, at: Duration, probe: Probe) {
        let new_child = self.first_routes.get(&(probe.from, probe.policy)) == Some(&probe.sa);
        if new_child && !self.known.contains(&(probe.sa.spi, probe.key)) {
            self.early += 1;
        } else if self.watching {
            self.lost.push(Lost { at, probe });
        }
    }
}

impl World {
    /// Sends ESP packets around a change of `host`'s tables, if traffic is watched.
    pub(crate) fn probe(&mut self, host: usize, after: bool) {
        if !self.traffic.watching {
            return;
        }
        let now = self.now();
        if after {
            self.traffic.after_change(now, host, &self.hosts);
        }
        for probe in self.traffic.routes(now, host, &self.hosts) {
            // The last packet of the old state is the slowest, the first of the new the fastest.
            self.send_esp(probe, !after);
        }
    }

    fn send_esp(&mut self, probe: Probe, slow: bool) {
        let to = Traffic::receiver(&probe, &self.hosts).unwrap_or(usize::MAX);
        let link = self.net.link(Some(probe.from), to);
        let delay = if slow { link.delay + link.jitter } else { link.delay };
        self.schedule(self.now() + delay, Work::Esp(probe));
    }

    pub(crate) fn esp(&mut self, probe: Probe) {
        let now = self.now();
        let first = self.traffic.arrive(now, probe, &mut self.hosts);
        if let Some((host, sa)) = first.filter(|(host, _)| self.hosts[*host].frozen.is_none()) {
            self.handle(host, Input::DataPlane(dataplane::Event::FirstPacket(sa)));
        }
    }

    /// Sends one ESP packet of `octets` by each route of `host`; ESP is not lost on the way.
    pub fn send_traffic(&mut self, host: usize, octets: u64) {
        let now = self.now();
        for mut probe in self.traffic.routes(now, host, &self.hosts) {
            probe.octets = octets;
            self.hosts[host].plane.count(probe.sa, octets, now);
            self.send_esp(probe, false);
        }
    }
}
