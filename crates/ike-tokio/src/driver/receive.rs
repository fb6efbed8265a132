//! Receiving: the driver reads its own sockets, a batch at a time.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ike_proto::{Path, Transport};

use crate::net::marker::{self, Datagram};
use crate::net::socket::{Batch, PktSocket, Received};
use crate::sockets::Sockets;

/// After an error of a socket, so that a lasting one does not spin.
const PAUSE: Duration = Duration::from_millis(10);

/// The sockets that a driver receives from, in turn.
pub(super) struct Receiver {
    sockets: Vec<Source>,
    /// Which is looked at first.
    turn: usize,
    batch: Batch,
}

struct Source {
    transport: Transport,
    socket: Arc<PktSocket>,
    /// Not looked at before, for it had an error.
    pause: Option<Instant>,
}

impl Receiver {
    pub(super) fn new(sockets: &Sockets) -> Self {
        let source = |(transport, socket)| Source { transport, socket, pause: None };
        let sockets = sockets.receiving().into_iter().map(source).collect();
        Self { sockets, turn: 0, batch: Batch::default() }
    }

    /// When a socket with an error is to be looked at again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.sockets.iter().filter_map(|source| source.pause).min()
    }

    /// Ready, with its number, when something has arrived at a socket. The one after the last is asked
    /// first.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>, now: Instant) -> Poll<usize> {
        let count = self.sockets.len();
        for index in (0..count).map(|n| (self.turn + n) % count) {
            if let Some(source) = self.sockets.get(index)
                && source.pause.is_none_or(|until| until <= now)
                && source.socket.poll_readable(context).is_ready()
            {
                return Poll::Ready(index);
            }
        }
        Poll::Pending
    }

    /// Takes a batch from the socket of this number. True if there may be more.
    pub(super) fn take(&mut self, index: usize, now: Instant) -> bool {
        self.turn = index + 1;
        let Some(source) = self.sockets.get_mut(index) else { return false };
        source.pause = None;
        match source.socket.recv_batch(&mut self.batch) {
            Ok(more) => more,
            // An interface that went down, say; the socket goes on, but not at once.
            Err(error) => {
                tracing::debug!(%error, "socket cannot receive, and pauses");
                source.pause = Some(now + PAUSE);
                false
            }
        }
    }

    /// The datagrams taken from the socket of this number, as IKE messages.
    pub(super) fn messages(&self, index: usize) -> impl Iterator<Item = (Path, &[u8])> {
        let transport = self.sockets.get(index).map(|source| source.transport);
        let message = move |(received, octets)| message(transport?, received, octets);
        self.batch.datagrams().filter_map(message)
    }
}

fn message(transport: Transport, received: Received, octets: &[u8]) -> Option<(Path, &[u8])> {
    let Received { remote, local, .. } = received;
    let message = match transport {
        Transport::Udp | Transport::Tcp => octets,
        Transport::UdpEncap => match marker::classify(octets) {
            Datagram::Ike(message) => message,
            // Without a data plane on this socket nobody can open it.
            Datagram::Esp | Datagram::Nothing => return None,
        },
    };
    Some((Path { local, remote, transport }, message))
}
