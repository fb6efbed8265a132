//! A data plane for simulations: it remembers, can be slow, can refuse, and tells keys apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Event, Limits, PolicyAction,
    PolicyId, PolicySpec, Reply, SaId, Usage,
};
use xfrm::{Faulty, Recording};

use crate::machine::Crash;
use crate::road::{Mirror, PolicyChange};

/// The data plane of one host.
#[derive(Debug)]
pub struct Plane {
    /// Tables, and the faults to come.
    pub inner: Faulty<Recording>,
    /// What the engine is told at its start.
    pub capabilities: Capabilities,
    /// How long a batch takes. Batches are applied at the end of it, in order.
    pub delay: Duration,
    /// A hash of each SA's keys, the same in all planes of a process.
    keys: HashMap<SaId, u64>,
    /// When each SA carried its last packet.
    last_packet: HashMap<SaId, Duration>,
    now: Duration,
    /// Octet and packet limits of each SA.
    limits: HashMap<SaId, Limits>,
    /// Source address of each SA's packets.
    sources: HashMap<SaId, IpAddr>,
    /// SAs that reached a hard limit: they carry nothing any more.
    expired: HashSet<SaId>,
    /// When each policy was installed first.
    since: HashMap<PolicyId, Since>,
    installed: u64,
    /// The driver's own policies, which stand in for children that are not up, by the names of those.
    pub shunts: BTreeMap<String, PolicySpec>,
    /// What a run of the program that crashed left in the kernel.
    leftover: Option<Box<Self>>,
    /// What is to be in step with its tables: the routes of a host.
    pub mirror: Option<Mirror>,
    /// The program ends: it removes everything at once, or leaves it.
    pub stopping: bool,
}

/// When a policy was installed, in the order of a machine's whole data plane: the time, and a number that grows.
pub type Since = (Duration, u64);

/// A policy that a packet may meet.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The policy.
    pub policy: &'a PolicySpec,
    /// When it was installed. Zero for what an earlier run left.
    pub since: Since,
    /// The table that has its SAs.
    pub plane: &'a Plane,
}

impl Plane {
    /// Fast, willing, and able to do all there is.
    pub fn new() -> Self {
        let inner = Faulty::new(Recording::new());
        Self {
            capabilities: inner.capabilities(),
            inner,
            delay: Duration::ZERO,
            keys: HashMap::new(),
            last_packet: HashMap::new(),
            now: Duration::ZERO,
            limits: HashMap::new(),
            sources: HashMap::new(),
            expired: HashSet::new(),
            since: HashMap::new(),
            installed: 0,
            shunts: BTreeMap::new(),
            leftover: None,
            mirror: None,
            stopping: false,
        }
    }

    /// The program that filled it crashes, or the whole machine. What a program leaves stays beneath the policies of
    /// the next run.
    pub fn crash(&mut self, what: Crash) {
        let fresh = Self { capabilities: self.capabilities, delay: self.delay, ..Self::new() };
        let mut old = std::mem::replace(self, fresh);
        if what == Crash::Program {
            self.shunts = std::mem::take(&mut old.shunts);
            // What the run before that left stays beneath, too.
            self.leftover = Some(Box::new(old));
        }
    }

    /// Takes away the SAs that an earlier run left: its policies drop packets from now on.
    pub fn forget_leftover_sas(&mut self) {
        if let Some(old) = &mut self.leftover {
            let sas = old.sas_in_order();
            old.expired.extend(sas);
            old.forget_leftover_sas();
        }
    }

    /// Takes away what an earlier run left.
    pub fn forget_leftover(&mut self) {
        self.leftover = None;
    }

