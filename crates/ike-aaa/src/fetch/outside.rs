//! Fetches outside tunnels: a resolver and a connector for the HTTP client.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ike_tokio::{OutsideTunnels, Unresolved};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use super::few::Few;

/// Connects outside the tunnels to the addresses for which `wants` is true, and by ordinary sockets to the others.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) sockets: OutsideTunnels,
    /// Looks host names up.
    pub(crate) names: Arc<Few>,
    pub(crate) wants: Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl Outside {
    fn dial(&self, address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        match (self.wants)(address) {
            true => self.sockets.connect(address, limit),
            false => TcpStream::connect_timeout(&address, limit),
        }
    }

    /// The address of this host from which a connection to `server` leaves.
    pub(crate) fn source(&self, server: SocketAddr) -> Option<io::Result<IpAddr>> {
        (self.wants)(server).then(|| self.sockets.source(server.ip()))
    }

    /// The name servers that are asked outside the tunnels.
    fn servers(&self) -> Vec<SocketAddr> {
        let mut servers = self.names.name_servers();
        servers.retain(|server| (self.wants)(*server));
        servers
    }
}

/// The host in `uri`, without the brackets of an IPv6 address.
fn host(uri: &Uri) -> Option<&str> {
    let host = uri.host()?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Some(inner.unwrap_or(host))
}

/// The port in `uri`, or that of its scheme.
fn port(uri: &Uri) -> u16 {
    let default = if uri.scheme() == Some(&Scheme::HTTPS) { HTTPS } else { HTTP };
    uri.port_u16().unwrap_or(default)
}

/// The host name in `uri`. A name without a dot is left out: only the system's resolver knows the host's own domains.
fn name(uri: &Uri) -> Option<&str> {
    uri.host().filter(|host| host.trim_end_matches('.').contains('.'))
}

/// Calls `system`, the system's resolver, and if that fails, `ask`, which asks `servers`. Both together take `patience` at
/// the most. Without `servers` the system's resolver may use all of it.
fn in_turn<T, E>(
    patience: Option<Duration>,
    servers: &[SocketAddr],
    system: impl FnOnce(Option<Duration>) -> Result<T, E>,
    ask: impl FnOnce(Duration) -> Option<T>,
) -> Result<T, E> {
    if servers.is_empty() {
        return system(patience);
    }
    let patience = patience.unwrap_or(RESOLVING);
    let begun = Instant::now();
    system(Some(patience.min(SYSTEM))).or_else(|why| {
        let left = patience.saturating_sub(begun.elapsed());
        ask(left).ok_or(why)
    })
}

/// The system's resolver comes first, because it knows files and other sources. The block of a tunnel that is down stops
/// its queries too.
impl Resolver for Outside {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (host, port) = (host(uri).ok_or(ureq::Error::HostNotFound)?, port(uri));
        let all = |found: Vec<IpAddr>| {
            let mut all = self.empty();
            let found = found.into_iter().map(|address| SocketAddr::new(address, port));
            let family = config.ip_family();
            let wanted = family.keep_wanted(found);
            wanted.take(ADDRESSES).for_each(|address| all.push(address));
            (!all.is_empty()).then_some(all)
        };
        if let Ok(address) = host.parse() {
            return all(vec![address]).ok_or(ureq::Error::HostNotFound);
        }
        let (servers, name) = (self.servers(), name(uri));
        let servers = name.map(|_| &*servers).unwrap_or_default();
        let system = |patience: Option<Duration>| {
            let found = self.names.look_up(host, patience.unwrap_or(RESOLVING));
            let found = found.map_err(|why| match why {
                Unresolved::Failed(why) if why.kind() == io::ErrorKind::TimedOut => {
                    ureq::Error::Timeout(timeout.reason)
                }
                Unresolved::Failed(why) => ureq::Error::Io(why),
                Unresolved::NoSuchName => ureq::Error::HostNotFound,
            })?;
            all(found).ok_or(ureq::Error::HostNotFound)
        };
        let ask = |left| all(self.sockets.addresses(name?, servers, left));
        in_turn(timeout.not_zero().map(|left| *left), servers, system, ask)
    }
}

impl Connector for Outside {
    type Out = Stream;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Stream>, ureq::Error> {
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let left = details.timeout.not_zero().map_or(CONNECTING, |left| *left);
        let limit = left / u32::try_from(details.addrs.len()).unwrap_or(1).max(1);
        let mut why = ureq::Error::HostNotFound;
        for address in &details.addrs {
            match self.dial(*address, limit) {
                Ok(stream) => return Ok(Some(Stream { stream, buffers })),
                Err(error) => why = error.into(),
            }
        }
        Err(why)
    }
}

/// A connection of HTTP.
pub(crate) struct Stream {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(left(&timeout))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| explain(error, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(left(&timeout))?;
        let read = self.stream.read(self.buffers.input_append_buf());
        let amount = read.map_err(|error| explain(error, &timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// No connection is used again.
    fn is_open(&mut self) -> bool {
        false
    }
}

fn left(timeout: &NextTimeout) -> Option<Duration> {
    let least = Duration::from_millis(1);
    timeout.not_zero().map(|left| (*left).max(least))
}

fn explain(error: io::Error, timeout: &NextTimeout) -> ureq::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ureq::Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

/// The port where a URL names none.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Most addresses that the client of HTTP takes.
const ADDRESSES: usize = 16;
/// How long a look-up may take if nothing limits it.
const RESOLVING: Duration = Duration::from_secs(10);
/// How long the system's resolver may take of it if name servers can be asked afterwards.
const SYSTEM: Duration = Duration::from_secs(2);
/// How long a connection may take if nothing limits it.
const CONNECTING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Without name servers to ask afterwards, a slow resolver may use all the time.
    ///
    /// Faults: in `in_turn`, limit the resolver always; never; give `ask` all of `patience`.
    #[test]
    fn the_resolver_shares_its_time_with_name_servers_that_are_asked_outside_tunnels() {
        let all = Duration::from_secs(5);
        let alone = in_turn(Some(all), &[], Err::<(), _>, |_| panic!("asked"));
        assert_eq!(alone, Err(Some(all)));
        let servers = ["192.0.2.1:53".parse().unwrap()];
        let system = |patience: Option<Duration>| {
            std::thread::sleep(Duration::from_millis(20));
            Err(patience)
        };
        let refused = in_turn(Some(all), &servers, system, |left| {
            assert!(left > SYSTEM && left <= all - Duration::from_millis(20), "{left:?}");
            None::<()>
        });
        assert_eq!(refused, Err(Some(SYSTEM)));
        let short = Duration::from_millis(10);
        let found = in_turn(Some(short), &servers, system, |left| {
            assert_eq!(left, Duration::ZERO);
            Some(())
        });
        assert_eq!(found, Ok(()));
    }
}
