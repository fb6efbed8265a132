//! The kernel's IPsec by typed calls.

use std::net::IpAddr;

use ike_proto::dataplane::Mark;

use crate::netlink::{Error, Transport};
use crate::policy::{Policy, PolicyId, PolicyInfo};
use crate::state::{Encapsulation, Replay, State, StateId, StateInfo};

/// States and policies of the kernel, in the network namespace its transport was opened in.
#[derive(Debug)]
pub struct Kernel<T> {
    transport: T,
}

/// A change of outer addresses of the states behind one policy (XFRM_MSG_MIGRATE).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The policy.
    pub policy: PolicyId,
    /// Reqid of the states.
    pub reqid: u32,
    /// Mode of the states.
    pub mode: ike_proto::dataplane::Mode,
    /// Source and destination so far.
    pub from: (IpAddr, IpAddr),
    /// Source and destination from now on.
    pub to: (IpAddr, IpAddr),
    /// Encapsulation from now on.
    pub encapsulation: Option<Encapsulation>,
}

impl<T: Transport> Kernel<T> {
    /// Speaks over `transport`.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    /// Reserves an SPI between `min` and `max` for an inbound state.
    pub fn allocate_spi(
        &mut self,
        src: IpAddr,
        dst: IpAddr,
        reqid: u32,
        mark: Mark,
        range: (u32, u32),
    ) -> Result<u32, Error> {
        todo!()
    }
    /// Adds a state (XFRM_MSG_NEWSA). One with this id must not exist.
    pub fn add_state(&mut self, state: &State) -> Result<(), Error> {
        todo!()
    }
    /// Turns a reserved SPI into a state, or changes the limits and encapsulation of one (XFRM_MSG_UPDSA).
    pub fn update_state(&mut self, state: &State) -> Result<(), Error> {
        todo!()
    }
    /// Deletes a state; false if there is none.
    pub fn delete_state(&mut self, id: &StateId) -> Result<bool, Error> {
        todo!()
    }
    /// A state, if there is one.
    pub fn state(&mut self, id: &StateId) -> Result<Option<StateInfo>, Error> {
        todo!()
    }
    /// All ESP states. A dump that the kernel says was interrupted is made again.
    pub fn states(&mut self) -> Result<Vec<StateInfo>, Error> {
        todo!()
    }
    /// Sets the sequence numbers of a state (XFRM_MSG_NEWAE).
    pub fn set_replay(&mut self, id: &StateId, replay: &Replay) -> Result<(), Error> {
        todo!()
    }
    /// Adds a policy, or takes the place of one with this id (XFRM_MSG_UPDPOLICY).
    pub fn set_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        todo!()
    }
    /// Deletes a policy; false if there is none.
    pub fn delete_policy(&mut self, id: &PolicyId) -> Result<bool, Error> {
        todo!()
    }
    /// A policy, if there is one.
    pub fn policy(&mut self, id: &PolicyId) -> Result<Option<PolicyInfo>, Error> {
        todo!()
    }
    /// All main policies; those of sockets are left out.
    pub fn policies(&mut self) -> Result<Vec<PolicyInfo>, Error> {
        todo!()
    }
    /// Moves the states behind a policy, and its templates, to other outer addresses; sequence numbers
    /// and counters go on.
    pub fn migrate(&mut self, migration: &Migration) -> Result<(), Error> {
        todo!()
    }
}
