//! ESP over IP (protocol 50) through raw sockets.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::{Config, Device, EncapSocket, MemoryHost, PlainEsp, UserspacePlane};
use esp::ip;
use ike_test_namespace::{Host, ip as run_ip};
use ipsec_types::dataplane::{Command, DataPlane, Direction, PolicyId, PolicySpec, SaSpec};
use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetStruct;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{CIPHERS, Counting, Tunnel};

const LONG: Duration = Duration::from_secs(20);

fn end() -> (UserspacePlane, MemoryHost) {
    let config = Config {
        ciphers: &CIPHERS,
        rng: || Box::new(Counting(3)),
        encap: [("0.0.0.0:4500", Domain::IPV4), ("[::]:4500", Domain::IPV6)].map(bound).into(),
        ike: mpsc::channel(1).0,
        plain: [true, false].map(|v4| Arc::new(PlainEsp::open(v4, None).unwrap())).into(),
        streams: None,
        clear: None,
        routes: None,
        guard: None,
    };
    let (device, host) = Device::memory(1024);
    (UserspacePlane::start(config, device).unwrap(), host)
}

/// A socket for ESP in UDP.
fn bound((address, domain): (&str, Domain)) -> Arc<EncapSocket> {
    let socket = Socket::new(domain, Type::DGRAM, None).unwrap();
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).unwrap();
    }
    // Two ends may be in one namespace, of which none receives by UDP.
    socket.set_reuse_port(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
    let socket = UdpSocket::from_std(socket.into()).unwrap();
    Arc::new(EncapSocket::new(socket).unwrap())
}

pub(crate) fn runs_over_raw_sockets() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(runs_over_raw_sockets_inside());
}

async fn runs_over_raw_sockets_inside() {
    run_ip("link set lo up");
    let outer = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    for outer in outer {
        let ((mut left, from), (mut right, mut to)) = (end(), end());
        let tunnel = Tunnel { left: outer, right: outer, window: 4096, ..Tunnel::v4() };
        right.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::In)))).unwrap();
        left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
        left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
        // More than one system call takes, of lengths that go together and some that do not, with ECN and
        // without.
        let packets: Vec<_> = (0..300)
            .map(|n| {
                let mut packet = tunnel.packet(if n % 50 == 49 { n } else { 1200 });
                ip::set_tos(&mut packet, if n % 100 < 50 { 0 } else { 2 });
                packet
            })
            .collect();
        for packets in packets.chunks(100) {
            for packet in packets {
                assert!(from.send(packet.clone()).await);
            }
            for packet in packets {
                let got = timeout(LONG, to.recv()).await.expect("nothing is lost").unwrap();
                assert!(got == *packet, "over {outer}");
            }
        }
        // One that no path takes is lost, and only that one.
        let long = tunnel.packet(65_000);
        let short = tunnel.packet(10);
        for packet in [&short, &long, &short] {
            assert!(from.send(packet.clone()).await);
        }
        assert_eq!(timeout(LONG, to.recv()).await.unwrap().unwrap(), short);
        let mut last = timeout(LONG, to.recv()).await.unwrap().unwrap();
        if last == long {
            // The loopback's path takes it, in fragments.
            last = timeout(LONG, to.recv()).await.unwrap().unwrap();
        }
        assert_eq!(last, short);
    }
}

/// Fault: in `raw::Ends::send_all`, leave the TTL out; or in `tasks::inbound_plain`, take the fields of the batch.
pub(crate) fn header_fields_of_transport_mode_over_raw_sockets() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        run_ip("link set lo up");
        for outer in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let ((mut left, from), (mut right, mut to)) = (end(), end());
            let tunnel = Tunnel { left: outer, right: outer, ..Tunnel::v4() }.transport();
            right.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::In)))).unwrap();
            left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
            left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
            for packet in crate::common::of_many_fields(&tunnel) {
                assert!(from.send(packet.clone()).await);
                let got = timeout(LONG, to.recv()).await.expect("a packet").unwrap();
                assert_eq!(got, packet, "over {outer}");
            }
        }
    });
}

/// The request of `IPV6_FLOWLABEL_MGR` (linux/in6.h).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LabelRequest {
    dst: [u8; 16],
    label: [u8; 4],
    action: u8,
    share: u8,
    flags: u16,
    expires: u16,
    linger: u16,
    pad: u32,
}

#[derive(Debug, Clone, Copy)]
struct LabelManager;
nix::setsockopt_impl!(
    LabelManager,
    libc::IPPROTO_IPV6,
    libc::IPV6_FLOWLABEL_MGR,
    LabelRequest,
    SetStruct<'_, LabelRequest>
);

