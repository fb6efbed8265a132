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
use std::sync::Arc;

/// Tests count what is allocated.
#[cfg(test)]
#[global_allocator]
static HEAP: ike_tests::heap::Counting = ike_tests::heap::Counting;

use clap::Parser;
use ike_proto::crypto::CryptoProvider;

/// The whole program: reads the command line, does what it says, and returns the exit status.
pub fn main() -> ExitCode {
    main_with(pq_kem::provider())
}

/// As [`main`], with the algorithms of `provider`: a program that brings key exchanges and signature schemes adds them to
/// those of [`pq_kem::provider`]. The processes that the program starts are the program itself, so that they have them, too.
pub fn main_with(provider: CryptoProvider) -> ExitCode {
    let cli = cli::Cli::parse();
    ExitCode::from(commands::run(cli, &Arc::new(provider)) as u8)
}
