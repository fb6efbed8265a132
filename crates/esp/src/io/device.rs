//! Where packets of the protected side come from and go to.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tun_rs::{
    AsyncDevice, DeviceBuilder, ExpandBuffer, GROTable, IDEAL_BATCH_SIZE, VIRTIO_NET_HDR_LEN,
};

use crate::buffer::Buffer;
use crate::flow::FlowKey;
use crate::ip::{Fragment, IpPacket};
use crate::plane::TUNNEL_MTU;

/// Free octets in front of every packet on its way to the device.
pub(super) const HEADROOM: usize = VIRTIO_NET_HDR_LEN;

/// The largest packet, and the room a coalesced one needs.
const MAX_PACKET: usize = 65535;

/// A segment from the TUN device, with some room for a larger MTU set later.
const MAX_SEGMENT: usize = 9216;

/// Packets that wait in the device.
const QUEUE_LEN: u32 = 1000;

/// How to make a TUN device.
#[derive(Debug, Clone)]
pub struct TunOptions {
    /// Name, as `ike0` or `ike%d`.
    pub name: String,
    /// MTU. The ESP and outer headers come on top of it: 1400 fits any suite into 1500 over IPv4.
    pub mtu: u16,
    /// Queues, each with an outbound task of its own.
    pub queues: usize,
}

impl Default for TunOptions {
    fn default() -> Self {
        Self { name: "ike%d".into(), mtu: TUNNEL_MTU, queues: 1 }
    }
}

/// A source and sink of packets.
pub struct Device {
    pub(super) readers: Vec<Reader>,
    pub(super) writer: Writer,
    /// Name and interface index of a TUN device.
    pub(super) interface: Option<(String, u32)>,
    /// Octets of the longest packet.
    pub(super) mtu: u16,
}

/// The far side of a [`Device::memory`].
pub struct MemoryHost {
    to_device: mpsc::Sender<Vec<u8>>,
    from_device: mpsc::Receiver<Vec<u8>>,
}

/// Packets read from a device.
pub(super) enum Reader {
    Tun(Arc<AsyncDevice>),
    Memory(mpsc::Receiver<Vec<u8>>),
}

/// Buffers of one reader.
pub(super) struct ReadBatch {
    raw: Vec<u8>,
    segments: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    count: usize,
}

/// Writes packets to a device. The kernel puts the packets of a flow into the queue to which the flow's other
/// direction was last written. So all packets of a flow go to one queue, whichever task writes them, and flows are
/// spread.
#[derive(Clone)]
pub(super) enum Writer {
    Tun(Arc<[Arc<AsyncDevice>]>),
    Memory(mpsc::Sender<Vec<u8>>),
}

/// Packets to be written, with their buffers.
pub(super) struct WriteBatch {
    packets: Vec<Buffer>,
    count: usize,
    gro: GROTable,
}

impl Device {
    /// Makes a TUN device with segmentation offload and brings it up. Needs CAP_NET_ADMIN and
    /// `/dev/net/tun`; must be called inside a tokio runtime.
    pub fn tun(options: &TunOptions) -> io::Result<Self> {
        let build = |long_queue: bool| {
            let builder = DeviceBuilder::new().name(options.name.clone()).mtu(options.mtu);
            let builder = builder.with(|b| {
                b.offload(true).multi_queue(options.queues > 1);
                if long_queue {
                    b.tx_queue_len(QUEUE_LEN);
                }
            });
            builder.build_async()
        };
        // Root of a user namespace must not set the length of the queue.
        let device = build(true).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => build(false),
            _ => Err(error),
        })?;
        let interface = Some((device.name()?, device.if_index()?));
        let mut queues = Vec::new();
        for _ in 1..options.queues {
            queues.push(Arc::new(device.try_clone()?));
        }
        queues.push(Arc::new(device));
        let readers = queues.iter().cloned().map(Reader::Tun).collect();
        Ok(Self { readers, writer: Writer::Tun(queues.into()), interface, mtu: options.mtu })
    }

    /// A device in memory for demonstrations and tests, and its far side. Up to `capacity` packets
    /// wait in each direction.
    pub fn memory(capacity: usize) -> (Self, MemoryHost) {
        let (to_device, reader) = mpsc::channel(capacity);
        let (writer, from_device) = mpsc::channel(capacity);
        let device = Self {
            readers: vec![Reader::Memory(reader)],
            writer: Writer::Memory(writer),
            interface: None,
            mtu: TUNNEL_MTU,
        };
        (device, MemoryHost { to_device, from_device })
    }

    /// Interface index of a TUN device.
    pub fn index(&self) -> Option<u32> {
        self.interface.as_ref().map(|(_, index)| *index)
    }
}

impl MemoryHost {
    /// Hands a packet to the device, as a host that sends it would. False once the plane is gone.
    pub async fn send(&self, packet: Vec<u8>) -> bool {
        self.to_device.send(packet).await.is_ok()
    }

    /// The next packet from the device; `None` once the plane is gone.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.from_device.recv().await
    }
}

