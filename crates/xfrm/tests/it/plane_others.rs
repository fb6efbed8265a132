//! What others do to the kernel meanwhile, and what the kernel refuses for longer: nobody else's policy is
//! touched, one failure is not everybody's, and what is lost is noticed.

use std::time::Duration;

use ipsec_types::dataplane::{Command, DataPlane, Event, PolicyAction};
use xfrm::kernel::Kernel;
use xfrm::netlink::{FaultyTransport, NetlinkFault};
use xfrm::policy::{Policy, PolicyDirection};
use xfrm::{Packet, SimKernel, Verdict, XfrmNetlink};

use crate::common::{self, Child, Hand, addr, apply, capabilities, events, out};

type Plane = XfrmNetlink<FaultyTransport<SimKernel>, SimKernel>;

fn plane() -> (Plane, SimKernel, Hand) {
    let (sim, hand) = (SimKernel::new(), Hand::new());
    sim.set_wall(common::EPOCH);
    let kernel = Kernel::new(FaultyTransport::new(sim.clone()));
    let plane = XfrmNetlink::new(kernel, sim.clone(), capabilities()).with_clock(hand.clone());
    (plane, sim, hand)
}

fn fail(plane: &mut Plane, fault: NetlinkFault) {
    plane.kernel_mut().transport_mut().fail(fault);
}

/// The outbound policy of `child`, as another program might have it.
fn outbound_policy(child: &Child) -> Policy {
    let (mut plane, sim, _) = plane();
    apply(&mut plane, child.up()).expect("installed");
    let mut policies = sim.policies().into_iter().map(|info| info.policy);
    policies.find(|policy| policy.id.direction == PolicyDirection::Out).expect("a policy")
}

#[test]
fn a_policy_of_another_program_is_left_alone() {
    let child = Child::new(1, 1);
    let theirs = outbound_policy(&child);
    let (mut plane, sim, _) = plane();
    Kernel::new(sim.clone()).add_policy(&theirs).expect("added");
    let before = sim.policies();
    let error = apply(&mut plane, child.up()).expect_err("the packets are somebody's");
    assert!(error.to_string().contains("another program"), "{error}");
    apply(&mut plane, child.down()).expect("nothing to remove but the SAs");
    apply(&mut plane, [Command::Flush]).expect("flushed");
    assert_eq!(sim.policies(), before);
    assert!(plane.is_empty() && sim.states().is_empty());
    // Once it is gone the child has its way.
    Kernel::new(sim.clone()).delete_policy(&theirs.id).expect("deleted");
    apply(&mut plane, child.up()).expect("installed");
    assert!(matches!(sim.send(&out()), Verdict::Esp(_)));
}

#[test]
fn one_failure_is_not_everybodys() {
    let (mut plane, sim, hand) = plane();
    let children = [
        Child::new(1, 1),
        Child::new(2, 2).between("10.3.0.0/16", "10.4.0.0/16"),
        Child::new(3, 3).between("10.5.0.0/16", "10.6.0.0/16"),
    ];
    for child in &children {
        apply(&mut plane, child.up()).expect("installed");
    }
    // A policy that the kernel does not take back keeps nobody else from coming and going.
    let lost = sim.policies().into_iter().map(|info| info.policy.id).next().expect("a policy");
    sim.lose_policy(&lost);
    fail(&mut plane, NetlinkFault::Every("set policy", libc::ENOMEM));
    sim.lose_events();
    assert_eq!(events(&mut plane), []);
    assert_eq!(sim.policies().len(), 8);
    let another = Child::new(4, 4).between("10.7.0.0/16", "10.8.0.0/16");
    apply(&mut plane, another.up()).expect("installed");
    apply(&mut plane, another.down()).expect("removed");
    // It is tried again, by itself.
    assert!(plane.deadline().is_some());
    plane.kernel_mut().transport_mut().heal();
    hand.advance(Duration::from_secs(2));
    assert_eq!(events(&mut plane), []);
    assert_eq!(sim.policies().len(), 9);

    fail(&mut plane, NetlinkFault::NthOf("delete policy", 1, libc::ENOMEM));
    assert!(plane.apply(Command::Flush).is_err());
    assert_eq!(sim.policies().len(), 1, "the others are gone");
    hand.advance(Duration::from_secs(2));
    assert_eq!(events(&mut plane), []);
    assert!(sim.policies().is_empty(), "and this one by itself");
}

#[test]
fn an_sa_that_was_lost_is_noticed_by_its_traffic() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).expect("installed");
    sim.lose_state(child.spi_out);
    assert_eq!(sim.send(&out()), Verdict::Acquire);
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
    sim.send(&Packet::udp(addr("10.1.0.9"), addr("10.2.0.9")));
    assert_eq!(events(&mut plane), [], "once is enough");
}

#[test]
fn what_an_acquire_left_is_no_sa() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).expect("installed");
    sim.lose_state(child.spi_out);
    assert_eq!(sim.send(&out()), Verdict::Acquire);
    // The acquire itself is among what is lost.
    sim.lose_events();
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
    assert!(plane.apply(Command::QueryUsage(child.outbound())).is_err());
}

#[test]
fn what_fails_after_the_first_request_leaves_no_state() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    for errno in [libc::ENOMEM, libc::EIO, libc::EAGAIN] {
        fail(&mut plane, NetlinkFault::LostAckOf("add state", 1));
        fail(&mut plane, NetlinkFault::NthOf("get state", 1, errno));
        assert!(apply(&mut plane, child.up()).is_err());
        apply(&mut plane, child.down()).expect("removed");
        assert!(sim.is_empty() && plane.is_empty(), "{errno}");
    }
    assert!(matches!(sim.send(&out()), Verdict::Clear));
    apply(&mut plane, [child.act(PolicyAction::Drop)]).expect("installed");
    assert!(!matches!(sim.send(&out()), Verdict::Clear));
}
