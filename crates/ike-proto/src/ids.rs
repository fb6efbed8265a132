//! Names and numbers of what an endpoint has, and the paths of its datagrams.

use std::net::SocketAddr;

/// How a datagram travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// UDP without the non-ESP marker: port 500.
    Udp,
    /// UDP with the non-ESP marker of RFC 3948 §2.2: port 4500. The driver strips and adds the
    /// marker.
    UdpEncap,
    /// A TCP connection (RFC 9329 §3). The driver adds and strips the prefix, lengths and non-ESP markers.
    ///
    /// A path names a connection, from before the connection exists until after it is gone. At the end that opens
    /// it, the port of `local` is not a port but a number that the engine chooses, a different one for each
    /// connection. The operating system chooses the port. At the other end both ports are real.
    Tcp,
}

impl Transport {
    /// The name of the transport protocol: `udp` or `tcp`.
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Udp | Self::UdpEncap => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// A local and a remote socket address and the transport between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Transport.
    pub transport: Transport,
}

/// Names one IKE SA of an endpoint, never used again. strongSwan's unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSaId(pub u64);

/// Names one Child SA of an endpoint, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildSaId(pub u64);

/// Matches an output to the [`Input::Completed`](crate::Input::Completed) or [`Input::Answered`](crate::Input::Answered) that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Chosen by the driver to match a [`Command`](crate::Command) to its [`Event::Done`](crate::Event::Done).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);
