//! Benchmarks: every key exchange and signature backend of the workspace, and whole handshakes over bad
//! links, simulated ([`links`]) and real ([`hosts`]).
//!
//! The program `ike-bench` prints one table and writes it as CSV and SVG; see `README.md` for its use.
//! `cargo bench` runs the operations of the backends under criterion, to compare two builds.

pub mod counter;
pub mod esp;
pub mod handshake;
pub mod hosts;
pub mod links;
pub mod load;
pub mod memory;
pub mod operations;
pub mod rates;
pub mod report;
pub mod sample;
pub mod soak;
pub mod svg;
