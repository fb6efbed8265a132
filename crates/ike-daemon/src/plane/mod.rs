//! The data planes the daemon can run.

use std::fmt;
use std::io;
use std::sync::Arc;

use esp::io::RouteOptions;
use esp::io::{ClearSockets, Config, DEFAULT_MARK, Device, GuardOptions, IkeDatagram, MemoryHost};
use esp::io::{PlainEsp, TunOptions, UserspacePlane};
use ike_proto::crypto::SecureRandom;
use ike_proto::dataplane::{Capabilities, DataPlane};
use tokio::sync::{Notify, mpsc};
use xfrm::Tracer;

use crate::cli::DataPlaneKind;
use crate::config::{PlaneOptions, Ports};
use crate::driver::{Listen, Sockets, WAITING};

pub(crate) mod control;
mod none;

pub use none::NoPlane;

/// A data plane as a driver needs it.
pub struct Plane {
    /// Takes the commands and yields the events.
    pub control: Box<dyn DataPlane + Send>,
    /// Rung when [`DataPlane::poll_event`] may have something.
    pub bell: Arc<Notify>,
    /// IKE that the plane received on the NAT-T sockets.
    pub ike: Option<mpsc::Receiver<IkeDatagram>>,
    /// Rung when it has lost what it works with, as its device, and cannot go on.
    pub lost: Arc<Notify>,
}

impl Plane {
    /// Wraps `control`, so that what goes through it is logged (without keys, at level debug).
    pub fn new(control: impl DataPlane + Send + 'static) -> Self {
        let control = Box::new(Tracer::new(control));
        let (bell, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        Self { control, bell, ike: None, lost }
    }

    /// What it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.control.capabilities()
    }

    /// SAs are negotiated and carry nothing.
    pub fn none() -> Self {
        Self::new(NoPlane)
    }

    /// ESP in this process over a TUN device. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    pub fn userspace(sockets: &Sockets, options: PlaneOptions) -> io::Result<Self> {
        let device = Device::tun(&TunOptions::default()).map_err(|error| explain("TUN", error))?;
        let mark = Some(DEFAULT_MARK);
        let mut plain = Vec::new();
        for ipv4 in [true, false] {
            match PlainEsp::open(ipv4, mark) {
                Ok(socket) => plain.push(Arc::new(socket)),
                // A host without IPv6.
                Err(error) if !ipv4 => tracing::debug!(%error, "no raw IPv6 socket"),
                Err(error) => return Err(explain("raw socket", error)),
            }
        }
        let clear = Some(ClearSockets::open(DEFAULT_MARK).map_err(|e| explain("raw socket", e))?);
        let routes = Some(RouteOptions::default());
        let Ports { ike, nat_t } = sockets.ports();
        let guard = Some(GuardOptions { ports: vec![ike, nat_t] });
        let parts = Parts { plain, clear, routes, guard };
        let (plane, esp) = Self::start(sockets, device, parts)?;
        esp.refuse_overlaps(!options.overlap);
        Ok(plane)
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
            clear,
            routes,
            guard,
        };
        let plane = UserspacePlane::start(config, device)?;
        let (bell, lost) = (plane.event_ready(), plane.lost());
        let esp = plane.plane().clone();
        Ok((Self { bell, ike: Some(receiver), lost, ..Self::new(plane) }, esp))
    }
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plane({:?})", self.capabilities())
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

/// How the sockets must be for a data plane of this kind.
pub fn listen(kind: DataPlaneKind) -> Listen {
    match kind {
        DataPlaneKind::Auto | DataPlaneKind::Userspace => {
            Listen { esp: true, mark: Some(DEFAULT_MARK), ..Listen::default() }
        }
        DataPlaneKind::Kernel | DataPlaneKind::None => Listen::default(),
    }
}

/// The data plane of this kind, over sockets that [`listen`] describes.
pub fn start(kind: DataPlaneKind, sockets: &Sockets, options: PlaneOptions) -> io::Result<Plane> {
    match kind {
        DataPlaneKind::None => Ok(Plane::none()),
        DataPlaneKind::Auto | DataPlaneKind::Userspace => Plane::userspace(sockets, options),
        DataPlaneKind::Kernel => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel data plane is not in this build yet: expected userspace, none or auto",
        )),
    }
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
