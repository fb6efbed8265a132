//! The data plane of a driver.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use esp::io::IkeDatagram;
use ike_proto::dataplane::{Capabilities, DataPlane, TrafficSelector};
use tokio::sync::{Notify, mpsc};

mod control;
mod none;
mod shunts;
mod userspace;

pub use control::PlaneHandle;
pub(crate) use control::{AT_A_TIME, Busy, Control};
pub use none::NoPlane;
pub(crate) use shunts::Shunts;
pub use shunts::ShuntsAlone;
pub use userspace::UserspaceOptions;

/// A data plane, with the signals between it and the drivers.
pub struct Plane {
    /// Takes the commands and yields the events.
    pub control: Box<dyn DataPlane + Send>,
    /// Notified when [`DataPlane::poll_event`] may return an event.
    pub bell: Arc<Notify>,
    /// IKE datagrams that the data plane received on the NAT-T sockets.
    pub ike: Option<mpsc::Receiver<IkeDatagram>>,
    /// Notified when the data plane cannot go on, because it has lost its device or another resource.
    pub lost: Arc<Notify>,
    /// False if no call of `control` blocks. Then the drivers call it directly; otherwise it has a thread of its own.
    pub waits: bool,
    /// True if the data plane carries the traffic of this host. The program may then have to install virtual IPs and
    /// name servers. The drivers do not use this field.
    pub host: bool,
    /// Children that an earlier run left in the data plane, and that go on.
    pub adopted: Vec<Adopted>,
    /// Traffic of this host, and of hosts behind it, that an earlier run blocked and that is blocked still: from the
    /// first selector to the second one. A child that covers it keeps it blocked until the child is up.
    pub blocked: Vec<(TrafficSelector, TrafficSelector)>,
    /// True if the end leaves what blocks traffic in place, until another run protects it. False if the end removes
    /// everything.
    pub keep_blocks: bool,
}

impl Plane {
    /// A data plane of the program's own. With the feature `kernel` its commands are logged at level debug, without keys.
    /// A data plane with events keeps a clone of [`Self::bell`], and notifies it.
    pub fn new(control: impl DataPlane + Send + 'static) -> Self {
        #[cfg(feature = "kernel")]
        let control = xfrm::Tracer::new(control);
        Self::of(Box::new(control))
    }

    /// As [`Self::new`], and its commands are not logged.
    pub fn of(control: Box<dyn DataPlane + Send>) -> Self {
        let (bell, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (adopted, blocked) = (Vec::new(), Vec::new());
        let (waits, host, keep_blocks) = (true, false, false);
        Self { control, bell, ike: None, lost, waits, host, adopted, blocked, keep_blocks }
    }

    /// The capabilities of the data plane.
    pub fn capabilities(&self) -> Capabilities {
        self.control.capabilities()
    }

    /// No data plane: SAs are negotiated, and carry no traffic.
    pub fn none() -> Self {
        Self { waits: false, ..Self::new(NoPlane) }
    }
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plane({:?})", self.capabilities())
    }
}

/// A child whose SAs and policies an earlier run left in the data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// Connection.
    pub connection: String,
    /// Child.
    pub child: String,
    /// This end.
    pub local: IpAddr,
    /// The peer's end.
    pub remote: IpAddr,
}
