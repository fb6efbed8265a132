//! ESP in user space without a kernel's help: planes in memory, vectors, and devices that are queues in memory.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../xfrm/tests/common/precedence.rs"]
mod rules;

mod batches;
mod copies;
mod framing;
mod headers;
mod lifecycle;
mod looping;
mod malformed;
#[cfg(all(feature = "tun", target_os = "linux"))]
mod memory_tun;
mod planes;
mod policies;
mod precedence;
mod probes;
mod replay;
mod sizes;
mod vectors;
