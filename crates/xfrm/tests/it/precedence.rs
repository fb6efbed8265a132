//! Which policy a packet meets, in the kernel data plane over the simulated kernel.

use ipsec_types::dataplane::DataPlane;
use xfrm::kernel::Kernel;
use xfrm::{Packet, SimKernel, Verdict, XfrmNetlink};

use crate::common;
use crate::rules::{self, Meets, Probe, Tester};

struct InKernel {
    plane: XfrmNetlink<SimKernel, SimKernel>,
    sim: SimKernel,
}

impl Tester for InKernel {
    fn plane(&mut self) -> &mut dyn DataPlane {
        &mut self.plane
    }

    fn send(&mut self, probe: &Probe) -> (Meets, Option<u32>) {
        let Probe { src, dst, protocol, ports: (src_port, dst_port) } = *probe;
        let packet = Packet { protocol, src_port, dst_port, ..Packet::udp(src, dst) };
        match self.sim.send(&packet) {
            Verdict::Clear => (Meets::Pass, None),
            Verdict::Esp(id) => (Meets::Sa(0), Some(id.spi)),
            Verdict::Dropped => (Meets::Drop, None),
            Verdict::Acquire => (Meets::Trap, None),
        }
    }
}

#[test]
fn the_rules_hold() {
    rules::all(|| {
        let sim = SimKernel::new();
        let kernel = Kernel::new(sim.clone());
        let plane = XfrmNetlink::new(kernel, sim.clone(), common::capabilities());
        Box::new(InKernel { plane, sim })
    });
}
