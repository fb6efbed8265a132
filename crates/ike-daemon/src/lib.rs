//! An IKEv2 daemon around [`ike_proto`]: sockets, configuration, control socket and data planes.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cli;
mod commands;
pub mod config;
pub mod daemon;
#[cfg(feature = "demo")]
pub mod demo;
pub mod exit;
mod files;
pub mod log;
#[cfg(feature = "man")]
pub mod man;
mod names;
mod offload;
pub mod parts;
pub mod pki;
pub mod plane;
mod qcd;
mod roam;
pub mod service;
pub mod signer;
pub mod system;
mod void_tickets;

use std::process::ExitCode;

/// Tests count what is allocated.
#[cfg(test)]
#[global_allocator]
static HEAP: ike_tests::heap::Counting = ike_tests::heap::Counting;

use clap::Parser;

/// The whole program: reads the command line, does what it says, and returns the exit status.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    ExitCode::from(commands::run(cli) as u8)
}
