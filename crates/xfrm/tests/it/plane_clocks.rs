//! What clocks that are set, and counters that end, do to SAs of the kernel: over a simulated kernel.

use std::net::SocketAddr;
use std::time::Duration;

use ipsec_types::dataplane::{Event, Limits};
use xfrm::kernel::Kernel;
use xfrm::{SimKernel, Verdict, XfrmNetlink};

use crate::common::{Child, EPOCH, Hand, LEFT, YEAR, apply, capabilities, events, out, usage};

type Plane = XfrmNetlink<SimKernel, SimKernel>;

const THIRTY_YEARS: i64 = 30 * YEAR as i64;
const LAST: u64 = u32::MAX as u64;
const SOFT: u64 = (1 << 32) / 8 * 7;

fn plane() -> (Plane, SimKernel, Hand) {
    let (sim, hand) = (SimKernel::new(), Hand::new());
    sim.set_wall(EPOCH);
    let plane = XfrmNetlink::new(Kernel::new(sim.clone()), sim.clone(), capabilities())
        .with_clock(hand.clone());
    (plane, sim, hand)
}

/// Lets time pass, for the kernel too.
fn pass(sim: &SimKernel, hand: &Hand, seconds: u64) {
    hand.advance(Duration::from_secs(seconds));
    sim.pass(seconds);
    tell(sim, hand);
}

/// Sets the wall clock.
fn step(sim: &SimKernel, hand: &Hand, seconds: i64) {
    hand.step(seconds);
    tell(sim, hand);
}

fn tell(sim: &SimKernel, hand: &Hand) {
    sim.set_wall(xfrm::plane::Clock::wall(hand));
}

fn seconds(idle: Option<Duration>) -> Option<u64> {
    idle.map(|idle| idle.as_secs())
}

/// A peer is looked at every 30 seconds (DPD). Its last packet came before the wall clock was set: at most one
/// look is fooled, and by no more than the time since the look before it.
///
/// Fault: in `Sa::idle` of plane/sas.rs, answer `clock.wall().saturating_sub(at)` in seconds.
#[test]
fn a_wall_clock_that_is_set_back_hides_no_silence() {
    for back in [60, 3600, THIRTY_YEARS] {
        let (mut plane, sim, hand) = plane();
        let child = Child::new(1, 1);
        apply(&mut plane, child.up()).unwrap();
        assert_eq!(usage(&mut plane, child.inbound()).idle, None, "no packet yet");
        pass(&sim, &hand, 10);
        sim.charge(child.spi_in, 100, 1);
        pass(&sim, &hand, 5);
        step(&sim, &hand, -back);
        let first = usage(&mut plane, child.inbound()).idle.unwrap();
        assert!(first <= Duration::from_secs(15), "{first:?} since it was made");
        for look in 1..=200 {
            pass(&sim, &hand, 30);
            let idle = usage(&mut plane, child.inbound()).idle.unwrap();
            assert_eq!(idle, first + Duration::from_secs(30) * look, "set back by {back} s");
        }
    }
}

/// `inactivity` does not end a child in use because the wall clock was set forwards, nor keep one because it was
/// set back.
///
/// Fault: as above.
#[test]
fn a_wall_clock_that_is_set_forwards_makes_no_silence() {
    let (mut plane, sim, hand) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    let id = child.outbound();
    sim.charge(child.spi_out, 100, 1);
    assert_eq!(seconds(usage(&mut plane, id).idle), Some(0));
    for forwards in [60, 3600, THIRTY_YEARS, -THIRTY_YEARS] {
        pass(&sim, &hand, 20);
        sim.charge(child.spi_out, 100, 1);
        step(&sim, &hand, forwards);
        let idle = usage(&mut plane, id).idle.unwrap();
        assert!(idle <= Duration::from_secs(20), "{idle:?}, and a packet came within 20 s");
        pass(&sim, &hand, 7);
        assert_eq!(usage(&mut plane, id).idle, Some(idle + Duration::from_secs(7)));
    }
    // The clock is let alone: dates are exact again.
    pass(&sim, &hand, 5);
    sim.charge(child.spi_out, 100, 1);
    pass(&sim, &hand, 11);
    assert_eq!(seconds(usage(&mut plane, id).idle), Some(11));
}

