//! The kernel data plane over a real kernel: every request of a child's life fails in turn, and packets go
//! where they should.
#![expect(clippy::unwrap_used, reason = "test code")]
#![cfg(target_os = "linux")]

use xfrm::event::Events;
use xfrm::kernel::Kernel;
use xfrm::netlink::Socket;

#[path = "common/plane.rs"]
mod common;
#[path = "common/faults.rs"]
mod faults;
mod support;

/// The kernel, emptied each time.
struct Real;

impl faults::Rig for Real {
    type T = Socket;
    type S = Events;

    fn fresh(&mut self) -> (Socket, Events, Socket, Socket) {
        let mut kernel = Kernel::open().unwrap();
        kernel.flush_policies().unwrap();
        kernel.flush_states().unwrap();
        let socket = || Socket::open().unwrap();
        (socket(), Events::open().unwrap(), socket(), socket())
    }
}

#[test]
fn no_half_installed_sa_no_leak_no_plaintext() {
    if support::kernel_with_esp().is_none() {
        return;
    }
    let runs: usize = faults::ALL.map(|scenario| faults::run(&mut Real, scenario)).iter().sum();
    println!("{runs} runs");
}