    /// Every policy that packets may meet: the engine's, the driver's own, and what an earlier run left.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        let since = |policy: &PolicySpec| self.since.get(&policy.id).copied().unwrap_or_default();
        let engines = self.table().policies();
        let own = engines.map(|policy| Candidate { policy, since: since(policy), plane: self });
        let shunts = self.shunts.values().map(|policy| Candidate {
            policy,
            since: Since::default(),
            plane: self,
        });
        let earlier =
            std::iter::successors(self.leftover.as_deref(), |old| old.leftover.as_deref());
        let left = earlier.flat_map(|old| {
            let policies = old.table().policies();
            policies.map(|policy| Candidate { policy, since: Since::default(), plane: old })
        });
        own.chain(shunts).chain(left).collect()
    }

    /// The inbound SA with this SPI and these keys that still takes packets, what an earlier run left included, and
    /// the table that has it.
    pub fn taking(&self, spi: u32, key: u64) -> Option<(SaId, &Self)> {
        let takes = |(id, known): &(SaId, u64)| {
            id.spi == spi && *known == key && !self.expired.contains(id)
        };
        let found = self.inbound().find(takes).map(|(id, _)| (id, self));
        found.or_else(|| self.leftover.as_ref()?.taking(spi, key))
    }

    /// Source address of the packets of `id`.
    pub fn source_of(&self, id: SaId) -> Option<IpAddr> {
        self.sources.get(&id).copied()
    }

    /// True if `id` has reached a hard limit.
    pub fn has_expired(&self, id: SaId) -> bool {
        self.expired.contains(&id)
    }

    /// `id` reaches a hard limit: it carries nothing any more.
    pub fn expire(&mut self, id: SaId) {
        self.expired.insert(id);
    }

    /// Counts a packet, and says which limits that reaches.
    pub fn spend(&mut self, id: SaId, octets: u64, now: Duration) -> Option<Event> {
        let before = self.table().sa(id)?.usage;
        self.count(id, octets, now);
        let after = self.table().sa(id)?.usage;
        let limits = self.limits.get(&id).copied().unwrap_or_default();
        let crossed =
            |limit: u64, before: u64, after: u64| limit > 0 && before < limit && after >= limit;
        if crossed(limits.hard_bytes, before.bytes, after.bytes)
            || crossed(limits.hard_packets, before.packets, after.packets)
        {
            self.expire(id);
            return Some(Event::HardExpire(id));
        }
        let soft = crossed(limits.soft_bytes, before.bytes, after.bytes)
            || crossed(limits.soft_packets, before.packets, after.packets);
        soft.then_some(Event::SoftExpire(id))
    }

    /// What is installed.
    pub fn table(&self) -> &Recording {
        self.inner.inner()
    }

    /// Inbound SAs and the hash of their keys.
    pub fn inbound(&self) -> impl Iterator<Item = (SaId, u64)> {
        self.halves(Direction::In)
    }

    /// Outbound SAs and the hash of their keys.
    pub fn outbound(&self) -> impl Iterator<Item = (SaId, u64)> {
        self.halves(Direction::Out)
    }

    fn halves(&self, direction: Direction) -> impl Iterator<Item = (SaId, u64)> {
        let wanted = move |direction_: Direction| direction_ == direction;
        self.table()
            .sas()
            .filter(move |(_, sa)| wanted(sa.direction))
            .map(|(id, _)| (id, self.keys.get(&id).copied().unwrap_or_default()))
    }

    /// The SAs of both directions, in an order that repeats.
    pub fn sas_in_order(&self) -> Vec<SaId> {
        let mut sas: Vec<_> = self.inbound().chain(self.outbound()).map(|(id, _)| id).collect();
        sas.sort_by_key(|sa| (sa.spi, sa.dst));
        sas
    }

    /// SPIs of the inbound SAs, in order.
    pub fn inbound_spis(&self) -> Vec<u32> {
        let mut spis: Vec<_> = self.inbound().map(|(id, _)| id.spi).collect();
        spis.sort_unstable();
        spis
    }

    /// SPIs of the outbound SAs, in order.
    pub fn outbound_spis(&self) -> Vec<u32> {
        let mut spis: Vec<_> = self.outbound().map(|(id, _)| id.spi).collect();
        spis.sort_unstable();
        spis
    }

    /// True if another policy of the same owner protects the same traffic, and comes before `policy`.
    fn is_behind_another(&self, policy: &PolicySpec) -> bool {
        let since = |policy: &PolicySpec| self.since.get(&policy.id).copied().unwrap_or_default();
        let rank = |policy: &PolicySpec| (policy.standby, Reverse(since(policy)));
        self.table().policies().any(|other| {
            matches!(other.action, PolicyAction::Protect { .. })
                && (&other.owner, &other.local_ts, &other.remote_ts)
                    == (&policy.owner, &policy.local_ts, &policy.remote_ts)
                && rank(other) < rank(policy)
        })
    }

    /// For each protecting policy the SA it names; `None` while its packets are dropped.
    pub fn routes(&self) -> Vec<(PolicyId, Option<SaId>)> {
        self.routes_of(|_| true)
    }

    /// The same of those policies alone that packets meet.
    pub fn routes_in_use(&self) -> Vec<(PolicyId, Option<SaId>)> {
        self.routes_of(|policy| !self.is_behind_another(policy))
    }

    fn routes_of(&self, is_meant: impl Fn(&PolicySpec) -> bool) -> Vec<(PolicyId, Option<SaId>)> {
        let policies = self.table().policies().filter(|policy| is_meant(policy));
        policies
            .filter_map(|policy| match policy.action {
                PolicyAction::Protect { outbound, .. } => Some((policy.id, outbound)),
                _ => None,
            })
            .collect()
    }

    /// The hash of the keys of `id`, if it is installed.
    pub fn key_of(&self, id: SaId) -> Option<u64> {
        self.table().sa(id).and_then(|_| self.keys.get(&id).copied())
    }

    /// Counts a packet of `octets` on `id` at `now`.
    pub fn count(&mut self, id: SaId, octets: u64, now: Duration) {
        self.last_packet.insert(id, now);
        let table = self.inner.inner_mut();
        if let Some(old) = table.sa(id).map(|sa| sa.usage) {
            let usage = Usage { bytes: old.bytes + octets, packets: old.packets + 1, ..old };
            table.set_usage(id, usage);
        }
    }

    /// True if `id` has carried a packet.
    pub fn was_used(&self, id: SaId) -> bool {
        self.last_packet.contains_key(&id)
    }

    /// Sets the time that the answers to [`Command::QueryUsage`] are computed with.
    pub fn set_now(&mut self, now: Duration) {
        self.now = now;
    }
}

