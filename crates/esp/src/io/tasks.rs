//! The loops between device and sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tracing::{debug, error, warn};

use super::device::{ReadBatch, Reader, WriteBatch, Writer};
use super::encap::{EncapSocket, IkeDatagram, RecvBatch};
use super::now;
use super::raw::{ClearSockets, PlainEsp, strip_header};
use super::sender::{SendQueue, Sockets};
use crate::inbound::{Carrier, Inbound, Outer};
use crate::ip::IpPacket;
use crate::outbound::{Outbound, Verdict};
use crate::plane::Plane;
use crate::udp::{Datagram, classify};

/// Octets to send before more is read from the device.
const ENOUGH: usize = 48 * 1024;

/// After an error of a device or socket, so that a lasting one does not spin.
const PAUSE: Duration = Duration::from_millis(10);

/// What reading a device says that somebody has deleted.
const EBADFD: i32 = 77;

/// Tells the driver when the plane has events.
#[derive(Clone)]
pub(super) struct Alarm {
    pub(super) plane: Plane,
    pub(super) notify: Arc<Notify>,
    pub(super) lost: Arc<Notify>,
}

impl Alarm {
    pub(super) fn check(&self) {
        if self.plane.has_event() {
            self.notify.notify_one();
        }
    }
}

/// Device to sockets.
pub(super) async fn outbound(
    mut reader: Reader,
    mut worker: Outbound,
    sockets: Sockets,
    clear: Option<Arc<ClearSockets>>,
    alarm: Alarm,
) {
    let mut batch = ReadBatch::new();
    let mut queue = SendQueue::default();
    loop {
        match reader.recv(&mut batch).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return,
            Err(error) if error.raw_os_error() == Some(EBADFD) => {
                error!("the TUN device is gone");
                return alarm.lost.notify_one();
            }
            Err(error) => {
                warn!(%error, "reading the device");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        let now = now();
        loop {
            for packet in batch.packets() {
                match worker.handle(now, packet, &mut queue.data) {
                    Verdict::Send(to) => queue.push(to, sockets.max_segments(&to)),
                    Verdict::Pass => pass(clear.as_deref(), packet),
                    Verdict::Held | Verdict::Drop(_) => {}
                }
            }
            // Small packets come one by one from the device; together they make runs to send.
            if queue.data.len() >= ENOUGH || !reader.try_recv(&mut batch) {
                break;
            }
        }
        queue.flush(&sockets).await;
        alarm.check();
    }
}

/// Encapsulation socket to device and IKE.
pub(super) async fn inbound_udp(
    socket: Arc<EncapSocket>,
    mut worker: Inbound,
    writer: Writer,
    ike: mpsc::Sender<IkeDatagram>,
    alarm: Alarm,
) {
    let mut batch = RecvBatch::new();
    let mut packets = WriteBatch::new();
    let local = socket.local_addr();
    loop {
        if let Err(error) = socket.recv(&mut batch).await {
            debug!(%error, %local, "receiving");
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let now = now();
        for datagram in batch.datagrams(local.ip()) {
            match classify(datagram.bytes) {
                Datagram::Ike(message) => {
                    let local = SocketAddr::new(datagram.local, local.port());
                    let bytes = message.to_vec();
                    // A full queue loses the message, as the network may; the peer sends it again.
                    _ = ike.try_send(IkeDatagram { local, remote: datagram.remote, bytes });
                }
                Datagram::Esp(_) => {
                    let outer = Outer {
                        src: datagram.remote,
                        dst: datagram.local,
                        tos: datagram.tos,
                        carrier: Carrier::Udp,
                    };
                    if open(&mut worker, now, &outer, datagram.bytes, &mut packets) {
                        deliver(&writer, &mut packets).await;
                    }
                }
                Datagram::Keepalive | Datagram::Runt => {}
            }
        }
        deliver(&writer, &mut packets).await;
        alarm.check();
    }
}

/// Raw socket to device.
pub(super) async fn inbound_plain(
    socket: Arc<PlainEsp>,
    mut worker: Inbound,
    writer: Writer,
    alarm: Alarm,
) {
    let ipv4 = socket.is_ipv4();
    let mut batch = RecvBatch::new();
    let mut packets = WriteBatch::new();
    loop {
        if let Err(error) = socket.recv(&mut batch).await {
            debug!(%error, "receiving protocol 50");
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let now = now();
        for received in batch.datagrams(unspecified(ipv4)) {
            let Some(esp) = strip_header(received.bytes, ipv4) else { continue };
            let src = SocketAddr::new(received.remote.ip(), 0);
            let outer = Outer { src, dst: received.local, tos: received.tos, carrier: Carrier::Ip };
            if open(&mut worker, now, &outer, esp, &mut packets) {
                deliver(&writer, &mut packets).await;
            }
        }
        deliver(&writer, &mut packets).await;
        alarm.check();
    }
}

/// Datagrams that somebody else received, to device.
pub(super) async fn inbound_fed(
    mut fed: mpsc::Receiver<(Outer, Vec<u8>)>,
    mut worker: Inbound,
    writer: Writer,
    alarm: Alarm,
) {
    let mut packets = WriteBatch::new();
    while let Some((outer, esp)) = fed.recv().await {
        open(&mut worker, now(), &outer, &esp, &mut packets);
        if packets.is_full() || fed.is_empty() {
            deliver(&writer, &mut packets).await;
        }
        alarm.check();
    }
}

/// Opens one packet into `packets`; true if they should be delivered before the next.
fn open(
    worker: &mut Inbound,
    now: std::time::Instant,
    outer: &Outer,
    esp: &[u8],
    packets: &mut WriteBatch,
) -> bool {
    if worker.handle(now, outer, esp, packets.slot()).is_ok() {
        packets.commit();
    }
    packets.is_full()
}

async fn deliver(writer: &Writer, packets: &mut WriteBatch) {
    if packets.is_empty() {
        return;
    }
    if let Err(error) = writer.send(packets).await {
        debug!(%error, "writing to the device");
    }
}

fn pass(clear: Option<&ClearSockets>, packet: &[u8]) {
    let (Some(clear), Ok(ip)) = (clear, IpPacket::parse(packet)) else { return };
    if let Err(error) = clear.send(ip.dst, packet) {
        debug!(%error, dst = %ip.dst, "packet in clear not sent");
    }
}

/// Stands for a destination address the kernel did not tell.
fn unspecified(ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
