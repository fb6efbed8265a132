//! ESP in this process.

use std::io;
use std::sync::Arc;

use esp::io::{ClearSockets, Config, Device, GuardOptions, MemoryHost, PlainEsp, RouteOptions};
use esp::io::{TcpPorts, TunOptions, UserspacePlane};
use ike_proto::crypto::SecureRandom;
use tokio::sync::mpsc;

use super::{Plane, route_options};
use crate::config::PlaneOptions;
use crate::driver::{Sockets, WAITING};
use crate::net::Ports;

impl Plane {
    /// ESP in this process over a TUN device. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    pub fn userspace(sockets: &Sockets, options: PlaneOptions) -> io::Result<Self> {
        let tun = TunOptions { queues: options.tun_queues.into(), ..TunOptions::default() };
        let device = Device::tun(&tun).map_err(|error| explain("TUN", error))?;
        let mark = Some(options.routes.mark);
        let mut plain = Vec::new();
        for ipv4 in [true, false] {
            match PlainEsp::open(ipv4, mark) {
                Ok(socket) => plain.push(Arc::new(socket)),
                // A host without IPv6.
                Err(error) if !ipv4 => tracing::debug!(%error, "no raw IPv6 socket"),
                Err(error) => return Err(explain("raw socket", error)),
            }
        }
        let clear =
            Some(ClearSockets::open(options.routes.mark).map_err(|e| explain("raw socket", e))?);
        let routes = options.install_routes.then_some(route_options(&options));
        let Ports { ike, nat_t } = sockets.ports();
        let local = sockets.tcp_port().into_iter().collect();
        let tcp = TcpPorts { local, remote: sockets.tcp_remote().to_vec() };
        let guard = Some(GuardOptions { ports: vec![ike, nat_t], tcp });
        let parts = Parts { plain, clear, routes, guard };
        let (plane, esp) = Self::start(sockets, device, parts)?;
        esp.refuse_overlaps(!options.overlap);
        Ok(Self { host: true, ..plane })
    }

    /// ESP in this process over a device in memory: needs no privileges. The host is its far side, and
    /// the [`esp::Plane`] has its counters.
    pub fn memory(
        sockets: &Sockets,
        capacity: usize,
    ) -> io::Result<(Self, MemoryHost, esp::Plane)> {
        let (device, host) = Device::memory(capacity);
        let (plane, esp) = Self::start(sockets, device, Parts::default())?;
        Ok((plane, host, esp))
    }

    fn start(sockets: &Sockets, device: Device, parts: Parts) -> io::Result<(Self, esp::Plane)> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let Parts { plain, clear, routes, guard } = parts;
        let config = Config {
            ciphers: pq_kem::provider().ciphers,
            rng: random,
            encap: sockets.encapsulated(),
            ike: sender,
            plain,
            streams: Some(Arc::new(sockets.streams().clone())),
            clear,
            routes,
            guard,
        };
        let plane = UserspacePlane::start(config, device)?;
        sockets.streams().feed(plane.feed());
        let (bell, lost) = (plane.event_ready(), plane.lost());
        let esp = plane.plane().clone();
        Ok((Self { bell, ike: Some(receiver), lost, ..Self::new(plane) }, esp))
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

fn random() -> Box<dyn SecureRandom> {
    Box::new(pq_kem::os_random())
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
