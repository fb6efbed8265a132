//! The sockets of a driver.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use esp::io::EncapSocket;
use ike_proto::{Path, Transmit, TransmitKind, Transport};
use tokio::sync::mpsc;

use crate::net::marker::NON_ESP_MARKER;
use crate::net::outside::OutsideTunnels;
use crate::net::socket::{Origin, PktSocket, RUN, SocketOptions, send_on};
use crate::streams::{self, Happened, Listener, Streams};
use ike_proto::config::Ports;

/// Where and how to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Addresses; a wildcard takes every address of its family.
    pub addresses: Vec<IpAddr>,
    /// True if an IPv6 address that cannot be bound is skipped with a warning. One of the addresses before it must have
    /// been bound.
    pub lenient: bool,
    /// True for ESP in user space: the data plane receives from the NAT-T sockets.
    pub esp: bool,
    /// True for ESP in the kernel: the kernel takes ESP from the NAT-T sockets, and its policies exempt the sockets.
    pub kernel: bool,
    /// Mark of all packets of the sockets (`SO_MARK`; needs CAP_NET_ADMIN).
    pub mark: Option<u32>,
    /// TCP port to accept connections on (RFC 9329); 0 lets the system choose, and `None` accepts none. The program
    /// also sets [`EndpointConfig::accepts_tcp`](ike_proto::config::EndpointConfig::accepts_tcp).
    pub tcp: Option<u16>,
    /// TCP ports of peers to which this end opens connections. The packet filter of ESP in user space lets segments
    /// from these ports in.
    pub tcp_remote: Vec<u16>,
    /// Number of shards, each with UDP sockets of its own; 0 means 1.
    pub shards: u8,
}

impl Default for Listen {
    fn default() -> Self {
        let addresses = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Self {
            addresses,
            lenient: true,
            esp: false,
            kernel: false,
            mark: None,
            tcp: None,
            tcp_remote: Vec::new(),
            shards: 1,
        }
    }
}

/// A socket of the NAT-T port.
#[derive(Clone)]
pub(crate) enum Encap {
    /// Received from by the driver.
    Ike(Arc<PktSocket>),
    /// Received from by the data plane.
    Esp(Arc<EncapSocket>),
}

/// The sockets of one address.
struct Pair {
    plain: Arc<PktSocket>,
    encap: Encap,
}

/// The bound sockets: for each address a UDP socket for IKE, a UDP socket for NAT-T, and a listening TCP socket if
/// wanted. TCP connections that either end opens belong here, too.
///
/// Each shard has UDP sockets of its own on the same ports. The exceptions are NAT-T sockets from which ESP in user
/// space receives: all shards share these. The first shard accepts TCP connections for all.
pub struct Sockets {
    pairs: Vec<Pair>,
    /// Those of further shards.
    others: Vec<Vec<Pair>>,
    tcp: Option<u16>,
    tcp_remote: Vec<u16>,
    listeners: Vec<Listener>,
    streams: Streams,
    happened: Vec<mpsc::Receiver<Happened>>,
    options: SocketOptions,
}

