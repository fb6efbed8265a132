//! The loops between device and sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use super::device::{ReadBatch, Reader, WriteBatch, Writer};
use super::early::Early;
use super::encap::{EncapSocket, IkeDatagram, RecvBatch};
use super::now;
use super::raw::{ClearSockets, PlainEsp, strip_header};
use super::sender::{SendQueue, Sockets};
use crate::buffer::Buffer;
use crate::fields::Fields;
use crate::inbound::{Carrier, Inbound, Outer};
use crate::ip::IpPacket;
use crate::outbound::{Fate, Outbound};
use crate::packet;
use crate::plane::{Plane, RUN};
use crate::refusal::refusal;
use crate::sad::Sa;
use crate::stats::DropReason;
use crate::too_big;
use crate::udp::{Datagram, classify};

/// Octets to send before more is read from the device.
const ENOUGH: usize = 48 * 1024;

/// After an error of a device or socket, so that a lasting one does not spin.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads of the device before what they brought is sent and answered, also where all of it is dropped.
const MAX_READS: u32 = 256;

/// Between two looks for paths whose lowered MTU has aged.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Between two lines about packets that come back to the device, or about fragments.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// The most ICMP messages of a kind in a second, for each queue (RFC 1812 §4.3.2.8, RFC 4443 §2.4).
const A_SECOND: u32 = 200;

/// The error of reading a device that has been deleted.
const EBADFD: i32 = 77;

/// How long an inbound SA that is removed opens packets that have arrived before. IKE has a socket and a task of its
/// own: the message that ends an SA may be read before packets that the peer sent earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// Tells the driver when the plane has events.
#[derive(Clone)]
pub(super) struct Alarm {
    pub(super) plane: Plane,
    pub(super) notify: Arc<Notify>,
    pub(super) lost: Arc<Notify>,
}

impl Alarm {
    pub(super) fn check(&self) {
        if self.plane.has_event() || self.plane.is_resized() {
            self.notify.notify_one();
        }
    }
}

/// Tells idle workers that an SA is gone, so that its keys do not stay with them.
pub(super) type Removals = watch::Receiver<()>;

/// An inbound SA that has been removed, and when.
pub(super) type Retired = (Instant, Arc<Sa>);

/// Starts the task that forgets inbound SAs a while after they were removed.
pub(super) fn forget_retired(
    tasks: &mut JoinSet<()>,
    plane: Plane,
    removals: watch::Sender<()>,
) -> mpsc::UnboundedSender<Retired> {
    let (sender, mut retired) = mpsc::unbounded_channel::<Retired>();
    tasks.spawn(async move {
        while let Some((since, sa)) = retired.recv().await {
            tokio::time::sleep_until((since + BEHIND).into()).await;
            plane.forget(&sa);
            removals.send_replace(());
        }
    });
    sender
}

/// Looks for paths whose lowered MTU has aged, from time to time.
pub(super) async fn try_larger(alarm: Alarm) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        alarm.plane.try_larger(now());
        alarm.check();
    }
}

/// Waits for `input`, and meanwhile calls `renew` when SAs are removed.
async fn next<T>(
    removals: &mut Removals,
    mut renew: impl FnMut(),
    input: impl Future<Output = T>,
) -> T {
    let mut input = pin!(input);
    loop {
        tokio::select! {
            biased;
            got = &mut input => return got,
            Ok(()) = removals.changed() => renew(),
        }
    }
}

