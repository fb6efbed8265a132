//! ESP over IP (protocol 50) through raw sockets.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::{Config, Device, MemoryHost, PlainEsp, UserspacePlane};
use esp::ip;
use ike_test_namespace::{Host, ip as run_ip, run};
use ipsec_types::dataplane::{Command, DataPlane, Direction, PolicyId, PolicySpec, SaSpec};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{CIPHERS, Counting, Tunnel};

const LONG: Duration = Duration::from_secs(20);

fn end() -> (UserspacePlane, MemoryHost) {
    let config = Config {
        ciphers: &CIPHERS,
        rng: || Box::new(Counting(3)),
        encap: Vec::new(),
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

/// 2001:db8::1, and behind the router 2001:db8::9 a link with an MTU of 1320 to 2001:db8:2::2.
fn behind_a_narrow_link() -> (Host, Host) {
    let (router, far) = (Host::new(), Host::new());
    run_ip("link set lo up");
    run_ip("link add out0 type veth peer name in0");
    run_ip(&format!("link set in0 netns {}", router.id()));
    run_ip("-6 addr add 2001:db8::1/64 dev out0 nodad");
    run_ip("link set out0 up");
    far.run("ip link set lo up");
    router.run("ip -6 addr add 2001:db8::9/64 dev in0 nodad");
    router.run("ip link set in0 up");
    router.run("ip link add mid0 type veth peer name mid1");
    router.run(&format!("ip link set mid1 netns {}", far.id()));
    router.run("ip -6 addr add 2001:db8:2::9/64 dev mid0 nodad");
    router.run("ip link set mid0 up mtu 1320");
    router.run("sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.icmp.ratelimit=0");
    router.run("ip -6 route add prohibit 2001:db8:3::/64");
    far.run("ip -6 addr add 2001:db8:2::2/64 dev mid1 nodad");
    far.run("ip link set mid1 up mtu 1320");
    far.run("ip -6 route add default via 2001:db8:2::9");
    run("ip -6 route add default via 2001:db8::9");
    (router, far)
}

/// A figure of IPv6 of this host, or of `host`.
fn figure(host: Option<&Host>, name: &str) -> u64 {
    let command = "cat /proc/net/snmp6".to_owned();
    let command = host.map_or(command.clone(), |host| host.inside(&command));
    let mut words = command.split(' ');
    let output = std::process::Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

/// One packet is lost, and what follows goes in fragments. An error that ICMP reports of one peer's packet is no reason
/// to lose another one's.
///
/// Fault: in `PlainEsp::open`, leave IPV6_RECVERR out. The path's size is never known.
pub(crate) fn a_packet_too_big_of_ipv6_keeps_the_size_of_the_path() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_router, far) = behind_a_narrow_link();
        let (mut left, from) = end();
        let outer = ["2001:db8::1", "2001:db8:2::2"].map(|address| address.parse().unwrap());
        let tunnel = Tunnel { left: outer[0], right: outer[1], ..Tunnel::v4() };
        left.apply(Command::InstallSa(Box::new(tunnel.sa(Direction::Out)))).unwrap();
        left.apply(Command::InstallPolicy(Box::new(tunnel.policy()))).unwrap();
        let refused = Tunnel {
            right: "2001:db8:3::3".parse().unwrap(),
            right_ts: vec![crate::common::ts("10.3.0.0/16")],
            ..tunnel.clone()
        };
        let (policy, sa) = (refused.policy(), refused.sa(Direction::Out));
        left.apply(Command::InstallSa(Box::new(SaSpec { policy: PolicyId(2), ..sa }))).unwrap();
        left.apply(Command::InstallPolicy(Box::new(PolicySpec { id: PolicyId(2), ..policy })))
            .unwrap();
        let route = || run_ip("-6 route get 2001:db8:2::2");
        // Until the links of all three are up.
        for _ in 0..200 {
            assert!(from.send(tunnel.packet(1360)).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
            if figure(Some(&far), "Ip6ReasmOKs") > 0 {
                break;
            }
        }
        assert!(route().contains("mtu 1320"), "{}", route());
        let before = figure(Some(&far), "Ip6ReasmOKs");
        let sent = figure(None, "Ip6FragOKs");
        for _ in 0..200 {
            assert!(from.send(refused.packet(10)).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(from.send(tunnel.packet(1360)).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(figure(None, "Ip6FragOKs") - sent, 200);
        assert_eq!(figure(Some(&far), "Ip6ReasmOKs") - before, 200);
    });
}
