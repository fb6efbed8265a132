//! Why packets were dropped, and how often.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// A hard limit of the SA is reached.
    SaExpired = "sa_expired",
    /// The SA has used its last sequence number.
    SequenceOverflow = "sequence_overflow",
    /// The packet is outside the SA's traffic selectors (RFC 4301 §5.2 for inbound ones).
    Selectors = "selectors",
    /// A fragment in transport mode, which carries none (RFC 4301 §4.1), or one that does not fit the
    /// others of its packet.
    TransportFragment = "transport_fragment",
    /// IP options or IPv6 extension headers that transport mode here cannot carry.
    TransportHeaders = "transport_headers",
    /// The cipher refused: a local fault.
    Crypto = "crypto",
    /// Too short for the SA's ESP, or not of whole cipher blocks.
    Truncated = "truncated",
    /// No inbound SA has this SPI.
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
    drops: [AtomicU64; DropReason::ALL.len()],
    /// Packets protected.
    pub(crate) sealed: AtomicU64,
    /// Packets authenticated and handed on.
    pub(crate) opened: AtomicU64,
    /// Packets a pass policy let through.
    pub(crate) passed: AtomicU64,
}

impl Stats {
    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Packets protected.
    pub fn sealed(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Packets authenticated and handed on.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Packets a pass policy let through.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// The reasons with a count, for logs and `list`.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.iter().map(|&r| (r, self.dropped(r))).filter(|&(_, n)| n != 0)
    }

    /// Counts one dropped packet and gives the reason back.
    pub(crate) fn count(&self, reason: DropReason) -> DropReason {
        if let Some(counter) = self.drops.get(reason as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        reason
    }
}
