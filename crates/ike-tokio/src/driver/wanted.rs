//! What an engine wants of the program before it can start a connection.

use std::net::IpAddr;

use ike_proto::Ticket;
use ike_proto::dataplane::Flow;

/// A request of an engine to start a connection, for traffic or after the end of an SA. The program supplies the
/// addresses, because it has the configured host names.
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
    /// A child is to be started again between these addresses, by the shard that has an IKE SA for it. Call
    /// [`Handle::want_where_carried`](crate::Handle::want_where_carried). If that returns false, give
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
    /// [`Handle::answer`](crate::Handle::answer), even if there are no addresses: the shard waits for an answer.
    Ends {
        /// Connection name.
        connection: String,
        /// The shard that asks.
        shard: u8,
        /// The ticket of the question, for the answer.
        ticket: Ticket,
        /// The addresses of this host and of the peer at the last start, for a peer that the configuration does not name.
        last: Option<(IpAddr, IpAddr)>,
    },
}