/// An SA that has moved knows when it was used before.
#[test]
fn silence_goes_on_across_a_move() {
    let (mut plane, sim, hand) = plane();
    let mut child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    sim.charge(child.spi_in, 100, 1);
    assert_eq!(seconds(usage(&mut plane, child.inbound()).idle), Some(0));
    pass(&sim, &hand, 40);
    let (local, remote): (SocketAddr, SocketAddr) =
        (format!("{LEFT}:500").parse().unwrap(), "203.0.113.7:500".parse().unwrap());
    apply(&mut plane, child.moves(local, remote)).unwrap();
    assert_eq!(seconds(usage(&mut plane, child.inbound()).idle), Some(40));
}

/// The kernel sends nothing by the last sequence number, and raises no event: an SA without ESN is to be
/// replaced before (RFC 4303 §3.3.3).
///
/// Fault: in `lifetime` of plane/spec.rs, take `(soft, hard)` whatever the numbers are.
#[test]
fn every_sa_without_esn_is_rekeyed_before_its_numbers_end() {
    let limits =
        |soft_packets, hard_packets| Limits { soft_packets, hard_packets, ..Limits::default() };
    let cases = [
        (limits(0, 0), (SOFT, LAST)),
        (limits(1000, 2000), (1000, 2000)),
        // Those behind the end of the numbers are brought forwards.
        (limits(1 << 40, 1 << 41), (SOFT, LAST)),
        (limits(1000, 0), (1000, LAST)),
        (limits(0, 1 << 41), (SOFT, LAST)),
        // No soft limit behind the hard one: a device would refuse it.
        (limits(0, 2000), (0, 2000)),
    ];
    for (configured, (soft, hard)) in cases {
        let (mut plane, sim, _) = plane();
        let mut child = Child::new(1, 1);
        (child.esn, child.limits) = (false, configured);
        apply(&mut plane, child.up()).unwrap();
        for spi in [child.spi_in, child.spi_out] {
            let found = sim.state(spi).unwrap().lifetime;
            assert_eq!((found.soft_packets, found.hard_packets), (soft, hard), "{configured:?}");
        }
    }
    let (mut plane, sim, _) = plane();
    let child = Child { esn: false, ..Child::new(1, 1) };
    apply(&mut plane, child.up()).unwrap();
    sim.charge(child.spi_out, 0, SOFT - 1);
    assert_eq!(events(&mut plane), []);
    sim.charge(child.spi_out, 0, 1);
    assert_eq!(events(&mut plane), [Event::SoftExpire(child.outbound())]);
    sim.charge(child.spi_out, 0, LAST - SOFT);
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
    assert_eq!(sim.send(&out()), Verdict::Acquire, "nothing leaves in clear");
}

/// With ESN numbers do not end.
#[test]
fn an_sa_with_esn_has_no_limits_but_its_own() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    let found = sim.state(child.spi_out).unwrap().lifetime;
    assert_eq!((found.soft_packets, found.hard_packets), (0, 0));
}

/// A move skips numbers and starts counters over: the limits of the new state are of what is left.
///
/// Fault: in `Sa::carry_on` of plane/sas/moves.rs, make the limits of a `Replay` without numbers.
#[test]
fn numbers_that_a_move_skips_count_as_used() {
    let (mut plane, sim, _) = plane();
    let mut child = Child { esn: false, ..Child::new(1, 1) };
    apply(&mut plane, child.up()).unwrap();
    sim.set_sent(child.spi_out, 1_000_000);
    sim.charge(child.spi_out, 0, 900_000);
    let to = |port| -> (SocketAddr, SocketAddr) {
        (format!("{LEFT}:500").parse().unwrap(), format!("203.0.113.{port}:500").parse().unwrap())
    };
    let (local, remote) = to(7);
    apply(&mut plane, child.moves(local, remote)).unwrap();
    let state = sim.state(child.spi_out).unwrap();
    let limits = (state.lifetime.soft_packets, state.lifetime.hard_packets);
    assert_eq!(limits, (SOFT - state.replay.sent, LAST - state.replay.sent));
    assert!(state.replay.sent > 1_000_000);
    assert_eq!(events(&mut plane), []);

    // The rest is skipped: nobody can send by this SA any more, and the kernel would say nothing of it.
    sim.set_sent(child.spi_out, u32::MAX - 100);
    let (local, remote) = to(8);
    apply(&mut plane, child.moves(local, remote)).unwrap();
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
    assert_eq!(events(&mut plane), [], "once");
}

