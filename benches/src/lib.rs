//! Benchmarks of every key exchange and signature backend of the workspace.
//!
//! The program `ike-bench` prints one table and writes it as CSV and SVG; see `README.md` for its use.
//! `cargo bench` runs the same operations under criterion, to compare two builds.

pub mod counter;
pub mod operations;
pub mod rates;
pub mod report;
pub mod sample;
pub mod svg;
