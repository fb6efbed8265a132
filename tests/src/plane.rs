//! A data plane for simulations: it remembers, can be slow, can refuse, and tells keys apart.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Event, PolicyAction, PolicyId,
    Reply, SaId, Usage,
};
use xfrm::{Faulty, Recording};

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
        }
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

    /// For each protecting policy the SA its packets leave by; `None` while they are dropped.
    pub fn routes(&self) -> Vec<(PolicyId, Option<SaId>)> {
        self.table()
            .policies()
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
        let reply = self.inner.apply(command)?;
        self.keys.extend(installed);
        if let Some((old, new)) = moved {
            let key = self.keys.remove(&old).map(|key| (new, key));
            self.keys.extend(key);
            let last = self.last_packet.remove(&old).map(|last| (new, last));
            self.last_packet.extend(last);
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
