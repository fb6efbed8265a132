//! What the channel of an IKE SA may use of its endpoint while it handles one input.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hash};

use super::memory::MemoryBudget;
use super::pmtu::PathMtus;
use crate::config::{EndpointConfig, Shard};
use crate::crypto::SecureRandom;
use crate::event::{Event, Now, Output, Path};
use crate::reason::DropReason;
use crate::table::HashSeed;

/// The parts of the endpoint that a channel borrows for one input. It can reach no exchange, and no other SA.
pub(crate) struct Io<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a EndpointConfig,
    pub(crate) rng: &'a mut dyn SecureRandom,
    pub(crate) out: &'a mut VecDeque<Output>,
    pub(crate) budget: &'a mut MemoryBudget,
    pub(crate) mtus: &'a mut PathMtus,
    pub(crate) streams: &'a mut StreamNames,
    pub(crate) seed: HashSeed,
}

impl Io<'_> {
    /// A digest by which a datagram is recognized. No peer can predict it.
    pub(crate) fn digest(&self, octets: &[u8]) -> u64 {
        self.seed.hash_one(octets)
    }

    /// The same for any other value.
    pub(crate) fn hash(&self, value: impl Hash) -> u64 {
        self.seed.hash_one(value)
    }

    /// Queues an event.
    pub(crate) fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Counts a dropped message.
    pub(crate) fn dropped(&mut self, path: Path, why: DropReason) {
        self.event(Event::Dropped { path, why });
    }
}

/// The TCP connections that this end opens, by their paths.
pub(crate) struct StreamNames {
    shard: Shard,
    last: u16,
    named: BTreeSet<Path>,
}

impl StreamNames {
    /// Those of an endpoint that is `shard`.
    pub(crate) fn new(shard: Shard) -> Self {
        Self { shard, last: 0, named: BTreeSet::new() }
    }

    /// Replaces the local port by a number of this shard, so that `path` names a connection that is to be opened.
    pub(crate) fn name(&mut self, path: &mut Path) {
        let (count, index) = (u16::from(self.shard.count.max(1)), u16::from(self.shard.index));
        // There are more numbers than file descriptors. If all are in use, the oldest is shared.
        for _ in 0..=u16::MAX / count {
            let next = self.last.checked_add(count).unwrap_or(0);
            self.last = next;
            path.local.set_port((next / count * count).saturating_add(index).saturating_add(1));
            if self.named.insert(*path) {
                return;
            }
        }
    }

    /// Removes the closed connection `path`, if this end opened it.
    pub(crate) fn forget(&mut self, path: &Path) {
        self.named.remove(path);
    }
}
