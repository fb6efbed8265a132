//! What Linux makes of limits of time and of dates when the wall clock is set: in a guest of its own alone, for the
//! clock is the machine's.
#![expect(clippy::disallowed_types, reason = "packets to see what the kernel counts")]

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Event, SaId,
};
use rustix::time::{ClockId, clock_gettime, clock_settime};
use xfrm::XfrmNetlink;
use xfrm::event::Events;
use xfrm::netlink::Socket;
use xfrm::plane::{Clock, SystemClock};

use crate::common::{self, Child, LEFT, RIGHT, YEAR, apply, capabilities, events};
use crate::support;

const THIRTY_YEARS: i64 = 30 * YEAR as i64;

type Plane = XfrmNetlink<Socket, Events>;

/// A plane over a kernel whose clock may be set.
fn plane() -> Plane {
    let (kernel, events) = (support::kernel(), Events::open().unwrap());
    XfrmNetlink::new(kernel, events, capabilities())
}

fn set_clock(seconds: i64) {
    let mut now = clock_gettime(ClockId::Realtime);
    now.tv_sec += seconds;
    clock_settime(ClockId::Realtime, now).unwrap();
}

/// Events until `end`, each with when it came.
fn heard(plane: &mut Plane, end: Duration) -> Vec<(Event, Duration)> {
    let mut all = Vec::new();
    while SystemClock.steady() < end {
        all.extend(events(plane).into_iter().map(|event| (event, SystemClock.steady())));
        sleep(Duration::from_millis(20));
    }
    all
}

/// An SA lives for six seconds, whatever becomes of the clock and of its ports meanwhile. Its time does not come
/// early; and late only where the clock was set back by more than the SA's life.
///
/// Fault: in `Sas::update` of plane/sas/moves.rs, leave `set_time_limit` out: the change of ports ends the SA.
pub(crate) fn a_clock_that_is_set_ends_no_sa() {
    let udp = |dst_port| Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port }));
    let path = |port: u16| -> (SocketAddr, SocketAddr) {
        (format!("{LEFT}:4500").parse().unwrap(), format!("{RIGHT}:{port}").parse().unwrap())
    };
    for (set, ports) in [(0, false), (THIRTY_YEARS, false), (THIRTY_YEARS, true), (-2, true)] {
        let mut plane = plane();
        let child = Child { lifetime: Duration::from_secs(6), ..Child::new(1, 1) };
        let Command::InstallSa(mut spec) = child.sa(Direction::Out) else { panic!() };
        spec.encap = udp(4500);
        let id: SaId = child.outbound();
        apply(&mut plane, [Command::InstallSa(spec)]).unwrap();
        let start = SystemClock.steady();
        let until = |seconds| start + Duration::from_secs_f64(seconds);
        // The kernel looks at the clock a second after it was told of a state.
        let mut all = heard(&mut plane, until(1.5));
        set_clock(set);
        all.extend(heard(&mut plane, until(2.5)));
        if ports {
            let (src, dst) = path(61000);
            plane.apply(Command::UpdateSa { id, src, dst, encap: udp(61000) }).unwrap();
        }
        all.extend(heard(&mut plane, until(9.0)));
        set_clock(-set);
        let what = format!("set by {set} s, ports {ports}: {all:?} from {start:?} on");
        let [(event, at)] = all[..] else { panic!("{what}") };
        assert_eq!(event, Event::HardExpire(id), "{what}");
        assert!(at >= until(4.9) && at <= until(8.9), "{what}");
        assert!(
            plane.kernel_mut().state(&xfrm::state::StateId::new(id.spi, id.dst)).unwrap().is_none()
        );
        plane.apply(Command::Flush).unwrap();
    }
}

/// A state that the kernel made years ago by the clock still says for how long it was idle.
///
/// Fault: in `Sa::idle` of plane/sas.rs, answer `clock.wall().saturating_sub(at)` in seconds.
pub(crate) fn silence_is_measured_by_no_clock_that_is_set() {
    for set in [-THIRTY_YEARS, THIRTY_YEARS] {
        let mut plane = plane();
        let child = Child::new(1, 1);
        apply(&mut plane, child.up()).unwrap();
        // The kernel leaves what it sends by loopback alone unless it is told otherwise.
        std::fs::write("/proc/sys/net/ipv4/conf/lo/disable_xfrm", "0").unwrap();
        support::ip("addr add 192.0.2.1/32 dev lo");
        support::ip("addr add 10.1.0.1/32 dev lo");
        support::ip("route add default dev lo");
        // One packet through the outbound SA.
        let socket = std::net::UdpSocket::bind("10.1.0.1:1000").unwrap();
        _ = socket.send_to(b"x", "10.2.0.1:2000");
        let idle = |plane: &mut Plane| common::usage(plane, child.outbound()).idle;
        let first = idle(&mut plane).expect("a packet was sent");
        assert!(first <= Duration::from_secs(1), "{first:?}");
        set_clock(set);
        sleep(Duration::from_secs(2));
        let then = idle(&mut plane).unwrap();
        set_clock(-set);
        assert!(then >= Duration::from_secs(2) && then < Duration::from_secs(60), "{then:?}");
        plane.apply(Command::Flush).unwrap();
    }
}
