//! The kernel data plane over a simulated kernel, and requests as octets. `guest` has the tests on a real kernel.
#![expect(clippy::unwrap_used, reason = "test code")]

#[path = "../common/plane.rs"]
mod common;
#[path = "../common/faults.rs"]
mod every_fault;
#[path = "../common/precedence.rs"]
mod rules;
#[path = "../common/support.rs"]
mod support;

mod as_ip_sends;
mod devices;
mod faults;
mod offload;
mod plane;
mod plane_adopts;
mod plane_clocks;
mod plane_faults;
mod plane_others;
mod precedence;
mod wrappers;
