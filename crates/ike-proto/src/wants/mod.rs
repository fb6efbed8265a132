//! Which children are wanted up: plain data, and the decisions that need no SA.

pub(crate) mod aftermath;

use std::net::IpAddr;
use std::sync::Arc;

use crate::config::ChildConfig;
use crate::config::lookup::Lookup;
use crate::dataplane::{Flow, PolicyId};
use crate::ids::RequestId;
use crate::reason::Failure;
use aftermath::End;

/// The addresses of the two ends.
pub(crate) type Ends = (IpAddr, IpAddr);

/// Most packets that wait for children of one configuration. A packet that comes again is asked for again.
pub(crate) const MOST_PACKETS: usize = 16;

/// True if both packets are of one pair of addresses, and of one protocol.
pub(crate) fn is_same_pair(one: Flow, other: Flow) -> bool {
    let key = |flow: Flow| (flow.local.start, flow.remote.start, flow.remote.protocol);
    key(one) == key(other)
}

/// True if `packet` needs no request beside those that wait with the packets `waiting`. What a request for another packet
/// brings may not take this one: the peer decides.
pub(crate) fn is_asked_for(packet: Flow, waiting: impl Iterator<Item = Option<Flow>>) -> bool {
    let is_it = |own: Option<Flow>| own.is_some_and(|own| is_same_pair(own, packet));
    waiting.zip(1..).any(|(own, count)| count >= MOST_PACKETS || is_it(own))
}

/// A child that the IKE SA is to have, and the command that waits for it.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) child: Option<Arc<ChildConfig>>,
    pub(crate) request: Option<RequestId>,
    /// The packet for which the child is wanted.
    pub(crate) packet: Option<Flow>,
}

impl Wanted {
    /// A child for which no command waits.
    pub(crate) fn of(child: Arc<ChildConfig>) -> Self {
        Self { child: Some(child), request: None, packet: None }
    }

    /// True if this end began this one by itself, and `other` is a command for the same child.
    pub(crate) fn is_joined_by(&self, other: &Self) -> bool {
        let same = match (&self.child, &other.child) {
            (Some(own), Some(other)) => own.name == other.name,
            _ => false,
        };
        same && self.request.is_none() && self.packet.is_none() && other.packet.is_none()
    }

    /// True if the attempt is for this child. An attempt without a child is for the IKE SA alone.
    pub(crate) fn is_for(&self, child: &Option<String>) -> bool {
        match (&self.child, child) {
            (Some(config), Some(child)) => config.name == *child,
            // An attempt for any child brings the IKE SA as well.
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }
}

/// The end of a child, or of an attempt at one.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) connection: String,
    pub(crate) child: Option<String>,
    pub(crate) end: End,
    pub(crate) reason: Failure,
    /// False if it was never up, so that actions do not apply.
    pub(crate) was_up: bool,
    /// The ends of its path.
    pub(crate) ends: Ends,
    /// Policies that were left in force to keep its traffic from leaving in clear.
    pub(crate) held: Vec<PolicyId>,
}

/// A child, or an IKE SA alone, that is looked for among what is there.
#[derive(Clone, Copy)]
pub(crate) enum Sought<'a> {
    /// The IKE SA alone.
    Sa,
    /// A child of this name.
    Named(&'a str),
    /// A child as it is configured now. One of its name from before a reload may protect other traffic.
    Present(&'a ChildConfig),
}

impl<'a> Sought<'a> {
    /// `child` of `connection` as it is configured now; of its name, if it is not configured any more.
    pub(crate) fn present(lookup: &'a Lookup, connection: &str, child: Option<&'a str>) -> Self {
        let Some(name) = child else { return Self::Sa };
        let config = lookup.connection(connection).and_then(|found| found.child(name));
        config.map_or(Self::Named(name), |config| Self::Present(config))
    }

    /// A child of this name, or the IKE SA alone.
    pub(crate) fn named(child: Option<&'a str>) -> Self {
        child.map_or(Self::Sa, Self::Named)
    }

    /// True if a child of `config` is sought.
    pub(crate) fn is(self, config: &ChildConfig) -> bool {
        match self {
            Self::Sa => false,
            Self::Named(name) => config.name == name,
            Self::Present(other) => config.name == other.name && config.asks_same_as(other),
        }
    }
}
