//! Two userspace planes over loopback sockets, without root: devices in memory.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esp::DropReason;
use esp::io::{Config, Device, EncapSocket, IkeDatagram, MemoryHost, UserspacePlane};
use ipsec_types::crypto::{
    CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError, Frame,
};
use ipsec_types::dataplane::{
    Command, CopyDscp, DataPlane, Direction, EncapPorts, Encapsulation, Event, PolicyAction,
    PolicyId, PolicySpec, Processing, SaId, SaSpec,
};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{self, CIPHERS, Counting, Tunnel};

const LONG: Duration = Duration::from_secs(20);

struct End {
    plane: UserspacePlane,
    host: MemoryHost,
    ike: mpsc::Receiver<IkeDatagram>,
    socket: Arc<EncapSocket>,
}

impl End {
    async fn new(ip: IpAddr) -> Self {
        Self::with(ip, &CIPHERS).await
    }

    async fn with(ip: IpAddr, ciphers: &'static dyn CipherProvider) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(ip, 0)).await.unwrap();
        let socket = Arc::new(EncapSocket::new(socket).unwrap());
        let (sender, ike) = mpsc::channel(16);
        let config = Config {
            ciphers,
            rng: || Box::new(Counting(3)),
            encap: vec![Arc::clone(&socket)],
            ike: sender,
            plain: Vec::new(),
            streams: None,
            clear: None,
            routes: None,
            guard: None,
        };
        let (device, host) = Device::memory(256);
        let plane = UserspacePlane::start(config, device).unwrap();
        Self { plane, host, ike, socket }
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().port()
    }

    async fn event(&mut self) -> Event {
        let ready = self.plane.event_ready();
        loop {
            if let Some(event) = self.plane.poll_event() {
                return event;
            }
            timeout(LONG, ready.notified()).await.expect("an event");
        }
    }

    async fn recv(&mut self) -> Vec<u8> {
        timeout(LONG, self.host.recv()).await.expect("a packet").expect("a device")
    }
}

/// Suites whose keys are counted while they exist.
#[derive(Debug)]
struct Counted(AtomicUsize);

struct CountedKey(Box<dyn CipherKey>, &'static AtomicUsize);

static COUNTED: Counted = Counted(AtomicUsize::new(0));

impl CipherProvider for Counted {
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths> {
        CIPHERS.lengths(suite)
    }

    fn key(
        &self,
        suite: CipherSuite,
        encr_key: &[u8],
        integ_key: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError> {
        let key = CIPHERS.key(suite, encr_key, integ_key)?;
        COUNTED.0.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(CountedKey(key, &COUNTED.0)))
    }
}

impl CipherKey for CountedKey {
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError> {
        self.0.seal(frame, data, icv)
    }

    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError> {
        self.0.open(frame, data, icv)
    }
}

impl Drop for CountedKey {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Both directions between two planes on `ip`.
async fn connect(ip: IpAddr, tunnel: &Tunnel) -> (End, End) {
    let (mut left, mut right) = (End::new(ip).await, End::new(ip).await);
    let forth = Tunnel { left: ip, right: ip, ..tunnel.clone() };
    let back = Tunnel {
        left_ts: tunnel.right_ts.clone(),
        right_ts: tunnel.left_ts.clone(),
        ..forth.clone()
    };
    one_way(&mut left, &mut right, &forth, SaId { spi: 0x100, dst: ip });
    one_way(&mut right, &mut left, &back, SaId { spi: 0x200, dst: ip });
    (left, right)
}

fn one_way(from: &mut End, to: &mut End, tunnel: &Tunnel, id: SaId) {
    arriving(from, to, tunnel, id);
    leaving(from, to, tunnel, id);
}

fn arriving(from: &End, to: &mut End, tunnel: &Tunnel, id: SaId) {
    let sa = sa(from, to, tunnel.sa(Direction::In), id);
    to.plane.apply(Command::InstallSa(Box::new(sa))).unwrap();
}

fn sa(from: &End, to: &End, sa: SaSpec, id: SaId) -> SaSpec {
    let ports = EncapPorts { src_port: from.port(), dst_port: to.port() };
    SaSpec { id, encap: Some(Encapsulation::Udp(ports)), ..sa }
}

fn leaving(from: &mut End, to: &End, tunnel: &Tunnel, id: SaId) {
    let sa = sa(from, to, tunnel.sa(Direction::Out), id);
    from.plane.apply(Command::InstallSa(Box::new(sa))).unwrap();
    let mut policy = tunnel.policy();
    if let PolicyAction::Protect { outbound, .. } = &mut policy.action {
        *outbound = Some(id);
    }
    from.plane.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
}

#[tokio::test]
async fn traffic_both_ways_over_loopback() {
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let tunnel = Tunnel { window: 4096, ..Tunnel::v4() };
        let (mut left, mut right) = connect(ip, &tunnel).await;
        // Packets of many lengths in a burst: runs of segments, and runs cut short.
        let sent: Vec<_> =
            (0..200).map(|n| tunnel.packet(if n % 7 == 0 { n } else { 1300 })).collect();
        let mut got = Vec::new();
        for burst in sent.chunks(40) {
            for packet in burst {
                assert!(left.host.send(packet.clone()).await);
            }
            for _ in burst {
                got.push(right.recv().await);
            }
        }
        assert_eq!(got, sent, "over {ip}");
        assert_eq!(right.event().await, Event::FirstPacket(SaId { spi: 0x100, dst: ip }));

        let answer = common::udp(tunnel.right_ts[0].start, tunnel.left_ts[0].start, 2000, 1000, 77);
        assert!(right.host.send(answer.clone()).await);
        assert_eq!(left.recv().await, answer);
        assert!(!left.plane.capabilities().plain_esp);
        assert_eq!(left.plane.plane().stats().drops().count(), 0);
        left.plane.shutdown().await;
        assert!(right.host.send(answer).await, "the other end does not care");
    }
}

/// Through real sockets: TTL, DSCP and flow label of transport mode arrive as they were sent. So do those of the first
/// packet, though the receiver asks for them only since it has the SA.
///
/// Fault: in `EncapSocket::send_one`, send all by `try_send`; or in `RecvBatch::fill`, leave `tell_fields` out.
#[tokio::test]
async fn header_fields_of_transport_mode_over_loopback() {
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let tunnel = Tunnel { left: ip, right: ip, ..Tunnel::v4() }.transport();
        let (left, mut right) = connect(ip, &tunnel).await;
        for mut packet in common::of_many_fields(&tunnel) {
            assert!(left.host.send(packet.clone()).await);
            let mut got = right.recv().await;
            if ip.is_ipv4() {
                // A UDP socket does not tell Don't Fragment.
                (packet, got) =
                    (common::fragment(packet, 0, false), common::fragment(got, 0, false));
            }
            assert_eq!(got, packet, "over {ip}");
        }
    }
}

