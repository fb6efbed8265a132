//! A route that a policy wants.

use std::net::IpAddr;

use super::picture::Place;
use super::prefix::Prefix;

/// Where packets to a prefix go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// Into a device with this index.
    Device(u32),
    /// Into a device with this index, in packets of no more than so many octets; of IPv6 no less than 1,280.
    Narrow {
        /// The index.
        device: u32,
        /// Octets of the largest packet (`mtu`).
        mtu: u16,
    },
    /// The way that packets between these ends of a tunnel go.
    Peer {
        /// This end.
        local: IpAddr,
        /// The peer's end.
        remote: IpAddr,
    },
    /// Where they would go without these routes.
    Elsewhere,
    /// Nowhere, and the sender hears of it.
    Unreachable,
    /// As [`Self::Unreachable`], for the hold of a child that was never up: the next run does not keep it.
    Prohibited,
    /// Nowhere, in silence.
    BlackHole,
    /// As [`Self::Unreachable`], for a network of this host's own side. What a route to [`Self::Elsewhere`] takes
    /// out of it leaves by a route of the main table that is as specific as this one, or not at all.
    Wall,
}

/// One route of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) prefix: Prefix,
    pub(super) via: Via,
}

impl Route {
    /// What the kernel tells routes of one table apart by, as far as ours differ.
    pub(super) fn place(&self) -> Place {
        let nowhere = self.via.is_block() || self.via == Via::Wall;
        (self.prefix, nowhere)
    }
}

#[cfg(test)]
thread_local! {
    /// How often a test has looked at a route.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Via {
    /// True if it leads nowhere because a child is down.
    pub(super) fn is_block(self) -> bool {
        self.is_lasting() || self == Self::Prohibited
    }

    /// True for a block that the next run keeps, because the child was up.
    pub(super) fn is_lasting(self) -> bool {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        matches!(self, Self::Unreachable | Self::BlackHole)
    }
}
