//! The VICI socket, for `swanctl` and other tools made for strongSwan: SAs are listed, made, deleted, rekeyed
//! and watched by it, and connections, keys and secrets are loaded beside those of the configuration file.

mod alert;
mod commands;
mod convert;
mod feed;
mod list;
mod load;
mod log;
mod server;
mod session;
mod show;
mod watch;

pub use server::ViciSocket;
