//! Every request of a child's life fails in turn, over the simulated kernel.

use ipsec_types::dataplane::Event;
use xfrm::kernel::Kernel;
use xfrm::netlink::{FaultyTransport, NetlinkFault};
use xfrm::{SimKernel, XfrmNetlink};

use crate::common::{Child, apply, capabilities, events};
use crate::every_fault;

struct Simulated;

impl every_fault::Rig for Simulated {
    type T = SimKernel;
    type S = SimKernel;

    fn fresh(&mut self) -> (SimKernel, SimKernel, SimKernel, SimKernel) {
        let sim = SimKernel::new();
        (sim.clone(), sim.clone(), sim.clone(), sim)
    }
}

#[test]
fn no_half_installed_sa_no_leak_no_plaintext() {
    for scenario in every_fault::ALL {
        let runs = every_fault::run(&mut Simulated, scenario);
        assert!(runs > every_fault::FAILURES.len());
    }
}

/// What was lost is found by dumps, which may fail as well: then it is found the next time.
#[test]
fn a_resync_that_fails_is_made_up_for_by_the_next() {
    let sim = SimKernel::new();
    let kernel = Kernel::new(FaultyTransport::new(sim.clone()));
    let mut plane = XfrmNetlink::new(kernel, sim.clone(), capabilities());
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    sim.lose_state(child.spi_in);
    for fault in [
        NetlinkFault::TruncatedDump(1),
        NetlinkFault::InterruptedDumps(100),
        NetlinkFault::Every("list states", libc::ENOMEM),
    ] {
        let interrupted = matches!(fault, NetlinkFault::TruncatedDump(_));
        plane.kernel_mut().transport_mut().fail(fault);
        sim.lose_events();
        let raised = events(&mut plane);
        let lost = [Event::HardExpire(child.inbound())];
        // A dump that is cut short once is made again; one that always is tells nothing wrong.
        assert_eq!(raised, if interrupted { &lost[..] } else { &[] });
        plane.kernel_mut().transport_mut().heal();
    }
    sim.lose_state(child.spi_out);
    plane.resync().unwrap();
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
}