impl Sockets {
    /// Binds the sockets. For a port of 0 the system chooses at the first address, and the other addresses use the same
    /// port.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn bind(listen: &Listen, mut ports: Ports) -> io::Result<Self> {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut listeners = Vec::new();
        let mut tcp = listen.tcp;
        let options = options(listen, false);
        for address in &listen.addresses {
            match Pair::bind(*address, ports, listen) {
                Ok(pair) => {
                    ports = pair.ports();
                    pairs.push(pair);
                    if let Some(port) = &mut tcp {
                        let address = SocketAddr::new(*address, *port);
                        let listener = streams::listen(address, options)
                            .map_err(|error| describe("TCP", address, &error))?;
                        *port = listener.local_addr()?.port();
                        listeners.push(listener);
                    }
                }
                Err(error) if listen.lenient && address.is_ipv6() && !pairs.is_empty() => {
                    tracing::warn!(%error, "IPv6 address is left out");
                }
                Err(error) => return Err(error),
            }
        }
        if pairs.is_empty() {
            return Err(io::Error::other("no address to listen on"));
        }
        let count = listen.shards.max(1);
        let mut others = Vec::new();
        for _ in 1..count {
            let of_shard = pairs.iter().map(|pair| pair.another(listen));
            others.push(of_shard.collect::<io::Result<Vec<_>>>()?);
        }
        if count > 1 {
            for pair in &pairs {
                pair.steer(count);
            }
        }
        let (streams, happened) = Streams::new(options, count);
        let tcp_remote = listen.tcp_remote.clone();
        Ok(Self { pairs, others, tcp, tcp_remote, listeners, streams, happened, options })
    }

    /// The number of shards.
    pub fn shards(&self) -> u8 {
        // As many as `Listen` said.
        u8::try_from(self.others.len() + 1).unwrap_or(u8::MAX)
    }

    /// Those of each shard.
    pub(crate) fn split(mut self) -> Vec<Self> {
        let others = std::mem::take(&mut self.others);
        let further = self.happened.split_off(1.min(self.happened.len()));
        let mut all = Vec::new();
        for (index, (pairs, happened)) in (1..).zip(others.into_iter().zip(further)) {
            all.push(Self {
                pairs,
                others: Vec::new(),
                tcp: self.tcp,
                tcp_remote: self.tcp_remote.clone(),
                listeners: Vec::new(),
                streams: self.streams.of_shard(index),
                happened: vec![happened],
                options: self.options,
            });
        }
        all.insert(0, self);
        all
    }

    /// The same sockets in the tokio runtime that this is called in. TCP stays where it was.
    pub(crate) fn moved(mut self) -> io::Result<Self> {
        self.pairs = self.pairs.into_iter().map(Pair::moved).collect::<io::Result<_>>()?;
        Ok(self)
    }

    /// Makes further sockets, whose packets leave outside all tunnels.
    pub fn outside_tunnels(&self) -> OutsideTunnels {
        OutsideTunnels(self.options)
    }

    /// What the sockets were made with, but for who receives ESP.
    pub(crate) fn options(&self) -> SocketOptions {
        self.options
    }

    /// The TCP port that connections are accepted on.
    pub fn tcp_port(&self) -> Option<u16> {
        self.tcp
    }

    /// The TCP ports of peers.
    pub(crate) fn tcp_remote(&self) -> &[u16] {
        &self.tcp_remote
    }

    /// The TCP connections.
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Begins to accept TCP connections, once; what happens to any of them.
    pub(crate) fn start_streams(&mut self) -> Option<mpsc::Receiver<Happened>> {
        for listener in self.listeners.drain(..) {
            self.streams.accept(listener);
        }
        self.happened.pop()
    }

    /// The UDP ports in use.
    pub fn ports(&self) -> Ports {
        self.pairs.first().map_or_else(Ports::default, Pair::ports)
    }

    /// The NAT-T sockets from which ESP in user space receives; none without [`Listen::esp`].
    pub fn encapsulated(&self) -> Vec<Arc<EncapSocket>> {
        let esp = |pair: &Pair| match &pair.encap {
            Encap::Esp(socket) => Some(Arc::clone(socket)),
            Encap::Ike(_) => None,
        };
        self.pairs.iter().filter_map(esp).collect()
    }

    /// The sockets that the driver receives from.
    pub(crate) fn receiving(&self) -> Vec<(Transport, Arc<PktSocket>)> {
        let mut sockets = Vec::new();
        for Pair { plain, encap } in &self.pairs {
            sockets.push((Transport::Udp, Arc::clone(plain)));
            if let Encap::Ike(socket) = encap {
                sockets.push((Transport::UdpEncap, Arc::clone(socket)));
            }
        }
        sockets
    }

    /// Sends a datagram.
    pub(crate) async fn send(&self, transmit: &Transmit) -> io::Result<()> {
        if transmit.path.transport == Transport::Tcp {
            // NAT keepalives are not for TCP (RFC 9329 §6.6).
            return match transmit.kind {
                TransmitKind::KeepAlive => Ok(()),
                _ => self.streams.send_ike(&transmit.path, &transmit.octets),
            };
        }
        let local = transmit.path.local.ip();
        let pair = self.find(local).ok_or_else(|| io::Error::other("no socket on this address"))?;
        pair.send(transmit).await
    }

    /// Sends datagrams of a run, which have one path, with one call if there are several.
    pub(crate) async fn send_run(&self, run: &[Transmit]) -> io::Result<()> {
        let several = run.len() > 1;
        if let Some(first) = run.first().filter(|_| several)
            && let Some((socket, prefix)) =
                self.find(first.path.local.ip()).and_then(|pair| pair.own(first))
        {
            let mut datagrams = [&[][..]; RUN];
            for (datagram, transmit) in datagrams.iter_mut().zip(run) {
                *datagram = &transmit.octets;
            }
            let datagrams = datagrams.get(..run.len()).unwrap_or(&datagrams);
            let Path { local, remote, .. } = first.path;
            let from = Origin { address: local.ip(), dscp: first.dscp };
            return socket.send_run(from, remote, prefix, datagrams);
        }
        let mut all = Ok(());
        for transmit in run {
            all = all.and(self.send(transmit).await);
        }
        all
    }

    /// True if something can be sent from `local`.
    pub(crate) fn sends_from(&self, local: IpAddr) -> bool {
        self.find(local).is_some()
    }

    /// The sockets bound to `local` itself, or else to the wildcard address of its family.
    fn find(&self, local: IpAddr) -> Option<&Pair> {
        let of = |wanted: &dyn Fn(IpAddr) -> bool| {
            self.pairs.iter().find(|pair| wanted(pair.plain.bound().ip()))
        };
        of(&|bound| bound == local)
            .or_else(|| of(&|bound| bound.is_unspecified() && bound.is_ipv4() == local.is_ipv4()))
    }
}

