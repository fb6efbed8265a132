//! What others do to the kernel meanwhile, and what the kernel refuses for longer: nobody else's policy is
//! touched, one failure is not everybody's, and what is lost is noticed.

use std::time::Duration;

use ipsec_types::dataplane::{Command, DataPlane, Event, PolicyAction, PolicyId};
use xfrm::event::Event as KernelEvent;
use xfrm::kernel::Kernel;
use xfrm::netlink::{FaultyTransport, NetlinkFault};
use xfrm::policy::{Policy, PolicyDirection};
use xfrm::state::StateId;
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

/// Takes away all policies, as `ip xfrm policy flush` does.
fn flush_policies(sim: &SimKernel) {
    sim.policies().iter().for_each(|info| sim.lose_policy(&info.policy.id));
    sim.raise(KernelEvent::PoliciesFlushed);
}

/// nf_tables stands in for the policies as they are wanted, also while another program has removed them. A policy that waits
/// behind another one is no change.
///
/// Faults: in `Policies::take`, `put` or `clear`, leave `note_leaving` out; in `leaving_changes`, tell what is installed.
#[test]
fn changes_of_what_leaves_are_told_and_what_others_remove_is_none() {
    let (mut plane, sim, _) = plane();
    let (early, late) = (Child::new(1, 1), Child::new(2, 2).between("10.1.0.0/16", "10.9.0.0/16"));
    apply(&mut plane, [early.trap()]).expect("installed");
    plane.follow_leaving();
    let told = |plane: &mut Plane| -> Vec<(String, bool)> {
        let changes = plane.leaving_changes().into_iter();
        let text = |(id, policy): (xfrm::policy::PolicyId, Option<&Policy>)| {
            assert_eq!(id.direction, PolicyDirection::Out);
            assert!(policy.is_none_or(|policy| policy.id == id));
            (id.selector.dst.address.to_string(), policy.is_some())
        };
        let mut all: Vec<_> = changes.map(text).collect();
        all.sort();
        all
    };
    let is = |to: &str, there| (to.to_owned(), there);
    assert_eq!(told(&mut plane), [is("10.2.0.0", true)], "what is there");
    assert_eq!(told(&mut plane), []);
    apply(&mut plane, late.up()).expect("installed");
    assert_eq!(told(&mut plane), [is("10.9.0.0", true)]);
    flush_policies(&sim);
    assert_eq!(told(&mut plane), [], "removed by another program");
    events(&mut plane);
    assert_eq!(told(&mut plane), [], "and put back");
    apply(&mut plane, late.down()).expect("removed");
    assert_eq!(told(&mut plane), [is("10.9.0.0", false)]);
    apply(&mut plane, [Command::Flush]).expect("flushed");
    assert_eq!(told(&mut plane), [is("10.2.0.0", false)]);
}

