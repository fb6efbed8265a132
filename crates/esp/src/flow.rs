//! What was decided for the flows seen lately.
//!
//! A direct-mapped table: a flow that hashes to the slot of another takes it over. So it is bounded,
//! and what a scan over many flows can cost is a look into the SPD per packet.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::dataplane::PolicySpec;

use crate::ip::{Fragment, IpPacket};
use crate::sad::Sa;
use crate::stats::DropReason;

const SLOTS: usize = 1024;

/// Everything of a packet that selectors look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    src: IpAddr,
    dst: IpAddr,
    ports: Option<(u16, u16)>,
    protocol: Option<u8>,
    fragment: Fragment,
}

/// What to do with the packets of a flow.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// Seal under this SA.
    Protect(Arc<Sa>),
    /// Let through in clear.
    Pass,
    /// Drop, raising an acquire for this policy.
    Trap(Arc<PolicySpec>),
    /// Drop.
    Drop(DropReason),
}

/// The cache of one worker.
pub(crate) struct FlowCache {
    slots: Vec<Option<(FlowKey, Decision)>>,
    /// The generation of the tables that the slots were filled from.
    generation: u64,
    seeds: [u64; 2],
}

impl FlowKey {
    pub(crate) fn new(packet: &IpPacket) -> Self {
        let IpPacket { src, dst, ports, protocol, fragment, .. } = *packet;
        Self { src, dst, ports, protocol, fragment }
    }

    fn hash(&self, [seed0, seed1]: [u64; 2]) -> u64 {
        let fold = |address| match address {
            IpAddr::V4(a) => u64::from(u32::from(a)),
            IpAddr::V6(a) => {
                let bits = u128::from(a);
                mix((bits >> 64) as u64 ^ seed1, bits as u64 ^ seed0)
            }
        };
        let (sport, dport) = self.ports.unwrap_or_default();
        let tail = u64::from(sport) << 32
            | u64::from(dport) << 16
            | u64::from(self.protocol.unwrap_or(0)) << 8
            | self.fragment as u64;
        mix(mix(fold(self.src) ^ seed0, fold(self.dst) ^ seed1), tail ^ seed0)
    }
}

/// Folded multiplication: mixes two words well enough for a table index.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    (product >> 64) as u64 ^ product as u64
}

impl FlowCache {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::new();
        let seeds = [hasher.hash_one(0u8), hasher.hash_one(1u8)];
        Self { slots: vec![None; SLOTS], generation: 0, seeds }
    }

    /// The decision for `key` in the tables of `generation`, made by `decide` if it is not known.
    pub(crate) fn get_or_insert(
        &mut self,
        generation: u64,
        key: FlowKey,
        decide: impl FnOnce() -> Decision,
    ) -> Decision {
        if self.generation != generation {
            self.slots.fill(None);
            self.generation = generation;
        }
        let index = key.hash(self.seeds) as usize % SLOTS;
        match self.slots.get(index) {
            Some(Some((known, decision))) if *known == key => decision.clone(),
            _ => {
                let decision = decide();
                if let Some(slot) = self.slots.get_mut(index) {
                    *slot = Some((key, decision.clone()));
                }
                decision
            }
        }
    }
}
