//! A UDP socket that knows which of this host's addresses a datagram came to, and sends from the
//! address it is told to.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A bound UDP socket, usually on a wildcard address.
#[derive(Debug)]
pub struct PktSocket {
    io: UdpSocket,
    bound: SocketAddr,
}

/// What a socket needs beside a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// Mark of all it sends.
    pub mark: Option<u32>,
    /// The kernel's IPsec policies do not hold for it.
    pub bypass: bool,
    /// The kernel takes the ESP that arrives.
    pub esp: bool,
}

/// Where a received datagram came from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Octets of it.
    pub len: usize,
    /// Sender.
    pub remote: SocketAddr,
    /// This host's address and port.
    pub local: SocketAddr,
}

impl PktSocket {
    /// Binds to `address`; an IPv6 socket takes IPv6 only, so that both families can have a wildcard
    /// socket of one port. Must be called in a tokio runtime.
    pub fn bind(address: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        match address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) => {
                socket.set_only_v6(true)?;
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            }
        }
        // Before anything can arrive.
        prepare(&socket, address.is_ipv4(), options)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        // Room for bursts; the kernel caps it, and less is no failure.
        let _ = socket.set_recv_buffer_size(BUFFER);
        let _ = socket.set_send_buffer_size(BUFFER);
        let io = UdpSocket::from_std(socket.into())?;
        let bound = io.local_addr()?;
        Ok(Self { io, bound })
    }

    /// The address it is bound to, with the port the system chose if that was 0.
    pub fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// The socket itself, for somebody else to receive from.
    pub fn into_socket(self) -> UdpSocket {
        self.io
    }

    /// Waits for a datagram. One longer than `buffer` is cut, which the caller cannot tell.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.io.async_io(Interest::READABLE, || self.recv_now(buffer)).await
    }

    /// Takes a datagram that is already here.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.io.try_io(Interest::READABLE, || self.recv_now(buffer))
    }

    /// Sends `parts` in one datagram from the address `local` to `remote`. What the socket has no room
    /// for is lost, as UDP may; the caller's retransmissions make up for it.
    pub fn send(&self, local: IpAddr, remote: SocketAddr, parts: &[&[u8]]) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let to = SockaddrStorage::from(remote);
        let fd = self.io.as_raw_fd();
        let sent = match source(local) {
            Source::V4(info) => {
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))
            }
            Source::V6(info) => {
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))
            }
        };
        sent.map(|_| ()).map_err(io::Error::from)
    }

    fn recv_now(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<SockaddrStorage>(
            self.io.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let remote = message.address.as_ref().and_then(socket_address);
        let remote = remote.ok_or_else(|| io::Error::other("datagram without a sender"))?;
        let mut local = self.bound;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    local.set_ip(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    local.set_ip(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
        }
        Ok(Received { len: message.bytes, remote, local })
    }
}

/// Gives a socket what `options` say, and the way to treat large datagrams: what fits the path is never
/// fragmented under way, so that routers report what does not; what cannot be helped (IKE_SA_INIT) leaves
/// as IP fragments.
pub(super) fn prepare(socket: &Socket, ipv4: bool, options: SocketOptions) -> io::Result<()> {
    if ipv4 {
        set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?;
    } else {
        set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?;
    }
    mark_and_bypass(socket, ipv4, options)?;
    if options.esp {
        xfrm::socket::receive_esp(socket).map_err(|error| kernel("ESP in UDP", &error))?;
    }
    Ok(())
}

/// Sets the mark and lets policies be, before anything can arrive.
pub(super) fn mark_and_bypass(
    socket: &Socket,
    ipv4: bool,
    options: SocketOptions,
) -> io::Result<()> {
    if let Some(mark) = options.mark {
        socket.set_mark(mark).map_err(|error| {
            let why = format!("mark {mark}: {error} (the data plane needs CAP_NET_ADMIN)");
            io::Error::new(error.kind(), why)
        })?;
    }
    if options.bypass {
        xfrm::socket::bypass_policies(socket, ipv4)
            .map_err(|error| kernel("a policy of its own", &error))?;
    }
    Ok(())
}

fn kernel(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the kernel refuses the socket {what}: {error}"))
}

/// A source address in the form of its control message.
enum Source {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// The interface index 0 leaves the choice of the interface to the routing table.
fn source(local: IpAddr) -> Source {
    match local {
        IpAddr::V4(v4) => {
            let address = libc::in_addr { s_addr: u32::from(v4).to_be() };
            let unset = libc::in_addr { s_addr: 0 };
            Source::V4(libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: unset })
        }
        IpAddr::V6(v6) => {
            let address = libc::in6_addr { s6_addr: v6.octets() };
            Source::V6(libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 })
        }
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).into())
}

const BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair(wildcard: &str, address: &str) {
        let server = PktSocket::bind(
            SocketAddr::new(wildcard.parse().unwrap(), 0),
            SocketOptions::default(),
        )
        .unwrap();
        let client = PktSocket::bind(
            SocketAddr::new(wildcard.parse().unwrap(), 0),
            SocketOptions::default(),
        )
        .unwrap();
        let address: IpAddr = address.parse().unwrap();
        let to = SocketAddr::new(address, server.bound().port());
        client.send(address, to, &[b"ab", b"c"]).unwrap();
        let mut buffer = [0; 16];
        let received = server.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..received.len], b"abc");
        assert_eq!(received.local, to);
        assert_eq!(received.remote, SocketAddr::new(address, client.bound().port()));
        server.send(received.local.ip(), received.remote, &[b"d"]).unwrap();
        let reply = client.recv(&mut buffer).await.unwrap();
        assert_eq!((reply.remote, &buffer[..reply.len]), (to, &b"d"[..]));
    }

    #[tokio::test]
    async fn replies_come_from_the_address_that_was_asked() {
        pair("0.0.0.0", "127.0.0.1").await;
        pair("0.0.0.0", "127.8.7.6").await;
    }

    #[tokio::test]
    async fn ipv6_as_well() {
        // A machine without IPv6 cannot show it.
        if std::net::UdpSocket::bind("[::1]:0").is_ok() {
            pair("::", "::1").await;
        }
    }
}