fn limited(seconds: u64) -> Child {
    Child { lifetime: Duration::from_secs(seconds), ..Child::new(1, 1) }
}

/// The kernel ends what nobody else ends, and that is told as any hard limit is.
///
/// Fault: in `state` of plane/spec.rs, leave `hard_seconds` at 0.
#[test]
fn the_kernel_ends_an_sa_when_its_time_is_over() {
    let (mut plane, sim, hand) = plane();
    let mut child = limited(3960 + 165);
    child.lifetime += Duration::from_millis(1);
    apply(&mut plane, child.up()).unwrap();
    assert_eq!(sim.state(child.spi_out).unwrap().lifetime.hard_seconds, 4126, "never too early");
    pass(&sim, &hand, 4125);
    assert_eq!(events(&mut plane), []);
    assert!(matches!(sim.send(&out()), Verdict::Esp(_)));
    pass(&sim, &hand, 1);
    let ends = [Event::HardExpire(child.inbound()), Event::HardExpire(child.outbound())];
    assert_eq!(events(&mut plane), ends);
    assert_eq!(sim.send(&out()), Verdict::Acquire, "nothing leaves in clear");
    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());

    // Without a limit there is none.
    let child = Child::new(2, 2);
    apply(&mut plane, child.up()).unwrap();
    assert_eq!(sim.state(child.spi_out).unwrap().lifetime.hard_seconds, 0);
    pass(&sim, &hand, 1_000_000);
    assert_eq!(events(&mut plane), []);
}

/// A clock that is set ends no SA before its time, whatever happens to the SA afterwards: new ports, which change its
/// state, and new addresses, which make it anew.
///
/// Fault: in `Sas::update` of plane/sas/moves.rs, leave `set_time_limit` out (either of the two).
#[test]
fn a_wall_clock_that_is_set_ends_no_sa() {
    use ipsec_types::dataplane::{Command, Direction, EncapPorts, Encapsulation};
    let udp = |dst_port| Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port }));
    let path = |remote: &str| -> (SocketAddr, SocketAddr) {
        (format!("{LEFT}:4500").parse().unwrap(), remote.parse().unwrap())
    };
    for forwards in [0, 3000, THIRTY_YEARS, -3000, -THIRTY_YEARS] {
        for moves in ["", "ports", "address", "address ports"] {
            let (mut plane, sim, hand) = plane();
            let child = limited(4000);
            let Command::InstallSa(mut spec) = child.sa(Direction::Out) else { panic!() };
            spec.encap = udp(4500);
            apply(&mut plane, [Command::InstallSa(spec)]).unwrap();
            pass(&sim, &hand, 1000);
            step(&sim, &hand, forwards);
            pass(&sim, &hand, 1000);
            let mut id = child.outbound();
            if moves.contains("address") {
                let ((src, dst), encap) = (path("203.0.113.7:4500"), udp(4500));
                apply(&mut plane, [Command::UpdateSa { id, src, dst, encap }]).unwrap();
                id.dst = dst.ip();
            }
            pass(&sim, &hand, 500);
            if moves.contains("ports") {
                let remote = SocketAddr::new(id.dst, 61000);
                let ((src, dst), encap) = (path(&remote.to_string()), udp(61000));
                apply(&mut plane, [Command::UpdateSa { id, src, dst, encap }]).unwrap();
            }
            pass(&sim, &hand, 1499);
            let what = format!("set by {forwards} s, then {moves:?}");
            assert_eq!(events(&mut plane), [], "{what}");
            assert!(sim.state(child.spi_out).is_some(), "{what}");
            pass(&sim, &hand, 2);
            // A state that is dated in the future outlasts its time, unless it was made anew since, or changed,
            // and its date is not too far away to make up for it.
            let mended = moves.contains("ports") && forwards == -3000;
            let late = forwards < 0 && !moves.contains("address") && !mended;
            let wanted: &[Event] = if late { &[] } else { &[Event::HardExpire(id)] };
            assert_eq!(events(&mut plane), wanted, "{what}");
        }
    }
}
