//! Events of the kernel.

use std::net::{IpAddr, SocketAddr};

use ike_proto::dataplane::Mode;

use crate::offload::LinkChange;
use crate::policy::PolicyId;
use crate::selector::Selector;
use crate::state::StateId;

/// What the kernel reports by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
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
        old: SocketAddr,
        /// Where they come from now.
        new: SocketAddr,
    },
    /// A policy expired.
    PolicyExpire {
        /// The policy.
        policy: PolicyId,
    },
    /// A device went down, came up or is gone: [`LinkWatch`](crate::offload::LinkWatch).
    Link(LinkChange),
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
    /// CPU that met the packet, if states are for each.
    pub cpu: Option<u32>,
    /// Number of the acquire.
    pub sequence: u32,
}
