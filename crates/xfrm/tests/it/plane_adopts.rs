//! A plane that ended without cleaning up, and the next one.

use std::time::Duration;

use ipsec_types::dataplane::{Command, DataPlane, Mode, PolicyAction};
use netlink_packet_xfrm::XfrmMessage;
use xfrm::kernel::Kernel;
use xfrm::netlink::{Error, FaultyTransport, Kind, NetlinkFault, Transport};
use xfrm::plane::{LINGER, Orphan, REQIDS, Remains};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId};
use xfrm::selector::{Prefix, Selector};
use xfrm::{Packet, SimKernel, Verdict, XfrmNetlink, judge};

use crate::common::{Child, Hand, addr, apply, back, capabilities, out};

const LIFE: Duration = Duration::from_secs(3600);
const SETTLE: Duration = Duration::from_secs(10);

/// After no request may the packet leave in clear.
struct Guard {
    sim: SimKernel,
    guards: bool,
}

impl Transport for Guard {
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let result = self.sim.request(message, kind);
        let verdict = judge(&self.sim.policies(), &self.sim.states(), &out());
        assert!(!self.guards || verdict != Verdict::Clear, "a packet leaves in clear");
        result
    }
}

fn over<T: Transport>(transport: T, sim: &SimKernel, hand: &Hand) -> XfrmNetlink<T, SimKernel> {
    XfrmNetlink::new(Kernel::new(transport), sim.clone(), capabilities()).with_clock(hand.clone())
}

fn plane(sim: &SimKernel, hand: &Hand) -> XfrmNetlink<SimKernel, SimKernel> {
    over(sim.clone(), sim, hand)
}

/// A plane that never lets [`out`] leave in clear.
fn guarded(sim: &SimKernel, hand: &Hand) -> XfrmNetlink<Guard, SimKernel> {
    over(Guard { sim: sim.clone(), guards: true }, sim, hand)
}

/// What a daemon leaves that is killed while `children` are up.
fn killed(children: &[&Child]) -> (SimKernel, Hand) {
    let (sim, hand) = (SimKernel::new(), Hand::new());
    let mut first = plane(&sim, &hand);
    for child in children {
        apply(&mut first, child.up()).unwrap();
    }
    (sim, hand)
}

fn spis(sim: &SimKernel) -> Vec<u32> {
    let mut spis: Vec<_> = sim.states().iter().map(|state| state.id.spi).collect();
    spis.sort();
    spis
}

fn spi_of(verdict: Verdict) -> Option<u32> {
    match verdict {
        Verdict::Esp(id) => Some(id.spi),
        _ => None,
    }
}

