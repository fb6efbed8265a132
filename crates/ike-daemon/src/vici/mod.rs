//! The VICI socket, for `swanctl` and other tools made for strongSwan: SAs are listed, made, deleted, rekeyed
//! and watched by it. What is configured comes from the configuration file alone, so that its commands to
//! load and unload are not known here.

mod commands;
mod list;
mod log;
mod server;
mod session;
mod watch;

pub use server::ViciSocket;