/// A policy of another program that was there first keeps ours out of the kernel, and may let its packets leave in clear.
///
/// Faults: in `Policies::install`, bar nothing after EEXIST, bar what passes, or bar a policy that the kernel refuses for another
/// reason; in
/// `remove` or `clear`, leave what is barred there; in `leaving_changes`, do not tell it.
#[test]
fn what_another_program_keeps_out_of_the_kernel_is_told_as_wanted() {
    let child = Child::new(1, 1);
    let theirs = outbound_policy(&child);
    let (mut plane, sim, _) = plane();
    plane.follow_leaving();
    let told = |plane: &mut Plane| -> Vec<bool> {
        let changes = plane.leaving_changes().into_iter();
        let ours = changes.map(|(id, policy)| {
            assert_eq!(id, theirs.id);
            policy.is_some()
        });
        ours.collect()
    };
    Kernel::new(sim.clone()).add_policy(&theirs).expect("added");
    for _ in 0..2 {
        apply(&mut plane, [child.trap()]).expect_err("refused");
        assert_eq!(told(&mut plane), [true], "a trap is tried again");
    }
    apply(&mut plane, [Command::RemovePolicy(PolicyId(child.policy))]).expect("removed");
    assert_eq!(told(&mut plane), [false], "nothing wants it any more");
    apply(&mut plane, [child.trap()]).expect_err("refused");
    assert_eq!(told(&mut plane), [true]);
    apply(&mut plane, [Command::Flush]).expect("flushed");
    assert_eq!(told(&mut plane), [false], "nor after a flush");
    // Once the foreign policy is gone, ours is told as any other.
    apply(&mut plane, [child.trap()]).expect_err("refused");
    Kernel::new(sim.clone()).delete_policy(&theirs.id).expect("deleted");
    apply(&mut plane, [child.trap()]).expect("installed");
    assert_eq!(told(&mut plane), [true]);
    apply(&mut plane, [Command::RemovePolicy(PolicyId(child.policy))]).expect("removed");
    assert_eq!(told(&mut plane), [false]);
    // What is to pass stands in nobody's way: it has no rule that nobody would remove.
    Kernel::new(sim.clone()).add_policy(&theirs).expect("added");
    let pass = child.act(PolicyAction::Pass);
    apply(&mut plane, [pass]).expect_err("refused");
    assert_eq!(told(&mut plane), [false], "an exemption that the kernel refuses");
    Kernel::new(sim.clone()).delete_policy(&theirs.id).expect("deleted");
    // What the kernel refuses for another reason is not there, and nothing stands in its place.
    fail(&mut plane, NetlinkFault::All(libc::ENOMEM));
    apply(&mut plane, [child.trap()]).expect_err("refused");
    assert_eq!(told(&mut plane), [false]);
}

/// The engine removes the policy of a child that was refused, and the driver bars its selectors by a shunt.
///
/// Faults: in `Policies::leaving_changes`, tell no `barred`; in `Policies::unbar`, forget all that is barred in the slot.
#[test]
fn the_bar_of_a_shunt_stays_when_the_policy_of_the_child_goes() {
    let child = Child::new(1, 1);
    let theirs = outbound_policy(&child);
    let (mut plane, sim, _) = plane();
    plane.follow_leaving();
    Kernel::new(sim.clone()).add_policy(&theirs).expect("added");
    apply(&mut plane, child.up()).expect_err("refused");
    let shunt = || {
        let Command::InstallPolicy(mut spec) = child.act(PolicyAction::Shunt { silent: false })
        else {
            panic!("another command")
        };
        spec.id = PolicyId(99);
        Command::InstallPolicy(spec)
    };
    apply(&mut plane, [shunt()]).expect_err("refused");
    apply(&mut plane, child.down()).expect("removed");
    let told = |plane: &mut Plane| {
        let changes = plane.leaving_changes().into_iter();
        let of_child = changes.filter(|(id, _)| *id == theirs.id);
        of_child.map(|(_, policy)| policy.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut plane), [true]);
    // Once the foreign policy is gone the child is up, and the shunt is there.
    Kernel::new(sim.clone()).delete_policy(&theirs.id).expect("deleted");
    apply(&mut plane, [shunt()]).expect("installed");
    apply(&mut plane, [Command::RemovePolicy(PolicyId(99))]).expect("removed");
    assert_eq!(told(&mut plane), [false], "no bar is left behind");
}

/// Fault: in `on_event`, ignore `PoliciesFlushed` and `PolicyDeleted`.
#[test]
fn policies_that_others_delete_are_put_back_at_once() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).expect("installed");
    let sorted = |sim: &SimKernel| {
        let mut all: Vec<_> = sim.policies().into_iter().map(|info| info.policy).collect();
        all.sort_by_key(|policy| policy.id.direction);
        all
    };
    let before = sorted(&sim);
    assert_eq!(events(&mut plane), [], "the first look");
    flush_policies(&sim);
    assert!(!matches!(sim.send(&out()), Verdict::Esp(_)), "in clear");
    assert_eq!(events(&mut plane), []);
    assert_eq!(sorted(&sim), before);
    assert!(matches!(sim.send(&out()), Verdict::Esp(_)));
    for policy in &before {
        sim.lose_policy(&policy.id);
        sim.raise(KernelEvent::PolicyDeleted(policy.id));
        assert_eq!(events(&mut plane), []);
        assert_eq!(sorted(&sim), before);
    }
    // What this plane itself removes does not come again.
    apply(&mut plane, child.down()).expect("removed");
    before.iter().for_each(|policy| sim.raise(KernelEvent::PolicyDeleted(policy.id)));
    flush_policies(&sim);
    assert_eq!(events(&mut plane), []);
    assert!(sim.policies().is_empty() && plane.is_empty());
}

