//! ESP over IP (protocol 50) through raw sockets.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::{Config, Device, MemoryHost, PlainEsp, UserspacePlane};
use esp::ip;
use ike_test_namespace::ip as run_ip;
use ipsec_types::dataplane::{Command, DataPlane, Direction};
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
