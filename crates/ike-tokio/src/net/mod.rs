//! Sockets and addresses: the part of the system's network that a driver needs.

mod ancillary;
mod ask;
pub mod files;
mod kernel;
pub(crate) mod marker;
pub mod path_mtu;
pub(crate) mod round;
pub mod socket;
pub(crate) mod source;
mod steering;
#[cfg(feature = "tcp")]
pub(crate) mod stream;
