//! Fetches round tunnels, for the client of HTTP.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ike_tokio::RoundTunnels;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Tells which addresses are reached round tunnels, and reaches them.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) sockets: RoundTunnels,
    pub(crate) wants: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").finish_non_exhaustive()
    }
}

impl Round {
    fn dial(&self, address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        match (self.wants)(address.ip()) {
            true => self.sockets.connect(address, limit),
            false => TcpStream::connect_timeout(&address, limit),
        }
    }

    /// The addresses of `uri` by the name servers that are reached round tunnels.
    fn ask(&self, uri: &Uri) -> Vec<SocketAddr> {
        let mut servers = self.sockets.name_servers();
        servers.retain(|server| (self.wants)(server.ip()));
        // A name without a dot is one of the host's own domains, which only the resolver knows.
        let host = uri.host().filter(|host| host.trim_end_matches('.').contains('.'));
        let port = uri.port_u16().unwrap_or(HTTP);
        let found = host.map(|host| self.sockets.addresses(host, &servers));
        found.into_iter().flatten().map(|address| SocketAddr::new(address, port)).collect()
    }
}

/// The system's resolver comes first: it knows files and other sources. What blocks the traffic of a tunnel blocks its
/// questions as well.
impl Resolver for Round {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let after = timeout.after.min(SYSTEM.into());
        let first = NextTimeout { after, ..timeout };
        let why = match DefaultResolver::default().resolve(uri, config, first) {
            Ok(found) => return Ok(found),
            Err(why) => why,
        };
        let found = self.ask(uri);
        if found.is_empty() {
            return Err(why);
        }
        let mut all = self.empty();
        found.into_iter().take(ADDRESSES).for_each(|address| all.push(address));
        Ok(all)
    }
}

impl Connector for Round {
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
/// Most addresses that the client of HTTP takes.
const ADDRESSES: usize = 16;
/// How long the system's resolver may take.
const SYSTEM: Duration = Duration::from_secs(2);
/// How long a connection may take if nothing limits it.
const CONNECTING: Duration = Duration::from_secs(5);
