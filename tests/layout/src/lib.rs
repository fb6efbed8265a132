//! What source files say of themselves: which top-level modules of a crate import which others ([`read()`]), and which
//! requirements their comments quote ([`Quote`]).
//!
//! This crate does not depend on the crates that it reads, so its tests build in seconds. For imports it reads
//! tokens, not text: comments and strings do not count, and paths inside macro calls do. Code under `#[cfg(test)]`
//! does not count.

#![forbid(unsafe_code)]

mod circles;
mod graph;
mod quotes;
mod read;

pub use graph::{Graph, Import, ROOT};
pub use quotes::{Mistake, Quote, Text};
pub use read::{ReadError, is_test_condition, read};

#[cfg(test)]
mod tests;
