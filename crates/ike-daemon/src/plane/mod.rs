//! The data planes the daemon can run.

use std::fmt;
use std::io;
use std::sync::Arc;

use esp::io::IkeDatagram;
use ike_proto::dataplane::{Capabilities, DataPlane};
use tokio::sync::{Notify, mpsc};
use xfrm::Tracer;
use xfrm::probe::Features;

use crate::cli::DataPlaneKind;
use crate::config::{Config, PlaneOptions};
use crate::driver::{Listen, Sockets};
use bypass::Bypass;

mod adopt;
mod bypass;
pub(crate) mod control;
mod kernel;
mod none;
mod userspace;

pub use adopt::Adopted;
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

/// Which data plane it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The kernel's XFRM, which has these.
    Kernel(Features),
    /// ESP in this process, over a TUN device.
    Userspace,
    /// None.
    None,
}

/// What becomes of the SAs and policies that an earlier run left in the system.
#[derive(Debug, Clone, Copy)]
pub enum Earlier<'a> {
    /// They are removed, and so are those of this run at its end.
    Remove,
    /// Those that this configuration has go on until their connections are up again, and so will those of
    /// this run.
    Keep(&'a Config),
}

/// The data plane that `kind` means on this system. The log says which it is, and why if that was left to
/// us; the error of one that was asked for by name says what the kernel lacks.
pub fn choose(kind: DataPlaneKind) -> io::Result<Choice> {
    match kind {
        DataPlaneKind::None => Ok(Choice::None),
        DataPlaneKind::Userspace => Ok(Choice::Userspace),
        DataPlaneKind::Kernel => match kernel::probe() {
            Ok(found) => {
                tracing::info!(%found, "data plane: the kernel");
                Ok(Choice::Kernel(found))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("kernel data plane: {error}"))),
        },
        DataPlaneKind::Auto => match kernel::probe() {
            Ok(found) => {
                tracing::info!(%found, "data plane: the kernel, for it has ESP");
                Ok(Choice::Kernel(found))
            }
            Err(error) => {
                tracing::info!(%error, "data plane: ESP in user space, for the kernel cannot");
                Ok(Choice::Userspace)
            }
        },
    }
}

/// What the data plane of `choice` can do.
///
/// # Errors
/// If the number of CPUs is not to be had.
pub fn capabilities(choice: Choice) -> io::Result<Capabilities> {
    match choice {
        Choice::Kernel(features) => kernel::capabilities(features),
        Choice::Userspace => Ok(esp::Plane::CAPABILITIES),
        Choice::None => Ok(NoPlane::CAPABILITIES),
    }
}

/// How the sockets must be for this data plane.
pub fn listen(choice: Choice, options: &PlaneOptions) -> Listen {
    let mark = Some(options.routes.mark);
    match choice {
        Choice::Kernel(_) => Listen { kernel: true, mark, ..Listen::default() },
        Choice::Userspace => Listen { esp: true, mark, ..Listen::default() },
        Choice::None => Listen::default(),
    }
}

/// The data plane, over sockets that [`listen`] describes.
pub fn start(
    choice: Choice,
    sockets: &Sockets,
    options: PlaneOptions,
    earlier: Earlier<'_>,
) -> io::Result<Plane> {
    let plane = match (choice, earlier) {
        (Choice::Kernel(features), _) => kernel::start(features, options, sockets.ports(), earlier),
        (_, Earlier::Keep(_)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "--keep-sas needs the kernel data plane: no other has SAs that outlive this process",
        )),
        (Choice::Userspace, _) => Plane::userspace(sockets, options),
        (Choice::None, _) => return Ok(Plane::none()),
    }?;
    if !options.bypass_lan {
        return Ok(plane);
    }
    let bell = Arc::clone(&plane.bell);
    let control = Box::new(Bypass::new(plane.control, bell, options.routes.table)?);
    Ok(Plane { control, ..plane })
}
