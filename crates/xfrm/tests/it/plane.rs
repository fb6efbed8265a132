//! The kernel data plane over a simulated kernel: what a packet meets at each point of a child's life.

use std::net::SocketAddr;
use std::time::Duration;

use ipsec_types::dataplane::{
    Command, DataPlane, Direction, EncapPorts, Encapsulation, Event, HwOffload, Limits, Mark, Mode,
    Outer, PolicyAction, PolicyId, SaId,
};
use xfrm::kernel::Kernel;
use xfrm::plane::{Clock as _, REQIDS, Remains};
use xfrm::policy::PolicyDirection;
use xfrm::state::StateId;
use xfrm::{Packet, SimKernel, Verdict, XfrmNetlink};

use crate::common::{
    self, Child, Hand, LEFT, RIGHT, addr, apply, back, capabilities, events, out, ts, usage,
};

type Plane = XfrmNetlink<SimKernel, SimKernel>;

fn plane() -> (Plane, SimKernel, Hand) {
    let (sim, hand) = (SimKernel::new(), Hand::new());
    sim.set_wall(common::EPOCH);
    let plane = XfrmNetlink::new(Kernel::new(sim.clone()), sim.clone(), capabilities())
        .with_clock(hand.clone());
    (plane, sim, hand)
}

/// True if only the regular look at the policies is due, and not soon.
fn has_nothing_to_do(plane: &Plane, hand: &Hand) -> bool {
    plane.deadline().is_none_or(|at| at > hand.now() + Duration::from_secs(50))
}

fn spi_of(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Esp(id) => id.spi,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_child_carries_traffic_and_goes_without_a_trace() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    assert_eq!(sim.send(&out()), Verdict::Clear);
    apply(&mut plane, child.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), child.spi_out);
    assert!(sim.receive(child.spi_in, &back()));
    assert!(!sim.receive_clear(&back()), "what is to be protected is not taken in clear");
    let directions: Vec<_> = sim.policies().iter().map(|p| p.policy.id.direction).collect();
    assert_eq!(directions.len(), 3);
    for direction in [PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward] {
        assert!(directions.contains(&direction), "{direction:?}");
    }
    assert!(sim.states().iter().all(|state| REQIDS.contains(&state.reqid)));
    let sent = usage(&mut plane, child.outbound());
    assert_eq!((sent.packets, sent.bytes, sent.offload), (1, 100, HwOffload::No));
    assert_eq!(sent.idle, Some(Duration::ZERO));
    assert!(plane.apply(Command::QueryUsage(SaId { spi: 77, dst: addr(LEFT) })).is_err());

    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
    // Twice is as good.
    apply(&mut plane, child.down()).unwrap();
}

/// The engine's order: in, out, policy; then the old half goes, later the rest of it.
#[test]
fn a_rekey_moves_traffic_without_a_gap() {
    let (mut plane, sim, _) = plane();
    let (old, new) = (Child::new(1, 1), Child::new(1, 2));
    apply(&mut plane, old.up()).unwrap();
    for command in new.up() {
        apply(&mut plane, [command]).unwrap();
        assert!(matches!(sim.send(&out()), Verdict::Esp(_)));
        assert!(sim.receive(old.spi_in, &back()));
    }
    assert_eq!(spi_of(sim.send(&out())), new.spi_out);
    assert!(sim.receive(new.spi_in, &back()));
    let gone = [Command::RemoveSa(old.outbound()), Command::RemoveSa(old.inbound())];
    apply(&mut plane, gone).unwrap();
    assert_eq!(spi_of(sim.send(&out())), new.spi_out);
    assert_eq!(sim.states().len(), 2);
    assert_eq!(sim.policies().len(), 3);
}

/// Both ends made a child at once, or one is made before the other is broken: another policy of the
/// engine with the same selectors.
#[test]
fn two_children_with_the_same_selectors_both_receive() {
    let (mut plane, sim, _) = plane();
    let (first, second) = (Child::new(1, 1), Child::new(2, 2));
    apply(&mut plane, first.up()).unwrap();
    apply(&mut plane, second.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), second.spi_out, "of one owner's the newer");
    assert!(sim.receive(first.spi_in, &back()) && sim.receive(second.spi_in, &back()));
    apply(&mut plane, second.down()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), first.spi_out, "what was beneath is back");
    apply(&mut plane, second.up()).unwrap();
    apply(&mut plane, first.down()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), second.spi_out);
    assert!(sim.receive(second.spi_in, &back()));
}

