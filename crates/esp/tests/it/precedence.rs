//! Which policy a packet meets, in user space: the cases of the kernel data plane.

use esp::{DropReason, Plane, Verdict};
use ipsec_types::dataplane::DataPlane;

use crate::common::{CIPHERS, Counting, packet, start, tcp, udp};
use crate::rules::{self, Meets, Probe, Tester};

struct InUserSpace(Plane);

impl Tester for InUserSpace {
    fn plane(&mut self) -> &mut dyn DataPlane {
        &mut self.0
    }

    fn send(&mut self, probe: &Probe) -> (Meets, Option<u32>) {
        let Probe { src, dst, protocol, ports } = *probe;
        let octets = match protocol {
            17 => udp(src, dst, ports.0, ports.1, 8),
            6 => tcp(src, dst, ports.0, ports.1),
            _ => packet(src, dst, 0, protocol, &[ports.0 as u8, ports.1 as u8, 0, 0, 0, 0, 0, 0]),
        };
        let mut worker = self.0.outbound(Box::new(Counting(1)));
        match worker.handle(start(), &octets, &mut esp::Buffer::new()) {
            Verdict::Pass => (Meets::Pass, None),
            Verdict::Send(outgoing) => (Meets::Sa(0), Some(outgoing.sa.spi)),
            Verdict::Drop(DropReason::Trapped) => (Meets::Trap, None),
            _ => (Meets::Drop, None),
        }
    }
}

#[test]
fn the_rules_hold() {
    rules::all(|| Box::new(InUserSpace(Plane::new(start(), &CIPHERS))));
}