/// Fault: in `Copied::outside`, leave the DSCP out; or in `EncapSocket::send_one`, send all by `try_send`.
#[tokio::test]
async fn dscp_of_tunnel_mode_over_loopback() {
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        // The receiver's copy shows what was outside.
        let processing = Arc::new(Processing { copy_dscp: CopyDscp::Yes, ..Processing::default() });
        let tunnel = Tunnel { processing, ..Tunnel::v4() };
        let (left, mut right) = connect(ip, &tunnel).await;
        for tos in [0xb8, 0, 0x2a] {
            // A run that is cut into segments.
            for _ in 0..9 {
                let mut packet = tunnel.packet(1200);
                esp::ip::set_tos(&mut packet, tos);
                assert!(left.host.send(packet).await);
            }
            for _ in 0..9 {
                assert_eq!(right.recv().await[1], tos, "over {ip}");
            }
        }
    }
}

/// A peer may send under a new SA before this end has read the response that the SA comes from. Fails without
/// `Early::keep` or `Early::release`.
#[tokio::test]
async fn packets_before_their_sa_wait_for_it() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tunnel = Tunnel { left: ip, right: ip, encap: true, ..Tunnel::v4() };
    let (mut left, mut right) = (End::new(ip).await, End::new(ip).await);
    let early = SaId { spi: 0x300, dst: ip };
    leaving(&mut left, &right, &tunnel, early);
    let sent: Vec<_> = (0..5).map(|n| tunnel.packet(100 + n)).collect();
    for packet in &sent {
        assert!(left.host.send(packet.clone()).await);
    }
    let all_dropped = async {
        while right.plane.plane().stats().dropped(DropReason::UnknownSpi) < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, all_dropped).await.expect("packets");

    arriving(&left, &mut right, &tunnel, SaId { spi: 0x100, dst: ip });
    arriving(&left, &mut right, &tunnel, early);
    for packet in &sent {
        assert_eq!(right.recv().await, *packet);
    }
    let next = tunnel.packet(9);
    assert!(left.host.send(next.clone()).await);
    assert_eq!(right.recv().await, next);
}

