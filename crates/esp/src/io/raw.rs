//! Raw sockets: ESP straight over IP, and packets that a pass policy lets out in clear.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::encap::{RecvBatch, allow_fragments, enlarge_buffers};
use crate::ip::proto;

/// ESP over IP (protocol 50) for one address family.
pub struct PlainEsp {
    /// A raw socket; for what is done with it here it behaves as a UDP socket does.
    socket: UdpSocket,
    state: UdpSocketState,
    ipv4: bool,
}

/// Sockets that send whole packets in clear past the TUN device.
pub struct ClearSockets {
    v4: Socket,
    v6: Option<Socket>,
}

impl PlainEsp {
    /// Opens a raw socket for IPv4 or IPv6 with `mark` on what it sends. Needs CAP_NET_RAW, and
    /// CAP_NET_ADMIN for the mark; must be called inside a tokio runtime.
    pub fn open(ipv4: bool, mark: Option<u32>) -> io::Result<Self> {
        let domain = if ipv4 { Domain::IPV4 } else { Domain::IPV6 };
        let protocol = Protocol::from(i32::from(proto::ESP));
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        allow_fragments(&socket, ipv4)?;
        enlarge_buffers(&socket);
        let socket = UdpSocket::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { socket, state, ipv4 })
    }

    /// True for IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.ipv4
    }

    /// Sends one ESP packet.
    pub(super) async fn send(
        &self,
        src: IpAddr,
        dst: IpAddr,
        tos: u8,
        esp: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: SocketAddr::new(dst, 0),
            ecn: EcnCodepoint::from_bits(tos & 0b11),
            contents: esp,
            segment_size: None,
            src_ip: Some(src).filter(|src| !src.is_unspecified()),
        };
        let send = || self.state.try_send(UdpSockRef::from(&self.socket), &transmit);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Waits for ESP packets; [`strip_header`] finds them in what is received.
    pub(super) async fn recv(&self, batch: &mut RecvBatch) -> io::Result<()> {
        batch.fill(&self.socket, &self.state).await
    }
}

/// The ESP packet in what a raw socket received: an IPv4 one hands over the IP header too, an IPv6 one
/// does not.
pub(super) fn strip_header(packet: &[u8], ipv4: bool) -> Option<&[u8]> {
    if !ipv4 {
        return Some(packet);
    }
    let header = usize::from(packet.first()? & 15) * 4;
    packet.get(header..)
}

impl ClearSockets {
    /// Opens raw sockets with `mark` on what they send. IPv6 may be missing on the host.
    pub fn open(mark: u32) -> io::Result<Self> {
        let open = |domain| {
            // IPPROTO_RAW: the packet brings its own header.
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(255)))?;
            socket.set_nonblocking(true)?;
            socket.set_mark(mark)?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self { v4: open(Domain::IPV4)?, v6: open(Domain::IPV6).ok() })
    }

    /// Sends the IP packet `packet` as it is.
    pub(super) fn send(&self, dst: IpAddr, packet: &[u8]) -> io::Result<()> {
        let socket = if dst.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        socket.send_to(packet, &SockAddr::from(SocketAddr::new(dst, 0))).map(|_| ())
    }
}