/// Once a program of the host has a flow label for itself, the kernel refuses packets with others.
///
/// Fault: in `ancillary::with_label`, return every error. Packets with a label are lost.
pub(crate) fn packets_leave_without_a_flow_label_that_the_host_refuses() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        run_ip("link set lo up");
        let other = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
        let dst = Ipv6Addr::LOCALHOST.octets();
        // It is created, for this socket alone.
        let (flags, share) = (1, 1);
        let label = [0, 5, 0x43, 0x21];
        let request =
            LabelRequest { dst, label, action: 0, share, flags, expires: 0, linger: 0, pad: 0 };
        LabelManager.set(&other, &request).unwrap();
        let ((mut left, from), (mut right, mut to)) = (end(), end());
        let outer = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let tunnel = Tunnel { left: outer, right: outer, ..Tunnel::v4() }.transport();
        right.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::In)))).unwrap();
        left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
        left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
        for packet in crate::common::of_many_fields(&tunnel) {
            assert!(from.send(packet.clone()).await);
            let got = timeout(LONG, to.recv()).await.expect("a packet").unwrap();
            // The kernel makes a label up.
            assert_eq!((got[0], got[1] >> 4, &got[4..]), (packet[0], packet[1] >> 4, &packet[4..]));
        }
        drop(other);
    });
}

/// 192.0.2.1 and 2001:db8::1, and behind the router a link with an MTU of 1320 to 198.51.100.2 and 2001:db8:2::2.
fn behind_a_narrow_link() -> (Host, Host) {
    let (router, far) = (Host::new(), Host::new());
    run_ip("link set lo up");
    run_ip("link add out0 type veth peer name in0");
    run_ip(&format!("link set in0 netns {}", router.id()));
    run_ip("addr add 192.0.2.1/24 dev out0");
    run_ip("-6 addr add 2001:db8::1/64 dev out0 nodad");
    run_ip("link set out0 up");
    far.run("ip link set lo up");
    router.run("ip addr add 192.0.2.9/24 dev in0");
    router.run("ip -6 addr add 2001:db8::9/64 dev in0 nodad");
    router.run("ip link set in0 up");
    router.run("ip link add mid0 type veth peer name mid1");
    router.run(&format!("ip link set mid1 netns {}", far.id()));
    router.run("ip addr add 198.51.100.9/24 dev mid0");
    router.run("ip -6 addr add 2001:db8:2::9/64 dev mid0 nodad");
    router.run("ip link set mid0 up mtu 1320");
    router.run("sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.icmp.ratelimit=0");
    router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0");
    router.run("ip -6 route add prohibit 2001:db8:3::/64");
    router.run("ip route add prohibit 203.0.113.0/24");
    far.run("ip addr add 198.51.100.2/24 dev mid1");
    far.run("ip -6 addr add 2001:db8:2::2/64 dev mid1 nodad");
    far.run("ip link set mid1 up mtu 1320");
    far.run("ip route add default via 198.51.100.9");
    far.run("ip -6 route add default via 2001:db8:2::9");
    run_ip("route add default via 192.0.2.9");
    run_ip("-6 route add default via 2001:db8::9");
    (router, far)
}

/// A figure of IP of `host`: packets received, or put together.
fn figure(host: &Host, v4: bool, name: &str) -> u64 {
    let command = host.inside(if v4 { "cat /proc/net/snmp" } else { "cat /proc/net/snmp6" });
    let mut words = command.split(' ');
    let output = std::process::Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if v4 {
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut pairs = names.split(' ').zip(values.split(' '));
        return pairs.find(|(of, _)| *of == name).unwrap().1.parse().unwrap();
    }
    let name = format!("Ip6{name}");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
    line.trim().parse().unwrap()
}

/// The size in an answer that a packet is too big, and whether it is of IPv4.
fn too_big(answer: &[u8]) -> (u16, bool) {
    let v4 = answer[0] >> 4 == 4;
    let icmp = &answer[if v4 { 20 } else { 40 }..];
    assert_eq!(icmp[..2], if v4 { [3, 4] } else { [2, 0] });
    (u16::from_be_bytes([icmp[6], icmp[7]]), v4)
}

/// What a router says of a small link reaches the sender inside, over both families, in UDP and without; what fits
/// goes whole, and what may be divided is divided inside. An error that ICMP reports of one peer's packet is no reason
/// to lose another one's.
///
/// Fault: in `errors::keep`, set nothing; or in `errors::tell`, leave ICMP out. The path's size is never known. Or in
/// `PlainEsp::send` and `EncapSocket::send_one`, do not send again after an error: packets are lost. Or in
/// `DontFragment::set`, take DONT for OMIT.
pub(crate) fn the_size_of_a_path_reaches_the_inner_side() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_router, far) = behind_a_narrow_link();
        for v4 in [true, false] {
            for encap in [false, true] {
                size_reaches_the_inner_side(&far, v4, encap).await;
            }
        }
    });
}

