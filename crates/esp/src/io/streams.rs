//! The interface to TCP connections that carry ESP (RFC 9329). The caller owns the connections.

use std::io;
use std::net::SocketAddr;

use tokio::sync::mpsc;

use crate::fields::Fields;
use crate::inbound::{Carrier, Outer};
use crate::packet;
use crate::plane::Plane;

/// TCP connections, named by their ends as [`Encapsulation::Tcp`] of an SA has them: at the end that opened
/// a connection, a number stands for its port there.
///
/// [`Encapsulation::Tcp`]: ipsec_types::dataplane::Encapsulation::Tcp
pub trait Streams: Send + Sync {
    /// Queues ESP packets of `segment` octets, the last of which may be shorter, on the connection between `local`
    /// and `remote`. Never waits: packets without room are lost.
    fn send(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        packets: &[u8],
        segment: usize,
    ) -> io::Result<()>;
}

/// Takes the ESP that arrives on TCP connections into a plane. Lasts longer than the plane without harm.
#[derive(Debug, Clone)]
pub struct Feed {
    sender: mpsc::Sender<(Outer, Vec<u8>)>,
    plane: Plane,
}

/// The result for a packet from a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// The plane will open it.
    Taken,
    /// The plane is behind, or no more: the packet is lost, as packets may be.
    Lost,
    /// No SA has its SPI. Its sender must not take room from peers that have SAs.
    UnknownSpi,
}

impl Feed {
    pub(super) fn new(sender: mpsc::Sender<(Outer, Vec<u8>)>, plane: Plane) -> Self {
        Self { sender, plane }
    }

    /// Hands over a packet that came from `src` to `dst`.
    pub fn esp(&self, src: SocketAddr, dst: SocketAddr, packet: &[u8]) -> Fed {
        if !packet::header(packet).is_some_and(|(spi, _)| self.plane.receives(spi, dst.ip())) {
            return Fed::UnknownSpi;
        }
        let fields = Fields::default();
        let outer = Outer { src, dst: dst.ip(), fields, carrier: Carrier::Tcp };
        match self.sender.try_reserve() {
            Ok(place) => {
                place.send((outer, packet.to_vec()));
                Fed::Taken
            }
            Err(_) => Fed::Lost,
        }
    }
}