/// The device: packets are read from it, and ICMP messages to their senders are written to it.
pub(super) struct Reading {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

/// Device to sockets.
pub(super) async fn outbound(
    reading: Reading,
    mut worker: Outbound,
    sockets: Sockets,
    clear: Option<Arc<ClearSockets>>,
    alarm: Alarm,
    mut removals: Removals,
) {
    let Reading { mut reader, writer } = reading;
    let mut batch = ReadBatch::new();
    let mut queue = SendQueue::default();
    let (mut returned, mut incomplete) = (Returned::default(), Incomplete::default());
    let mut answers = Answers::default();
    loop {
        match next(&mut removals, || worker.renew(), reader.recv(&mut batch)).await {
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
        let (now, mut round) = (now(), Round::default());
        loop {
            let (returns, answers) = (&mut returned, &mut answers);
            let other = |packet: &[u8], fate: &Fate<'_>| match fate {
                Fate::Pass => pass(clear.as_deref(), packet),
                Fate::Drop(DropReason::OwnOuter) => returns.tell(now, packet),
                Fate::Drop(DropReason::Blocked) => answers.refuse(now, packet),
                Fate::TooBig(most) => answers.too_big(now, packet, *most),
                Fate::Send(_) | Fate::Held | Fate::Drop(_) => {}
            };
            seal(&mut worker, now, &batch, &mut queue, &sockets, other);
            // Small packets come one by one from the device; together they make runs to send.
            if !round.reads_on(queue.data.len()) || !reader.try_recv(&mut batch) {
                break;
            }
        }
        queue.flush(&sockets).await;
        deliver(&writer, &mut answers.messages).await;
        incomplete.tell(now, &worker);
        alarm.check();
    }
}

/// Seals the packets read into `queue`. Calls `other` for those that are not sent.
fn seal(
    worker: &mut Outbound,
    now: Instant,
    batch: &ReadBatch,
    queue: &mut SendQueue,
    sockets: &Sockets,
    mut other: impl FnMut(&[u8], &Fate<'_>),
) {
    let SendQueue { data, runs } = queue;
    let mut packets = batch.packets();
    loop {
        let run: ArrayVec<_, RUN> = packets.by_ref().take(RUN).collect();
        if run.is_empty() {
            return;
        }
        worker.handle_batch(now, &run, data, |packet, fate| match fate {
            Fate::Send(sealed) => runs.push(&sealed, sockets),
            fate => other(packet, &fate),
        });
    }
}

/// Outer packets that came to the device, for the log.
#[derive(Default)]
struct Returned {
    count: u64,
    /// When the log was told last.
    told: Option<Instant>,
}

impl Returned {
    fn tell(&mut self, now: Instant, packet: &[u8]) {
        self.count += 1;
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_AGAIN);
        if let Ok(IpPacket { src, dst, .. }) = IpPacket::parse(packet)
            && due
        {
            let Self { count, .. } = *self;
            warn!(
                %src, %dst, count,
                "packets of a tunnel have come back to its device, and are dropped: a routing rule of another program \
                 leads there without `not fwmark`; see `ip rule`"
            );
            *self = Self { count: 0, told: Some(now) };
        }
    }
}

/// Fragments that were dropped because their packets did not become whole, for the log.
#[derive(Default)]
struct Incomplete {
    told: u64,
    when: Option<Instant>,
}

impl Incomplete {
    fn tell(&mut self, now: Instant, worker: &Outbound) {
        let dropped = worker.dropped(DropReason::Incomplete);
        let due = self.when.is_none_or(|when| now.saturating_duration_since(when) >= TELL_AGAIN);
        if dropped != self.told && due {
            warn!(
                fragments = dropped - self.told,
                "fragments dropped: other fragments of their packets are missing or do not fit"
            );
            *self = Self { told: dropped, when: Some(now) };
        }
    }
}

/// The reads of the device that are sent together.
#[derive(Default)]
struct Round {
    reads: u32,
}

impl Round {
    /// True if the device may be read again, after a read; `sealed` octets wait to be sent.
    fn reads_on(&mut self, sealed: usize) -> bool {
        self.reads += 1;
        self.reads < MAX_READS && sealed < ENOUGH
    }
}

/// ICMP messages to the senders of packets that go nowhere. Senders that get none send again.
struct Answers {
    messages: WriteBatch,
    refusals: Rate,
    too_big: Rate,
}

/// A kind of messages, and how many of them there were in the present second.
#[derive(Default)]
struct Rate {
    since: Option<Instant>,
    count: u32,
}

impl Default for Answers {
    fn default() -> Self {
        let (refusals, too_big) = Default::default();
        Self { messages: WriteBatch::new(), refusals, too_big }
    }
}

impl Answers {
    /// About a packet of a child that is down.
    fn refuse(&mut self, now: Instant, packet: &[u8]) {
        let Self { messages, refusals, .. } = self;
        refusals.tell(now, messages, |message| refusal(packet, message));
    }

    /// About a packet of which the path takes `most` octets.
    fn too_big(&mut self, now: Instant, packet: &[u8], most: u16) {
        let Self { messages, too_big, .. } = self;
        too_big.tell(now, messages, |message| too_big::answer(packet, most, message));
    }
}

impl Rate {
    /// Adds the message that `write` appends, if one is due and there is room.
    fn tell(
        &mut self,
        now: Instant,
        messages: &mut WriteBatch,
        write: impl FnOnce(&mut Buffer) -> Option<()>,
    ) {
        let is_new = |since| now.saturating_duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_new) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count < A_SECOND
            && messages.room() > 0
            && let [message] = messages.slots(1)
            && write(message).is_some()
        {
            messages.commit(1);
            self.count += 1;
        }
    }
}