#[test]
fn a_later_peer_does_not_get_the_traffic_of_an_earlier_one() {
    let (mut plane, sim, _) = plane();
    let first = Child::new(1, 1);
    let mut thief = Child::new(2, 2);
    (thief.owner, thief.remote) = ("site [thief]".into(), addr("203.0.113.66"));
    apply(&mut plane, first.up()).unwrap();
    apply(&mut plane, thief.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), first.spi_out);
    assert!(!sim.receive(thief.spi_in, &back()), "nor may it send as the other");
    // A rekey of the first one, and a new policy of the same owner, change nothing.
    apply(&mut plane, Child::new(1, 3).up()).unwrap();
    let again = Child::new(7, 4);
    apply(&mut plane, again.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), again.spi_out);
    apply(&mut plane, first.down()).unwrap();
    apply(&mut plane, [again.protect()]).unwrap();
    assert_eq!(spi_of(sim.send(&out())), again.spi_out, "the owner was first");
    apply(&mut plane, again.down()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), thief.spi_out);
}

#[test]
fn trap_child_and_trap_again_without_a_moment_in_clear() {
    let (mut plane, sim, hand) = plane();
    let mut trap = Child::new(1, 1);
    trap.owner = "site".into();
    let child = Child::new(2, 2);
    apply(&mut plane, [trap.trap()]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Acquire);
    assert!(!sim.receive_clear(&back()));
    let (local, remote) = (ts("10.1.0.1[udp/1000]"), ts("10.2.0.1[udp/2000]"));
    let acquire = Event::Acquire { policy: PolicyId(1), local, remote, cpu: None };
    assert_eq!(events(&mut plane), [acquire]);
    assert_eq!(sim.send(&out()), Verdict::Acquire);
    assert_eq!(events(&mut plane), [], "the kernel has asked already");
    apply(&mut plane, child.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), child.spi_out);
    assert!(sim.states().iter().all(|state| state.id.spi != 0), "the acquire is answered");
    apply(&mut plane, child.down()).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Acquire, "the trap is back");
    assert_eq!(events(&mut plane), [acquire]);
    hand.advance(Duration::from_secs(5));
    assert_eq!(events(&mut plane), []);
    apply(&mut plane, [Command::RemovePolicy(PolicyId(1))]).unwrap();
    assert!(sim.states().is_empty() && sim.is_empty());
}

/// A negotiation that failed: the kernel would drop packets for half a minute and say nothing.
#[test]
fn the_kernel_asks_again_after_a_while() {
    let (mut plane, sim, hand) = plane();
    let trap = Child::new(1, 1);
    apply(&mut plane, [trap.trap()]).unwrap();
    sim.send(&out());
    assert_eq!(events(&mut plane).len(), 1);
    let wait = xfrm::plane::ACQUIRE_INTERVAL;
    assert!(plane.deadline().is_some());
    hand.advance(wait - Duration::from_millis(1));
    sim.send(&out());
    assert_eq!(events(&mut plane), []);
    hand.advance(Duration::from_millis(1));
    assert_eq!(events(&mut plane), []);
    assert!(has_nothing_to_do(&plane, &hand));
    sim.send(&out());
    assert_eq!(events(&mut plane).len(), 1, "another attempt");
}

/// Fault: in `XfrmNetlink::deadline`, leave `regular` out.
#[test]
fn policies_are_looked_at_once_a_minute_although_no_event_tells_of_them() {
    let (mut plane, _, hand) = plane();
    assert_eq!(plane.deadline(), None, "there is nothing to look at");
    apply(&mut plane, [Child::new(1, 1).trap()]).unwrap();
    assert_eq!(events(&mut plane), []);
    assert_eq!(plane.deadline(), Some(hand.now() + Duration::from_secs(60)));
}

#[test]
fn a_trap_without_a_known_peer_works_too() {
    let (mut plane, sim, _) = plane();
    let mut spec = Child::new(1, 1).spec(PolicyAction::Trap);
    spec.outer = None;
    apply(&mut plane, [Command::InstallPolicy(Box::new(spec))]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Acquire);
    assert_eq!(events(&mut plane).len(), 1);
    assert!(!sim.receive_clear(&back()));
}

