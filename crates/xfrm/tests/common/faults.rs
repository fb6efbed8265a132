//! A child's life with every request to the kernel failing in turn.
//!
//! However one fails (by an errno, by an answer that got lost, by all failing from then on), what leaves in
//! clear, what is in the kernel after the engine has cleaned up, and what a flush leaves must be as without
//! the failure.

use std::sync::{Arc, Mutex};

use ipsec_types::dataplane::{Command, DataPlane, PolicyAction, PolicyId, PolicySpec};
use netlink_packet_xfrm::XfrmMessage;
use xfrm::kernel::Kernel;
use xfrm::netlink::{Error, FaultyTransport, Kind, NetlinkFault, Transport};
use xfrm::plane::Source;
use xfrm::policy::PolicyInfo;
use xfrm::{Packet, Verdict, XfrmNetlink, judge};

use crate::common::{Child, LEFT, apply, capabilities, out};

/// A kernel to try it on.
pub trait Rig {
    type T: Transport;
    type S: Source;

    /// An empty kernel: a transport and events for the plane, and another transport to look by.
    fn fresh(&mut self) -> (Self::T, Self::S, Self::T, Self::T);
}

/// Looks after every request whether what must not leave in clear would.
pub struct Guarded<T> {
    inner: T,
    observer: Kernel<T>,
    guard: Arc<Mutex<Guard>>,
}

#[derive(Default)]
struct Guard {
    packets: Vec<Packet>,
    leaks: Vec<String>,
}

impl<T: Transport> Transport for Guarded<T> {
    fn request(&mut self, message: XfrmMessage, kind: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let result = self.inner.request(message, kind);
        let mut guard = self.guard.lock().unwrap();
        let packets = guard.packets.clone();
        if !packets.is_empty() {
            let policies = self.observer.policies().unwrap();
            for packet in packets {
                if judge(&policies, &[], &packet) == Verdict::Clear {
                    guard.leaks.push(format!("{packet:?}"));
                }
            }
        }
        result
    }
}

/// What the engine does, and how it cleans up if it fails.
pub struct Scenario {
    pub name: &'static str,
    before: Vec<Command>,
    /// Each step with what follows if it fails.
    steps: Vec<(Command, Vec<Command>)>,
    /// From the end of `before` on nothing may leave in clear.
    guarded: bool,
    /// SPIs of the states that are there after success, and after a failure in the n-th step, from 0.
    done: Vec<u32>,
    failed: Box<dyn Fn(usize) -> Vec<u32>>,
}

/// How a request fails.
#[derive(Debug, Clone, Copy)]
pub enum Failure {
    Errno(i32),
    LostAck,
    AllFromThen(i32),
}

pub const FAILURES: [Failure; 5] = [
    Failure::Errno(libc::ENOMEM),
    Failure::Errno(libc::EINVAL),
    Failure::Errno(libc::ENOBUFS),
    Failure::LostAck,
    Failure::AllFromThen(libc::ENOBUFS),
];

struct Bench<R: Rig> {
    plane: XfrmNetlink<FaultyTransport<Guarded<R::T>>, R::S>,
    observer: Kernel<R::T>,
    guard: Arc<Mutex<Guard>>,
}

impl<R: Rig> Bench<R> {
    fn new(rig: &mut R) -> Self {
        let (transport, source, look, other) = rig.fresh();
        let guard = Arc::new(Mutex::new(Guard::default()));
        let guarded =
            Guarded { inner: transport, observer: Kernel::new(look), guard: Arc::clone(&guard) };
        let kernel = Kernel::new(FaultyTransport::new(guarded));
        Self {
            plane: XfrmNetlink::new(kernel, source, capabilities()),
            observer: Kernel::new(other),
            guard,
        }
    }

    fn faults(&mut self) -> &mut FaultyTransport<Guarded<R::T>> {
        self.plane.kernel_mut().transport_mut()
    }

    fn spis(&mut self) -> Vec<u32> {
        let mut spis: Vec<u32> =
            self.observer.states().unwrap().into_iter().map(|state| state.id.spi).collect();
        spis.sort_unstable();
        spis
    }
}

