//! What a child's options ask of the peer and of the data plane: modes, numbers, CPUs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod codepoint;
mod iptfs;
mod numbers;
mod per_cpu;
mod per_cpu_peers;
mod reloads;
mod sha256_96;
mod tfc;