#[test]
fn protection_without_an_outbound_sa_blocks() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, [child.sa(Direction::In), child.protect_by(None)]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Dropped);
    assert!(sim.receive(child.spi_in, &back()));
    assert!(!sim.receive_clear(&back()));
}

#[test]
fn a_shunt_applies_where_nothing_else_does() {
    let (mut plane, sim, _) = plane();
    let shunt = Child::new(1, 1).between("10.1.0.1/32", "10.2.0.1/32");
    apply(&mut plane, [shunt.act(PolicyAction::Shunt { silent: true })]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Dropped);
    assert!(!sim.receive_clear(&back()) && !sim.forward_clear(&back()));
    let mut pass = Child::new(2, 2).between("0.0.0.0/0", "0.0.0.0/0");
    pass.priority = 9;
    apply(&mut plane, [pass.act(PolicyAction::Pass)]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Clear);
    assert!(sim.receive_clear(&back()));
    apply(&mut plane, [Command::RemovePolicy(PolicyId(2))]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Dropped);
}

/// The local selectors of such a hold are all addresses: what arrives is not held. What a link needs passes beside it, and
/// is not passed on for others.
///
/// Faults: in `Maker::inward`, make policies for it; leave the mode of a pass policy out.
#[test]
fn a_hold_of_all_addresses_lets_in_and_a_pass_for_this_host_passes_nothing_on() {
    let (mut plane, sim, _) = plane();
    let hold = Child::new(1, 1).between("0.0.0.0/0", "10.2.0.0/16");
    apply(&mut plane, [hold.act(PolicyAction::Hold { anywhere: true })]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Dropped);
    assert!(sim.receive_clear(&back()));
    let own = Child::new(2, 2).between("10.1.0.0/16", "10.2.0.0/16");
    apply(&mut plane, [own.act(PolicyAction::Hold { anywhere: false })]).unwrap();
    assert!(!sim.receive_clear(&back()) && !sim.forward_clear(&back()));
    let pass = Child::new(3, 3).between("0.0.0.0/0", "0.0.0.0/0").act(PolicyAction::Pass);
    let Command::InstallPolicy(mut pass) = pass else { panic!("a policy") };
    let host = Outer { mode: Mode::Transport, local: addr(LEFT), remote: addr(RIGHT) };
    pass.outer = Some(host);
    apply(&mut plane, [Command::InstallPolicy(pass)]).unwrap();
    assert_eq!(sim.send(&out()), Verdict::Clear);
    assert!(sim.receive_clear(&back()) && !sim.forward_clear(&back()));
}

#[test]
fn passing_on_in_clear_is_excepted_both_ways() {
    let (mut plane, sim, _) = plane();
    let drop = Child::new(1, 1).between("0.0.0.0/0", "0.0.0.0/0");
    apply(&mut plane, [drop.act(PolicyAction::Drop)]).unwrap();
    assert!(!sim.forward_clear(&out()) && !sim.forward_clear(&back()));
    apply(&mut plane, [Child::new(2, 2).act(PolicyAction::Pass)]).unwrap();
    assert!(sim.forward_clear(&out()) && sim.forward_clear(&back()));
    apply(&mut plane, [Command::RemovePolicy(PolicyId(2))]).unwrap();
    // What is to be protected may be passed on towards the tunnel if asked for.
    apply(&mut plane, Child::new(3, 3).with(|p| p.policies_fwd_out = true).up()).unwrap();
    assert!(sim.forward_clear(&out()) && !sim.forward_clear(&back()));
}

