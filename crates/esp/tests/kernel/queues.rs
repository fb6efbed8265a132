//! A TUN device with several queues: flows are
//! spread over them, nothing is lost, and a flow keeps its order.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::{Config, Device, EncapSocket, RouteOptions, TunOptions, UserspacePlane};
use ike_test_namespace::ip;
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, PolicyAction, SaId,
};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{self, CIPHERS, Counting, Tunnel};

const LONG: Duration = Duration::from_secs(20);
const QUEUES: usize = 2;
const FLOWS: u16 = 16;
/// Packets of each flow under way at a time, and how often.
const BURST: u16 = 8;
const ROUNDS: u16 = 25;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const BEYOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

struct End {
    plane: UserspacePlane,
    port: u16,
}

impl End {
    async fn new(device: Device, routes: Option<RouteOptions>) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(HERE, 0)).await.unwrap();
        let socket = Arc::new(EncapSocket::new(socket).unwrap());
        let port = socket.local_addr().port();
        let config = Config {
            ciphers: &CIPHERS,
            rng: || Box::new(Counting(3)),
            encap: vec![socket],
            ike: mpsc::channel(1).0,
            plain: Vec::new(),
            streams: None,
            clear: None,
            routes,
            guard: None,
        };
        Self { plane: UserspacePlane::start(config, device).unwrap(), port }
    }

    /// An SA to `to`, and the policy that uses it.
    fn sends_to(&mut self, to: &mut Self, tunnel: &Tunnel, spi: u32) {
        let id = SaId { spi, dst: HERE };
        let ports = EncapPorts { src_port: self.port, dst_port: to.port };
        for (end, direction) in [(&mut *to, Direction::In), (&mut *self, Direction::Out)] {
            let mut sa = tunnel.sa(direction);
            (sa.id, sa.encap) = (id, Some(Encapsulation::Udp(ports)));
            end.plane.apply(Command::InstallSa(Box::new(sa))).unwrap();
        }
        let mut policy = tunnel.policy();
        if let PolicyAction::Protect { outbound, .. } = &mut policy.action {
            *outbound = Some(id);
        }
        self.plane.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
    }
}

/// Flow and number of a packet of the test.
fn number(packet: &[u8]) -> (u16, u16) {
    let field = |at| u16::from_be_bytes([packet[at], packet[at + 1]]);
    (field(20), field(28))
}

pub(crate) fn flows_over_two_queues() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
        .block_on(flows_over_two_queues_inside());
}

async fn flows_over_two_queues_inside() {
    ip("link set lo up");
    ip("addr add 10.1.0.1/32 dev lo");
    let options = TunOptions { name: "ike0".into(), mtu: 1400, queues: QUEUES };
    let mut left = End::new(Device::tun(&options).unwrap(), Some(RouteOptions::default())).await;
    let (device, mut beyond) = Device::memory(4096);
    let mut right = End::new(device, None).await;
    // Two workers of one SA: what one has numbered may be overtaken by what the other has.
    let forth = Tunnel { left: HERE, right: HERE, window: 4096, ..Tunnel::v4() };
    let (left_ts, right_ts) = (forth.right_ts.clone(), forth.left_ts.clone());
    let back = Tunnel { left_ts, right_ts, ..forth.clone() };
    left.sends_to(&mut right, &forth, 0x100);
    right.sends_to(&mut left, &back, 0x200);

    let mut sockets = Vec::new();
    for flow in 0..FLOWS {
        let socket = UdpSocket::bind((INSIDE, 2000 + flow)).await.unwrap();
        socket.connect((BEYOND, 7)).await.unwrap();
        sockets.push(socket);
    }
    // First one way, by the kernel's hash alone; then with answers, from which it learns; then after that.
    let mut before = vec![0; QUEUES];
    let mut sent = 0u16;
    for answered in [false, true, false] {
        for _ in 0..ROUNDS {
            for n in sent..sent + BURST {
                for socket in &sockets {
                    socket.send(&n.to_be_bytes()).await.unwrap();
                }
            }
            let mut next = [sent; FLOWS as usize];
            for _ in 0..BURST * FLOWS {
                let packet = timeout(LONG, beyond.recv()).await.expect("nothing is lost").unwrap();
                let (port, n) = number(&packet);
                let next = &mut next[usize::from(port - 2000)];
                assert_eq!(n, *next, "flow {port}, answered: {answered}");
                *next += 1;
                if answered {
                    let to = (IpAddr::from(BEYOND), IpAddr::from(INSIDE));
                    let mut answer = common::udp(to.0, to.1, 7, port, 1200);
                    answer[28..30].copy_from_slice(&n.to_be_bytes());
                    // Without a checksum, which UDP over IPv4 allows.
                    answer[26..28].fill(0);
                    assert!(beyond.send(answer).await);
                }
            }
            for socket in sockets.iter().filter(|_| answered) {
                for n in sent..sent + BURST {
                    let mut answer = [0; 1500];
                    let len =
                        timeout(LONG, socket.recv(&mut answer)).await.expect("nothing is lost");
                    assert_eq!((len.unwrap(), &answer[..2]), (1200, &n.to_be_bytes()[..]));
                }
            }
            sent += BURST;
        }
        // Behind the workers of the queues come those that open.
        let mut now = left.plane.plane().stats().sealed_by_worker();
        assert_eq!(now.drain(QUEUES..).sum::<u64>(), 0);
        assert!(now.iter().zip(&before).all(|(now, before)| now > before), "{before:?}, {now:?}");
        before = now;
    }
    assert_eq!(before.iter().sum::<u64>(), u64::from(sent) * u64::from(FLOWS));
    let answered = u64::from(ROUNDS) * u64::from(BURST) * u64::from(FLOWS);
    assert_eq!(left.plane.plane().stats().opened(), answered);
    left.plane.shutdown().await;
}
