//! Policies: which packets are protected, and how.

mod encode;
mod priority;

use std::net::IpAddr;

use ipsec_types::dataplane::{Mark, Mode};

use crate::selector::Selector;
use crate::state::Offload;

pub(crate) use encode::{decode, direction, direction_number, encode, encode_id};
pub use priority::{PriorityClass, priority};

/// The packets that a policy examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyDirection {
    /// Packets for this host.
    In,
    /// Packets that leave.
    Out,
    /// Packets that are passed on.
    Forward,
}

/// The identity of a policy, which is unique in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId {
    /// Packets.
    pub selector: Selector,
    /// Direction.
    pub direction: PolicyDirection,
    /// Mark that packets must have.
    pub mark: Mark,
    /// XFRM interface; 0 is none.
    pub if_id: u32,
}

/// The transformation that a packet needs, inbound or outbound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Outer source; unspecified for any (transport mode, traps).
    pub src: IpAddr,
    /// Outer destination.
    pub dst: IpAddr,
    /// SPI, 0 for any.
    pub spi: u32,
    /// Reqid, 0 for any.
    pub reqid: u32,
    /// Mode.
    pub mode: Mode,
    /// Packets may lack it (level `use`).
    pub optional: bool,
}

/// The action for the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// They pass if they match the templates; in clear if there is none.
    Allow(Vec<Template>),
    /// They are dropped.
    Block,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Packets, direction, mark and interface.
    pub id: PolicyId,
    /// Lower comes first.
    pub priority: u32,
    /// The action for the packets.
    pub action: Action,
    /// ICMP errors match by the packet within (XFRM_POLICY_ICMP).
    pub icmp: bool,
    /// Asks for states for each CPU (XFRM_POLICY_CPU_ACQUIRE).
    pub cpu_acquire: bool,
    /// Hardware offload: the mode is always packet.
    pub offload: Option<Offload>,
}

/// A policy as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyInfo {
    /// As installed.
    pub policy: Policy,
    /// The kernel's number of it.
    pub index: u32,
    /// When it was added, in seconds since 1970.
    pub added: u64,
    /// When it was last used, in seconds since 1970; 0 for never.
    pub last_used: u64,
}

impl Policy {
    /// A policy without options.
    pub fn new(id: PolicyId, priority: u32, action: Action) -> Self {
        Self { id, priority, action, icmp: false, cpu_acquire: false, offload: None }
    }

    /// True if packets pass in clear: it neither protects nor blocks.
    pub fn passes(&self) -> bool {
        match &self.action {
            Action::Allow(templates) => templates.iter().all(|template| template.optional),
            Action::Block => false,
        }
    }
}

impl PolicyId {
    /// Packets that match `selector`, without a mark, on no XFRM interface.
    pub fn new(selector: Selector, direction: PolicyDirection) -> Self {
        Self { selector, direction, mark: Mark::default(), if_id: 0 }
    }
}

impl Template {
    /// ESP by any state of `reqid` from `src` to `dst`.
    pub fn new(src: IpAddr, dst: IpAddr, reqid: u32, mode: Mode) -> Self {
        Self { src, dst, spi: 0, reqid, mode, optional: false }
    }
}
