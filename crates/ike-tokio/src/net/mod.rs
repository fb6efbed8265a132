//! Sockets and addresses: the part of the system's network that a driver needs.

mod ancillary;
mod dns;
pub mod files;
mod kernel;
pub(crate) mod marker;
pub(crate) mod outside;
pub mod path_mtu;
pub mod resolver;
pub mod socket;
pub mod source;
mod steering;
#[cfg(feature = "tcp")]
pub(crate) mod stream;
