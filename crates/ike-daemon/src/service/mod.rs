//! The daemon as a service of the system: notifications to systemd, and the privileges that it drops at the start.

pub(crate) mod activation;
pub(crate) mod notify;
pub mod sandbox;
