//! The control socket: JSON lines over a unix socket of mode 0600.

pub mod client;
pub mod protocol;
mod server;

pub use server::ControlSocket;
