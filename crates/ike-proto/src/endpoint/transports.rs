//! Which transport an attempt uses, the change from one to the other (RFC 9329 §5.1), and events of TCP
//! connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::attempt::{Origin, Switch};
use super::index::StreamChange;
use super::{Endpoint, Entry};
use crate::channel::nat::NATT_PORT;
use crate::config::{ConnectionConfig, SeparateTransports, TcpUse};
use crate::event::{Now, Output, Path, StreamCommand, StreamEvent, Transport};

/// The IKE port; another `remote_port` means UDP encapsulation from the start, as in strongSwan.
const IKE_PORT: u16 = 500;

/// How long the endpoint remembers that a peer was reached over TCP and not over UDP. After that the next attempt
/// tries UDP first again.
const MEMORY: Duration = Duration::from_secs(600);

/// Pairs of addresses remembered.
const MAX_REMEMBERED: usize = 1024;

/// Pairs of addresses between which UDP gets no answer, and until when that counts. Only peers authenticated over
/// TCP are added: a peer that is down is not.
#[derive(Default)]
pub(super) struct BlockedUdp {
    until: BTreeMap<(IpAddr, IpAddr), Instant>,
}

impl BlockedUdp {
    fn note(&mut self, now: Instant, path: Path) {
        if self.until.len() >= MAX_REMEMBERED {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() < MAX_REMEMBERED {
            self.until.insert(ends(path), now + MEMORY);
        }
    }

    fn holds(&self, now: Instant, local: IpAddr, remote: IpAddr) -> bool {
        let key = (local.to_canonical(), remote.to_canonical());
        self.until.get(&key).is_some_and(|until| *until > now)
    }

    fn forget(&mut self, path: Path) {
        self.until.remove(&ends(path));
    }
}

fn ends(path: Path) -> (IpAddr, IpAddr) {
    (path.local.ip().to_canonical(), path.remote.ip().to_canonical())
}

impl Endpoint {
    /// The path on which a new IKE SA of `connection` begins. A path over TCP has no name yet.
    pub(super) fn path_to(
        &self,
        connection: &ConnectionConfig,
        local: IpAddr,
        remote: IpAddr,
    ) -> Path {
        let blocked =
            || self.now.is_some_and(|now| self.blocked_udp.holds(now.mono, local, remote));
        let tcp = match connection.enable_tcp {
            TcpUse::No => false,
            TcpUse::Yes => true,
            TcpUse::Fallback(_) => blocked(),
        };
        if tcp {
            tcp_path(connection, local, remote)
        } else {
            self.udp_path(connection, local, remote)
        }
    }

    fn udp_path(&self, connection: &ConnectionConfig, local: IpAddr, remote: IpAddr) -> Path {
        let other_port = connection.remote_port != IKE_PORT;
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.1
        //# Using UDP port 4500 ensures that IPsec
        //# traffic can traverse NATs and intermediate devices that allow UDP
        //# encapsulation.
        let separate = connection.separate_transports == SeparateTransports::Yes;
        let (transport, local_port, remote_port) = match (other_port, separate) {
            (true, _) => (Transport::UdpEncap, self.config.natt_port, connection.remote_port),
            (false, true) => (Transport::UdpEncap, self.config.natt_port, NATT_PORT),
            (false, false) => (Transport::Udp, connection.local_port, IKE_PORT),
        };
        Path {
            local: SocketAddr::new(local, local_port),
            remote: SocketAddr::new(remote, remote_port),
            transport,
        }
    }

    /// The reason for the transport of the next attempt on `path`.
    pub(super) fn origin_of(connection: &ConnectionConfig, path: Path) -> Origin {
        match (connection.enable_tcp, path.transport) {
            (TcpUse::Fallback(_), Transport::Tcp) => Origin::Remembered,
            _ => Origin::Configured,
        }
    }

    /// The path of an attempt that starts over because the attempt on `path` is to `switch`; `None` if no path
    /// leads there.
    pub(super) fn switched(
        &mut self,
        connection: &ConnectionConfig,
        path: Path,
        switch: Switch,
    ) -> Option<(Path, Origin)> {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        Some(match switch {
            Switch::Tcp => (tcp_path(connection, local, remote), Origin::FellBack),
            Switch::Udp => {
                self.blocked_udp.forget(path);
                (self.udp_path(connection, local, remote), Origin::Configured)
            }
            Switch::OneTransport => {
                (self.udp_path(connection, local, remote), Origin::OneTransport)
            }
            Switch::Anew => (path, Self::origin_of(connection, path)),
            Switch::Redirect(gateway) => {
                let local = self.local_towards(local, gateway)?;
                let path = self.path_to(connection, local, gateway);
                (path, Self::origin_of(connection, path))
            }
        })
    }

    /// Learns from the end of an attempt over TCP. `success` if the peer is authenticated.
    pub(super) fn learn(&mut self, now: Now, path: Path, origin: Origin, success: bool) {
        match (origin, success) {
            (Origin::FellBack, true) => self.blocked_udp.note(now.mono, path),
            (Origin::Remembered, false) => self.blocked_udp.forget(path),
            _ => {}
        }
    }

    pub(super) fn on_stream(&mut self, now: Now, path: Path, event: &StreamEvent) {
        let users = self.index.users_of(&path);
        if matches!(event, StreamEvent::Closed(_)) {
            self.paths.streams.forget(&path);
            self.index.forget_stream(&path);
        }
        for id in users {
            let (slot, mut ctx) = self.lend(now, id);
            match slot.map(|slot| &mut slot.entry) {
                Some(Entry::Attempt(attempt)) => attempt.on_stream(&mut ctx, path, event),
                Some(Entry::Sa(sa)) => sa.on_stream(&mut ctx, path, event),
                Some(Entry::Parked(_)) | None => {}
            }
            self.settle(now, id);
        }
    }

    /// Tells the driver what a change of an entry means for TCP connections.
    pub(super) fn tell_streams(&mut self, change: StreamChange) {
        for (path, command) in change.into_iter().flatten() {
            if command == StreamCommand::Close {
                self.paths.streams.forget(&path);
            }
            self.out.push_back(Output::Stream(path, command));
        }
    }
}

fn tcp_path(connection: &ConnectionConfig, local: IpAddr, remote: IpAddr) -> Path {
    Path {
        local: SocketAddr::new(local, 0),
        remote: SocketAddr::new(remote, connection.tcp_remote_port),
        transport: Transport::Tcp,
    }
}
