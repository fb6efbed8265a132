//! TCP connections between hosts: in order and without loss while they are there, with a handshake, and
//! ways to go wrong.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use ike_proto::{Path, StreamCommand, StreamEvent, Transmit, TransmitKind, Transport};

use crate::network::{Fate, Packet};
use crate::world::{Work, World};

/// How long a driver waits for a connection, and for octets to be acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the end that accepted a connection leaves it to its peer to close it.
const GRACE: Duration = Duration::from_secs(3);
/// What a lost segment costs: the least retransmission timeout of a usual TCP.
const RESENT: Duration = Duration::from_millis(200);

/// The TCP connections of a [`World`], and what happens to those to come.
#[derive(Default)]
pub struct Streams {
    /// Hosts that refuse connections.
    pub refuse: HashSet<usize>,
    /// No segment gets through: connections are not made, and those that are there fall silent.
    pub swallow: bool,
    /// Every connection comes from the port of the one before it.
    pub same_port: bool,
    /// Every connection there was, in the order of opening.
    pub all: Vec<Connection>,
    next_port: u16,
}

/// A TCP connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The host that opened it, and its name there.
    pub opener: (usize, Path),
    /// The other host, and what it is there, once it is open.
    pub acceptor: Option<(usize, Path)>,
    /// Octets pass.
    pub open: bool,
    /// It is not wanted any more.
    closed: bool,
    /// The acceptor was told to keep it.
    pub kept: bool,
    /// When the last octet under way arrives, to the acceptor and to the opener.
    busy: [Duration; 2],
}

impl Streams {
    /// The open connection that `path` names at `host`, and whether `host` opened it.
    fn find(&self, host: usize, path: Path) -> Option<(usize, bool)> {
        self.all.iter().enumerate().rev().find_map(|(n, c)| {
            let ours = c.opener == (host, path);
            (ours || c.acceptor == Some((host, path))).then_some((n, ours))
        })
    }

    /// The connections that are open, by their numbers.
    pub fn open(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|n| self.all[*n].open).collect()
    }

    /// The newest connection that is open.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn newest(&self) -> usize {
        *self.open().last().expect("a connection is open")
    }
}

impl World {
    /// Resets a connection: both ends hear of it at once, and what is under way is lost.
    pub fn cut(&mut self, n: usize) {
        let connection = &mut self.streams.all[n];
        if !std::mem::take(&mut connection.open) {
            return;
        }
        let ends = [Some(connection.opener), connection.acceptor];
        for (host, path) in ends.into_iter().flatten() {
            self.tell_stream(host, path, "connection reset by peer");
        }
    }

    /// Ends a connection for the end that opened it alone; the other end hears nothing.
    pub fn cut_opener(&mut self, n: usize) {
        let connection = &mut self.streams.all[n];
        if std::mem::take(&mut connection.open) {
            let (host, path) = connection.opener;
            self.tell_stream(host, path, "connection timed out");
        }
    }

    /// What a connection from somebody who is no host to port 4500 of `host` is there.
    pub fn stranger(&self, host: usize, from: SocketAddr) -> Path {
        Path { local: self.socket(host, 4500), remote: from, transport: Transport::Tcp }
    }

    /// Gives a host a message as if it had come by `path`, which nobody needs to have.
    pub fn receive(&mut self, host: usize, path: Path, octets: &[u8]) {
        self.handle(host, ike_proto::Input::Datagram(path, octets));
    }

    /// Tells a host that a connection is gone.
    pub fn tell_stream(&mut self, host: usize, path: Path, why: &str) {
        self.handle_stream(host, path, StreamEvent::Closed(why.to_owned()));
    }

    /// Tells a host whatever a driver might.
    pub fn handle_stream(&mut self, host: usize, path: Path, event: StreamEvent) {
        self.handle(host, ike_proto::Input::Stream(path, event));
    }

    pub(crate) fn on_stream_command(&mut self, host: usize, path: Path, command: StreamCommand) {
        match command {
            StreamCommand::Open => self.open_stream(host, path),
            StreamCommand::Keep => {
                if let Some((n, false)) = self.streams.find(host, path) {
                    self.streams.all[n].kept = true;
                }
            }
            StreamCommand::Close => {
                let Some((n, ours)) = self.streams.find(host, path) else { return };
                let connection = &self.streams.all[n];
                let at = connection.busy[usize::from(!ours)].max(self.now());
                let at = if ours { at } else { at + GRACE };
                self.schedule(at, Work::StreamEnds(n, ours));
            }
        }
    }