impl Default for Plane {
    fn default() -> Self {
        Self::new()
    }
}

impl DataPlane for Plane {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        if self.stopping && matches!(command, Command::RemoveSa(_) | Command::RemovePolicy(_)) {
            return Ok(Reply::Done);
        }
        let installed = match &command {
            Command::InstallSa(spec) => {
                // Equal keys at both ends are what counts; their hash is no secret here.
                let mut hasher = DefaultHasher::new();
                (spec.suite, spec.esn).hash(&mut hasher);
                (spec.encr_key.expose(), spec.integ_key.expose()).hash(&mut hasher);
                Some((spec.id, hasher.finish()))
            }
            _ => None,
        };
        let moved = match &command {
            Command::UpdateSa { id, dst, .. } => Some((*id, SaId { dst: dst.ip(), ..*id })),
            _ => None,
        };
        let policy = match &command {
            Command::InstallPolicy(spec) => Some(spec.id),
            _ => None,
        };
        let (removed, limits, source) = match &command {
            Command::InstallSa(spec) => {
                (None, Some((spec.id, spec.limits)), Some((spec.id, spec.src)))
            }
            Command::UpdateSa { id, src, dst, .. } => {
                (None, None, Some((SaId { dst: dst.ip(), ..*id }, src.ip())))
            }
            Command::RemoveSa(id) => (Some(*id), None, None),
            _ => (None, None, None),
        };
        let seen = self.mirror.as_ref().and_then(|_| PolicyChange::of(&command));
        let reply = self.inner.apply(command)?;
        if let (Some(mirror), Some(seen)) = (&mut self.mirror, seen)
            && let Err(error) = (mirror.0)(&seen)
        {
            if let PolicyChange::Set(spec) = seen {
                self.inner.apply(Command::RemovePolicy(spec.id))?;
            }
            return Err(error);
        }
        self.keys.extend(installed);
        if let Some(gone) = removed {
            self.expired.remove(&gone);
            self.limits.remove(&gone);
            self.sources.remove(&gone);
        }
        self.limits.extend(limits);
        self.sources.extend(source);
        if let Some(policy) = policy {
            self.installed += 1;
            self.since.entry(policy).or_insert((self.now, self.installed));
        }
        if let Some((old, new)) = moved {
            let key = self.keys.remove(&old).map(|key| (new, key));
            self.keys.extend(key);
            let last = self.last_packet.remove(&old).map(|last| (new, last));
            self.last_packet.extend(last);
            if new != old {
                let limits = self.limits.remove(&old).map(|limits| (new, limits));
                self.limits.extend(limits);
                self.sources.remove(&old);
                if self.expired.remove(&old) {
                    self.expired.insert(new);
                }
            }
        }
        Ok(match reply {
            Reply::Usage(id, usage) => {
                let idle = self.last_packet.get(&id).map(|last| self.now.saturating_sub(*last));
                Reply::Usage(id, Usage { idle, ..usage })
            }
            Reply::Done => Reply::Done,
        })
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.inner.poll_event()
    }
}