impl Reader {
    /// Waits for packets and fills `batch` with them. An error of kind `BrokenPipe` is the end.
    pub(super) async fn recv(&mut self, batch: &mut ReadBatch) -> io::Result<()> {
        let ReadBatch { raw, segments, sizes, count } = batch;
        *count = 0;
        match self {
            Self::Tun(device) => *count = device.recv_multiple(raw, segments, sizes, 0).await?,
            Self::Memory(channel) => {
                let mut next = Some(channel.recv().await.ok_or(io::ErrorKind::BrokenPipe)?);
                for (segment, size) in segments.iter_mut().zip(sizes) {
                    let Some(packet) = next.take() else { break };
                    *size = packet.len();
                    *segment = packet;
                    *count += 1;
                    next = if *count < IDEAL_BATCH_SIZE { channel.try_recv().ok() } else { None };
                }
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Fills `batch` with packets that are there already; false if there are none.
    pub(super) fn try_recv(&mut self, batch: &mut ReadBatch) -> bool {
        let ReadBatch { raw, segments, sizes, count } = batch;
        *count = 0;
        if let Self::Tun(device) = self {
            // An error that lasts comes back from `recv`.
            *count = device.try_recv_multiple(raw, segments, sizes, 0).unwrap_or(0);
        }
        *count != 0
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl ExpandBuffer for Buffer {
    fn buf_capacity(&self) -> usize {
        // A buffer that has grown must not take more than an IP packet's length can say.
        self.capacity().min(2 * HEADROOM + MAX_PACKET)
    }

    fn buf_resize(&mut self, new_len: usize, value: u8) {
        let more = new_len.saturating_sub(self.len());
        self.append(more).fill(value);
        self.truncate(new_len);
    }

    fn buf_extend_from_slice(&mut self, src: &[u8]) {
        self.extend_from_slice(src);
    }
}

impl ReadBatch {
    pub(super) fn new() -> Self {
        Self {
            raw: vec![0; VIRTIO_NET_HDR_LEN + MAX_PACKET],
            segments: vec![vec![0; MAX_SEGMENT]; IDEAL_BATCH_SIZE],
            sizes: vec![0; IDEAL_BATCH_SIZE],
            count: 0,
        }
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let used = self.segments.iter().zip(&self.sizes).take(self.count);
        used.filter_map(|(segment, &size)| segment.get(..size))
    }
}

impl Writer {
    /// Writes the packets of `batch` and empties it.
    pub(super) async fn send(&self, batch: &mut WriteBatch) -> io::Result<()> {
        let WriteBatch { packets, count, gro } = batch;
        let used = packets.get_mut(..std::mem::take(count)).unwrap_or_default();
        match self {
            Self::Tun(queues) => match &**queues {
                [queue] => _ = queue.send_multiple(gro, used, HEADROOM).await?,
                queues => {
                    let number = |packet: &Buffer| queue_of(packet, queues.len());
                    let mut numbers: Vec<_> = used.iter().map(number).collect();
                    // Stable: the order within a flow stays.
                    used.sort_by_cached_key(number);
                    numbers.sort_unstable();
                    let (mut rest, mut result) = (used, Ok(()));
                    for run in numbers.chunk_by(usize::eq) {
                        let (packets, others) = rest.split_at_mut(run.len());
                        rest = others;
                        let queue = run.first().and_then(|queue| queues.get(*queue));
                        let Some(queue) = queue else { continue };
                        if let Err(error) = queue.send_multiple(gro, packets, HEADROOM).await {
                            result = Err(error);
                        }
                    }
                    result?;
                }
            },
            Self::Memory(channel) => {
                for packet in used {
                    let packet = packet.get(HEADROOM..).unwrap_or_default().to_vec();
                    channel.send(packet).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
                }
            }
        }
        Ok(())
    }
}

/// The one of so many queues that takes the packet behind the headroom.
fn queue_of(packet: &Buffer, queues: usize) -> usize {
    let packet = packet.get(HEADROOM..).unwrap_or_default();
    IpPacket::parse(packet).map_or(0, |ip| {
        // The ports of later fragments cannot be seen, and fragments stay together.
        let ports = ip.ports.filter(|_| ip.fragment == Fragment::None);
        let hash = FlowKey::new(&IpPacket { ports, ..ip }).symmetric();
        ((u128::from(hash) * queues as u128) >> 64) as usize
    })
}

impl WriteBatch {
    pub(super) fn new() -> Self {
        Self { packets: Vec::new(), count: 0, gro: GROTable::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many more packets are good in one batch.
    pub(super) fn room(&self) -> usize {
        IDEAL_BATCH_SIZE.saturating_sub(self.count)
    }

    /// The buffers of the next packets, each of [`HEADROOM`] octets; the packet goes behind them. The first
    /// of them count once [`Self::commit`] is called.
    pub(super) fn slots(&mut self, packets: usize) -> &mut [Buffer] {
        let end = self.count + packets;
        while self.packets.len() < end {
            // Coalescing appends other packets to this one, and does so within the capacity only.
            self.packets.push(Buffer::with_capacity(2 * HEADROOM + MAX_PACKET));
        }
        let slots = self.packets.get_mut(self.count..end).unwrap_or_default();
        for slot in &mut *slots {
            slot.clear();
            slot.append(HEADROOM).fill(0);
        }
        slots
    }

    /// Counts packets in the first of the last slots.
    pub(super) fn commit(&mut self, packets: usize) {
        self.count += packets;
    }
}
