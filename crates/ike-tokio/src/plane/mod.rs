//! The data plane of a driver.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use esp::io::IkeDatagram;
use ike_proto::dataplane::{Capabilities, DataPlane};
use tokio::sync::{Notify, mpsc};
use xfrm::Tracer;

mod control;
mod none;
mod shunts;
mod userspace;

pub use control::PlaneHandle;
pub(crate) use control::{AT_A_TIME, Control};
pub use none::NoPlane;
pub(crate) use shunts::Shunts;
pub use userspace::UserspaceOptions;

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
    /// False if it never waits for anything: drivers use it without a thread between.
    pub waits: bool,
    /// True if it carries the traffic of this host, whose addresses and name servers may have to change.
    pub host: bool,
    /// Children that go on as an earlier run left them.
    pub adopted: Vec<Adopted>,
}

impl Plane {
    /// Wraps `control`, so that what goes through it is logged (without keys, at level debug).
    pub fn new(control: impl DataPlane + Send + 'static) -> Self {
        let control = Box::new(Tracer::new(control));
        let (bell, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        Self { control, bell, ike: None, lost, waits: true, host: false, adopted: Vec::new() }
    }

    /// What it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.control.capabilities()
    }

    /// SAs are negotiated and carry nothing.
    pub fn none() -> Self {
        Self { waits: false, ..Self::new(NoPlane) }
    }
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plane({:?})", self.capabilities())
    }
}

/// A child that goes on as an earlier run left it.
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
