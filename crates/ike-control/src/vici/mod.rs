//! The VICI socket, for `swanctl` and other tools made for strongSwan. Clients list, make, delete, rekey and watch SAs.
//! They load connections, keys and secrets beside those of the configuration file.

mod alert;
mod commands;
mod convert;
mod feed;
mod list;
mod load;
mod log;
mod refusal;
mod server;
mod session;
mod show;
mod watch;

pub use server::ViciSocket;