#[test]
fn transport_mode_has_no_forward_policies_and_selects_hosts() {
    let (mut plane, sim, _) = plane();
    let mut child = Child::new(1, 1).between(LEFT, RIGHT);
    child.mode = Mode::Transport;
    apply(&mut plane, child.up()).unwrap();
    let packet = Packet::udp(addr(LEFT), addr(RIGHT));
    assert_eq!(spi_of(sim.send(&packet)), child.spi_out);
    assert_eq!(sim.policies().len(), 2);
    assert!(sim.receive(child.spi_in, &Packet::udp(addr(RIGHT), addr(LEFT))));
    // Behind a NAT that changes: selectors follow.
    let (local, remote): (SocketAddr, SocketAddr) =
        (format!("{LEFT}:4500").parse().unwrap(), "203.0.113.9:4500".parse().unwrap());
    let mut moved = child.clone();
    moved.remote_ts = vec![ts("203.0.113.9")];
    apply(&mut plane, moved.moves(local, remote)).unwrap();
    let packet = Packet::udp(addr(LEFT), addr("203.0.113.9"));
    assert_eq!(spi_of(sim.send(&packet)), child.spi_out);
    assert!(sim.receive(child.spi_in, &Packet::udp(addr("203.0.113.9"), addr(LEFT))));
    apply(&mut plane, moved.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn families_mix() {
    let (mut plane, sim, _) = plane();
    let four_in_six =
        Child { local: addr("2001:db8::1"), remote: addr("2001:db8::2"), ..Child::new(1, 1) };
    let mut six_in_four = Child::new(2, 2).between("fd01::/64", "fd02::/64");
    // An address as a socket for both families says it.
    six_in_four.remote = addr("::ffff:198.51.100.1");
    apply(&mut plane, four_in_six.up()).unwrap();
    apply(&mut plane, six_in_four.up()).unwrap();
    assert_eq!(spi_of(sim.send(&out())), four_in_six.spi_out);
    let packet = Packet::udp(addr("fd01::1"), addr("fd02::1"));
    assert_eq!(spi_of(sim.send(&packet)), six_in_four.spi_out);
    assert_eq!(sim.state(six_in_four.spi_out).unwrap().id.dst, addr(RIGHT));
    apply(&mut plane, six_in_four.down()).unwrap();
    apply(&mut plane, four_in_six.down()).unwrap();
    assert!(sim.is_empty());
}

#[test]
fn marks_and_interfaces_keep_children_apart() {
    let (mut plane, sim, _) = plane();
    let mark = |value| Mark { value, mask: 0xff };
    let tenant = |n: u32| {
        Child::new(u64::from(n), n).with(|p| {
            (p.mark_in, p.mark_out, p.mark_in_sa) = (mark(n), mark(n), n == 2);
        })
    };
    for n in [1, 2] {
        apply(&mut plane, tenant(n).up()).unwrap();
    }
    for n in [1, 2] {
        let packet = Packet { mark: n | 0x100, ..out() };
        assert_eq!(spi_of(sim.send(&packet)), tenant(n).spi_out);
        let (inbound, outbound) =
            (sim.state(tenant(n).spi_in).unwrap(), sim.state(tenant(n).spi_out).unwrap());
        assert_eq!(inbound.id.mark, if n == 2 { mark(2) } else { Mark::default() });
        assert_eq!(outbound.id.mark, mark(n));
        assert_eq!(inbound.reqid, outbound.reqid);
    }
    assert_eq!(sim.send(&out()), Verdict::Clear);
    let routed = Child::new(3, 3).with(|p| (p.if_id_in, p.if_id_out) = (42, 43));
    apply(&mut plane, routed.up()).unwrap();
    assert_eq!(spi_of(sim.send(&Packet { if_id: 43, ..out() })), routed.spi_out);
    for child in [tenant(1), tenant(2), routed] {
        apply(&mut plane, child.down()).unwrap();
    }
    assert!(sim.is_empty());
}

#[test]
fn per_cpu_children_let_the_kernel_choose() {
    let (mut plane, sim, hand) = plane();
    let child = Child::new(1, 1).with(|p| p.per_cpu = true);
    apply(&mut plane, child.up()).unwrap();
    let policies = sim.policies();
    let out_policy =
        policies.iter().find(|p| p.policy.id.direction == PolicyDirection::Out).unwrap();
    assert!(out_policy.policy.cpu_acquire);
    assert_eq!(spi_of(sim.send(&out())), child.spi_out);
    sim.raise(xfrm::event::Event::Acquire(xfrm::event::Acquire {
        packet: out_policy.policy.id.selector,
        src: addr(LEFT),
        dst: addr(RIGHT),
        reqid: 0,
        mode: Some(Mode::Tunnel),
        policy: out_policy.policy.id,
        index: 0,
        sequence: 0,
        cpu: Some(3),
    }));
    let raised = events(&mut plane);
    assert!(
        matches!(raised[..], [Event::Acquire { policy: PolicyId(1), cpu: Some(3), .. }]),
        "{raised:?}"
    );
    // Until it may ask again, packets go by the SA for all.
    let asks = || sim.policies().iter().any(|p| p.policy.cpu_acquire);
    assert!(!asks());
    assert_eq!(spi_of(sim.send(&out())), child.spi_out);
    hand.advance(xfrm::plane::ACQUIRE_INTERVAL);
    assert_eq!(events(&mut plane), []);
    assert!(asks());
}

#[test]
fn policies_of_somebody_else() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1).with(|p| p.policies = false);
    apply(&mut plane, child.up()).unwrap();
    assert!(sim.policies().is_empty());
    assert_eq!(sim.states().len(), 2);
    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn an_sa_moves_with_its_numbers_counters_and_limits() {
    let (mut plane, sim, _) = plane();
    let mut child = Child::new(1, 1);
    child.limits = Limits { soft_packets: 50, hard_packets: 100, ..Limits::default() };
    apply(&mut plane, child.up()).unwrap();
    sim.set_sent(child.spi_out, 5000);
    sim.charge(child.spi_out, 4000, 40);
    let (local, remote): (SocketAddr, SocketAddr) =
        (format!("{LEFT}:500").parse().unwrap(), "203.0.113.7:500".parse().unwrap());
    let before = child.clone();
    apply(&mut plane, child.moves(local, remote)).unwrap();
    let state = sim.state(child.spi_out).unwrap();
    assert_eq!((state.src, state.id.dst), (local.ip(), remote.ip()));
    assert!(state.replay.sent > 5000, "no number twice, even of packets sent meanwhile");
    assert_eq!((state.lifetime.soft_packets, state.lifetime.hard_packets), (10, 60));
    assert_eq!(usage(&mut plane, child.outbound()).packets, 40);
    assert_eq!(sim.states().len(), 2);
    assert_eq!(spi_of(sim.send(&out())), child.spi_out);
    assert!(sim.receive(child.spi_in, &back()));
    assert!(plane.apply(Command::QueryUsage(before.outbound())).is_err(), "has another name");
    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn only_ports_change() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    let Command::InstallSa(mut spec) = child.sa(Direction::Out) else { panic!() };
    let udp = |dst_port| Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port });
    spec.encap = Some(udp(4500));
    apply(&mut plane, [Command::InstallSa(spec), child.protect()]).unwrap();
    sim.charge(child.spi_out, 10, 1);
    let (src, dst): (SocketAddr, SocketAddr) =
        (format!("{LEFT}:4500").parse().unwrap(), format!("{RIGHT}:61000").parse().unwrap());
    let encap = Some(udp(61000));
    let update = Command::UpdateSa { id: child.outbound(), src, dst, encap };
    apply(&mut plane, [update]).unwrap();
    let state = sim.state(child.spi_out).unwrap();
    assert_eq!(state.encapsulation, Some(udp(61000)));
    assert_eq!(state.packets, 1, "the same state");
    // From UDP to plain ESP the state is another one, and goes on all the same.
    let update = Command::UpdateSa { id: child.outbound(), src, dst, encap: None };
    apply(&mut plane, [update]).unwrap();
    assert_eq!(sim.state(child.spi_out).unwrap().encapsulation, None);
    assert_eq!(usage(&mut plane, child.outbound()).packets, 1);
}

