//! Would a packet sent now arrive? Packets here are SPIs and hashes of keys.
//!
//! A host sends by the SA its policy names. The packet arrives if, when it gets there, the receiver
//! has an inbound SA with that SPI and those keys.

use std::time::Duration;

use ike_proto::dataplane::SaId;

use crate::host::Host;

/// An ESP packet under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// When it was sent.
    pub sent: Duration,
    /// The host that sent it.
    pub from: usize,
    /// The host that had the SA when it was sent, if one did.
    pub to: Option<usize>,
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
    /// Packets that arrived.
    pub arrived: u64,
}

impl Traffic {
    /// Starts to watch, and forgets what was lost.
    pub fn watch(&mut self) {
        self.watching = true;
        self.lost.clear();
    }

    /// Packets to send around a change of the tables of `host`: those that it sends itself.
    pub(crate) fn around_change(
        &mut self,
        now: Duration,
        host: usize,
        after: bool,
        hosts: &[Host],
    ) -> Vec<Probe> {
        let probes = self.routes(now, host, hosts);
        if !after {
            return probes;
        }
        probes
    }

    /// The tables of `host` have changed: what others send it must still arrive.
    pub(crate) fn after_change(&mut self, now: Duration, host: usize, hosts: &[Host]) {
        for from in (0..hosts.len()).filter(|from| *from != host) {
            for probe in self.routes(now, from, hosts) {
                if probe.to.is_none() {
                    self.lose(now, probe);
                }
            }
        }
    }

    /// One packet by each route of `host`, counted at the sender.
    pub(crate) fn packets(
        &mut self,
        now: Duration,
        host: usize,
        octets: u64,
        hosts: &mut [Host],
    ) -> Vec<Probe> {
        let mut probes = self.routes(now, host, hosts);
        for probe in &mut probes {
            probe.octets = octets;
            hosts[host].plane.count(probe.sa, octets, now);
        }
        probes
    }

    fn routes(&mut self, now: Duration, from: usize, hosts: &[Host]) -> Vec<Probe> {
        let plane = &hosts[from].plane;
        let mut probes = Vec::new();
        for (_, route) in plane.routes() {
            let Some(sa) = route else { continue };
            match plane.key_of(sa) {
                Some(key) => {
                    let to = receiver(from, sa, key, hosts);
                    probes.push(Probe { sent: now, from, to, sa, key, octets: 0 });
                }
                // A policy that names an SA not installed.
                None => {
                    let probe = Probe { sent: now, from, to: None, sa, key: 0, octets: 0 };
                    self.lose(now, probe);
                }
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
        let Some(to) = receiver(probe.from, probe.sa, probe.key, hosts) else {
            self.lose(now, probe);
            return None;
        };
        self.arrived += 1;
        let found = hosts[to].plane.inbound().find(|(id, _)| id.spi == probe.sa.spi);
        let (sa, _) = found?;
        let first = !hosts[to].plane.was_used(sa);
        if probe.octets > 0 || self.first_packets {
            hosts[to].plane.count(sa, probe.octets, now);
        }
        (first && self.first_packets).then_some((to, sa))
    }

    fn lose(&mut self, at: Duration, probe: Probe) {
        self.lost.push(Lost { at, probe });
    }
}

/// The host that takes a packet of `sa`.
fn receiver(from: usize, sa: SaId, key: u64, hosts: &[Host]) -> Option<usize> {
    hosts.iter().enumerate().find_map(|(index, host)| {
        let takes = host.plane.inbound().any(|(id, other)| id.spi == sa.spi && other == key);
        (index != from && takes).then_some(index)
    })
}
