//! What leaves in clear by another device, because the rule or the routes of the data plane are not obeyed.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ike_test_namespace::ip;
use ipsec_types::dataplane::PolicyAction;
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tun_rs::{AsyncDevice, DeviceBuilder};

use crate::common::{addr, udp};
use crate::device::{Host, inside, send, socket, with_checksum};

const SHORT: Duration = Duration::from_millis(200);

/// The source address of a UDP packet to the port 7 that leaves by `device`, as it leaves.
pub(crate) async fn leaves(device: &AsyncDevice) -> Option<String> {
    let mut buffer = [0; 2000];
    loop {
        let Ok(received) = timeout(SHORT, device.recv(&mut buffer)).await else { return None };
        received.unwrap();
        let (protocol, port, source) = match buffer[0] >> 4 {
            4 => (
                buffer[9],
                &buffer[22..24],
                std::net::IpAddr::from(<[u8; 4]>::try_from(&buffer[12..16]).unwrap()),
            ),
            _ => (
                buffer[6],
                &buffer[42..44],
                std::net::IpAddr::from(<[u8; 16]>::try_from(&buffer[8..24]).unwrap()),
            ),
        };
        if (protocol, port) == (17, &[0, 7][..]) {
            return Some(source.to_string());
        }
    }
}

/// True if what `from` sends to `to` leaves in clear.
async fn in_clear(host: &Host, from: &UdpSocket, to: &str) -> bool {
    // What the kernel drops there may be an error of the sender, too.
    _ = send(from, to).await;
    leaves(&host.outside).await.is_some()
}

/// A rule that comes before ours, as another VPN program makes one.
fn others_take_over() {
    ip("rule add lookup main pref 100");
    ip("-6 rule add lookup main pref 100");
}

/// With the routes out of force, what is protected does not leave, and all else does.
///
/// Fault: in `rules::write`, make no chain `after-snat` and none `before-snat`.
pub(crate) fn what_is_protected_leaves_by_the_device_or_not_at_all() {
    inside(async {
        let mut host = Host::new();
        others_take_over();
        let (four, six) = (socket("10.1.0.1:4000").await, socket("[fd01::1]:4000").await);
        let (outer, other) = (socket("192.0.2.1:4000").await, socket("10.1.0.1:80").await);
        assert!(in_clear(&host, &four, "10.2.0.1").await, "without a policy");
        host.install(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
        host.install(2, "fd01::/64", "fd02::/64", PolicyAction::Trap);
        assert!(!in_clear(&host, &four, "10.2.0.1").await);
        assert!(!in_clear(&host, &six, "fd02::1").await);
        assert!(!in_clear(&host, &four, "10.2.255.255").await, "to the last address");
        assert!(in_clear(&host, &four, "10.3.0.0").await, "and no further");
        assert!(in_clear(&host, &six, "fd02:0:0:1::1").await);
        assert!(in_clear(&host, &outer, "10.2.0.1").await, "no local selector covers it");
        // The daemon's own.
        let marked = socket("10.1.0.1:4500").await;
        socket2::SockRef::from(&marked).set_mark(220).unwrap();
        assert!(in_clear(&host, &marked, "10.2.0.1").await);
        // A narrower exemption, and a policy for a port.
        host.install(3, "10.1.0.1/32", "10.2.9.0/24", PolicyAction::Pass);
        assert!(in_clear(&host, &four, "10.2.9.1").await);
        host.install(4, "10.1.0.0/16[udp/80]", "10.5.0.0/16[udp]", PolicyAction::Drop);
        assert!(in_clear(&host, &four, "10.5.0.1").await);
        assert!(!in_clear(&host, &other, "10.5.0.1").await);
        host.install(5, "10.1.0.0/16", "10.6.0.0/16", PolicyAction::Shunt { silent: true });
        assert!(!in_clear(&host, &four, "10.6.0.1").await, "of a child that is down");
        host.remove(3);
        assert!(!in_clear(&host, &four, "10.2.9.1").await);
        host.remove(1);
        assert!(in_clear(&host, &four, "10.2.0.1").await);
        assert!(!in_clear(&host, &six, "fd02::1").await, "the other stays");
        assert!(!in_clear(&host, &other, "10.5.0.1").await);
    });
}

/// The source address is translated before the packet leaves, or into a protected one.
///
/// Fault: in `rules::write`, make no chain `before-snat`; or no chain `after-snat`.
pub(crate) fn what_is_protected_does_not_leave_with_a_translated_address() {
    inside(async {
        let mut host = Host::new();
        others_take_over();
        let lan =
            DeviceBuilder::new().name("lan0").ipv4("10.1.2.1", 24, None).build_async().unwrap();
        let guests =
            DeviceBuilder::new().name("lan1").ipv4("10.7.2.1", 24, None).build_async().unwrap();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        nft(TRANSLATION);
        host.install(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap);
        let forward = async |from: &AsyncDevice, source: &str, port: u16, to: &str| {
            let packet = with_checksum(udp(addr(source), addr(to), port, 7, 30));
            from.send(&packet).await.unwrap();
            leaves(&host.outside).await
        };
        let as_host = Some("192.0.2.1".to_owned());
        assert_eq!(forward(&lan, "10.1.2.9", 1000, "10.3.0.1").await, as_host, "it is translated");
        assert_eq!(
            forward(&lan, "10.1.2.9", 1001, "10.2.0.1").await,
            None,
            "protected, and translated after that"
        );
        assert_eq!(
            forward(&guests, "10.7.2.9", 1002, "10.2.0.1").await,
            None,
            "translated into what is protected"
        );
        assert!(forward(&guests, "10.7.2.9", 1003, "10.3.0.1").await.is_some());
    });
}

/// Of the LAN, behind the address outside; and of guests, behind an address that is protected.
const TRANSLATION: &str = "
table ip site {
  chain nat {
    type nat hook postrouting priority srcnat
    ip saddr 10.1.2.0/24 oif out0 masquerade
    ip saddr 10.7.2.0/24 ip daddr 10.2.0.0/16 snat to 10.1.0.1
  }
}
";

pub(crate) fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
}