#[test]
fn the_same_sa_twice_is_one_and_another_of_its_name_is_refused() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    sim.charge(child.spi_out, 10, 1);
    apply(&mut plane, child.up()).unwrap();
    assert_eq!(usage(&mut plane, child.outbound()).packets, 1);
    let Command::InstallSa(mut other) = child.sa(Direction::Out) else { panic!() };
    other.encr_key = ipsec_types::crypto::Secret::new(vec![9; 20]);
    let error = plane.apply(Command::InstallSa(other)).unwrap_err();
    assert!(error.0.contains("in use"), "{error}");
    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn expiry_is_told_once() {
    let (mut plane, sim, _) = plane();
    let mut child = Child::new(1, 1);
    child.limits = Limits { soft_bytes: 1000, hard_bytes: 2000, ..Limits::default() };
    apply(&mut plane, child.up()).unwrap();
    sim.charge(child.spi_out, 1000, 1);
    assert_eq!(events(&mut plane), [Event::SoftExpire(child.outbound())]);
    sim.charge(child.spi_out, 1000, 1);
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
    assert_eq!(sim.send(&out()), Verdict::Acquire, "dropped: nothing leaves in clear");
    assert_eq!(events(&mut plane), []);
    assert!(plane.apply(child.sa(Direction::Out)).is_err(), "numbers would start over");
    apply(&mut plane, child.down()).unwrap();
    assert!(sim.is_empty() && plane.is_empty());
}

