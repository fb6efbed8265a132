//! Two daemons in this process, on loopback sockets with ports the system chose.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esp::io::MemoryHost;
use ike_control::views::IkeSa;
use ike_daemon::config::{self, Config, Ports};
use ike_daemon::daemon::{Daemon, Parts, open, os_crypto};
use ike_tokio::{Listen, Plane, Sockets};

/// The shared key of all tests.
pub const PSK: &str = "0x5e17a3c0ffee42421234567890abcdefdeadbeefcafef00d0123456789abcdef";

/// The ports that a daemon asks the system to choose.
pub const ANY: Ports = Ports { ike: 0, nat_t: 0 };

/// Two daemons and what lies behind them.
pub struct Pair {
    pub left: Daemon,
    pub right: Daemon,
    /// The hosts behind them, if the data plane is the userspace one.
    pub hosts: Option<(MemoryHost, MemoryHost)>,
}

/// Which data plane the daemons have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    None,
    Memory,
}

impl Pair {
    /// Starts both. `options` go into the child, `charon` into the daemons' globals.
    pub async fn start(carrier: Carrier, charon: &str, options: &str) -> Self {
        Self::start_with(carrier, charon, options, None, "right.example.org").await
    }

    /// As [`Pair::start`], with other data planes if given and another identity of the right one.
    pub async fn start_with(
        carrier: Carrier,
        charon: &str,
        options: &str,
        planes: Option<&dyn Fn() -> Plane>,
        right_id: &str,
    ) -> Self {
        let ids = ["left.example.org", right_id];
        let listen = Listen {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            lenient: false,
            esp: carrier == Carrier::Memory,
            kernel: false,
            mark: None,
            tcp: None,
            tcp_remote: Vec::new(),
            shards: configuration("left", ids, 1, charon, options).shards,
        };
        let mut hosts = Vec::new();
        let mut plane = |sockets: &Sockets| match carrier {
            Carrier::None => Ok(planes.map_or_else(Plane::none, |planes| planes())),
            Carrier::Memory => {
                let (plane, host, _) = Plane::memory(sockets, &os_crypto(pq_kem::provider()), 256)?;
                hosts.push(host);
                Ok(plane)
            }
        };
        let (left, left_plane) = open(&listen, ANY, &mut plane).expect("sockets");
        let (right, right_plane) = open(&listen, ANY, &mut plane).expect("sockets");
        let (left_port, right_port) = (left.ports().nat_t, right.ports().nat_t);
        let config = configuration("left", ids, right_port, charon, options);
        let left = start(config, left, left_plane).await;
        let config = configuration("right", ids, left_port, charon, options);
        let right = start(config, right, right_plane).await;
        let hosts = match (hosts.pop(), hosts.pop()) {
            (Some(right), Some(left)) => Some((left, right)),
            _ => None,
        };
        Self { left, right, hosts }
    }
}

impl Pair {
    /// Starts both without a data plane, with what `configure` makes of the side's name, its own ports
    /// being 0, and its peer's port.
    pub async fn configured(configure: impl Fn(&str, u16) -> Config) -> Self {
        let listen = listen(Ipv4Addr::LOCALHOST);
        let none = |_: &Sockets| Ok(Plane::none());
        let (left, left_plane) = open(&listen, ANY, none).expect("sockets");
        let (right, right_plane) = open(&listen, ANY, none).expect("sockets");
        let (left_port, right_port) = (left.ports().nat_t, right.ports().nat_t);
        let left = start(configure("left", right_port), left, left_plane).await;
        let right = start(configure("right", left_port), right, right_plane).await;
        Self { left, right, hosts: None }
    }
}

/// Sockets of one address for IKE alone.
pub fn listen(address: impl Into<Ipv4Addr>) -> Listen {
    Listen {
        addresses: vec![IpAddr::V4(address.into())],
        lenient: false,
        esp: false,
        kernel: false,
        mark: None,
        tcp: None,
        tcp_remote: Vec::new(),
        shards: 1,
    }
}

pub async fn start(config: Config, sockets: Sockets, plane: Plane) -> Daemon {
    let crypto = os_crypto(pq_kem::provider());
    Daemon::start(Parts { config, sockets, plane, crypto, tap: None }).await
}

/// The configuration of one side; `ids` are the left and the right one's.
pub fn configuration(side: &str, ids: [&str; 2], port: u16, charon: &str, options: &str) -> Config {
    let [left, right] = [(ids[0], "10.1.0.0/16"), (ids[1], "10.2.0.0/16")];
    let ((us, local), (them, remote)) = if side == "left" { (left, right) } else { (right, left) };
    let text = format!(
        "[charon]
        port = 0
        port_nat_t = 0
        retransmit_timeout = 0.5
        retransmit_tries = 2
        {charon}
        [connections.site]
        local_addrs = '127.0.0.1'
        remote_addrs = '127.0.0.1'
        remote_port = {port}
        proposals = 'aes256gcm16-prfsha256-x25519'
        [connections.site.local]
        auth = 'psk'
        id = '{us}'
        [connections.site.remote]
        auth = 'psk'
        id = '{them}'
        [connections.site.children.net]
        local_ts = '{local}'
        remote_ts = '{remote}'
        esp_proposals = 'aes256gcm16-x25519'
        {options}
        [secrets.ike]
        id = ['{us}', '{them}']
        secret = '{PSK}'
        "
    );
    config::parse(&text, Path::new("")).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// The SAs of a daemon as `list` shows them.
pub async fn list(daemon: &Daemon) -> Vec<IkeSa> {
    let views = daemon.operator().list().await.expect("a running daemon");
    views.iter().map(IkeSa::new).collect()
}

/// Waits until `done` says so about the SAs of `daemon`.
pub async fn until(daemon: &Daemon, what: &str, done: impl Fn(&[IkeSa]) -> bool) -> Vec<IkeSa> {
    for _ in 0..200 {
        let sas = list(daemon).await;
        if done(&sas) {
            return sas;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: {:#?}", list(daemon).await);
}

/// An IPv4 packet with a UDP datagram and no checksums but the header's.
pub fn packet(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(28 + payload.len()).expect("a small payload");
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(from);
    packet.extend(to);
    let sum: u32 = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded");
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(4000_u16.to_be_bytes());
    packet.extend(4001_u16.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A folder of this test's own, emptied first.
pub fn tempdir(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ike-daemon-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}
