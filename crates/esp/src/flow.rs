//! Decisions for recently seen flows.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use ipsec_types::dataplane::PolicySpec;

use crate::ip::IpPacket;
use crate::sad::Sa;
use crate::slots::Slots;
use crate::stats::DropReason;

/// Everything of a packet that selectors look at, in a form that is quickly compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    src: u128,
    dst: u128,
    ports: u32,
    /// The protocol, whether it is known and so are the ports, the address family, the kind of fragment.
    kind: u32,
}

/// The treatment of the packets of a flow.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// Seal under this SA.
    Protect(Arc<Sa>),
    /// Put the fragments of the packet together first.
    Assemble,
    /// Let through in clear.
    Pass,
    /// Drop, raising an acquire for this policy.
    Trap(Arc<PolicySpec>),
    /// Drop.
    Drop(DropReason),
}

/// The cache of one worker.
pub(crate) struct FlowCache {
    slots: Slots<FlowKey, Decision>,
    seeds: [u64; 2],
}

impl FlowKey {
    #[inline(always)]
    pub(crate) fn new(packet: &IpPacket) -> Self {
        let IpPacket { src, dst, ports, protocol, fragment, .. } = *packet;
        let number = |address| match address {
            IpAddr::V4(a) => u128::from(u32::from(a)),
            IpAddr::V6(a) => u128::from(a),
        };
        let (sport, dport) = ports.unwrap_or_default();
        let kind = u32::from(protocol.unwrap_or(0))
            | u32::from(protocol.is_some()) << 8
            | u32::from(ports.is_some()) << 9
            | u32::from(src.is_ipv6()) << 10
            | u32::from(dst.is_ipv6()) << 11
            | (fragment as u32) << 12;
        let ports = u32::from(sport) << 16 | u32::from(dport);
        Self { src: number(src), dst: number(dst), ports, kind }
    }

    /// A hash that both directions of a flow have in common.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn symmetric(&self) -> u64 {
        let (low, high) = (self.src.min(self.dst), self.src.max(self.dst));
        let (sport, dport) = (self.ports >> 16, self.ports & 0xffff);
        let ports = u64::from(sport.min(dport)) << 16 | u64::from(sport.max(dport));
        let fold = |bits: u128| (bits >> 64) as u64 ^ bits as u64 ^ SPREAD;
        mix(mix(fold(low), fold(high)) ^ ports, SPREAD)
    }

    #[inline(always)]
    fn hash(&self, [seed0, seed1]: [u64; 2]) -> u64 {
        let fold = |bits: u128| match (bits >> 64) as u64 {
            0 => bits as u64,
            high => mix(high ^ seed1, bits as u64 ^ seed0),
        };
        let tail = u64::from(self.ports) << 32 | u64::from(self.kind);
        mix(mix(fold(self.src) ^ seed0, fold(self.dst) ^ seed1), tail ^ seed0)
    }
}

/// 2^64 divided by the golden ratio: odd, with bits all over.
#[cfg(all(feature = "tun", target_os = "linux"))]
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folded multiplication: mixes two words well enough for a table index.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    (product >> 64) as u64 ^ product as u64
}

impl FlowCache {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::new();
        Self { slots: Slots::new(), seeds: [hasher.hash_one(0u8), hasher.hash_one(1u8)] }
    }

    /// Forgets everything unless the tables are still of `generation`.
    pub(crate) fn renew(&mut self, generation: u64) {
        self.slots.renew(generation);
    }

    /// The decision for `key` in the tables of `generation`, made by `decide` if it is not known.
    #[inline(always)]
    pub(crate) fn get_or_insert(
        &mut self,
        generation: u64,
        key: &FlowKey,
        decide: impl FnOnce() -> Decision,
    ) -> &Decision {
        let hash = key.hash(self.seeds);
        let decide = || Ok::<_, Infallible>(decide());
        match self.slots.get_or_try_insert(generation, hash, key, decide) {
            Ok(decision) => decision,
            Err(never) => match never {},
        }
    }
}