#[test]
fn traffic_goes_on_until_another_child_takes_the_place() {
    let (old, new) = (Child::new(1, 1), Child::new(1, 2));
    let (sim, hand) = killed(&[&old]);
    let mut plane = guarded(&sim, &hand);
    let mut seen: Vec<Orphan> = Vec::new();
    let kept = plane.take_over(SETTLE, |orphan| {
        seen.push(orphan.clone());
        Some(LIFE)
    });
    assert_eq!(kept.unwrap(), seen);
    let [orphan] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((orphan.policies.len(), orphan.states.len()), (3, 2));
    assert_eq!((orphan.outer.local, orphan.outer.remote), (old.local, old.remote));
    assert!(plane.has_orphans() && REQIDS.contains(&orphan.reqid));
    assert_eq!(spi_of(sim.send(&out())), Some(old.spi_out));
    assert!(sim.receive(old.spi_in, &back()));

    for command in new.up() {
        apply(&mut plane, [command]).unwrap();
        assert!(sim.receive(old.spi_in, &back()), "the peer still uses it");
    }
    assert_eq!(spi_of(sim.send(&out())), Some(new.spi_out));
    assert!(sim.receive(new.spi_in, &back()));
    assert_eq!(spis(&sim), [old.spi_in, new.spi_in, new.spi_out], "the old outbound half is gone");
    hand.advance(LINGER);
    assert_eq!(plane.poll_event(), None);
    assert_eq!(spis(&sim), [new.spi_in, new.spi_out]);
    assert!(!plane.has_orphans());
    plane.kernel_mut().transport_mut().guards = false;
    apply(&mut plane, new.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn a_trap_in_its_place_uses_the_states_that_are_there() {
    let (old, new) = (Child::new(1, 1), Child::new(2, 2));
    let (sim, hand) = killed(&[&old]);
    let mut plane = guarded(&sim, &hand);
    plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    let trap = Child::new(1, 9);
    apply(&mut plane, [trap.trap()]).unwrap();
    assert_eq!(spi_of(sim.send(&out())), Some(old.spi_out), "no acquire");
    assert!(sim.receive(old.spi_in, &back()));
    // The peer brings the child up.
    apply(&mut plane, new.up()).unwrap();
    assert!(sim.receive(old.spi_in, &back()));
    assert_eq!(spi_of(sim.send(&out())), Some(new.spi_out));
    apply(&mut plane, new.down()).unwrap();
    hand.advance(LINGER);
    _ = plane.poll_event();
    assert!(spis(&sim).is_empty());
    assert!(matches!(sim.send(&out()), Verdict::Acquire), "the trap is there again");
}

#[test]
fn what_has_had_its_time_goes_and_a_trap_stays() {
    let (one, two) = (Child::new(1, 1), Child::new(2, 2).between("10.3.0.0/16", "10.4.0.0/16"));
    let (sim, hand) = killed(&[&one, &two]);
    let mut plane = guarded(&sim, &hand);
    plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    apply(&mut plane, [Child::new(7, 9).trap()]).unwrap();
    hand.advance(LIFE - Duration::from_secs(1));
    _ = plane.poll_event();
    assert_eq!(spis(&sim).len(), 4);
    hand.advance(Duration::from_secs(1));
    _ = plane.poll_event();
    assert!(spis(&sim).is_empty() && !plane.has_orphans());
    let other = Packet::udp(addr("10.3.0.1"), addr("10.4.0.1"));
    assert_eq!(sim.send(&other), Verdict::Clear, "nobody wants it protected any more");
}

#[test]
fn what_is_not_wanted_goes_at_once_and_what_is_others_stays() {
    let (one, two) = (Child::new(1, 1), Child::new(2, 2).between("10.3.0.0/16", "10.4.0.0/16"));
    let mut transport = Child::new(3, 3).between("192.0.2.1/32", "198.51.100.1/32");
    transport.mode = Mode::Transport;
    let (sim, hand) = killed(&[&one, &two, &transport]);
    let net = |text: &str, length| Prefix::new(addr(text), length);
    let selector = Selector::between(net("10.7.0.0", 16), net("10.8.0.0", 16));
    let direction = PolicyDirection::Out;
    let id = PolicyId { selector, direction, mark: Default::default(), if_id: 0 };
    let mut kernel = Kernel::new(sim.clone());
    kernel.set_policy(&Policy::new(id, 77, Action::Block)).unwrap();

    let mut next = plane(&sim, &hand);
    let wanted = |orphan: &Orphan| (orphan.outer.mode == Mode::Transport).then_some(LIFE);
    let kept = next.take_over(SETTLE, wanted).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].outer.local, kept[0].outer.remote), (one.local, one.remote));
    assert_eq!(spis(&sim), [transport.spi_in, transport.spi_out]);
    let verdict = judge(&sim.policies(), &sim.states(), &out());
    assert_eq!(verdict, Verdict::Acquire, "held back until this run has its own policies");
    hand.advance(SETTLE);
    _ = next.poll_event();
    assert_eq!(sim.policies().len(), 3, "in and out of transport mode, and the stranger's");

    drop(next);
    let mut last = plane(&sim, &hand);
    assert!(last.take_over(Duration::ZERO, |_| None).unwrap().is_empty());
    assert!(spis(&sim).is_empty() && last.is_empty());
    assert_eq!(sim.policies().len(), 1);
}

/// A reqid that was configured may be another's too: its states are told apart by their ends.
#[test]
fn states_of_others_with_the_same_reqid_stay() {
    let given = |n: u32, remote: &str| {
        let mut child = Child::new(n.into(), n).between("192.0.2.1/32", &format!("{remote}/32"));
        (child.mode, child.remote) = (Mode::Transport, addr(remote));
        child.with(|processing| processing.reqid = 1)
    };
    let (ours, strangers) = (given(1, "198.51.100.1"), given(2, "203.0.113.9"));
    let (sim, hand) = killed(&[&ours]);
    let mut other = plane(&sim, &hand);
    let states = strangers.up().into_iter().filter(|c| matches!(c, Command::InstallSa(_)));
    apply(&mut other, states).unwrap();
    plane(&sim, &hand).take_over(Duration::ZERO, |_| None).unwrap();
    assert_eq!(spis(&sim), [strangers.spi_in, strangers.spi_out]);
    assert!(sim.policies().is_empty());
}

/// What is adopted decides where numbers go on, whatever the configured ones are.
#[test]
fn a_configured_reqid_does_not_hide_those_in_use() {
    let high = Child::new(2, 2).between("10.3.0.0/16", "10.4.0.0/16");
    let high = high.with(|processing| processing.reqid = 0x7000_0000);
    let (sim, hand) = killed(&[&Child::new(1, 1), &high]);
    let mut second = plane(&sim, &hand);
    second.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    apply(&mut second, Child::new(3, 3).between("10.5.0.0/16", "10.6.0.0/16").up()).unwrap();
    let reqids: std::collections::BTreeSet<_> = sim.states().iter().map(|s| s.reqid).collect();
    assert_eq!(reqids.len(), 3);
}