    fn open_stream(&mut self, host: usize, path: Path) {
        let known = self.streams.all.iter().any(|c| c.opener == (host, path));
        assert!(!known, "host {host} opens {path:?} a second time");
        self.streams.all.push(Connection {
            opener: (host, path),
            acceptor: None,
            open: false,
            closed: false,
            kept: false,
            busy: [Duration::ZERO; 2],
        });
        let n = self.streams.all.len() - 1;
        let link = self.net.link(Some(host), self.host_at(path.remote.ip()).unwrap_or(usize::MAX));
        let at = if self.streams.swallow { PATIENCE } else { link.delay * 2 };
        self.schedule(self.now() + at, Work::StreamOpens(n));
    }

    pub(crate) fn stream_opens(&mut self, n: usize) {
        let Connection { opener: (host, path), closed, .. } = self.streams.all[n];
        if closed {
            return;
        }
        if self.streams.swallow {
            return self.tell_stream(host, path, "connection timed out");
        }
        let mut packet = Packet::forged(SocketAddr::new(path.local.ip(), 0), path.remote, []);
        self.streams.next_port += u16::from(!self.streams.same_port);
        packet.src.set_port(40_000 + self.streams.next_port % 20_000);
        let local = packet.src;
        self.net.leave(self.now(), &mut packet);
        let reached = self.net.enter(self.now(), &mut packet);
        let to =
            self.host_at(packet.dst.ip()).filter(|to| reached && !self.streams.refuse.contains(to));
        let Some(to) = to.filter(|_| packet.dst.port() == 4500) else {
            return self.tell_stream(host, path, "connection refused");
        };
        let there = Path { local: packet.dst, remote: packet.src, transport: Transport::Tcp };
        let connection = &mut self.streams.all[n];
        (connection.acceptor, connection.open) = (Some((to, there)), true);
        self.handle(host, ike_proto::Input::Stream(path, StreamEvent::Opened(local)));
    }

    /// One end closes; the other hears of it after what was sent before.
    pub(crate) fn stream_ends(&mut self, n: usize, by_opener: bool) {
        let connection = &mut self.streams.all[n];
        connection.closed = true;
        if !std::mem::take(&mut connection.open) {
            return;
        }
        let other = if by_opener { connection.acceptor } else { Some(connection.opener) };
        if let Some((host, path)) = other {
            self.tell_stream(host, path, "closed by the peer");
        }
    }

    pub(crate) fn send_by_stream(&mut self, host: usize, transmit: Transmit) {
        let Transmit { path, kind, octets, .. } = transmit;
        assert!(kind != TransmitKind::KeepAlive, "a keepalive in TCP");
        assert!(octets.len() <= 0xffff - 6, "no length field can say {}", octets.len());
        self.hosts[host].sent += 1;
        let found = self.streams.find(host, path);
        let mut packet = Packet {
            sent: self.now(),
            from: Some(host),
            src: path.local,
            dst: path.remote,
            marker: false,
            stream: found.map(|(n, _)| n),
            kind,
            octets,
        };
        self.audit.on_sent(&packet);
        if self.net.tracing {
            self.net.trace.push(packet.clone());
        }
        let fate = self.net.tapped(&mut packet);
        let Some((n, ours)) = found.filter(|(n, _)| self.streams.all[*n].open) else { return };
        // TCP knows no loss: a tap that drops cuts.
        if fate == Fate::Drop {
            return self.schedule(self.now(), Work::StreamCut(n));
        }
        let connection = &self.streams.all[n];
        let peer = if ours { connection.acceptor } else { Some(connection.opener) };
        let link = self.net.link(Some(host), peer.map_or(usize::MAX, |(peer, _)| peer));
        let mut at = self.now() + link.delay;
        while self.net.rng.chance(link.loss.min(900)) {
            at += RESENT;
        }
        let busy = &mut self.streams.all[n].busy[usize::from(!ours)];
        at = at.max(*busy);
        *busy = at;
        self.schedule(at, Work::StreamArrives(n, ours, packet));
    }

    /// What was sent has not been acknowledged for a long time.
    pub(crate) fn stream_silent(&mut self, n: usize, ours: bool, packet: Packet) {
        if !self.streams.swallow {
            return self.stream_arrives(n, ours, packet);
        }
        if !self.streams.all[n].open {
            return;
        }
        let connection = &self.streams.all[n];
        let end = if ours { Some(connection.opener) } else { connection.acceptor };
        if let Some((host, path)) = end {
            self.tell_stream(host, path, "connection timed out");
        }
    }

    pub(crate) fn stream_arrives(&mut self, n: usize, by_opener: bool, packet: Packet) {
        let connection = &self.streams.all[n];
        if !connection.open {
            return;
        }
        if self.streams.swallow {
            // TCP tries again, for a while.
            return self.schedule(self.now() + PATIENCE, Work::StreamSilent(n, by_opener, packet));
        }
        let to = if by_opener { connection.acceptor } else { Some(connection.opener) };
        let Some((host, path)) = to else { return };
        self.audit.on_delivered(&packet);
        self.handle(host, ike_proto::Input::Datagram(path, &packet.octets));
    }
}