/// An expiry is of one state, which SPI and address alone do not name.
#[test]
fn states_of_others_expire_without_notice() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    let ours = sim.state(child.spi_out).unwrap();
    let expire = |id, reqid| xfrm::event::Event::Expire { id, reqid, hard: true };
    let marked = StateId { mark: Mark { value: 7, mask: u32::MAX }, ..ours.id };
    sim.raise(expire(marked, ours.reqid));
    sim.raise(expire(ours.id, ours.reqid + 1));
    assert_eq!(events(&mut plane), []);
    sim.raise(expire(ours.id, ours.reqid));
    assert_eq!(events(&mut plane), [Event::HardExpire(child.outbound())]);
}

/// A flood of what is of no interest hides nothing: what is left of it rings no bell.
#[test]
fn events_behind_a_flood_are_read() {
    let (mut plane, sim, _) = plane();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    let ours = sim.state(child.spi_out).unwrap();
    let strange = StateId { spi: 0x1234_5678, ..ours.id };
    for _ in 0..3000 {
        sim.raise(xfrm::event::Event::Expire { id: strange, reqid: 9, hard: true });
    }
    sim.raise(xfrm::event::Event::Expire { id: ours.id, reqid: ours.reqid, hard: true });
    let mut raised = Vec::new();
    for _ in 0..10 {
        raised.extend(events(&mut plane));
        if plane.deadline().is_none() {
            break;
        }
    }
    assert_eq!(raised, [Event::HardExpire(child.outbound())]);
}

#[test]
fn lost_events_are_made_up_for() {
    let (mut plane, sim, _) = plane();
    let mut child = Child::new(1, 1);
    child.limits = Limits { soft_bytes: 1000, ..Limits::default() };
    let trap = Child::new(2, 2).between("10.3.0.0/16", "10.4.0.0/16");
    apply(&mut plane, child.up()).unwrap();
    apply(&mut plane, [trap.trap()]).unwrap();
    let waiting = Packet::udp(addr("10.3.0.1"), addr("10.4.0.1"));
    sim.send(&waiting);
    sim.charge(child.spi_out, 1000, 1);
    sim.lose_state(child.spi_in);
    let policy = sim.policies().pop().unwrap();
    sim.lose_policy(&policy.policy.id);
    sim.lose_events();
    let raised = events(&mut plane);
    assert!(raised.contains(&Event::SoftExpire(child.outbound())), "{raised:?}");
    assert!(raised.contains(&Event::HardExpire(child.inbound())), "{raised:?}");
    let (local, remote) = (ts("10.3.0.1[udp/1000]"), ts("10.4.0.1[udp/2000]"));
    let acquire = Event::Acquire { policy: PolicyId(2), local, remote, cpu: None };
    assert!(raised.contains(&acquire), "{raised:?}");
    assert_eq!(raised.len(), 3);
    assert!(sim.policies().iter().any(|other| other.policy == policy.policy), "is back");
    sim.lose_events();
    assert_eq!(events(&mut plane), [acquire], "the rest is known");
}

/// RFC 7296 §2.8: the responder of a rekey sends by the new SA once the peer uses it.
#[test]
fn the_first_packet_is_noticed_where_somebody_waits_for_it() {
    let (mut plane, sim, hand) = plane();
    let (old, new) = (Child::new(1, 1), Child::new(1, 2));
    apply(&mut plane, old.up()).unwrap();
    assert_eq!(plane.deadline(), None, "nobody waits");
    apply(&mut plane, [new.sa(Direction::In)]).unwrap();
    assert!(plane.deadline().is_some());
    hand.advance(Duration::from_millis(20));
    assert_eq!(events(&mut plane), []);
    assert!(sim.receive(new.spi_in, &back()), "the new SA receives under the old policy");
    assert_eq!(events(&mut plane), [], "not looked at yet");
    hand.advance(Duration::from_millis(40));
    assert_eq!(events(&mut plane), [Event::FirstPacket(new.inbound())]);
    assert!(has_nothing_to_do(&plane, &hand));
    apply(&mut plane, [new.sa(Direction::Out), new.protect()]).unwrap();
    assert_eq!(spi_of(sim.send(&out())), new.spi_out);
    // It ends, too, if the engine knows by other means.
    let third = Child::new(1, 3);
    apply(&mut plane, [third.sa(Direction::In)]).unwrap();
    assert!(plane.deadline().is_some());
    apply(&mut plane, [third.sa(Direction::Out)]).unwrap();
    assert!(has_nothing_to_do(&plane, &hand));
}

