//! Which address of this host packets to a peer leave from.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use super::socket::{SocketOptions, prepare};

/// The options of a socket that asks for a way. They have the mark, so that the routes into tunnels do not answer.
pub fn asking(options: SocketOptions) -> SocketOptions {
    SocketOptions { esp: false, ..options }
}

/// The source the kernel takes for packets to `remote` from sockets with `options`, whose mark keeps them out
/// of tunnels. Every question for a way to a peer is asked here: without the mark, the routes that this host has for
/// the peer's own child would answer it. Sends nothing.
pub fn source(remote: IpAddr, options: SocketOptions) -> io::Result<IpAddr> {
    let socket = connected(SocketAddr::new(remote, 9), options)?;
    Ok(socket.local_addr()?.ip())
}

/// A socket with `options` for datagrams to `remote`, which blocks.
pub(super) fn connected(remote: SocketAddr, options: SocketOptions) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    prepare(&socket, remote.is_ipv4(), asking(options))?;
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    socket.connect(&remote.into())?;
    Ok(socket.into())
}
