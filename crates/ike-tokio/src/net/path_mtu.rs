//! The kernel's MTU of a path: that of the first link, or less once a router has reported less (RFC 1191, RFC
//! 8201). The kernel itself processes ICMP; this module only asks it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use socket2::{Domain, Protocol, Socket, Type};

use super::socket::{SocketOptions, prepare};

/// Octets of the largest IP packet that the kernel thinks can go from `local` to `remote`. `options` are
/// those of the sockets that will send it, so that the same route is found. Sends nothing.
pub fn path_mtu(local: IpAddr, remote: SocketAddr, options: SocketOptions) -> io::Result<u32> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    // Policies of the kernel are not to hold for it: they would bring up a tunnel.
    prepare(&socket, remote.is_ipv4(), SocketOptions { esp: false, ..options })?;
    socket.bind(&SocketAddr::new(local, 0).into())?;
    socket.connect(&remote.into())?;
    let octets = if remote.is_ipv4() { ip_mtu(&socket) } else { ipv6_mtu(&socket) };
    Ok(octets?)
}