/// Runs one scenario in full, then with each of its requests failing in each way. The number of runs.
pub fn run<R: Rig>(rig: &mut R, make: fn() -> Scenario) -> usize {
    let Scenario { name, before, steps, done, .. } = make();
    let mut bench = Bench::new(rig);
    apply(&mut bench.plane, before).unwrap();
    bench.faults().take_requests();
    for (step, _) in steps {
        bench.plane.apply(step).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let requests = bench.faults().take_requests().len() as u64;
    assert!(requests > 0, "{name}");
    assert_eq!(bench.spis(), done, "{name}");
    finish(&mut bench, name);
    let mut runs = 1;
    for n in 1..=requests {
        for failure in FAILURES {
            fail(rig, make(), n, failure);
            runs += 1;
        }
    }
    runs
}

fn fail<R: Rig>(rig: &mut R, scenario: Scenario, n: u64, failure: Failure) {
    let Scenario { name, before, steps, guarded, done, failed } = scenario;
    let what = format!("{name}, request {n}, {failure:?}");
    let mut bench = Bench::new(rig);
    apply(&mut bench.plane, before).unwrap();
    if guarded {
        bench.guard.lock().unwrap().packets.push(out());
    }
    let lasting = arm(&mut bench, n, failure);
    let mut expected = done;
    for (at, (step, cleanup)) in steps.into_iter().enumerate() {
        let policies = bench.observer.policies().unwrap();
        let installs = match &step {
            Command::InstallSa(spec) => Some(spec.id.spi),
            _ => None,
        };
        let installs_policy = matches!(step, Command::InstallPolicy(_));
        let Err(error) = bench.plane.apply(step) else { continue };
        assert!(!error.0.is_empty());
        if !lasting {
            assert!(installs.is_none_or(|spi| !bench.spis().contains(&spi)), "{what}: half an SA");
            if installs_policy {
                same(&policies, &bench.observer.policies().unwrap(), &what);
            }
        }
        if lasting {
            // The engine tries at once, and again later.
            for command in cleanup_of(&cleanup) {
                _ = bench.plane.apply(command);
            }
        }
        bench.faults().heal();
        for command in cleanup {
            bench.plane.apply(command).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        expected = failed(at);
        break;
    }
    bench.faults().heal();
    assert_eq!(bench.spis(), expected, "{what}");
    let leaks = std::mem::take(&mut *bench.guard.lock().unwrap()).leaks;
    assert!(leaks.is_empty(), "{what}: {leaks:?}");
    finish(&mut bench, &what);
}

/// A fault may be gone once it hit, or last until it is healed; true for the second.
fn arm<R: Rig>(bench: &mut Bench<R>, n: u64, failure: Failure) -> bool {
    let faults = bench.faults();
    match failure {
        Failure::Errno(errno) => faults.fail(NetlinkFault::Nth(n, errno)),
        Failure::LostAck => faults.fail(NetlinkFault::LostAck(n)),
        Failure::AllFromThen(errno) => {
            // Many one-time faults, for those from then on.
            (n..n + 50).for_each(|n| faults.fail(NetlinkFault::Nth(n, errno)));
            return true;
        }
    }
    false
}

/// Only removals can be made from a reference.
fn cleanup_of(cleanup: &[Command]) -> Vec<Command> {
    cleanup
        .iter()
        .filter_map(|command| match command {
            Command::RemoveSa(id) => Some(Command::RemoveSa(*id)),
            Command::RemovePolicy(id) => Some(Command::RemovePolicy(*id)),
            Command::Flush => Some(Command::Flush),
            _ => None,
        })
        .collect()
}

/// Nothing is left after a flush.
fn finish<R: Rig>(bench: &mut Bench<R>, what: &str) {
    bench.guard.lock().unwrap().packets.clear();
    bench.plane.apply(Command::Flush).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(bench.plane.is_empty(), "{what}");
    assert_eq!(bench.spis(), Vec::<u32>::new(), "{what}");
    let policies = bench.observer.policies().unwrap();
    assert!(policies.is_empty(), "{what}: {policies:?}");
}

/// The same policies, whatever their numbers and times.
fn same(before: &[PolicyInfo], now: &[PolicyInfo], what: &str) {
    let list = |policies: &[PolicyInfo]| {
        let mut list: Vec<_> = policies.iter().map(|info| format!("{:?}", info.policy)).collect();
        list.sort();
        list
    };
    assert_eq!(list(before), list(now), "{what}: half a policy");
}

fn trap() -> Child {
    Child { owner: "site".into(), ..Child::new(9, 9) }
}

/// Steps that are all undone by the same commands.
fn undone_by(
    steps: Vec<Command>,
    cleanup: impl Fn() -> Vec<Command>,
) -> Vec<(Command, Vec<Command>)> {
    steps.into_iter().map(|step| (step, cleanup())).collect()
}

pub fn install_under_a_trap() -> Scenario {
    let child = Child::new(1, 1);
    Scenario {
        name: "install under a trap",
        before: vec![trap().trap()],
        steps: undone_by(child.up(), || child.down()),
        guarded: true,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![]),
    }
}

pub fn install() -> Scenario {
    let child = Child::new(1, 1);
    Scenario {
        name: "install",
        before: vec![],
        steps: undone_by(child.up(), || child.down()),
        guarded: false,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![]),
    }
}

