//! What must be true in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use ike_proto::{ChildState, IkeState};

use super::driver::packet_of;
use super::{Life, Met};
use crate::agreement;
use crate::host::Host;
use crate::pair::{A, B};

/// How often test packets are sent while they do not arrive.
const STEP: Duration = Duration::from_secs(1);
/// The longest that two of one child may be there at once, as while it is rekeyed.
const OVERLAP: Duration = Duration::from_secs(30);
/// How long packets may stay away in between: one may overtake the message that makes its SA known.
const HICCUP: Duration = Duration::from_secs(2);
/// How long all must be well at the end.
const STEADY: Duration = Duration::from_secs(40);
/// The longest until both ends have the same SAs.
const AGREE: Duration = Duration::from_secs(3600);
/// Octets of a test packet.
const TEST_PACKET: u64 = 84;

/// Which properties are asked for; tests ask for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Wanted children carry traffic within the bound.
    pub alive: bool,
    /// There is one of each at each end.
    pub single: bool,
    /// They do within ten seconds after an own change of address, or as long as the round trips take.
    pub moves: bool,
    /// Nothing leaves in clear.
    pub closed: bool,
    /// Both ends have the same SAs, and their data planes exactly those.
    pub agree: bool,
}

impl Properties {
    /// All of them.
    pub const ALL: Self =
        Self { alive: true, single: true, moves: true, closed: true, agree: true };
    /// Those that every life has today.
    pub const HELD: Self = Self::ALL;
}

/// Since when something is so, short gaps apart.
struct Streak {
    gap: Duration,
    /// Its beginning, and when it was last so.
    span: Option<(Duration, Duration)>,
}

impl Streak {
    fn new(gap: Duration) -> Self {
        Self { gap, span: None }
    }

    /// At `now` it is so, or not. Returns the beginning of the streak.
    fn note(&mut self, now: Duration, is_so: bool) -> Option<Duration> {
        match &mut self.span {
            Some((_, last)) if is_so => *last = now,
            None if is_so => self.span = Some((now, now)),
            Some((_, last)) if now > *last + self.gap => self.span = None,
            _ => {}
        }
        self.span.map(|(begun, _)| begun)
    }
}

impl Life {
    /// A packet each way for each wanted child; what became of the first that did not arrive.
    pub(super) fn send_packets(&mut self, octets: u64) -> Result<(), String> {
        let names: Vec<_> = self.drivers[A].wanted.iter().map(|child| child.name.clone()).collect();
        let mut outcome = Ok(());
        for name in &names {
            for from in [A, B] {
                let Some(inner) = packet_of(from, name) else { continue };
                if self.world.is_suspended(from) {
                    continue;
                }
                self.packets += 1;
                let sent = self.world.send_packet(from, 1 - from, inner, octets);
                let end = ["A", "B"][from];
                outcome = outcome.and(sent.map_err(|why| format!("{name}, sent by {end}: {why}")));
                self.react();
            }
        }
        outcome
    }

    pub(super) fn send_test_packets(&mut self) {
        // Nobody expects them to arrive.
        let _ = self.send_packets(TEST_PACKET);
    }

    /// What a crashed daemon has left in its kernel may carry packets yet, and the other end takes them for a sign of life. No
    /// address of it follows a move. So it has to be gone before one, and all children carry traffic again.
    fn outlive_leftovers(&mut self) -> Result<(), String> {
        let Some(until) = self.leftover_until.iter().flatten().max().copied() else {
            return Ok(());
        };
        if self.both_have_all().is_ok() {
            return Ok(());
        }
        let now = self.world.now();
        self.run_for(until.saturating_sub(now));
        self.prove(self.plan.bound, self.plan.bound, self.properties.alive)?;
        self.both_have_all()
    }

    /// Both daemons have all children.
    fn both_have_all(&self) -> Result<(), String> {
        for child in &self.drivers[A].wanted {
            for machine in [A, B] {
                if self.count(machine, &child.name) == 0 {
                    return Err(format!("{} is unknown to {}", child.name, ["A", "B"][machine]));
                }
            }
        }
        Ok(())
    }

    /// There is exactly one of each wanted child at each end, and one more at the most while it is replaced.
    fn one_of_each(&self) -> Result<(), String> {
        for child in &self.drivers[A].wanted {
            for machine in [A, B] {
                let there = self.count(machine, &child.name);
                let enough = if self.plan.per_cpu { there >= 1 } else { there == 1 };
                if !enough {
                    return Err(format!("{there} of {} at {}", child.name, ["A", "B"][machine]));
                }
            }
        }
        Ok(())
    }

    /// Children of IKE SAs that this end is deleting do not count: they only wait for the peer's answer.
    fn count(&self, machine: usize, name: &str) -> usize {
        let shards = self.world.shards_of(machine);
        let ikes = shards.iter().flat_map(|host| self.world.hosts[*host].ikes());
        let alive = ikes.filter(|ike| ike.state == IkeState::Established);
        let children = alive.flat_map(|ike| ike.children);
        let counts = |state| matches!(state, ChildState::Installed | ChildState::Rekeying);
        children.filter(|child| child.name == name && counts(child.state)).count()
    }

    /// Within `bound` every wanted child carries traffic both ways, and there is one of each. It stays so. Returns how
    /// long it took until all carried traffic.
    pub(super) fn prove_alive(&mut self, bound: Duration) -> Result<Duration, String> {
        // One SA of an earlier run that carries packets hides from the peer that others carry none any more. And what
        // the earlier run left ends only when the peer begins anew: its children come back one after the other then.
        let alive_by = bound + self.leftover_from(self.world.now());
        self.prove(alive_by, bound, self.properties.alive)
    }