/// The message that ends an SA may be read before packets that the peer sent earlier: IKE has another socket than ESP
/// without UDP, and another task. Fails if `RemoveSa` of an inbound SA does not leave it to `forget_retired`.
#[tokio::test]
async fn packets_that_came_before_the_end_of_their_sa_are_opened() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tunnel = Tunnel { left: ip, right: ip, encap: true, ..Tunnel::v4() };
    let (mut left, mut right) = (End::new(ip).await, End::new(ip).await);
    let id = SaId { spi: 0x100, dst: ip };
    one_way(&mut left, &mut right, &tunnel, id);
    let first = tunnel.packet(60);
    assert!(left.host.send(first.clone()).await);
    assert_eq!(right.recv().await, first);

    right.plane.apply(Command::RemoveSa(id)).unwrap();
    assert!(!right.plane.plane().has_sa(id), "for the caller it is gone");
    let behind = tunnel.packet(61);
    assert!(left.host.send(behind.clone()).await);
    assert_eq!(right.recv().await, behind);

    let unknown = || right.plane.plane().stats().dropped(DropReason::UnknownSpi);
    let refused = async {
        while unknown() == 0 {
            assert!(left.host.send(tunnel.packet(62)).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, refused).await.expect("its packets are refused in the end");
    assert!(right.plane.apply(Command::QueryUsage(id)).is_err());
}

/// A new SA may have the name of one that was removed a moment ago.
#[tokio::test]
async fn an_sa_outlives_the_former_one_of_its_name() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tunnel = Tunnel { left: ip, right: ip, encap: true, ..Tunnel::v4() };
    let (mut left, mut right) = (End::new(ip).await, End::new(ip).await);
    let id = SaId { spi: 0x100, dst: ip };
    one_way(&mut left, &mut right, &tunnel, id);
    right.plane.apply(Command::RemoveSa(id)).unwrap();
    arriving(&left, &mut right, &tunnel, id);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let packet = tunnel.packet(60);
    assert!(left.host.send(packet.clone()).await);
    assert_eq!(right.recv().await, packet);
    assert!(right.plane.plane().has_sa(id));
}

/// Workers remember the SAs they have seen. What is removed must not stay with one that has nothing to do.
#[tokio::test]
async fn idle_workers_keep_no_keys() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tunnel = Tunnel { left: ip, right: ip, encap: true, ..Tunnel::v4() };
    let (mut left, mut right) = (End::with(ip, &COUNTED).await, End::with(ip, &COUNTED).await);
    let id = SaId { spi: 0x100, dst: ip };
    one_way(&mut left, &mut right, &tunnel, id);
    let packet = tunnel.packet(60);
    assert!(left.host.send(packet.clone()).await);
    assert_eq!(right.recv().await, packet);
    assert_eq!(COUNTED.0.load(Ordering::SeqCst), 2);
    left.plane.apply(Command::RemoveSa(id)).unwrap();
    right.plane.apply(Command::Flush).unwrap();
    let gone = async {
        while COUNTED.0.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.expect("the workers let go of the keys");
}

#[tokio::test]
async fn ike_shares_the_socket() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (left, mut right) = connect(ip, &Tunnel::v4()).await;
    let remote = right.socket.local_addr();
    // Larger than any link's MTU: IKE may be fragmented by IP.
    let messages = [vec![1; 28], vec![2; 3000], vec![3; 40_000]];
    for message in &messages {
        left.socket.send_ike(Some(ip), remote, message).await.unwrap();
        left.socket.send_raw(None, remote, &[0xff]).await.unwrap();
        let got = timeout(LONG, right.ike.recv()).await.unwrap().unwrap();
        assert_eq!(&got.bytes, message);
        assert_eq!(got.remote, left.socket.local_addr());
        assert_eq!(got.local, remote);
    }
}

#[tokio::test]
async fn datagrams_that_the_driver_received_itself() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tunnel = Tunnel { left: ip, right: ip, encap: true, ..Tunnel::v4() };
    let mut right = End::new(ip).await;
    right.plane.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::In)))).unwrap();
    let mut sender = tunnel.connect();
    let (src, dst) = (SocketAddr::new(ip, 4500), SocketAddr::new(ip, 4500));
    let packet = tunnel.packet(60);
    let (_, esp) = sender.seal(&packet).unwrap();
    assert!(right.plane.inbound_udp(&esp, src, dst));
    assert_eq!(right.recv().await, packet);
    assert!(right.plane.inbound_udp(&[0xff], src, dst), "a keepalive is nobody's");
    assert!(!right.plane.inbound_udp(&[0, 0, 0, 0, 1], src, dst), "IKE is the driver's");
}

#[tokio::test]
async fn a_trapped_packet_wakes_the_driver() {
    let tunnel = Tunnel::v4();
    let mut end = End::new(IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
    let id = PolicyId(5);
    let trap = PolicySpec { id, action: PolicyAction::Trap, ..tunnel.policy() };
    end.plane.apply(Command::InstallPolicy(Box::new(trap))).unwrap();
    assert!(end.host.send(tunnel.packet(9)).await);
    let Event::Acquire { policy, .. } = end.event().await else { panic!("not an acquire") };
    assert_eq!(policy, id);
}

#[tokio::test]
async fn a_socket_for_both_families_is_refused() {
    let any = || "[::]:0".parse::<SocketAddr>().unwrap();
    let bind = |only_v6| {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None)?;
        socket.set_only_v6(only_v6)?;
        socket.set_nonblocking(true)?;
        socket.bind(&any().into())?;
        EncapSocket::new(UdpSocket::from_std(socket.into())?)
    };
    assert!(bind(true).is_ok());
    let refused = bind(false).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::InvalidInput));
}