#[test]
fn what_others_installed_is_left_alone() {
    let (mut plane, sim, _) = plane();
    // Somebody else's plane in the same kernel, with reqids of its own choice.
    let mut other = XfrmNetlink::new(Kernel::new(sim.clone()), SimKernel::new(), capabilities());
    other.kernel_mut().tag_policies(0x11, 0);
    let foreign = Child::new(1, 8).between("10.8.0.0/16", "10.9.0.0/16").with(|p| p.reqid = 77);
    apply(&mut other, foreign.up()).unwrap();
    let child = Child::new(1, 1);
    apply(&mut plane, child.up()).unwrap();
    let taken = Child { spi_in: foreign.spi_in, ..Child::new(2, 2) };
    let error = plane.apply(taken.sa(Direction::In)).unwrap_err();
    assert!(error.0.contains("00008000"), "{error}");
    let mut kernel = Kernel::new(sim.clone());
    let ours = Remains::find(&mut kernel).unwrap();
    assert_eq!((ours.states.len(), ours.policies.len()), (2, 3));
    plane.apply(Command::Flush).unwrap();
    assert!(plane.is_empty());
    assert_eq!((sim.states().len(), sim.policies().len()), (2, 3));
    assert_eq!(Remains::find(&mut kernel).unwrap(), Remains::default());
    apply(&mut other, foreign.down()).unwrap();
    assert!(sim.is_empty());
}

#[test]
fn selectors_the_kernel_cannot_have_are_refused_in_words() {
    let (mut plane, sim, _) = plane();
    for (local, remote, words) in [
        ("10.1.0.0/16[tcp/opaque]", "10.2.0.0/16", "opaque"),
        ("10.1.0.0/16", "fd02::/64", "family"),
        ("0.0.0.1-255.255.255.254[udp/1-65534]", "0.0.0.1-255.255.255.254", "subnets"),
    ] {
        let error = plane.apply(Child::new(1, 1).between(local, remote).protect()).unwrap_err();
        assert!(error.0.contains(words) && error.0.contains("net1"), "{error}");
    }
    let error =
        plane.apply(Child::new(1, 1).with(|p| p.interface = Some("nope0".into())).protect());
    assert!(error.unwrap_err().0.contains("nope0"));
    let error =
        plane.apply(Child::new(1, 1).with(|p| p.hw_offload = HwOffload::Packet).sa(Direction::In));
    assert!(error.unwrap_err().0.contains("offload"));
    assert!(sim.is_empty() && plane.is_empty());
}

#[test]
fn overlaps_between_peers_are_refused_if_asked() {
    let (mut plane, sim, _) = plane();
    plane.refuse_overlaps(true);
    apply(&mut plane, Child::new(1, 1).up()).unwrap();
    let cases = [
        ("10.1.0.0/16", "10.2.0.0/16", false),
        ("10.1.9.0/24", "0.0.0.0/0", false),
        ("10.1.0.0/16[tcp/80]", "10.2.0.0/16", false),
        ("10.1.0.0/16", "10.3.0.0/16", true),
        ("10.4.0.0/16", "10.2.0.0/16", true),
        ("fd01::/64", "::/0", true),
    ];
    for (n, (local, remote, taken)) in cases.into_iter().enumerate() {
        let mut other = Child::new(10 + n as u64, 2).between(local, remote);
        other.owner = "site [other]".into();
        let result = plane.apply(other.protect());
        assert_eq!(result.is_ok(), taken, "{local} {remote}: {result:?}");
        if let Err(error) = result {
            assert!(error.0.contains("[right]") && error.0.contains("[other]"), "{error}");
        }
    }
    // What is there already may be installed again, and the same owner may have more.
    apply(&mut plane, Child::new(1, 1).up()).unwrap();
    apply(&mut plane, Child::new(2, 3).up()).unwrap();
    for id in [1, 2, 13, 14, 15] {
        apply(&mut plane, [Command::RemovePolicy(PolicyId(id))]).unwrap();
    }
    let mut thief = Child::new(30, 4);
    thief.owner = "site [other]".into();
    apply(&mut plane, [thief.protect()]).unwrap();
    plane.apply(Command::Flush).unwrap();
    assert!(sim.is_empty());
}
