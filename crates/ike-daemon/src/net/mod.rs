//! UDP sockets and addresses: everything between the engine and the network but the data plane.

pub mod marker;
pub mod resolve;
pub mod socket;
