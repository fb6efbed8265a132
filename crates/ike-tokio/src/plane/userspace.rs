//! ESP in this process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use esp::io::{ClearSockets, Config, Device, GuardOptions, MemoryHost, PlainEsp, RouteOptions};
use esp::io::{TcpPorts, TunOptions, UserspacePlane};
use ike_proto::dataplane::{Capabilities, TrafficSelector};
use tokio::sync::mpsc;

use super::Plane;
use crate::crypto::Crypto;
use crate::shards::WAITING;
use crate::sockets::Sockets;
use ike_proto::config::Ports;

/// Options of ESP in this process.
#[derive(Debug, Clone)]
pub struct UserspaceOptions {
    /// Mark of all packets that the data plane sends. [`RouteOptions::mark`] and [`Listen::mark`](crate::Listen::mark)
    /// must be the same, or the routes lead these packets into the device again.
    pub mark: u32,
    /// Routes that lead traffic into the device; `None` if the program installs routes itself.
    pub routes: Option<RouteOptions>,
    /// Whether two peers may have children whose traffic selectors overlap. If not, the later child is refused.
    pub overlap: bool,
    /// Whether ICMP messages that sent packets were too big are believed ([`esp::Plane::believe_icmp`]).
    pub icmp_too_big: bool,
    /// Queues of the TUN device, each with a worker.
    pub queues: u16,
}

impl Default for UserspaceOptions {
    fn default() -> Self {
        let routes = RouteOptions::default();
        Self {
            mark: routes.mark,
            routes: Some(routes),
            overlap: true,
            icmp_too_big: true,
            queues: 1,
        }
    }
}

impl Plane {
    /// The abilities of ESP in this process.
    pub const USERSPACE: Capabilities = esp::Plane::CAPABILITIES;

    /// ESP in this process over a TUN device, with the ciphers of `crypto`. Needs CAP_NET_ADMIN and CAP_NET_RAW. The
    /// sockets are made with [`Listen::esp`](crate::Listen::esp) and the mark of `options`.
    ///
    /// # Errors
    /// The system refuses the device or a raw socket.
    pub fn userspace(
        sockets: &Sockets,
        crypto: &Crypto,
        options: UserspaceOptions,
    ) -> io::Result<Self> {
        let UserspaceOptions { mark, routes, overlap, icmp_too_big, queues } = options;
        let tun = TunOptions { queues: queues.into(), ..TunOptions::default() };
        let device = Device::tun(&tun).map_err(|error| explain("TUN", error))?;
        let mut plain = Vec::new();
        for ipv4 in [true, false] {
            match PlainEsp::open(ipv4, Some(mark)) {
                Ok(socket) => plain.push(Arc::new(socket)),
                // A host without IPv6.
                Err(error) if !ipv4 => tracing::debug!(%error, "no raw IPv6 socket"),
                Err(error) => return Err(explain("raw socket", error)),
            }
        }
        let clear = Some(ClearSockets::open(mark).map_err(|error| explain("raw socket", error))?);
        let Ports { ike, nat_t } = sockets.ports();
        let local = sockets.tcp_port().into_iter().collect();
        let tcp = TcpPorts { local, remote: sockets.tcp_remote().to_vec() };
        // Without routes of the daemon's, other devices may lead to the peer, or a tunnel may be chosen by hand.
        let leaving = routes.map(|routes| routes.mark);
        let guard = Some(GuardOptions { ports: vec![ike, nat_t], tcp, mark: leaving });
        let parts = Parts { plain, clear, routes, guard };
        let (plane, esp) = Self::start(sockets, crypto, device, parts)?;
        esp.refuse_overlaps(!overlap);
        esp.believe_icmp(icmp_too_big);
        Ok(Self { host: true, ..plane })
    }

    /// ESP in this process over a device in memory with room for `capacity` packets each way: needs no privileges. The
    /// host is the device's far side, and the [`esp::Plane`] has the counters.
    ///
    /// # Errors
    /// The sockets are those of another runtime.
    pub fn memory(
        sockets: &Sockets,
        crypto: &Crypto,
        capacity: usize,
    ) -> io::Result<(Self, MemoryHost, esp::Plane)> {
        let (device, host) = Device::memory(capacity);
        let (plane, esp) = Self::start(sockets, crypto, device, Parts::default())?;
        Ok((plane, host, esp))
    }

    fn start(
        sockets: &Sockets,
        crypto: &Crypto,
        device: Device,
        parts: Parts,
    ) -> io::Result<(Self, esp::Plane)> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let Parts { plain, clear, routes, guard } = parts;
        let config = Config {
            ciphers: crypto.provider.ciphers,
            rng: crypto.random,
            encap: sockets.encapsulated(),
            ike: sender,
            plain,
            streams: sockets.streams().for_esp(),
            clear,
            routes,
            guard,
        };
        let plane = UserspacePlane::start(config, device)?;
        sockets.streams().feed(plane.feed());
        let (bell, lost) = (plane.event_ready(), plane.lost());
        let esp = plane.plane().clone();
        // The engine sends the probes.
        esp.enable_probes();
        // Routes do not know sources.
        let blocked = plane.blocked().into_iter().map(|to| (any_like(to), to)).collect();
        Ok((Self { bell, ike: Some(receiver), lost, blocked, ..Self::new(plane) }, esp))
    }
}

/// What only a plane with privileges has.
#[derive(Default)]
struct Parts {
    plain: Vec<Arc<PlainEsp>>,
    clear: Option<ClearSockets>,
    routes: Option<RouteOptions>,
    guard: Option<GuardOptions>,
}

/// All addresses of the family of `ts`.
fn any_like(ts: TrafficSelector) -> TrafficSelector {
    let (start, end): (IpAddr, IpAddr) = match ts.start {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into()),
    };
    TrafficSelector { protocol: 0, start_port: 0, end_port: u16::MAX, start, end }
}

fn explain(what: &str, error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (the userspace data plane needs root, or CAP_NET_ADMIN and CAP_NET_RAW)"
        }
        io::ErrorKind::NotFound => " (is there a /dev/net/tun?)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what}: {error}{hint}"))
}
