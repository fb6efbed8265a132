//! What the kernel has to know of a socket if ESP is in the kernel.

#[cfg(feature = "kernel")]
pub(super) use xfrm::socket::{bypass_policies, receive_esp};

#[cfg(not(feature = "kernel"))]
pub(super) use absent::{bypass_policies, receive_esp};

/// A build without the feature `kernel`.
#[cfg(not(feature = "kernel"))]
mod absent {
    use std::io;

    use socket2::Socket;

    pub(in crate::net) fn receive_esp(_: &Socket) -> io::Result<()> {
        Err(none())
    }

    pub(in crate::net) fn bypass_policies(_: &Socket, _: bool) -> io::Result<()> {
        Err(none())
    }

    fn none() -> io::Error {
        let why = "ike-tokio was built without the kernel's data plane (feature `kernel`)";
        io::Error::new(io::ErrorKind::Unsupported, why)
    }
}
