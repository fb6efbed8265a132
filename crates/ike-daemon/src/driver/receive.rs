//! Receiving tasks, one per socket that the driver receives from.

use std::sync::Arc;
use std::time::Duration;

use esp::io::IkeDatagram;
use ike_proto::{Path, Transport};
use tokio::sync::mpsc;

use super::sockets::Sockets;
use crate::net::marker::{self, Datagram};
use crate::net::socket::{PktSocket, Received};

/// IKE datagrams that may wait for the driver; a flood beyond it is dropped here.
pub(crate) const WAITING: usize = 1024;
/// Octets of the largest UDP datagram.
const LARGEST: usize = 65_535;
/// After an error of a socket, so that a lasting one does not spin.
const PAUSE: Duration = Duration::from_millis(10);
/// Datagrams taken from one socket before others get their turn.
const BURST: usize = 64;

/// An IKE datagram that arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Where from and to.
    pub(super) path: Path,
    /// Its octets, without a marker.
    pub(super) octets: Vec<u8>,
}

impl From<IkeDatagram> for Arrived {
    fn from(datagram: IkeDatagram) -> Self {
        let IkeDatagram { local, remote, bytes } = datagram;
        Self { path: Path { local, remote, transport: Transport::UdpEncap }, octets: bytes }
    }
}

/// Starts a task per socket; they end when the receiver is dropped.
pub(super) fn start(sockets: &Sockets) -> mpsc::Receiver<Arrived> {
    let (sender, receiver) = mpsc::channel(WAITING);
    for (transport, socket) in sockets.receiving() {
        tokio::spawn(receive(socket, transport, sender.clone()));
    }
    receiver
}

async fn receive(socket: Arc<PktSocket>, transport: Transport, ike: mpsc::Sender<Arrived>) {
    let mut buffer = vec![0; LARGEST];
    loop {
        let mut next = tokio::select! {
            received = socket.recv(&mut buffer) => received,
            () = ike.closed() => return,
        };
        for _ in 0..BURST {
            match next {
                Ok(received) => take(received, &buffer, transport, &ike),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // An interface that went down, say; the socket goes on, but not at once.
                Err(error) => {
                    tracing::debug!(%error, "receiving");
                    tokio::time::sleep(PAUSE).await;
                    break;
                }
            }
            next = socket.try_recv(&mut buffer);
        }
        tokio::task::yield_now().await;
    }
}

fn take(received: Received, buffer: &[u8], transport: Transport, ike: &mpsc::Sender<Arrived>) {
    let Received { len, remote, local } = received;
    let Some(octets) = buffer.get(..len) else { return };
    let message = match transport {
        Transport::Udp | Transport::Tcp => octets,
        Transport::UdpEncap => match marker::classify(octets) {
            Datagram::Ike(message) => message,
            // Without a data plane on this socket nobody can open it.
            Datagram::Esp | Datagram::Nothing => return,
        },
    };
    let path = Path { local, remote, transport };
    // Full means that the driver is behind: the peer will send it again.
    let _ = ike.try_send(Arrived { path, octets: message.to_vec() });
}
