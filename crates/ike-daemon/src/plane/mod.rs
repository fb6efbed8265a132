//! The data planes the daemon can run.

use std::io;
use std::sync::Arc;

use ike_proto::dataplane::Capabilities;
use ike_tokio::{Crypto, Listen, NoPlane, Plane, Sockets, UserspaceOptions};
use xfrm::probe::Features;

use crate::config::{Config, PlaneOptions};
use bypass::Bypass;
pub(crate) use bypass::{is_all, is_not_global, is_on_the_link};

mod adopt;
mod bypass;
mod instance_lock;
mod kernel;
mod kind;
mod reverse_path;
mod second_line;

pub use kind::DataPlaneKind;
pub use reverse_path::reverse_path;

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
        Choice::Userspace => Ok(Plane::USERSPACE),
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

/// What a removal has come to.
#[derive(Debug, Default)]
pub struct Removal {
    /// How many things are gone.
    pub removed: usize,
    /// Why others stay.
    pub errors: Vec<io::Error>,
}

impl Removal {
    /// Takes note of a part of it. One part fails, and the others are removed all the same.
    fn note(&mut self, part: io::Result<usize>) {
        match part {
            Ok(removed) => self.removed += removed,
            // Ten thousand policies have one reason.
            Err(error) => {
                let again = |last: &io::Error| last.to_string() == error.to_string();
                if !self.errors.last().is_some_and(again) {
                    self.errors.push(error);
                }
            }
        }
    }
}

/// Removes what earlier runs have left on the host, whatever their data planes were.
///
/// # Errors
/// Another daemon has the kernel's data plane: nothing is removed.
pub fn remove_all() -> io::Result<Removal> {
    let mut removal = Removal::default();
    kernel::remove_all(&mut removal)?;
    removal.note(routes::remove_all());
    Ok(removal)
}

/// How many things earlier runs have left on the host.
///
/// # Errors
/// The kernel does not tell.
pub fn count_left() -> io::Result<usize> {
    Ok(kernel::count_left()? + routes::count_left()?)
}

/// The data plane, over sockets that [`listen`] describes.
pub fn start(
    choice: Choice,
    sockets: &Sockets,
    crypto: &Crypto,
    options: PlaneOptions,
    earlier: Earlier<'_>,
) -> io::Result<Plane> {
    let plane = match (choice, earlier) {
        (Choice::Kernel(features), _) => kernel::start(features, options, sockets.ports(), earlier),
        (_, Earlier::Keep(_)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "--keep-sas needs the kernel data plane: no other has SAs that outlive this process",
        )),
        (Choice::Userspace, _) => {
            let options = UserspaceOptions {
                mark: options.routes.mark,
                routes: options.install_routes.then_some(options.routes),
                overlap: options.overlap,
                icmp_too_big: options.icmp_too_big,
                queues: options.tun_queues.into(),
            };
            let plane = Plane::userspace(sockets, crypto, options)?;
            kernel::make_way()?;
            Ok(plane)
        }
        (Choice::None, _) => return Ok(Plane::none()),
    }?;
    if !options.bypass_lan {
        return Ok(plane);
    }
    let bell = Arc::clone(&plane.bell);
    let control = Box::new(Bypass::new(plane.control, bell, options.routes.table)?);
    Ok(Plane { control, ..plane })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `Removal::note`, forget what was removed before an error, or an error after another one.
    #[test]
    fn a_removal_goes_on_after_an_error_and_tells_all() {
        let mut removal = Removal::default();
        let refused = |what: &str| Err(io::Error::other(what.to_owned()));
        for part in
            [Ok(2), refused("the table"), refused("the table"), Ok(3), refused("the routes")]
        {
            removal.note(part);
        }
        assert_eq!(removal.removed, 5);
        let told: Vec<_> = removal.errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["the table", "the routes"]);
    }
}
