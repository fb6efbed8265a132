//! Events that wait for the engine.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipsec_types::dataplane::{Event, PolicyId, TrafficSelector};

use crate::flow::FlowKey;
use crate::inbound::{Carrier, Outer};
use crate::ip::IpPacket;

/// A flow raises one acquire in so many milliseconds.
const ACQUIRE_INTERVAL: u64 = 1000;

/// Most flows whose last acquire is remembered. While all are recent, no more acquires are raised.
const MAX_ACQUIRES: usize = 1024;

/// Milliseconds in which those with one hash of their address raise one event about SPIs that there are not.
const UNKNOWN_INTERVAL: u64 = 2000;
/// Hashes that are told apart.
const UNKNOWN_SLOTS: usize = 128;

/// The queue, with a flag that can be read without a lock.
pub(crate) struct Events {
    pending: AtomicBool,
    inner: Mutex<Inner>,
    /// When packets of no SA last raised an event, in ms since the plane's epoch and one, by a hash of their source.
    unknown: [AtomicU64; UNKNOWN_SLOTS],
    hasher: RandomState,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            pending: AtomicBool::new(false),
            inner: Mutex::default(),
            unknown: [const { AtomicU64::new(0) }; UNKNOWN_SLOTS],
            hasher: RandomState::new(),
        }
    }
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Event>,
    acquires: HashMap<(PolicyId, FlowKey), u64>,
}

impl Events {
    /// Queues an event that an SA raises a bounded number of times.
    pub(crate) fn push(&self, event: Event) {
        self.lock().queue.push_back(event);
        self.pending.store(true, Ordering::Release);
    }

    /// Queues an event about a packet of no SA, unless a packet from about the same source raised one lately.
    /// Further packets of a flood are not examined, and take no lock.
    pub(crate) fn unknown_spi(&self, spi: u32, outer: &Outer, octets: usize, now: u64) {
        if outer.carrier == Carrier::Tcp {
            return;
        }
        let slot = self.hasher.hash_one(outer.src.ip()) as usize % UNKNOWN_SLOTS;
        let Some(slot) = self.unknown.get(slot) else { return };
        let (then, now) = (slot.load(Ordering::Relaxed), now + 1);
        let recent = then != 0 && now.saturating_sub(then) < UNKNOWN_INTERVAL;
        let exchanged =
            || slot.compare_exchange(then, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !recent && exchanged() {
            self.push(Event::UnknownSpi { spi, local: outer.dst, remote: outer.src, octets });
        }
    }

    /// Queues an acquire for `packet`, unless its flow raised one lately.
    pub(crate) fn acquire(&self, policy: PolicyId, packet: &IpPacket, now: u64) {
        let mut inner = self.lock();
        let recent = |then: u64| now.saturating_sub(then) < ACQUIRE_INTERVAL;
        let key = (policy, FlowKey::new(packet));
        if inner.acquires.get(&key).is_some_and(|&then| recent(then)) {
            return;
        }
        if inner.acquires.len() >= MAX_ACQUIRES {
            inner.acquires.retain(|_, then| recent(*then));
            if inner.acquires.len() >= MAX_ACQUIRES {
                return;
            }
        }
        inner.acquires.insert(key, now);
        let selector = |address, port: Option<u16>| TrafficSelector {
            protocol: packet.protocol.unwrap_or(0),
            start_port: port.unwrap_or(0),
            end_port: port.unwrap_or(u16::MAX),
            start: address,
            end: address,
        };
        inner.queue.push_back(Event::Acquire {
            policy,
            local: selector(packet.src, packet.ports.map(|(src, _)| src)),
            remote: selector(packet.dst, packet.ports.map(|(_, dst)| dst)),
            cpu: None,
        });
        self.pending.store(true, Ordering::Release);
    }

    /// True if [`Self::pop`] has something.
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// The oldest event.
    pub(crate) fn pop(&self) -> Option<Event> {
        if !self.pending() {
            return None;
        }
        let mut inner = self.lock();
        let event = inner.queue.pop_front();
        self.pending.store(!inner.queue.is_empty(), Ordering::Release);
        event
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
