//! Sockets and addresses: everything between the engine and the network but the data plane.

mod ancillary;
pub mod files;
pub mod local;
pub mod marker;
pub mod path_mtu;
pub mod places;
mod ports;
pub mod socket;
pub mod source;
pub mod steering;
pub mod stream;

pub use ports::Ports;