    /// How long after `begun` a kernel has SAs of an earlier run at the most.
    fn leftover_from(&self, begun: Duration) -> Duration {
        let left = self.leftover_until.iter().flatten().max();
        left.map_or(Duration::ZERO, |at| at.saturating_sub(begun))
    }

    /// A moves: soon all is well again.
    pub(super) fn prove_moving(&mut self) -> Result<Option<Duration>, String> {
        if !self.plan.roams || !self.properties.moves {
            return Ok(None);
        }
        self.outlive_leftovers()?;
        self.meet(if self.plan.mobike { Met::RoamMobike } else { Met::RoamPlain });
        if self.is_connecting(A) {
            self.meet(Met::RoamAttempt);
        }
        let to = 1 + usize::try_from(self.rng.below(3)).unwrap_or_default();
        self.go_to(Some(to), true);
        let took = self.prove(self.plan.move_bound, self.plan.bound, self.properties.alive);
        took.map(Some).map_err(|what| format!("after a move: {what}"))
    }

    /// From some moment within the bounds on, all is well for [`STEADY`]. Until the bounds are reached a disturbance may
    /// have consequences: a request that it has swallowed may be given up only now, and an IKE SA with it.
    fn prove(
        &mut self,
        alive_by: Duration,
        single_by: Duration,
        asked: bool,
    ) -> Result<Duration, String> {
        let begun = self.world.now();
        // As long as the SAs of an earlier run carry the traffic (`--keep-sas`), the peer does not notice that the IKE SA
        // is gone.
        let single_by = single_by + self.leftover_from(begun);
        let (mut alive, mut single) = (Streak::new(HICCUP), Streak::new(OVERLAP));
        loop {
            let took = self.world.now() - begun;
            let arrived = self.send_packets(TEST_PACKET);
            let counted = if self.properties.single { self.one_of_each() } else { Ok(()) };
            self.prove_closed()?;
            let alive_at = alive.note(took, arrived.is_ok());
            let single_at = single.note(took, counted.is_ok());
            if let (Some(alive_at), Some(single_at)) = (alive_at, single_at)
                && took >= alive_at.max(single_at) + STEADY
            {
                return Ok(alive_at);
            }
            let late = |why: String| Err(format!("{took:?} after the last disturbance: {why}"));
            match (arrived, counted) {
                (Err(why), _) if asked && alive_at.is_none() && took >= alive_by => {
                    return late(why);
                }
                (_, Err(why)) if single_at.is_none() && took >= single_by + OVERLAP => {
                    return late(why);
                }
                _ => {}
            }
            // Whether traffic arrives is not asked: one of each, and that for long enough, is all.
            let is_single = single_at.is_some_and(|single_at| took >= single_at + STEADY);
            if !asked && is_single && took > single_by + OVERLAP {
                return Ok(took);
            }
            self.run_for(STEP);
        }
    }

    /// Nothing has left in clear.
    pub(super) fn prove_closed(&self) -> Result<(), String> {
        match self.world.guard.leaks.first() {
            Some(leak) if self.properties.closed => Err(format!("in clear: {leak:?}")),
            _ => Ok(()),
        }
    }

    /// Both ends come to have the same SAs.
    pub(super) fn prove_agreement(&mut self) -> Result<(), String> {
        let end = self.world.now() + AGREE;
        loop {
            let what = self.agreement().err().or_else(|| self.pending());
            self.prove_closed()?;
            match what {
                None => return Ok(()),
                Some(_) if !self.properties.agree => return Ok(()),
                Some(what) if self.world.now() >= end => {
                    return Err(format!("no agreement: {what}"));
                }
                Some(_) => self.run_for(Duration::from_secs(10)),
            }
        }
    }

    fn agreement(&self) -> Result<(), String> {
        let world = &self.world;
        if let Some(complaint) = world.audit.complaints.first() {
            return Err(format!("audit: {complaint}"));
        }
        for (index, host) in world.hosts.iter().enumerate() {
            let quiet = agreement::quiet(host).and_then(|()| agreement::exact(host));
            quiet.map_err(|what| format!("host {index}: {what}"))?;
        }
        let of = |machine| -> Vec<&Host> {
            world.shards_of(machine).into_iter().map(|host| &world.hosts[host]).collect()
        };
        let (a, b) = (of(A), of(B));
        let (ikes_a, ikes_b) = (ikes(&a), ikes(&b));
        if ikes_a != ikes_b {
            return Err(format!("IKE SAs differ: {ikes_a:x?} and {ikes_b:x?}"));
        }
        let (children_a, children_b) = (children(&a), children(&b));
        let swapped: BTreeSet<_> = children_b.iter().map(|(i, o)| (*o, *i)).collect();
        if children_a != swapped {
            return Err(format!("children differ: {children_a:x?} and {swapped:x?}"));
        }
        keys(&a, &b).and_then(|()| keys(&b, &a))
    }
}

fn ikes(hosts: &[&Host]) -> BTreeSet<(u64, u64)> {
    let all = hosts.iter().flat_map(|host| host.ikes());
    all.map(|ike| (ike.spi_i, ike.spi_r)).collect()
}

fn children(hosts: &[&Host]) -> BTreeSet<(u32, u32)> {
    let all = hosts.iter().flat_map(|host| host.children());
    all.map(|child| (child.inbound.spi, child.outbound.spi)).collect()
}

/// What one machine sends, the other can decrypt.
fn keys(from: &[&Host], to: &[&Host]) -> Result<(), String> {
    for (sa, key) in from.iter().flat_map(|host| host.plane.outbound()) {
        let takes =
            |(id, other): (ike_proto::dataplane::SaId, u64)| id.spi == sa.spi && other == key;
        if !to.iter().any(|host| host.plane.inbound().any(takes)) {
            return Err(format!("the keys of {:08x} differ", sa.spi));
        }
    }
    Ok(())
}
