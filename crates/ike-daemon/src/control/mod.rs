//! The control socket: JSON lines over a unix socket of mode 0600.

pub mod client;
pub mod leases;
pub mod protocol;
pub mod sas;
pub mod server;
mod text;

pub use text::render;
pub(crate) use text::suite;