#[test]
fn policies_without_states_wait_for_those_that_are_configured() {
    let (sim, hand) = (SimKernel::new(), Hand::new());
    let shunt = |n| Child::new(n, 1).act(PolicyAction::Shunt { silent: true });
    let pass = Child::new(5, 1).between("10.5.0.0/16", "10.6.0.0/16").act(PolicyAction::Pass);
    apply(&mut plane(&sim, &hand), [shunt(1), pass]).unwrap();
    let mut plane = guarded(&sim, &hand);
    plane.take_over(SETTLE, |_| None).unwrap();
    let there = sim.policies().len();
    apply(&mut plane, [shunt(40)]).unwrap();
    assert_eq!(sim.policies().len(), there, "it took the place of the other");
    hand.advance(SETTLE);
    _ = plane.poll_event();
    assert_eq!(sim.policies().len(), 3, "the pass policy is not configured any more");
    assert_eq!(sim.send(&out()), Verdict::Dropped);
}

/// Numbers go on behind those that are in use, so that a third run recognizes them all.
#[test]
fn every_run_recognizes_those_before() {
    let (sim, hand) = killed(&[&Child::new(1, 1)]);
    let mut second = plane(&sim, &hand);
    second.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    let two = Child::new(1, 2).between("10.3.0.0/16", "10.4.0.0/16");
    apply(&mut second, two.up()).unwrap();
    let all = Remains::find(second.kernel_mut()).unwrap();
    assert_eq!((all.policies.len(), all.states.len()), (6, 4));
    let reqids: std::collections::BTreeSet<_> = all.states.iter().map(|s| s.reqid).collect();
    assert_eq!(reqids.len(), 2, "not the one that is adopted");
    drop(second);
    assert!(plane(&sim, &hand).take_over(Duration::ZERO, |_| None).unwrap().is_empty());
    assert!(sim.is_empty());
}

/// A child of fewer selectors takes the place of all of it: its peer knows nothing of the rest.
#[test]
fn a_narrower_child_replaces_the_whole() {
    let mut old = Child::new(1, 1);
    old.remote_ts.push("10.9.0.0/16".parse().unwrap());
    let (sim, hand) = killed(&[&old]);
    let mut plane = plane(&sim, &hand);
    plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    let new = Child::new(1, 2);
    apply(&mut plane, new.up()).unwrap();
    hand.advance(LINGER);
    _ = plane.poll_event();
    assert_eq!(spis(&sim), [new.spi_in, new.spi_out]);
    assert_eq!(sim.policies().len(), 3);
    assert!(!plane.has_orphans());
}

/// A trap that is taken away again, or a policy that fails, gives way to what is adopted.
#[test]
fn what_is_adopted_is_beneath_the_rest() {
    let (sim, hand) = killed(&[&Child::new(1, 1)]);
    let mut plane = guarded(&sim, &hand);
    plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    let other = Child::new(3, 9);
    apply(&mut plane, [other.act(PolicyAction::Shunt { silent: true })]).unwrap();
    assert!(spi_of(sim.send(&out())).is_some(), "a shunt stands in for what is not up");
    apply(&mut plane, [Child::new(7, 9).trap()]).unwrap();
    apply(&mut plane, [Command::RemovePolicy(ipsec_types::dataplane::PolicyId(7))]).unwrap();
    assert_eq!(spi_of(sim.send(&out())), Some(0x1001));
    hand.advance(LIFE);
    _ = plane.poll_event();
    assert_eq!(sim.send(&out()), Verdict::Dropped, "by the shunt");
}

#[test]
fn a_flush_takes_it_all() {
    let (sim, hand) = killed(&[&Child::new(1, 1)]);
    let mut plane = plane(&sim, &hand);
    plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
    plane.apply(Command::Flush).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

/// Each request of a take-over and of the replacement fails in turn: in the end nothing is left too much,
/// and no packet left in clear.
#[test]
fn every_request_may_fail() {
    for nth in 1..60 {
        for fault in [NetlinkFault::Nth(nth, libc::ENOMEM), NetlinkFault::LostAck(nth)] {
            let (sim, hand) = killed(&[&Child::new(1, 1)]);
            let guard = Guard { sim: sim.clone(), guards: true };
            let mut faulty = FaultyTransport::new(guard);
            faulty.fail(fault.clone());
            let mut plane = over(faulty, &sim, &hand);
            if plane.take_over(SETTLE, |_| Some(LIFE)).is_err() {
                plane.take_over(SETTLE, |_| Some(LIFE)).unwrap();
            }
            let new = Child::new(1, 2);
            // Whoever fails tries again.
            for nth in 0..3 {
                let command = || new.up().remove(nth);
                if apply(&mut plane, [command()]).is_err() {
                    apply(&mut plane, [command()]).unwrap();
                }
            }
            assert_eq!(spi_of(sim.send(&out())), Some(new.spi_out), "{fault:?}");
            settle(&mut plane, &hand);
            assert_eq!(spis(&sim), [new.spi_in, new.spi_out], "{fault:?}");
            let faulty = plane.kernel_mut().transport_mut();
            faulty.heal();
            faulty.inner_mut().guards = false;
            apply(&mut plane, new.down()).unwrap();
            assert!(sim.is_empty() && plane.is_empty(), "{fault:?}");
        }
    }
}

fn settle<T: Transport>(plane: &mut XfrmNetlink<T, SimKernel>, hand: &Hand) {
    for _ in 0..10 {
        hand.advance(Duration::from_secs(1));
        _ = plane.poll_event();
    }
}
