//! The kernel library and the data plane over a real kernel. `tests/lab/kernel-tests.sh` runs these on the lab's
//! kernels.
#![expect(clippy::unwrap_used, reason = "test code")]
#![cfg(target_os = "linux")]

#[path = "../common/plane.rs"]
mod common;
#[path = "../common/faults.rs"]
mod every_fault;
#[path = "../common/support.rs"]
mod support;

mod clock;
mod events;
mod kernel;
mod nsim;
mod offload;
mod plane;
mod policies;
mod priorities;
mod speed;
mod states;
