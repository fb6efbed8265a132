//! Addresses for peers, chosen outside the engine.

use std::net::IpAddr;

use crate::event::{IkeSaId, Path};
use crate::wire::payload::{Attribute, IdData};

/// A peer that is authenticated wants addresses (RFC 7296 §2.19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The IKE SA that the addresses are for.
    pub ike: IkeSaId,
    /// Connection name.
    pub connection: String,
    /// `pools` of the connection, in order.
    pub pools: Vec<String>,
    /// Who the peer is; ID_NULL for one that has shown nothing.
    pub identity: IdData,
    /// What it was [granted](super::Authorization::granted) in EAP; nothing as a rule.
    pub granted: Box<[u8]>,
    /// Where the peer is.
    pub path: Path,
    /// One for each address it wants: the one it would like to have, unspecified if any will do.
    pub addresses: Vec<IpAddr>,
    /// True if its other IKE SAs end as soon as this one is up, by INITIAL_CONTACT or `unique`: it may have
    /// their addresses.
    pub sole: bool,
    /// True if it has these `addresses` by an IKE SA that ends as soon as this one is up, because this one goes on for
    /// it (RFC 5723): it may have them, from wherever it comes.
    pub own: bool,
    /// True if it has shown a ticket (RFC 5723): what it was granted is as old as that.
    pub resumed: bool,
    /// All of its attributes.
    pub asked: Vec<Attribute>,
}

/// What the peer gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    /// Its addresses, at least one. They are given back by
    /// [`Event::Unassigned`](crate::Event::Unassigned), which follows in any case.
    pub addresses: Vec<IpAddr>,
    /// What it is told besides: name servers, subnets, domains.
    pub attributes: Vec<Attribute>,
}

/// What one end of an IKE SA has got from the other by configuration payloads, for as long as that SA and
/// those it is rekeyed into last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The IKE SA that it was made with.
    pub ike: IkeSaId,
    /// Connection name.
    pub connection: String,
    /// True at the end that has got it; false at the end that gave it.
    pub ours: bool,
    /// `pools` it was asked of; none at the end that has got it.
    pub pools: Vec<String>,
    /// The peer's identity.
    pub peer: IdData,
    /// How the IKE SA travelled then.
    pub path: Path,
    /// Virtual IPs. There may be none.
    pub addresses: Vec<IpAddr>,
    /// Everything else.
    pub attributes: Vec<Attribute>,
}

impl LeaseRequest {
    /// What comes of `lease`.
    pub(crate) fn assignment(self, lease: Lease) -> Assignment {
        let Self { ike, connection, pools, identity, path, .. } = self;
        let Lease { addresses, attributes } = lease;
        Assignment {
            ike,
            connection,
            ours: false,
            pools,
            peer: identity,
            path,
            addresses,
            attributes,
        }
    }
}
