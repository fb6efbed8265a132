//! TCP sockets of RFC 9329: listening and opening.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::socket::{self, SocketOptions};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Octets that may wait in the kernel unsent: what waits with us instead can be put in order, or left out.
const UNSENT: u32 = 64 << 10;

/// Octets of the IP packets of a connection at the most. Many networks drop larger packets without ICMP, and a stream stalls
/// for good if one of its segments is too large (RFC 9329 has no probes of the path).
const LARGEST_PACKET: u32 = 1280;

/// Octets of IP and TCP headers.
const IPV4_AND_TCP: u32 = 40;
const IPV6_AND_TCP: u32 = 60;

/// What was sent and not acknowledged for so long ends the connection, so that another one is opened
/// before the exchange that waits for its answer gives up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Keepalives of an idle connection: the first, between them, and how many unanswered ones end it. They
/// say nothing about the peer's IKE (RFC 9329 §6.7).
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// Listens on `address`; an IPv6 socket takes IPv6 only. What it accepts has the same options. Must be
/// called in a tokio runtime.
pub fn listen(address: SocketAddr, options: SocketOptions) -> io::Result<TcpListener> {
    let socket = make(address, options)?;
    // Connections of an earlier run that linger are no reason not to start.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Opens a connection from `local`, if that is not the wildcard, to `remote`.
pub async fn connect(
    local: IpAddr,
    remote: SocketAddr,
    options: SocketOptions,
) -> io::Result<TcpStream> {
    let socket = make(remote, options)?;
    if !local.is_unspecified() {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    let stream = TcpSocket::from_std_stream(socket.into()).connect(remote).await?;
    tune(&stream)?;
    Ok(stream)
}

/// Sets what both ends set on a connection.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let (time, interval, retries) = KEEPALIVE;
    let keepalive =
        TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    socket.set_tcp_notsent_lowat(UNSENT)
}

fn make(address: SocketAddr, options: SocketOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket::mark_and_bypass(&socket, address.is_ipv4(), options)?;
    let headers = if address.is_ipv4() { IPV4_AND_TCP } else { IPV6_AND_TCP };
    socket.set_tcp_mss(LARGEST_PACKET - headers)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