impl Pair {
    fn bind(address: IpAddr, ports: Ports, listen: &Listen) -> io::Result<Self> {
        let bind = |port, esp| {
            let address = SocketAddr::new(address, port);
            PktSocket::bind(address, options(listen, esp))
                .map_err(|error| describe("UDP", address, &error))
        };
        let plain = Arc::new(bind(ports.ike, false)?);
        let encap = bind(ports.nat_t, listen.kernel)?;
        let encap = if listen.esp {
            Encap::Esp(Arc::new(EncapSocket::new(encap.into_socket())?))
        } else {
            Encap::Ike(Arc::new(encap))
        };
        Ok(Self { plain, encap })
    }

    /// Those of another shard on the same address and ports.
    fn another(&self, listen: &Listen) -> io::Result<Self> {
        let plain = Arc::new(self.plain.another(options(listen, false))?);
        let encap = match &self.encap {
            Encap::Ike(socket) => {
                Encap::Ike(Arc::new(socket.another(options(listen, listen.kernel))?))
            }
            // The data plane receives from one, and hands IKE on.
            Encap::Esp(socket) => Encap::Esp(Arc::clone(socket)),
        };
        Ok(Self { plain, encap })
    }

    /// Makes the kernel find the right shard. If it does not, the shards hand datagrams on to each other.
    fn steer(&self, count: u8) {
        let mut steered = self.plain.steer(count, false);
        if let Encap::Ike(socket) = &self.encap {
            steered = steered.and(socket.steer(count, true));
        }
        if let Err(error) = steered {
            let address = self.plain.bound();
            tracing::warn!(%address, %error, "datagrams are not steered by the kernel; the shards hand them on");
        }
    }

    fn moved(self) -> io::Result<Self> {
        let Self { plain, encap } = self;
        let alone = |socket| Arc::into_inner(socket).ok_or_else(|| io::Error::other("in use"));
        let plain = Arc::new(alone(plain)?.moved()?);
        let encap = match encap {
            Encap::Ike(socket) => Encap::Ike(Arc::new(alone(socket)?.moved()?)),
            shared @ Encap::Esp(_) => shared,
        };
        Ok(Self { plain, encap })
    }

    fn ports(&self) -> Ports {
        let nat_t = match &self.encap {
            Encap::Ike(socket) => socket.bound().port(),
            Encap::Esp(socket) => socket.local_addr().port(),
        };
        Ports { ike: self.plain.bound().port(), nat_t }
    }

    /// The socket for IKE messages that is not shared with the data plane, and what goes before them.
    fn own(&self, transmit: &Transmit) -> Option<(&PktSocket, &'static [u8])> {
        match (transmit.path.transport, &self.encap) {
            (Transport::Udp, _) => Some((&self.plain, &[])),
            (Transport::UdpEncap, Encap::Ike(socket)) => Some((socket, &NON_ESP_MARKER)),
            (Transport::UdpEncap, Encap::Esp(_)) | (Transport::Tcp, _) => None,
        }
    }

    async fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let Transmit { path, kind, dscp, octets } = transmit;
        let (address, remote) = (path.local.ip(), path.remote);
        let local = Origin { address, dscp: *dscp };
        let marked = *kind != TransmitKind::KeepAlive;
        let probes = *kind == TransmitKind::Probe;
        match (path.transport, &self.encap) {
            (Transport::Tcp, _) => Err(io::Error::other("not a datagram")),
            (Transport::Udp, _) if probes => self.plain.send_whole(local, remote, &[&[], octets]),
            (Transport::UdpEncap, Encap::Ike(socket)) if probes => {
                socket.send_whole(local, remote, &[&NON_ESP_MARKER, octets])
            }
            (Transport::UdpEncap, Encap::Esp(socket)) if probes => {
                socket.send_probe((address, *dscp), remote, octets).await
            }
            (Transport::Udp, _) => self.plain.send(local, remote, &[&[], octets]),
            (Transport::UdpEncap, Encap::Ike(socket)) if marked => {
                socket.send(local, remote, &[&NON_ESP_MARKER, octets])
            }
            (Transport::UdpEncap, Encap::Ike(socket)) => socket.send(local, remote, &[&[], octets]),
            (Transport::UdpEncap, Encap::Esp(socket)) if *dscp != 0 => {
                let prefix: &[u8] = if marked { &NON_ESP_MARKER } else { &[] };
                send_on(socket.udp(), local, remote, &[prefix, octets])
            }
            (Transport::UdpEncap, Encap::Esp(socket)) if marked => {
                socket.send_ike(Some(address), remote, octets).await
            }
            (Transport::UdpEncap, Encap::Esp(socket)) => {
                socket.send_raw(Some(address), remote, octets).await
            }
        }
    }
}

fn options(listen: &Listen, esp: bool) -> SocketOptions {
    SocketOptions { mark: listen.mark, bypass: listen.kernel, esp }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs.iter().map(|pair| pair.plain.bound())).finish()
    }
}

fn describe(protocol: &str, address: SocketAddr, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            " (ports below 1024 need root or CAP_NET_BIND_SERVICE; [charon] port, port_nat_t and \
             tcp_port choose others)"
        }
        io::ErrorKind::AddrInUse => " (is another IKE daemon running?)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {protocol} {address}: {error}{hint}"))
}
