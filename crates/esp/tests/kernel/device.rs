//! The device, the routes and nf_tables.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::RouteOptions;
use esp::io::{Config, Device, GuardOptions, TcpPorts, TunOptions, UserspacePlane};
use ike_test_namespace::ip;
use ipsec_types::dataplane::{
    Command, DataPlane, Direction, Event, PolicyAction, PolicyId, PolicySpec, SaSpec,
};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tun_rs::{AsyncDevice, DeviceBuilder};

use crate::common::{CIPHERS, Counting, Tunnel, addr, fragments, tcp, ts, udp};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

pub(crate) fn inside(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// A host with an outer interface that the test is the far side of.
pub(crate) struct Host {
    pub(crate) plane: UserspacePlane,
    pub(crate) outside: AsyncDevice,
}

impl Host {
    /// 192.0.2.1 outside, 10.1.0.1 and fd01::1 inside.
    pub(crate) fn new() -> Self {
        ip("link set lo up");
        ip("addr add 10.1.0.1/32 dev lo");
        ip("addr add fd01::1/128 dev lo");
        let outside = DeviceBuilder::new().name("out0").ipv4("192.0.2.1", 24, None);
        let outside = outside.build_async().unwrap();
        ip("-6 addr add 2001:db8::1/64 dev out0 nodad");
        ip("route add default dev out0");
        ip("-6 route add default dev out0");
        Self { plane: Self::plane(), outside }
    }

    /// A data plane on this host.
    fn plane() -> UserspacePlane {
        let config = Config {
            ciphers: &CIPHERS,
            rng: || Box::new(Counting(3)),
            encap: Vec::new(),
            ike: mpsc::channel(1).0,
            plain: Vec::new(),
            streams: None,
            clear: None,
            routes: Some(RouteOptions::default()),
            guard: Some(GuardOptions {
                ports: vec![500, 4500],
                tcp: TcpPorts { local: vec![4500], remote: vec![443] },
                mark: Some(220),
            }),
        };
        let options = TunOptions { name: "ike0".into(), ..TunOptions::default() };
        UserspacePlane::start(config, Device::tun(&options).unwrap()).unwrap()
    }

    pub(crate) fn install(&mut self, id: u64, local: &str, remote: &str, action: PolicyAction) {
        let spec = PolicySpec {
            id: PolicyId(id),
            child: "net".into(),
            owner: "site".into(),
            local_ts: vec![ts(local)],
            remote_ts: vec![ts(remote)],
            action,
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        };
        self.plane.apply(Command::InstallPolicy(Box::new(spec))).unwrap();
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.plane.apply(Command::RemovePolicy(PolicyId(id))).unwrap();
    }

    /// True if a UDP packet that comes from outside is heard by who listens at `to`.
    async fn hears(&self, from: &str, to: &UdpSocket) -> bool {
        let at = to.local_addr().unwrap();
        let packet = with_checksum(udp(addr(from), at.ip(), 9, at.port(), 20));
        self.outside.send(&packet).await.unwrap();
        timeout(SHORT, to.recv_from(&mut [0; 100])).await.is_ok()
    }

    /// The same in fragments.
    async fn hears_fragments(&self, from: &str, to: &UdpSocket) -> bool {
        let at = to.local_addr().unwrap();
        let packet = with_checksum(udp(addr(from), at.ip(), 9, at.port(), 2000));
        for piece in fragments(&packet, 1280) {
            self.outside.send(&piece).await.unwrap();
        }
        timeout(SHORT, to.recv_from(&mut [0; 100])).await.is_ok()
    }
}

/// What hears ESP over IP.
fn raw_esp() -> UdpSocket {
    raw(socket2::Domain::IPV4, 50)
}

/// A raw socket; what is done with it here it does as UDP sockets do.
pub(crate) fn raw(family: socket2::Domain, protocol: i32) -> UdpSocket {
    let raw = socket2::Socket::new(family, socket2::Type::RAW, Some(protocol.into())).unwrap();
    raw.set_nonblocking(true).unwrap();
    UdpSocket::from_std(std::os::fd::OwnedFd::from(raw).into()).unwrap()
}

/// An IPv4 packet of any protocol, with zeros inside.
fn ip_packet(from: &str, to: &str, protocol: u8, payload: usize) -> Vec<u8> {
    let (header, len) = esp::ip::header(addr(from), addr(to), 0, protocol, payload).unwrap();
    let mut packet = header[..len].to_vec();
    packet.resize(len + payload, 0);
    packet
}

/// Sets the UDP checksum, which IPv6 wants.
pub(crate) fn with_checksum(packet: Vec<u8>) -> Vec<u8> {
    checksummed(packet, 17, 6)
}

/// Sets the checksum of a transport protocol, which is at this offset of it.
fn checksummed(mut packet: Vec<u8>, protocol: u32, at: usize) -> Vec<u8> {
    let (start, addresses) = if packet[0] >> 4 == 4 { (20, 12..20) } else { (40, 8..40) };
    let len = packet.len() - start;
    let mut sum = protocol + len as u32;
    packet[start + at..start + at + 2].fill(0);
    let mut words = packet[addresses].to_vec();
    words.extend_from_slice(&packet[start..]);
    words.resize(words.len().next_multiple_of(2), 0);
    for word in words.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word[1]);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[start + at..start + at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

pub(crate) async fn socket(at: &str) -> UdpSocket {
    UdpSocket::bind(at.parse::<SocketAddr>().unwrap()).await.unwrap()
}

pub(crate) async fn send(from: &UdpSocket, to: &str) -> Result<(), io::ErrorKind> {
    from.send_to(b"hello", (addr(to), 7)).await.map(|_| ()).map_err(|error| error.kind())
}

pub(crate) fn packets_in_clear() {
    inside(packets_in_clear_inside());
}

async fn packets_in_clear_inside() {
    let mut host = Host::new();
    let (four, six) = (socket("10.1.0.1:4000").await, socket("[fd01::1]:4000").await);
    let (ike, other) = (socket("10.1.0.1:500").await, socket("10.1.0.1:80").await);
    assert!(host.hears("10.2.0.1", &four).await, "without a policy nothing is dropped");
    assert!(host.hears("fd02::1", &six).await);
    assert!(host.hears_fragments("10.2.0.1", &four).await);
    assert!(host.hears_fragments("fd02::1", &six).await);

    host.install(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
    host.install(2, "fd01::/64", "fd02::/64", PolicyAction::Trap);
    assert!(!host.hears("10.2.0.1", &four).await, "a policy wants it protected");
    assert!(!host.hears("fd02::1", &six).await);
    assert!(!host.hears("10.2.255.255", &four).await, "to the last address");
    assert!(host.hears("10.3.0.0", &four).await, "and no further");
    assert!(host.hears("fd02:0:0:1::", &six).await);
    assert!(host.hears("10.2.0.1", &ike).await, "IKE is not ESP's business");
    assert!(!host.hears("10.2.0.1", &other).await);

    // Nor are its fragments, of which the later ones have no port; those of others are.
    let ike_six = socket("[fd01::1]:4500").await;
    assert!(host.hears("fd02::1", &ike_six).await);
    for (from, exempt, other) in [("10.2.0.1", &ike, &four), ("fd02::1", &ike_six, &six)] {
        assert!(host.hears_fragments(from, exempt).await, "IKE from {from} in fragments");
        assert!(!host.hears_fragments(from, other).await, "fragments from {from}");
    }
    let esp = raw_esp();
    let packet = ip_packet("10.2.0.1", "10.1.0.1", 50, 40);
    host.outside.send(&packet).await.unwrap();
    assert!(timeout(LONG, esp.recv(&mut [0; 100])).await.is_ok(), "ESP has its own way");

    let icmp = raw(socket2::Domain::IPV6, 58);
    let types = async |kind: u8, hop_limit: u8| {
        let mut packet = udp(addr("fd02::1"), addr("fd01::1"), u16::from(kind) << 8, 0, 16);
        (packet[6], packet[7]) = (58, hop_limit);
        host.outside.send(&checksummed(packet, 58, 2)).await.unwrap();
        let mut buffer = [0; 100];
        loop {
            match timeout(SHORT, icmp.recv(&mut buffer)).await {
                Ok(Ok(_)) if buffer[0] == kind => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        }
    };
    assert!(types(136, 255).await, "neighbor discovery is the link's own business");
    assert!(!types(136, 64).await, "but comes from no further");
    assert!(!types(128, 255).await);

    let segments = raw(socket2::Domain::IPV4, 6);
    let segment = async |sport: u16, dport: u16, flags: u8| {
        let mut packet = tcp(addr("10.2.0.1"), addr("10.1.0.1"), sport, dport);
        packet[33] = flags;
        host.outside.send(&with_checksum(packet)).await.unwrap();
        timeout(SHORT, segments.recv(&mut [0; 100])).await.is_ok()
    };
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    assert!(segment(1000, 4500, SYN).await, "a peer opens a connection");
    assert!(segment(443, 1000, SYN | ACK).await, "a peer answers");
    assert!(segment(443, 1000, ACK | 0xc8).await, "whatever else is set");
    assert!(!segment(443, 1000, SYN).await, "from there nothing is opened");
    assert!(!segment(443, 1000, 0x04).await);
    assert!(!segment(1000, 443, ACK).await);
    assert!(!segment(4500, 1000, ACK).await);
    assert!(!segment(1000, 500, SYN).await, "ports of UDP are not those of TCP");

    // A gap for a narrower exemption; a selector with a port leaves other ports alone.
    host.install(3, "10.1.0.1/32", "10.2.9.0/24", PolicyAction::Pass);
    assert!(host.hears("10.2.9.1", &four).await);
    host.install(4, "10.1.0.0/16[udp/80]", "10.5.0.0/16[udp]", PolicyAction::Drop);
    assert!(host.hears("10.5.0.1", &four).await);
    assert!(!host.hears("10.5.0.1", &other).await);

    host.remove(1);
    assert!(host.hears("10.2.0.1", &four).await);
    assert!(!host.hears("fd02::1", &six).await, "the other stays");
    host.plane.apply(Command::Flush).unwrap();
    assert!(host.hears("fd02::1", &six).await);

    let silent = PolicyAction::Shunt { silent: true };
    host.install(5, "10.1.0.0/16", "10.2.0.0/16", silent);
    assert!(!host.hears("10.2.0.1", &four).await, "a child that is not up protects as well");
    // From elsewhere to the host itself: what no local selector covers is no business of ours.
    let outer = socket("192.0.2.1:4000").await;
    assert!(host.hears("10.2.0.1", &outer).await);
}

pub(crate) fn packets_in_clear_that_are_forwarded() {
    inside(packets_in_clear_that_are_forwarded_inside());
}

async fn packets_in_clear_that_are_forwarded_inside() {
    let mut host = Host::new();
    let inside = DeviceBuilder::new().name("in0").ipv4("10.1.0.2", 24, None).build_async().unwrap();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    let forwarded = async |host: &Host, packet: Vec<u8>| {
        host.outside.send(&with_checksum(packet)).await.unwrap();
        let mut buffer = [0; 200];
        loop {
            match timeout(SHORT, inside.recv(&mut buffer)).await {
                Ok(Ok(_)) if buffer[0] >> 4 != 4 || buffer[19] != 9 => {}
                Ok(received) => break received.is_ok(),
                Err(_) => break false,
            }
        }
    };
    let (from, to) = (addr("10.2.0.1"), addr("10.1.0.9"));
    assert!(forwarded(&host, udp(from, to, 1, 2, 30)).await);
    host.install(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
    assert!(!forwarded(&host, udp(from, to, 1, 2, 30)).await);
    assert!(!forwarded(&host, udp(from, to, 1, 500, 30)).await, "IKE ends here, not behind us");
    assert!(!forwarded(&host, tcp(from, to, 1, 2)).await);
    assert!(forwarded(&host, udp(addr("10.3.0.1"), to, 1, 2, 30)).await);
}

/// A gateway whose child takes in all addresses, its own networks too, but for those that pass.
///
/// Fault: in `UserspacePlane::route`, give `PolicyAction::Pass` no route.
pub(crate) fn a_full_tunnel_and_the_networks_beside_it() {
    inside(a_full_tunnel_and_the_networks_beside_it_inside());
}

async fn a_full_tunnel_and_the_networks_beside_it_inside() {
    let mut host = Host::new();
    let lan = async |name: &str, address: &str| {
        DeviceBuilder::new().name(name).ipv4(address, 24, None).build_async().unwrap()
    };
    let (in0, in1) = (lan("in0", "10.1.2.1").await, lan("in1", "10.1.3.1").await);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    let gateway = socket("10.1.2.1:4000").await;
    // True if a packet for 10.1.x.9 comes out of a device.
    let arrives = async |at: &AsyncDevice| {
        let mut buffer = [0; 200];
        loop {
            match timeout(SHORT, at.recv(&mut buffer)).await {
                Ok(Ok(_)) if buffer[0] >> 4 != 4 || buffer[19] != 9 => {}
                Ok(received) => break received.is_ok(),
                Err(_) => break false,
            }
        }
    };
    let to_gateway = async || {
        let packet = with_checksum(udp(addr("10.1.2.9"), addr("10.1.2.1"), 9, 4000, 20));
        in0.send(&packet).await.unwrap();
        timeout(SHORT, gateway.recv_from(&mut [0; 100])).await.is_ok()
    };
    let to_lan = async || {
        _ = send(&gateway, "10.1.2.9").await;
        arrives(&in0).await
    };
    let across = async || {
        let packet = with_checksum(udp(addr("10.1.3.9"), addr("10.1.2.9"), 1, 2, 20));
        in1.send(&packet).await.unwrap();
        arrives(&in0).await
    };
    assert!(to_gateway().await && to_lan().await && across().await);
    host.install(1, "10.1.0.0/16", "0.0.0.0/0", PolicyAction::Trap);
    assert!(!to_gateway().await && !to_lan().await && !across().await, "all is the tunnel's");
    host.install(2, "10.1.0.0/16", "10.1.2.0/24", PolicyAction::Pass);
    host.install(3, "10.1.0.0/16", "10.1.3.0/24", PolicyAction::Pass);
    assert!(to_gateway().await, "from the LAN to the gateway");
    assert!(to_lan().await, "from the gateway to the LAN");
    assert!(across().await, "from one LAN to the other");
    // The rest is protected as before.
    assert!(!host.hears("10.2.0.1", &gateway).await);
    _ = send(&gateway, "10.2.0.9").await;
    assert!(!arrives(&host.outside).await, "in clear");
    // A network that is gone is not looked for outside, not even before its exemption has gone as well.
    ip("link set in0 down");
    _ = send(&gateway, "10.1.2.9").await;
    assert!(!arrives(&host.outside).await, "in clear");
    ip("link set in0 up");
    assert!(to_lan().await);
    host.remove(2);
    assert!(!to_gateway().await && !to_lan().await && !across().await);
    host.remove(3);
    host.remove(1);
    assert!(to_gateway().await && to_lan().await && across().await);
}

pub(crate) fn traffic_of_a_child_that_is_not_up() {
    inside(traffic_of_a_child_that_is_not_up_inside());
}

/// The error that a sender to an address gets.
async fn told(to: &str) -> Option<io::ErrorKind> {
    let to: IpAddr = addr(to);
    let from = if to.is_ipv4() { "10.1.0.1:0" } else { "[fd01::1]:0" };
    let socket = socket(from).await;
    socket.connect(SocketAddr::new(to, 7)).await.unwrap();
    socket.send(b"?").await.unwrap();
    let heard = timeout(SHORT, socket.recv(&mut [0])).await.ok()?;
    Some(heard.unwrap_err().kind())
}

/// Faults: in `Table::blocked`, take routes of the type prohibit; in `UserspacePlane::route`, give a shunt the fallback route
/// alone; in `tasks::outbound`, send no messages.
async fn traffic_of_a_child_that_is_not_up_inside() {
    // What a daemon that crashed has left waits for the policies of this one, what others have put there stays.
    ip("link set lo up");
    ip("route add unreachable 10.8.0.0/16 metric 2147483426 table 7296");
    ip("route add unreachable 10.9.0.0/16 metric 9 table 7296");
    ip("route add prohibit 10.7.0.0/16 metric 2147483426 table 7296");
    let mut host = Host::new();
    let left = ip("route show table 7296");
    assert!(left.contains("10.8.0.0/16") && left.contains("10.9.0.0/16"), "{left}");
    assert_eq!(host.plane.blocked(), ["10.8.0.0/16".parse().unwrap()], "10.7.0.0 was only held");

    let (four, six) = (socket("10.1.0.1:4000").await, socket("[fd01::1]:4000").await);
    assert_eq!(send(&four, "10.2.0.1").await, Ok(()), "in clear, by the default route");
    let shunt = |silent| PolicyAction::Shunt { silent };
    host.install(1, "10.1.0.0/16", "10.2.0.0/16", shunt(false));
    host.install(2, "fd01::/64", "fd02::/64", shunt(false));
    host.install(3, "10.1.0.0/16", "10.6.0.0/16", shunt(true));
    host.install(5, "10.1.0.0/16", "10.10.0.0/16", PolicyAction::Hold { anywhere: false });
    let routes = ip("route show table 7296");
    for route in [
        "10.2.0.0/16 dev ike0",
        "unreachable 10.2.0.0/16",
        "10.6.0.0/16 dev ike0",
        "blackhole 10.6.0.0/16",
        "10.10.0.0/16 dev ike0",
        "prohibit 10.10.0.0/16",
    ] {
        assert!(routes.contains(route), "{route}: {routes}");
    }
    assert_eq!(told("10.2.0.1").await, Some(io::ErrorKind::HostUnreachable));
    assert_eq!(told("fd02::1").await, Some(io::ErrorKind::PermissionDenied));
    assert_eq!(told("10.10.0.1").await, Some(io::ErrorKind::HostUnreachable));
    assert_eq!(told("10.6.0.1").await, None, "in silence");
    assert_eq!(send(&four, "10.3.0.1").await, Ok(()));

    // With the child's own policy, be it installed later, traffic comes to the device.
    host.install(4, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
    assert_eq!(send(&four, "10.2.0.1").await, Ok(()));
    let ready = host.plane.event_ready();
    let event = loop {
        match host.plane.poll_event() {
            Some(event) => break event,
            None => timeout(LONG, ready.notified()).await.expect("the trap is met"),
        }
    };
    assert!(matches!(event, Event::Acquire { policy: PolicyId(4), .. }), "{event:?}");
    host.remove(4);
    assert_eq!(told("10.2.0.1").await, Some(io::ErrorKind::HostUnreachable));
    host.remove(1);
    assert_eq!(told("10.2.0.1").await, None);

    host.plane.shutdown().await;
    assert_eq!(send(&six, "fd02::1").await, Err(io::ErrorKind::HostUnreachable), "blocks stay");
    let mut plane = Host::plane();
    plane.apply(Command::Flush).unwrap();
    plane.shutdown().await;
    assert_eq!(send(&six, "fd02::1").await, Ok(()), "after a flush nothing is left");
    assert!(!ip("rule").contains("7296") && !ip("-6 rule").contains("7296"));
}

pub(crate) fn addresses_that_come_and_go() {
    inside(addresses_that_come_and_go_inside());
}

async fn addresses_that_come_and_go_inside() {
    let mut host = Host::new();
    ip("addr add 10.4.0.1/32 dev lo");
    host.install(1, "10.4.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
    let until = async |wanted: &str, hint: bool| {
        let mut routes = String::new();
        for _ in 0..100 {
            routes = ip("route show table 7296");
            if routes.contains("10.2.0.0/16") && routes.contains(wanted) == hint {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never {wanted:?}: {routes}");
    };
    until("src 10.4.0.1", true).await;
    // The kernel drops a route with the address it prefers; it comes back without.
    ip("addr del 10.4.0.1/32 dev lo");
    until("src", false).await;
    ip("addr add 10.4.0.7/32 dev lo");
    until("src 10.4.0.7", true).await;
    let from: IpAddr = addr("10.4.0.7");
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    socket.connect((addr("10.2.0.1"), 7)).await.unwrap();
    assert_eq!(socket.local_addr().unwrap().ip(), from);
}

pub(crate) fn many_policies() {
    inside(many_policies_inside());
}

async fn many_policies_inside() {
    let mut host = Host::new();
    let four = socket("10.1.0.1:4000").await;
    let net = |n: u32| format!("10.{}.{}.0/24", 64 + n / 256, n % 256);
    for n in 0..1500 {
        host.install(u64::from(n) + 10, "10.1.0.0/16", &net(n), PolicyAction::Trap);
    }
    // All of it, and of the middle, before and after other changes.
    host.install(1, "10.1.0.0/16", "10.64.0.0/10", PolicyAction::Trap);
    let hears = async |host: &Host, n: u32| {
        host.hears(&format!("10.{}.{}.9", 64 + n / 256, n % 256), &four).await
    };
    assert!(!hears(&host, 0).await && !hears(&host, 700).await && !hears(&host, 1499).await);
    host.remove(1);
    for n in (0..1500_u64).step_by(2) {
        host.remove(n + 10);
    }
    assert!(hears(&host, 0).await && hears(&host, 700).await && hears(&host, 1498).await);
    assert!(!hears(&host, 1).await && !hears(&host, 701).await && !hears(&host, 1499).await);
    // An exemption between: narrower than some, and wider than others.
    host.install(2, "10.1.0.0/16", "10.64.0.0/16", PolicyAction::Pass);
    host.install(3, "10.1.0.0/24", "10.64.0.0/10", PolicyAction::Pass);
    assert!(!hears(&host, 1).await, "the policy of the /24 is narrower than that of the /16");
    host.remove(11);
    assert!(hears(&host, 1).await);
    // A policy that protects many pairs: more than go into one transaction.
    let pieces: Vec<_> =
        (0..600_u32).map(|n| ts(&format!("10.{}.{}.0/25", 200 + n / 256, n % 256))).collect();
    let many = PolicySpec {
        id: PolicyId(5000),
        child: "many".into(),
        owner: "site".into(),
        local_ts: vec![ts("10.1.0.0/16")],
        remote_ts: pieces,
        action: PolicyAction::Trap,
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    };
    host.plane.apply(Command::InstallPolicy(Box::new(many))).unwrap();
    assert!(!host.hears("10.200.0.1", &four).await && !host.hears("10.202.80.127", &four).await);
    assert!(host.hears("10.202.80.128", &four).await);
    host.remove(5000);
    assert!(host.hears("10.200.0.1", &four).await);
    assert!(!hears(&host, 701).await);
    host.plane.apply(Command::Flush).unwrap();
    assert!(hears(&host, 701).await);
}

pub(crate) fn a_device_that_somebody_deletes() {
    inside(a_device_that_somebody_deletes_inside());
}

async fn a_device_that_somebody_deletes_inside() {
    let mut host = Host::new();
    let four = socket("10.1.0.1:4000").await;
    host.install(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Shunt { silent: false });
    host.install(2, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
    assert_eq!(send(&four, "10.2.0.1").await, Ok(()));
    let lost = host.plane.lost();
    ip("link del ike0");
    timeout(LONG, lost.notified()).await.expect("it is noticed");
    assert_eq!(send(&four, "10.2.0.1").await, Err(io::ErrorKind::HostUnreachable));
    assert!(!host.hears("10.2.0.1", &four).await, "what the kernel guards it goes on guarding");
    // What needs the device is refused, what takes things back is not.
    let trap = PolicySpec {
        id: PolicyId(3),
        child: "net".into(),
        owner: "site".into(),
        local_ts: vec![ts("10.1.0.0/16")],
        remote_ts: vec![ts("10.5.0.0/16")],
        action: PolicyAction::Trap,
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    };
    assert!(host.plane.apply(Command::InstallPolicy(Box::new(trap))).is_err());
    host.remove(3);
    host.remove(2);
    host.plane.apply(Command::Flush).unwrap();
    assert_eq!(send(&four, "10.2.0.1").await, Ok(()));
    host.plane.shutdown().await;
}

/// The answer to a packet that does not fit the path is one that the kernel of this host takes: its sockets know the size
/// then.
///
/// Fault: in `too_big::answer`, let the answer come from `ip.src`; or in `tasks::outbound`, do not deliver the answers.
pub(crate) fn the_kernel_hears_that_a_packet_is_too_big() {
    inside(async {
        let mut host = Host::new();
        let tunnels = [
            Tunnel { left: addr("192.0.2.1"), right: addr("198.51.100.1"), ..Tunnel::v4() },
            Tunnel {
                left: addr("192.0.2.1"),
                right: addr("198.51.100.2"),
                left_ts: vec![ts("fd01::/16")],
                right_ts: vec![ts("fd02::/16")],
                ..Tunnel::v4()
            },
        ];
        for (id, tunnel, to) in [(1, &tunnels[0], "10.2.0.1:9"), (2, &tunnels[1], "[fd02::1]:9")] {
            let to: SocketAddr = to.parse().unwrap();
            let sa = SaSpec { policy: PolicyId(id), ..tunnel.sa(Direction::Out) };
            host.plane.apply(Command::InstallSa(Box::new(sa))).unwrap();
            let policy = PolicySpec { id: PolicyId(id), ..tunnel.policy() };
            host.plane.apply(Command::InstallPolicy(Box::new(policy))).unwrap();
            host.plane.plane().set_link(tunnel.left, SocketAddr::new(tunnel.right, 0), 1350);
            let from = if to.is_ipv4() { "10.1.0.1:0" } else { "[fd01::1]:0" };
            let socket = std::net::UdpSocket::bind(from).unwrap();
            socket.connect(to).unwrap();
            let mtu = || match to.is_ipv4() {
                true => rustix::net::sockopt::ip_mtu(&socket).unwrap(),
                false => rustix::net::sockopt::ipv6_mtu(&socket).unwrap(),
            };
            assert_eq!(mtu(), 1400);
            let known = async {
                while mtu() == 1400 {
                    _ = socket.send(&[7; 1350]);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(LONG, known).await.unwrap_or_else(|_| panic!("{to} is as large as ever"));
            assert!((1290..1310).contains(&mtu()), "{} to {to}", mtu());
        }
    });
}

/// The routes of a child have the MTU of its path, once the driver is woken: the kernel tells its own sockets and, when it
/// forwards, the senders.
///
/// Fault: in `UserspacePlane::poll_event`, do not call `resize_routes`; or in `resize_routes`, leave out those of `before`.
pub(crate) fn routes_have_the_size_of_the_path() {
    inside(async {
        let mut host = Host::new();
        let tunnel = Tunnel {
            left: addr("192.0.2.1"),
            right: addr("198.51.100.1"),
            left_ts: vec![ts("10.1.0.0/16"), ts("fd01::/16")],
            right_ts: vec![ts("10.2.0.0/16"), ts("fd02::/16")],
            ..Tunnel::v4()
        };
        host.plane.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
        host.plane.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
        let sizes = || {
            let four = std::net::UdpSocket::bind("10.1.0.1:0").unwrap();
            four.connect("10.2.0.1:9").unwrap();
            let six = std::net::UdpSocket::bind("[fd01::1]:0").unwrap();
            six.connect("[fd02::1]:9").unwrap();
            let four = rustix::net::sockopt::ip_mtu(&four).unwrap();
            (four, rustix::net::sockopt::ipv6_mtu(&six).unwrap())
        };
        let peer = SocketAddr::new(tunnel.right, 0);
        // 54 octets less and down to whole units of four; IPv6 has no less than 1,280.
        for (link, inside) in
            [(1500, (1400, 1400)), (1350, (1294, 1294)), (1300, (1246, 1280)), (1500, (1400, 1400))]
        {
            host.plane.plane().set_link(tunnel.left, peer, link);
            assert_eq!(host.plane.poll_event(), None);
            assert_eq!(sizes(), inside, "{link}");
        }
        host.plane.plane().set_link(tunnel.left, peer, 1350);
        // A rekeyed child has its size from the start.
        host.plane.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
        assert_eq!(sizes(), (1294, 1294));
        // Its routes go, with their MTU.
        host.plane.apply(Command::RemovePolicy(tunnel.policy().id)).unwrap();
        assert_eq!(host.plane.poll_event(), None);
        assert_ne!(sizes().0, 1294);
    });
}
