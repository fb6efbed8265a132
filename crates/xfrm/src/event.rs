//! Events of the kernel.

use std::net::IpAddr;

use ike_proto::dataplane::Mode;

use crate::policy::PolicyId;
use crate::selector::Selector;
use crate::state::StateId;

/// What the kernel reports by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet needs a state that is not there.
    Acquire(Acquire),
    /// A limit of a state was reached.
    Expire {
        /// The state; without its mark.
        id: StateId,
        /// Reqid.
        reqid: u32,
        /// The kernel has deleted it.
        hard: bool,
    },
    /// Packets of an inbound state come from elsewhere.
    Mapping {
        /// The state; without its mark.
        id: StateId,
        /// Reqid.
        reqid: u32,
        /// Where they came from.
        old: (IpAddr, u16),
        /// Where they come from now.
        new: (IpAddr, u16),
    },
    /// A policy expired.
    PolicyExpire {
        /// The policy.
        id: PolicyId,
        /// The kernel's number of it.
        index: u32,
        /// The kernel has deleted it.
        hard: bool,
    },
    /// Some events did not arrive.
    Lost,
}

/// An acquire: the kernel has made a state without SPI and keys, and waits for the real one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// The packet.
    pub packet: Selector,
    /// The policy that wants a state.
    pub policy: PolicyId,
    /// Outer source.
    pub src: IpAddr,
    /// Outer destination.
    pub dst: IpAddr,
    /// Reqid of the template.
    pub reqid: u32,
    /// Mode of the template.
    pub mode: Option<Mode>,
    /// The kernel's number of the policy.
    pub index: u32,
    /// CPU that met the packet, if states are for each.
    pub cpu: Option<u32>,
    /// Number of the acquire.
    pub sequence: u32,
}