async fn size_reaches_the_inner_side(far: &Host, v4: bool, encap: bool) {
    let what = format!("IPv4 {v4}, UDP {encap}");
    let (mut left, mut host) = end();
    let outer = match v4 {
        true => ["192.0.2.1", "198.51.100.2", "203.0.113.3"],
        false => ["2001:db8::1", "2001:db8:2::2", "2001:db8:3::3"],
    };
    let outer: [IpAddr; 3] = outer.map(|address| address.parse().unwrap());
    let both = |v4: &str, v6: &str| vec![crate::common::ts(v4), crate::common::ts(v6)];
    let tunnel = Tunnel {
        left: outer[0],
        right: outer[1],
        encap,
        left_ts: both("10.1.0.0/16", "2001:db8:a::/48"),
        right_ts: both("10.2.0.0/16", "2001:db8:b::/48"),
        ..Tunnel::v4()
    };
    left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
    left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
    let refused = Tunnel {
        right: outer[2],
        right_ts: vec![crate::common::ts("10.3.0.0/16")],
        ..tunnel.clone()
    };
    let (policy, sa) = (refused.policy(), refused.sa(Direction::Out));
    left.apply(Command::InstallSa(Box::new(SaSpec { policy: PolicyId(2), ..sa }))).unwrap();
    left.apply(Command::InstallPolicy(Box::new(PolicySpec { id: PolicyId(2), ..policy }))).unwrap();

    // Until the links of all three are up, and the router has said it.
    let large = tunnel.packet(1372);
    let answer = async {
        loop {
            assert!(host.send(large.clone()).await);
            if let Ok(answer) = timeout(Duration::from_millis(50), host.recv()).await {
                return answer.unwrap();
            }
        }
    };
    let answer = timeout(LONG, answer).await.unwrap_or_else(|_| panic!("no answer: {what}"));
    let (most, of_v4) = too_big(&answer);
    assert!(of_v4 && (1230..1280).contains(&most), "{most}: {what}");
    let size = |peer| {
        let peer = SocketAddr::new(peer, if encap { 4500 } else { 0 });
        left.plane().path_mtu(outer[0], peer)
    };
    assert_eq!((size(outer[1]), size(outer[2])), (Some(1320), Some(1500)), "{what}");

    // The bulk of them each after an error about somebody else.
    let counts = || (figure(far, v4, "InReceives"), figure(far, v4, "ReasmOKs"));
    let fits = tunnel.packet(usize::from(most) - 28);
    // Until the router knows its neighbor, which may take a second: what it asks counts, too.
    let idle = counts();
    let knows = async {
        while counts().0 - idle.0 < 10 {
            assert!(host.send(fits.clone()).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, knows).await.unwrap_or_else(|_| panic!("nothing arrives: {what}"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = counts();
    for _ in 0..100 {
        assert!(host.send(refused.packet(10)).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(host.send(fits.clone()).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(host.send(crate::common::fragment(large, 0, false)).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let after = counts();
    // The two fragments may be one to the devices between (UDP_SEGMENT).
    assert!(after.0 - before.0 >= 101, "{before:?} {after:?}: {what}");
    assert_eq!(after.1, before.1, "nothing was divided outside: {what}");

    // IPv6 inside: no less than 1,280 is told, and that arrives, divided outside.
    let inner = |octets: usize| {
        let ends = [&tunnel.left_ts, &tunnel.right_ts].map(|ts| ts[1].start);
        crate::common::udp(ends[0], ends[1], 1, 2, octets - 48)
    };
    assert!(host.send(inner(1300)).await);
    let answer = timeout(LONG, host.recv()).await.expect("an answer").unwrap();
    assert_eq!(too_big(&answer), (1280, false), "{what}");
    assert!(host.send(inner(1280)).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(counts().1 - after.1, 1, "{what}");
    if v4 {
        // What the kernel has heard of the path, perhaps from a stranger, does not divide what may be divided.
        run_ip("route add 198.51.100.2 via 192.0.2.9 mtu 600");
        let before = counts();
        assert!(host.send(crate::common::fragment(tunnel.packet(1172), 0, false)).await);
        let arrives = async {
            while counts().0 == before.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, arrives).await.unwrap_or_else(|_| panic!("nothing arrives: {what}"));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(counts().1, before.1, "{before:?}: {what}");
        run_ip("route del 198.51.100.2");
    }
    left.shutdown().await;
}

/// The link of this host itself is small.
///
/// Fault: in `errors::tell`, leave `LOCAL` out.
pub(crate) fn the_size_of_the_own_link_reaches_the_inner_side() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        run_ip("link set lo up mtu 1380");
        for (outer, encap) in
            [("127.0.0.1", false), ("::1", false), ("127.0.0.1", true), ("::1", true)]
        {
            let (mut left, mut host) = end();
            let outer = outer.parse().unwrap();
            let tunnel = Tunnel { left: outer, right: outer, encap, ..Tunnel::v4() };
            left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
            left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
            let answer = async {
                loop {
                    assert!(host.send(tunnel.packet(1372)).await);
                    if let Ok(answer) = timeout(Duration::from_millis(50), host.recv()).await {
                        return answer.unwrap();
                    }
                }
            };
            let answer = timeout(LONG, answer).await.unwrap_or_else(|_| panic!("{outer} {encap}"));
            let (most, _) = too_big(&answer);
            assert!((1280..1350).contains(&most), "{most}: {outer} {encap}");
            left.shutdown().await;
        }
    });
}

/// ICMP by which a stranger says that a packet from this host to the far one was too big. It has seen none: addresses and ports
/// are right, the SPI is not. The kernel makes the checksum of ICMPv6.
fn forged(v4: bool, encap: bool, octets: u16) -> Vec<u8> {
    let mut icmp = if v4 { vec![3, 4, 0, 0, 0, 0] } else { vec![2, 0, 0, 0, 0, 0] };
    icmp.extend(octets.to_be_bytes());
    let protocol = if encap { 17 } else { 50 };
    if v4 {
        icmp.extend([0x45, 0, 5, 0xdc, 0, 1, 0x40, 0, 63, protocol, 0, 0]);
        icmp.extend([192, 0, 2, 1, 198, 51, 100, 2]);
    } else {
        icmp.extend([0x60, 0, 0, 0, 5, 0xb4, protocol, 63]);
        for end in OUTER_V6 {
            icmp.extend(end.parse::<Ipv6Addr>().unwrap().octets());
        }
    }
    if encap {
        icmp.extend([0x11, 0x94, 0x11, 0x94, 5, 0xc8, 0, 0]);
    }
    icmp.extend([0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1]);
    if v4 {
        let words = icmp.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        let sum = !(sum + (sum >> 16)) as u16;
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    icmp
}

const OUTER_V6: [&str; 2] = ["2001:db8::1", "2001:db8:2::2"];

/// A stranger who sees no packet, and says a thousand times a second that they are too big: no size changes, none is
/// divided, and they arrive as before.
///
/// Fault: in `DontFragment::set`, take WANT for PROBE; or in `PlainEsp::send` and `EncapSocket::send_one`, do not send
/// again after an error.
pub(crate) fn a_stranger_who_says_too_big_slows_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_router, far) = behind_a_narrow_link();
        for v4 in [true, false] {
            for encap in [false, true] {
                stranger_slows_nothing(&far, v4, encap).await;
            }
        }
    });
}

async fn stranger_slows_nothing(far: &Host, v4: bool, encap: bool) {
    let what = format!("IPv4 {v4}, UDP {encap}");
    let (mut left, host) = end();
    let ends = if v4 { ["192.0.2.1", "198.51.100.2"] } else { OUTER_V6 };
    let ends: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
    let tunnel = Tunnel { left: ends[0], right: ends[1], encap, ..Tunnel::v4() };
    left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
    left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
    let packet = tunnel.packet(1100);
    let knows = async {
        let before = figure(far, v4, "InReceives");
        while figure(far, v4, "InReceives") - before < 10 {
            assert!(host.send(packet.clone()).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, knows).await.unwrap_or_else(|_| panic!("the way is not up: {what}"));
    tokio::time::sleep(Duration::from_millis(50)).await;

    let counts = || (figure(far, v4, "InReceives"), figure(far, v4, "ReasmOKs"));
    let before = counts();
    let (domain, protocol) = match v4 {
        true => (Domain::IPV4, Protocol::ICMPV4),
        false => (Domain::IPV6, Protocol::ICMPV6),
    };
    let stranger = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    let lies = [68, 576, 1280].map(|octets| forged(v4, encap, octets));
    let to = SocketAddr::new(ends[0], 0).into();
    for lie in lies.iter().cycle().take(500) {
        stranger.send_to(lie, &to).unwrap();
        assert!(host.send(packet.clone()).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let after = counts();
    assert!(after.0 - before.0 >= 475, "{before:?} {after:?}: {what}");
    assert_eq!(after.1, before.1, "{what}");
    let peer = SocketAddr::new(ends[1], if encap { 4500 } else { 0 });
    assert_eq!(left.plane().path_mtu(ends[0], peer), Some(1500), "{what}");
    left.shutdown().await;
}
