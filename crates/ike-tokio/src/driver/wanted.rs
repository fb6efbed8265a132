//! What an engine wants of the program before it can start a connection.

use std::net::IpAddr;

use ike_proto::Ticket;
use ike_proto::dataplane::Flow;

/// A connection that an engine wants started, for traffic or after an end. The program knows between which addresses,
/// because it has the configured names of hosts.
#[derive(Debug)]
pub enum Wanted {
    /// This packet met the trap of a child. Answer with [`Command::Initiate`](ike_proto::Command::Initiate).
    Packet {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// The addresses, protocol and ports of the packet.
        packet: Flow,
    },
    /// A child is to be started again between these addresses, by the shard that has an IKE SA for it. Answer with
    /// [`Handle::want_where_carried`](crate::Handle::want_where_carried), and if no shard has the child, with
    /// [`Command::Ensure`](ike_proto::Command::Ensure).
    Restart {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// This host's address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// A shard asks for the addresses of a connection ([`Question::Ends`](ike_proto::Question::Ends)). Answer with
    /// [`Handle::answer`](crate::Handle::answer), even if there are none.
    Ends {
        /// Connection name.
        connection: String,
        /// The shard that asks.
        shard: u8,
        /// Belongs to the answer.
        ticket: Ticket,
        /// The addresses of this host and of the peer at the last start, for a peer that the configuration does not name.
        last: Option<(IpAddr, IpAddr)>,
    },
}
