//! Sockets for questions of this program that no tunnel of its own may hold.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::ask;
use super::socket::{SocketOptions, mark_and_bypass};
use super::source::connected;

/// Makes sockets whose packets go round all tunnels, as IKE messages do: no route and no policy of this program holds
/// them. All calls block.
#[derive(Debug, Clone, Copy)]
pub struct RoundTunnels(pub(crate) SocketOptions);

impl RoundTunnels {
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

    /// The name servers of this host that are not on this host: those ask others by sockets of their own.
    pub fn name_servers(&self) -> Vec<SocketAddr> {
        ask::servers()
    }

    /// The addresses of `name`, from the first of `servers` that knows any within `limit`.
    pub fn addresses(&self, name: &str, servers: &[SocketAddr], limit: Duration) -> Vec<IpAddr> {
        ask::ask(name, servers, limit, &|server| connected(server, self.0))
    }
}
