//! The host around an engine: which ways its packets take, and what its kernel says when it is asked for one. Without a
//! road a host has all routes, and nobody else's hands in its tables.

use std::fmt;
use std::net::IpAddr;

use ike_proto::config::ConnectionConfig;
use ike_proto::dataplane::{Command, DataPlaneError, PolicyId, PolicySpec};

/// Where a packet goes that hosts behind a machine send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Into the device of the tunnels, where policies decide.
    Tunnel,
    /// Out by another device, without the mark of the daemon's own packets.
    Outside,
    /// Nowhere.
    Nowhere,
}

/// The routes and addresses of a machine.
pub trait Road {
    /// True if the machine receives what is sent to `address`.
    fn has(&self, address: IpAddr) -> bool;
    /// The addresses that the daemon is told of.
    fn addresses(&self) -> Vec<IpAddr>;
    /// The source that the daemon finds for packets to `remote`, asking as it does.
    fn source(&self, remote: IpAddr) -> Option<IpAddr>;
    /// True if a packet of the daemon's own leaves from `local` to `remote`, outside all tunnels.
    fn sends(&self, local: IpAddr, remote: IpAddr) -> bool;
    /// Between which addresses a connection is started, or why not.
    fn ends(
        &self,
        connection: &ConnectionConfig,
        last: Option<IpAddr>,
    ) -> Result<(IpAddr, IpAddr), String>;
    /// Where a packet to `to` goes.
    fn exit(&self, to: IpAddr) -> Exit;
    /// True if a second line drops what leaves by [`Exit::Outside`] although a policy matches it.
    fn second_line(&self) -> bool;
}

/// A policy that a data plane has taken or given up.
#[derive(Debug)]
pub enum PolicyChange {
    /// Taken, in the place of one of its number.
    Set(Box<PolicySpec>),
    /// Given up.
    Removed(PolicyId),
}

impl PolicyChange {
    /// That of `command`, if it changes policies.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::InstallPolicy(spec) => Some(Self::Set(spec.clone())),
            Command::RemovePolicy(id) => Some(Self::Removed(*id)),
            _ => None,
        }
    }
}

/// Takes a change, or refuses it.
type Taker = Box<dyn FnMut(&PolicyChange) -> Result<(), DataPlaneError> + Send>;

/// What is told of each policy that a data plane has taken or given up. It may refuse one.
pub struct Mirror(pub Taker);

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mirror")
    }
}