/// Encapsulation socket to device and IKE.
pub(super) async fn inbound_udp(
    socket: Arc<EncapSocket>,
    mut worker: Inbound,
    writer: Writer,
    ike: mpsc::Sender<IkeDatagram>,
    early: Early,
    alarm: Alarm,
    mut removals: Removals,
) {
    let mut batch = RecvBatch::new(Some(alarm.plane.clone()), true);
    let mut packets = WriteBatch::new();
    let local = socket.local_addr();
    loop {
        let received = next(&mut removals, || worker.renew(), socket.recv(&mut batch)).await;
        if let Err(error) = received {
            debug!(%error, %local, "receiving");
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let now = now();
        for (from, datagrams) in batch.runs(local.ip()) {
            let outer = from.outer(Carrier::Udp);
            let mut esp = ArrayVec::new();
            for datagram in datagrams {
                match classify(datagram) {
                    Datagram::Ike(message) => {
                        // It may end the SA of the packets before it.
                        open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early)
                            .await;
                        let local = SocketAddr::new(from.local, local.port());
                        let bytes = message.to_vec();
                        // A full queue loses the message, as the network may; the peer sends it again.
                        _ = ike.try_send(IkeDatagram { local, remote: from.remote, bytes });
                    }
                    Datagram::Esp(packet) => {
                        esp.push(packet);
                        if esp.is_full() {
                            open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early)
                                .await;
                        }
                    }
                    Datagram::Keepalive | Datagram::Runt => {}
                }
            }
            open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early).await;
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
    early: Early,
    alarm: Alarm,
    mut removals: Removals,
) {
    let ipv4 = socket.is_ipv4();
    // A raw IPv4 socket gets the header itself.
    let mut batch = RecvBatch::new(Some(alarm.plane.clone()), !ipv4);
    let mut packets = WriteBatch::new();
    loop {
        let received = next(&mut removals, || worker.renew(), socket.recv(&mut batch)).await;
        if let Err(error) = received {
            debug!(%error, "receiving protocol 50");
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let now = now();
        let looks = ipv4 && alarm.plane.needs_outer_fields();
        for (from, received) in batch.runs(unspecified(ipv4)) {
            let mut outer = from.outer(Carrier::Ip);
            let mut esp = ArrayVec::new();
            for packet in received {
                let fields = if looks { Fields::of(packet) } else { Some(outer.fields) };
                let (Some(fields), Some(packet)) = (fields, strip_header(packet, ipv4)) else {
                    continue;
                };
                if fields != outer.fields {
                    open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early).await;
                    outer.fields = fields;
                }
                esp.push(packet);
                if esp.is_full() {
                    open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early).await;
                }
            }
            open(&mut worker, now, &outer, &mut esp, &mut packets, &writer, &early).await;
        }
        deliver(&writer, &mut packets).await;
        alarm.check();
    }
}

/// Passes datagrams that the caller received to the device.
pub(super) async fn inbound_fed(
    mut fed: mpsc::Receiver<(Outer, Vec<u8>)>,
    mut worker: Inbound,
    writer: Writer,
    early: Early,
    alarm: Alarm,
    mut removals: Removals,
) {
    let mut packets = WriteBatch::new();
    while let Some((outer, esp)) = next(&mut removals, || worker.renew(), fed.recv()).await {
        let mut run = ArrayVec::from_iter([&*esp]);
        open(&mut worker, now(), &outer, &mut run, &mut packets, &writer, &early).await;
        if fed.is_empty() {
            deliver(&writer, &mut packets).await;
        }
        alarm.check();
    }
}

/// Opens the packets of `run` into `packets`, which it delivers where there is no room for a run, and
/// empties it. Those without an SA wait in `early`.
async fn open(
    worker: &mut Inbound,
    now: Instant,
    outer: &Outer,
    run: &mut ArrayVec<&[u8], RUN>,
    packets: &mut WriteBatch,
    writer: &Writer,
    early: &Early,
) {
    if run.is_empty() {
        return;
    }
    let mut all = run.iter();
    let opened = worker.handle_batch(now, outer, run, packets.slots(run.len()), |result| {
        if let (Some(esp), Err(DropReason::UnknownSpi)) = (all.next(), result)
            && let Some((spi, _)) = packet::header(esp)
        {
            early.keep(now, outer, spi, esp);
        }
    });
    packets.commit(opened);
    run.clear();
    if packets.room() < RUN {
        deliver(writer, packets).await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;

    /// Fault: in `Round::reads_on`, leave `MAX_READS` out. While a host sends packets that are dropped, nothing else is
    /// sent or answered.
    #[test]
    fn a_round_of_dropped_packets_ends() {
        let mut round = Round::default();
        assert_eq!((0..10_000).take_while(|_| round.reads_on(0)).count(), 255);
        assert!(Round::default().reads_on(ENOUGH - 1) && !Round::default().reads_on(ENOUGH));
    }

    /// Fault: in `Rate::tell`, leave `room` or `A_SECOND` out, or in `Answers` take one rate for both kinds.
    #[test]
    fn answers_are_bounded_in_each_round_and_each_second() {
        let (src, dst) = ([10, 1, 0, 1].into(), [10, 2, 0, 1].into());
        let (header, len) = ip::header(src, dst, 0, ip::proto::UDP, 1000).expect("a header");
        let packet = [&header[..len], &[0; 1000]].concat();
        let (start, mut answers) = (now(), Answers::default());
        let round = |answers: &mut Answers, now, refuse: bool| {
            for _ in 0..10_000 {
                match refuse {
                    true => answers.refuse(now, &packet),
                    false => answers.too_big(now, &packet, 900),
                }
            }
            let room = answers.messages.room();
            answers.messages = WriteBatch::new();
            WriteBatch::new().room() - room
        };
        let most = WriteBatch::new().room();
        assert!(most < A_SECOND as usize && A_SECOND as usize <= 2 * most);
        let rest = A_SECOND as usize - most;
        for refuse in [false, true] {
            let counts = [0; 3].map(|_| round(&mut answers, start, refuse));
            assert_eq!(counts, [most, rest, 0], "refuse: {refuse}");
        }
        assert_eq!(round(&mut answers, start + Duration::from_secs(1), false), most);
    }
}
