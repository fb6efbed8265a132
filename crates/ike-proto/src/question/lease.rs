//! Addresses for peers, chosen outside the engine.

use std::net::IpAddr;

use crate::ids::{IkeSaId, Path};
use crate::wire::payload::{Attribute, IdData};

/// An authenticated peer requests addresses (RFC 7296 §2.19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The IKE SA that the addresses are for.
    pub ike: IkeSaId,
    /// Connection name.
    pub connection: String,
    /// `pools` of the connection, in order.
    pub pools: Vec<String>,
    /// The peer's identity; ID_NULL for a peer that has proven none.
    pub identity: IdData,
    /// What the peer was [granted](super::Authorization::granted) in EAP; usually nothing.
    pub granted: Box<[u8]>,
    /// The path of the peer.
    pub path: Path,
    /// One for each address that the peer requests: the address that it prefers, unspecified for any.
    pub addresses: Vec<IpAddr>,
    /// True if the peer's other IKE SAs end as soon as this one is up, by INITIAL_CONTACT or `unique`. Then the
    /// peer may have their addresses.
    pub sole: bool,
    /// True if the peer has these `addresses` from an IKE SA that this one resumes (RFC 5723) and that ends as
    /// soon as this one is up. Then the peer may have them, from wherever it comes.
    pub own: bool,
    /// True if the peer has presented a ticket (RFC 5723). What it was granted is as old as the ticket.
    pub resumed: bool,
    /// All requested attributes.
    pub asked: Vec<Attribute>,
}

/// The addresses and attributes for a peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    /// The addresses, at least one. [`Event::Unassigned`](crate::Event::Unassigned) gives them back, and follows
    /// in any case.
    pub addresses: Vec<IpAddr>,
    /// Further attributes: name servers, subnets, domains.
    pub attributes: Vec<Attribute>,
}

/// What one end of an IKE SA has got from the other by configuration payloads, for as long as that SA and its
/// successors by rekeys exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The IKE SA with which it was made.
    pub ike: IkeSaId,
    /// Connection name.
    pub connection: String,
    /// True at the end that has got it; false at the end that has given it.
    pub ours: bool,
    /// `pools` of the request; empty at the end that has got it.
    pub pools: Vec<String>,
    /// The peer's identity.
    pub peer: IdData,
    /// The path of the IKE SA at that time.
    pub path: Path,
    /// Virtual IPs. There may be none.
    pub addresses: Vec<IpAddr>,
    /// All other attributes.
    pub attributes: Vec<Attribute>,
}

impl LeaseRequest {
    /// The assignment that `lease` makes.
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