/// The last two steps are removals, which are repeated; the others give the new child up.
pub fn rekey() -> Scenario {
    let (old, new) = (Child::new(1, 1), Child::new(1, 2));
    let give_up = || {
        let gone = [Command::RemoveSa(new.outbound()), Command::RemoveSa(new.inbound())];
        [old.protect()].into_iter().chain(gone).collect()
    };
    let mut steps = undone_by(new.up(), give_up);
    for id in [old.outbound(), old.inbound()] {
        let rest = [old.outbound(), old.inbound()].map(Command::RemoveSa);
        steps.push((Command::RemoveSa(id), rest.into_iter().collect()));
    }
    Scenario {
        name: "rekey",
        before: old.up(),
        steps,
        guarded: true,
        done: vec![0x2000, 0x2001],
        failed: Box::new(|step| match step {
            0..3 => vec![0x1000, 0x1001],
            _ => vec![0x2000, 0x2001],
        }),
    }
}

pub fn delete_above_a_trap() -> Scenario {
    let child = Child::new(1, 1);
    Scenario {
        name: "delete above a trap",
        before: [trap().trap()].into_iter().chain(child.up()).collect(),
        steps: undone_by(child.down(), || child.down()),
        guarded: true,
        done: vec![],
        failed: Box::new(|_| vec![]),
    }
}

pub fn move_above_a_trap() -> Scenario {
    let before = Child::new(1, 1);
    let mut moved = before.clone();
    let local = format!("{LEFT}:500").parse().unwrap();
    let steps = moved.moves(local, "203.0.113.7:500".parse().unwrap());
    let cleanup = || {
        let stale = [Command::RemoveSa(before.outbound()), Command::RemoveSa(before.inbound())];
        stale.into_iter().chain(moved.down()).collect()
    };
    Scenario {
        name: "move above a trap",
        before: [trap().trap()].into_iter().chain(before.up()).collect(),
        steps: undone_by(steps, cleanup),
        guarded: true,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![]),
    }
}

pub fn set_a_trap() -> Scenario {
    let remove = || vec![Command::RemovePolicy(PolicyId(9))];
    Scenario {
        name: "set a trap",
        before: vec![],
        steps: undone_by(vec![trap().trap()], remove),
        guarded: false,
        done: vec![],
        failed: Box::new(|_| vec![]),
    }
}

/// The trap of a child that is up becomes narrower, and the policy of the SA goes ahead of it.
/// Fault: in `Policies::install`, put back `before` alone.
pub fn narrow_a_trap() -> Scenario {
    let child = Child::new(1, 1);
    let of_child = |trap: Child| {
        let spec = PolicySpec { child: "net1".into(), ..trap.spec(PolicyAction::Trap) };
        Command::InstallPolicy(Box::new(spec))
    };
    let narrow = trap().between("10.1.0.0/24", "10.2.0.0/24");
    Scenario {
        name: "narrow a trap",
        before: [of_child(trap())].into_iter().chain(child.up()).collect(),
        steps: undone_by(vec![of_child(narrow), of_child(trap())], || vec![of_child(trap())]),
        guarded: true,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![0x1000, 0x1001]),
    }
}

pub fn a_shunt_stays() -> Scenario {
    let child = Child::new(1, 1);
    let shunt = Child::new(8, 8).act(PolicyAction::Shunt { silent: true });
    let steps = child.up().into_iter().chain(child.down()).collect();
    Scenario {
        name: "up and down above a shunt",
        before: vec![shunt],
        steps: undone_by(steps, || child.down()),
        guarded: true,
        done: vec![],
        failed: Box::new(|_| vec![]),
    }
}

/// Both ends made a child: the second shares everything but its SAs with the first, and goes again.
pub fn two_at_once() -> Scenario {
    let (first, second) = (Child::new(1, 1), Child::new(2, 2));
    let steps = second.up().into_iter().chain(second.down()).collect();
    Scenario {
        name: "two at once",
        before: first.up(),
        steps: undone_by(steps, || second.down()),
        guarded: true,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![0x1000, 0x1001]),
    }
}

/// Selectors change: policies go, and others come.
pub fn other_selectors() -> Scenario {
    let child = Child::new(1, 1);
    let mut wider = child.clone().between("10.0.0.0/15", "10.2.0.0/15");
    wider.local_ts.push("10.7.0.0/16".parse().unwrap());
    Scenario {
        name: "other selectors",
        before: child.up(),
        steps: undone_by(vec![wider.protect(), child.protect()], || vec![child.protect()]),
        guarded: true,
        done: vec![0x1000, 0x1001],
        failed: Box::new(|_| vec![0x1000, 0x1001]),
    }
}

pub fn flush() -> Scenario {
    let child = Child::new(1, 1);
    Scenario {
        name: "flush",
        before: [trap().trap()].into_iter().chain(child.up()).collect(),
        steps: vec![(Command::Flush, vec![Command::Flush])],
        guarded: false,
        done: vec![],
        failed: Box::new(|_| vec![]),
    }
}

pub const ALL: [fn() -> Scenario; 11] = [
    install,
    install_under_a_trap,
    rekey,
    delete_above_a_trap,
    move_above_a_trap,
    set_a_trap,
    narrow_a_trap,
    a_shunt_stays,
    two_at_once,
    other_selectors,
    flush,
];