/// Fault: in `repair`, leave `is_ours` out: the other program's policy is overwritten.
#[test]
fn a_policy_of_another_program_in_the_place_of_a_lost_one_is_left_alone() {
    let (mut plane, sim, hand) = plane();
    let child = Child::new(1, 1);
    let theirs = Policy { priority: 7, ..outbound_policy(&child) };
    apply(&mut plane, child.up()).expect("installed");
    sim.lose_policy(&theirs.id);
    Kernel::new(sim.clone()).add_policy(&theirs).expect("added");
    sim.raise(KernelEvent::PolicyDeleted(theirs.id));
    let there = |sim: &SimKernel| {
        let mut all = sim.policies().into_iter().map(|info| info.policy);
        all.find(|policy| policy.id == theirs.id).expect("a policy")
    };
    for _ in 0..3 {
        assert_eq!(events(&mut plane), []);
        assert_eq!(there(&sim), theirs);
        hand.advance(Duration::from_secs(2));
    }
    sim.lose_policy(&theirs.id);
    sim.raise(KernelEvent::PolicyDeleted(theirs.id));
    assert_eq!(events(&mut plane), []);
    assert_ne!(there(&sim), theirs, "its turn again");
    assert!(matches!(sim.send(&out()), Verdict::Esp(_)));
}

/// Fault: in `repair`, put back at once always.
#[test]
fn policies_that_others_delete_all_the_time_are_put_back_seldom() {
    let (mut plane, sim, hand) = plane();
    apply(&mut plane, Child::new(1, 1).up()).expect("installed");
    let mut back = 0;
    for _ in 0..300 {
        flush_policies(&sim);
        assert_eq!(events(&mut plane), []);
        back += u32::from(!sim.policies().is_empty());
        hand.advance(Duration::from_millis(100));
    }
    assert_eq!(back, 7, "five at once, and two in the rest of the 30 s");
    // When nobody tells of it any more, the plane wants to look by itself.
    assert!(sim.policies().is_empty() && plane.deadline().is_some());
    hand.advance(Duration::from_secs(10));
    assert_eq!(events(&mut plane), []);
    assert!(!sim.policies().is_empty());
}

/// Its numbers would start again, so it is replaced by a new child. Traffic is not waited for.
///
/// Fault: in `on_event`, ignore `StatesFlushed` and `StateDeleted`.
#[test]
fn an_sa_that_others_delete_has_expired() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).expect("installed");
    let id = |spi, dst: &str| StateId { spi, dst: addr(dst), mark: Default::default() };
    let outbound = child.outbound();
    let state = id(outbound.spi, &outbound.dst.to_string());
    // One that is there, as after a move.
    sim.raise(KernelEvent::StateDeleted(state));
    assert_eq!(events(&mut plane), []);
    sim.lose_state(outbound.spi);
    sim.raise(KernelEvent::StateDeleted(state));
    assert_eq!(events(&mut plane), [Event::HardExpire(outbound)]);
    sim.raise(KernelEvent::StatesFlushed);
    assert_eq!(events(&mut plane), [], "once is enough");
    sim.states().iter().for_each(|info| sim.lose_state(info.id.spi));
    sim.raise(KernelEvent::StatesFlushed);
    assert_eq!(events(&mut plane).len(), 1, "the inbound one");
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
