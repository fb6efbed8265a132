//! The daemon as a service of the system: what it tells systemd, and what it gives up at the start.

pub(crate) mod activation;
pub(crate) mod notify;
pub mod sandbox;
pub(crate) mod watchdog;
