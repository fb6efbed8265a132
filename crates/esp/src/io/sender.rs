//! ESP packets on their way to a socket, gathered into runs that one system call sends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipsec_types::dataplane::Encapsulation;
use tracing::debug;

use super::encap::{EncapSocket, choose};
use super::outer_fragments::{fragments, is_divisible};
use super::raw::{ClearSockets, PlainEsp};
use super::streams::Streams;
use crate::buffer::Buffer;
use crate::outbound::{Outgoing, Sealed};
use crate::sad::Path;

/// Packets that are handed to a TCP connection at once.
const STREAM_RUN: usize = 64;

/// Packets that a raw socket sends at once.
const RAW_RUN: usize = 64;

/// Most octets of one send, so that it fits into an IP packet with its headers.
const MAX_RUN: usize = 65_000;

/// The sockets ESP leaves through.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) encap: Vec<Arc<EncapSocket>>,
    pub(super) plain: Vec<Arc<PlainEsp>>,
    pub(super) streams: Option<Arc<dyn Streams>>,
    /// For fragments, which bring their own headers.
    pub(super) raw: Option<Arc<ClearSockets>>,
}

/// Packets for one destination, of one length but for the last.
struct Run {
    start: usize,
    segment: usize,
    count: usize,
    /// Packets that one send may hold.
    most: usize,
    /// A shorter packet ended it.
    closed: bool,
    to: Outgoing,
}

/// Sealed packets that wait to be sent, back to back in one buffer.
#[derive(Default)]
pub(super) struct SendQueue {
    /// The buffer to which packets are appended.
    pub(super) data: Buffer,
    pub(super) runs: Runs,
}

/// Which of them go together.
#[derive(Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    /// Octets in all of them.
    len: usize,
}

impl Runs {
    /// Takes note of the packet that was just appended to the data.
    pub(super) fn push(&mut self, packet: &Sealed<'_>, sockets: &Sockets) {
        let start = self.len;
        self.len += packet.len;
        if let Some(run) = self.runs.last_mut() {
            let fits = !run.closed
                && run.count < run.most
                && packet.len <= run.segment
                && self.len - run.start <= MAX_RUN;
            if fits && same_path(&run.to, packet) {
                run.count += 1;
                run.closed = packet.len < run.segment;
                return;
            }
        }
        let to = Outgoing::from(*packet);
        let most = sockets.max_segments(&to);
        self.runs.push(Run { start, segment: packet.len, count: 1, most, closed: false, to });
    }
}

impl SendQueue {
    /// Sends everything and empties the queue. Packets that a socket refuses are lost.
    pub(super) async fn flush(&mut self, sockets: &Sockets) {
        let Self { data, runs: Runs { runs, len } } = self;
        let mut end = data.len();
        // From the back, because a run ends where the next begins; then sent in order.
        let mut ranges = Vec::with_capacity(runs.len());
        for run in runs.iter().rev() {
            ranges.push(run.start..end);
            end = run.start;
        }
        for (run, range) in runs.iter().zip(ranges.into_iter().rev()) {
            let contents = data.get(range).unwrap_or_default();
            if let Err(error) = sockets.send(&run.to, contents, run.segment).await {
                debug!(%error, dst = %run.to.dst, packets = run.count, "ESP not sent");
            }
        }
        data.clear();
        runs.clear();
        *len = 0;
    }
}

impl Sockets {
    /// How many packets like `to` one send may hold.
    fn max_segments(&self, to: &Outgoing) -> usize {
        match to.encap {
            Some(Encapsulation::Udp(ports)) => {
                choose(&self.encap, to.src, ports.src_port).map_or(1, |s| s.max_segments())
            }
            Some(Encapsulation::Tcp(_)) => STREAM_RUN,
            None => RAW_RUN,
        }
    }

    async fn send(&self, to: &Outgoing, contents: &[u8], segment: usize) -> io::Result<()> {
        let Some(raw) = self.raw.as_ref().filter(|_| is_divisible(to)) else {
            return self.send_whole(to, contents, segment).await;
        };
        for esp in contents.chunks(segment.max(1)) {
            match fragments(to, esp) {
                Some(pieces) => pieces.iter().try_for_each(|piece| raw.send(to.dst, piece))?,
                None => self.send_whole(to, esp, esp.len()).await?,
            }
        }
        Ok(())
    }

    async fn send_whole(&self, to: &Outgoing, contents: &[u8], segment: usize) -> io::Result<()> {
        match to.encap {
            Some(Encapsulation::Udp(ports)) => {
                let socket = choose(&self.encap, to.src, ports.src_port)
                    .ok_or(io::ErrorKind::AddrNotAvailable)?;
                let remote = SocketAddr::new(to.dst, ports.dst_port);
                return socket.send(Some(to.src), remote, &to.fields, contents, segment).await;
            }
            Some(Encapsulation::Tcp(ports)) => {
                let streams = self.streams.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                let local = SocketAddr::new(to.src, ports.src_port);
                let remote = SocketAddr::new(to.dst, ports.dst_port);
                return streams.send(local, remote, contents, segment);
            }
            None => {}
        }
        let socket = self.plain.iter().find(|s| s.is_ipv4() == to.dst.is_ipv4());
        let socket = socket.ok_or(io::ErrorKind::AddrNotAvailable)?;
        socket.send(to.src, to.dst, &to.fields, contents, segment).await
    }
}

fn same_path(a: &Outgoing, b: &Sealed<'_>) -> bool {
    let Path { src, dst, encap } = b.sa.path;
    (a.src, a.dst, a.encap, a.fields) == (src, dst, encap, b.fields)
}
