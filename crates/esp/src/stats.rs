//! Why packets were dropped, and how often.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $name,)+ }

        impl DropReason {
            /// Every reason, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Name of the counter.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// A packet to be protected is not a well-formed IP packet.
    Malformed = "malformed",
    /// No policy matches; the default is to discard (RFC 4301 §4.4.1).
    NoPolicy = "no_policy",
    /// A drop policy matches.
    PolicyDrop = "policy_drop",
    /// A trap policy matches; an acquire was raised or is under way.
    Trapped = "trapped",
    /// The policy says protect and there is no SA to do it with.
    NoSa = "no_sa",
    /// The child that would protect it is down. The sender is told.
    Blocked = "blocked",
    /// An outer packet of the tunnel that would carry it: it was led into the device again.
    OwnOuter = "own_outer",
    /// A hard limit of the SA is reached.
    SaExpired = "sa_expired",
    /// The SA has used its last sequence number.
    SequenceOverflow = "sequence_overflow",
    /// The packet is outside the SA's traffic selectors (RFC 4301 §5.2 for inbound ones).
    Selectors = "selectors",
    /// A fragment in transport mode, which carries none (RFC 4301 §4.1).
    TransportFragment = "transport_fragment",
    /// A fragment of a packet that cannot be put together, because other fragments did not come or do not fit. Packets are
    /// put together for transport mode, and where policies look at ports.
    Incomplete = "incomplete",
    /// IP options or IPv6 extension headers that transport mode here cannot carry.
    TransportHeaders = "transport_headers",
    /// Too big for the path to the peer, and must not be divided: the sender is told. Or too big for any packet outside.
    TooBig = "too_big",
    /// The cipher refused: a local fault.
    Crypto = "crypto",
    /// Too short for the SA's ESP, or not of whole cipher blocks.
    Truncated = "truncated",
    /// No inbound SA has this SPI. The tasks of [`io`](crate::io) open such a packet again if its SA is installed
    /// within a second.
    UnknownSpi = "unknown_spi",
    /// Replayed, or older than the anti-replay window.
    Replay = "replay",
    /// The integrity check value is wrong.
    Integrity = "integrity",
    /// The padding does not have the content of RFC 4303 §2.4 or exceeds the packet.
    Padding = "padding",
    /// A dummy packet of next header 59 (RFC 4303 §2.6); nothing is wrong with it.
    Dummy = "dummy",
    /// The next header does not fit the SA's mode.
    NextHeader = "next_header",
    /// The packet inside is not a well-formed IP packet.
    InnerMalformed = "inner_malformed",
    /// The outer header says congestion and the inner flow does not understand it (RFC 6040 §4.2).
    Congestion = "congestion",
    /// It arrived in clear and a policy wants it protected.
    Unprotected = "unprotected",
    /// The next stage cannot keep up.
    QueueFull = "queue_full",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counters of a plane, all directions and SAs together.
#[derive(Debug, Default)]
pub struct Stats {
    workers: Mutex<Workers>,
}

#[derive(Debug, Default)]
struct Workers {
    /// Counts of workers that have ended.
    gone: Counters,
    present: Vec<Arc<Counters>>,
}

#[derive(Debug, Default)]
struct Counters {
    drops: [AtomicU64; DropReason::ALL.len()],
    sealed: AtomicU64,
    opened: AtomicU64,
    passed: AtomicU64,
}

/// The counters of one worker, which alone writes to them: counting is no more than an addition.
#[derive(Debug)]
pub(crate) struct Tally {
    counters: Arc<Counters>,
    stats: Arc<Stats>,
}

impl Stats {
    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|counters| counters.drops.get(reason as usize))
    }

    /// Packets protected.
    pub fn sealed(&self) -> u64 {
        self.sum(|counters| Some(&counters.sealed))
    }

    /// Packets authenticated and handed on.
    pub fn opened(&self) -> u64 {
        self.sum(|counters| Some(&counters.opened))
    }

    /// Packets protected by each worker there is, the oldest first: how evenly they share the work.
    pub fn sealed_by_worker(&self) -> Vec<u64> {
        let present = &self.lock().present;
        present.iter().map(|counters| counters.sealed.load(Ordering::Relaxed)).collect()
    }

    /// Packets a pass policy let through.
    pub fn passed(&self) -> u64 {
        self.sum(|counters| Some(&counters.passed))
    }

    /// The reasons with a count, for logs and `list`.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.iter().map(|&r| (r, self.dropped(r))).filter(|&(_, n)| n != 0)
    }

    /// The counters of a new worker.
    pub(crate) fn tally(self: &Arc<Self>) -> Tally {
        let counters = Arc::default();
        self.lock().present.push(Arc::clone(&counters));
        Tally { counters, stats: Arc::clone(self) }
    }

    fn sum(&self, counter: impl Fn(&Counters) -> Option<&AtomicU64>) -> u64 {
        let Workers { gone, present } = &*self.lock();
        let all = present.iter().map(|counters| &**counters).chain([gone]);
        all.filter_map(counter).map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    /// Counts packets protected.
    pub(crate) fn sealed(&mut self, packets: u64) {
        add(&self.counters.sealed, packets);
    }

    /// Counts packets authenticated and handed on.
    pub(crate) fn opened(&mut self, packets: u64) {
        add(&self.counters.opened, packets);
    }

    /// Counts a packet that a pass policy let through.
    pub(crate) fn passed(&mut self) {
        add(&self.counters.passed, 1);
    }

    /// Counts dropped packets.
    pub(crate) fn lost(&mut self, reason: DropReason, packets: u64) {
        if let Some(counter) = self.counters.drops.get(reason as usize) {
            add(counter, packets);
        }
    }

    /// Packets dropped for `reason`.
    #[cfg(feature = "tun")]
    pub(crate) fn count(&self, reason: DropReason) -> u64 {
        let counter = self.counters.drops.get(reason as usize);
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Counts a dropped packet and gives the reason back.
    pub(crate) fn dropped(&mut self, reason: DropReason) -> DropReason {
        self.lost(reason, 1);
        reason
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let Workers { gone, present } = &mut *self.stats.lock();
        present.retain(|counters| !Arc::ptr_eq(counters, &self.counters));
        let Counters { drops, sealed, opened, passed } = &*self.counters;
        let simple = [(&gone.sealed, sealed), (&gone.opened, opened), (&gone.passed, passed)];
        for (sum, counter) in gone.drops.iter().zip(drops).chain(simple) {
            add(sum, counter.load(Ordering::Relaxed));
        }
    }
}

/// Adds to a counter with one writer.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_counted_outlives_it() {
        let stats = Arc::new(Stats::default());
        let (mut one, mut two) = (stats.tally(), stats.tally());
        one.sealed(1);
        one.dropped(DropReason::Replay);
        two.sealed(1);
        two.opened(1);
        two.passed();
        drop(one);
        two.dropped(DropReason::Replay);
        assert_eq!((stats.sealed(), stats.opened(), stats.passed()), (2, 1, 1));
        drop(two);
        assert_eq!((stats.sealed(), stats.opened(), stats.passed()), (2, 1, 1));
        assert_eq!(stats.drops().collect::<Vec<_>>(), [(DropReason::Replay, 2)]);
        assert!(stats.lock().present.is_empty());
    }
}
