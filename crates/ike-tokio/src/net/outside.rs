//! Sockets for packets that must not depend on a tunnel of this program.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::dns;
use super::socket::{SocketOptions, mark_and_bypass};
use super::source::{connected, source};

/// Makes sockets whose packets leave outside all tunnels, as IKE messages do: no route and no policy of this program
/// applies to them. All calls block.
#[derive(Debug, Clone, Copy)]
pub struct OutsideTunnels(pub(crate) SocketOptions);

impl OutsideTunnels {
    /// A TCP connection to `remote`, made within `limit`.
    ///
    /// # Errors
    /// The kernel's, or there is no connection in time.
    pub fn connect(&self, remote: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(remote), Type::STREAM, Some(Protocol::TCP))?;
        mark_and_bypass(&socket, remote.is_ipv4(), self.0)?;
        socket.connect_timeout(&remote.into(), limit)?;
        Ok(socket.into())
    }

    /// The address of this host from which such packets to `remote` leave. Sends nothing.
    ///
    /// # Errors
    /// The kernel's: for example, there is no route.
    pub fn source(&self, remote: IpAddr) -> io::Result<IpAddr> {
        source(remote, self.0)
    }

    /// The addresses of `name`, from the first of `servers` that has any. Takes `limit` at the most.
    pub fn addresses(&self, name: &str, servers: &[SocketAddr], limit: Duration) -> Vec<IpAddr> {
        dns::look_up(name, servers, limit, &|server| connected(server, self.0))
    }
}
