//! The kernel data plane over a real kernel: every request of a child's life fails in turn, and packets go
//! where they should.
#![expect(clippy::disallowed_types, reason = "packets to see where they go")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use ipsec_types::dataplane::{
    Command, DataPlane, Direction, Event, Limits, Mark, Mode, PolicyAction, PolicyId,
};
use xfrm::XfrmNetlink;
use xfrm::event::Events;
use xfrm::kernel::Kernel;
use xfrm::netlink::Socket;
use xfrm::plane::{Clock, SystemClock};

use crate::common::{self, Child, addr, apply, events, ts, usage};
use crate::every_fault;
use crate::support::{self, ip};

/// The kernel, emptied each time.
struct Real;

impl every_fault::Rig for Real {
    type T = Socket;
    type S = Events;

    fn fresh(&mut self) -> (Socket, Events, Socket, Socket) {
        let mut kernel = Kernel::open().unwrap();
        kernel.flush_policies().unwrap();
        kernel.flush_states().unwrap();
        let socket = || Socket::open().unwrap();
        (socket(), Events::open().unwrap(), socket(), socket())
    }
}

pub(crate) fn no_half_installed_sa_no_leak_no_plaintext() {
    support::kernel();
    let runs: usize =
        every_fault::ALL.map(|scenario| every_fault::run(&mut Real, scenario)).iter().sum();
    println!("{runs} runs");
}

type Plane = XfrmNetlink<Socket, Events>;
type Job = Box<dyn FnOnce(&mut Plane) + Send>;

/// A host: a network namespace with a plane in it, on a thread of its own.
struct Host {
    jobs: mpsc::Sender<Job>,
    thread: String,
}

impl Host {
    fn new() -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (said, started) = mpsc::channel();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            let (kernel, events) = (Kernel::open().unwrap(), Events::open().unwrap());
            let mut plane = XfrmNetlink::new(kernel, events, common::capabilities());
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            said.send(thread.file_name().unwrap().to_str().unwrap().to_owned()).unwrap();
            for job in inbox {
                job(&mut plane);
            }
        });
        Self { jobs, thread: started.recv().unwrap() }
    }

    fn run<R: Send + 'static>(&self, job: impl FnOnce(&mut Plane) -> R + Send + 'static) -> R {
        let (sender, receiver) = mpsc::channel();
        self.jobs.send(Box::new(move |plane| sender.send(job(plane)).unwrap())).unwrap();
        receiver.recv().expect("the host's thread lives")
    }

    fn ip(&self, arguments: &'static str) {
        self.run(move |_| _ = ip(arguments));
    }

    fn apply(&self, commands: Vec<Command>) {
        self.run(move |plane| apply(plane, commands).unwrap());
    }

    fn socket(&self, address: &'static str) -> UdpSocket {
        self.run(move |_| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        })
    }

    /// Events until there are `count`, or none comes for a while.
    fn events(&self, count: usize) -> Vec<Event> {
        self.run(move |plane| {
            let mut all = Vec::new();
            let end = SystemClock.now() + Duration::from_secs(3);
            while all.len() < count && SystemClock.now() < end {
                all.extend(events(plane));
                std::thread::sleep(Duration::from_millis(10));
            }
            all
        })
    }
}

/// Two hosts with a wire between them, 192.0.2.1 and 198.51.100.1, and networks behind them.
fn hosts() -> (Host, Host) {
    let (left, right) = (Host::new(), Host::new());
    let thread = right.thread.clone();
    left.run(move |_| {
        ip("link add wire type veth peer name other");
        ip(&format!("link set other netns {thread} name wire"));
        ip("addr add 192.0.2.1/32 dev wire");
        ip("addr add 2001:db8::1/64 dev wire nodad");
        ip("link set wire up");
        ip("route add 198.51.100.0/24 dev wire");
        ip("addr add 10.1.0.1/16 dev lo");
        ip("addr add fd01::1/64 dev lo nodad");
        ip("route add 10.2.0.0/16 dev wire src 10.1.0.1");
        ip("route add fd02::/64 dev wire src fd01::1");
    });
    right.run(|_| {
        ip("addr add 198.51.100.1/32 dev wire");
        ip("addr add 198.51.100.2/32 dev wire");
        ip("addr add 2001:db8::2/64 dev wire nodad");
        ip("link set wire up");
        ip("route add 192.0.2.0/24 dev wire");
        ip("addr add 10.2.0.1/16 dev lo");
        ip("addr add fd02::1/64 dev lo nodad");
        ip("route add 10.1.0.0/16 dev wire src 10.2.0.1");
        ip("route add fd01::/64 dev wire src fd02::1");
    });
    (left, right)
}

/// The same child seen from the other end.
fn mirrored(child: &Child) -> Child {
    Child {
        spi_in: child.spi_out,
        spi_out: child.spi_in,
        local: child.remote,
        remote: child.local,
        local_ts: child.remote_ts.clone(),
        remote_ts: child.local_ts.clone(),
        ..child.clone()
    }
}

/// One datagram; true if it came.
fn passes(from: &UdpSocket, to: &UdpSocket) -> bool {
    let mut octets = [0; 64];
    to.set_nonblocking(true).unwrap();
    while to.recv_from(&mut octets).is_ok() {}
    to.set_nonblocking(false).unwrap();
    // An error is what a policy that blocks makes of it.
    let sent = from.send_to(b"ping", to.local_addr().unwrap());
    sent.is_ok() && to.recv_from(&mut octets).is_ok()
}

pub(crate) fn packets_go_through_the_life_of_a_child() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    assert!(passes(&a, &b), "in clear, to begin with");
    let child = Child::new(1, 1);
    right.apply(mirrored(&child).up());
    assert!(!passes(&a, &b), "not in clear any more");
    left.apply(child.up());
    assert!(passes(&a, &b) && passes(&b, &a));
    let id = child.outbound();
    let used = left.run(move |plane| usage(plane, id));
    assert!(used.packets == 1 && used.bytes > 0 && used.idle.is_some(), "{used:?}");

    // A rekey that the left one started: the right one waits for the first packet.
    let new = Child::new(1, 2);
    right.apply(vec![mirrored(&new).sa(Direction::In)]);
    left.apply(new.up());
    assert!(passes(&a, &b), "by the new SA");
    assert_eq!(right.events(1), [Event::FirstPacket(mirrored(&new).inbound())]);
    assert!(passes(&b, &a), "by the old SA");
    right.apply(vec![mirrored(&new).sa(Direction::Out), mirrored(&new).protect()]);
    assert!(passes(&b, &a), "by the new SA");
    for (host, old) in [(&left, child.clone()), (&right, mirrored(&child))] {
        host.apply(vec![Command::RemoveSa(old.outbound()), Command::RemoveSa(old.inbound())]);
    }
    assert!(passes(&a, &b) && passes(&b, &a));

    // A second child with the same selectors, at one end the newer one, at the other not yet.
    let second = Child::new(2, 3);
    left.apply(second.up());
    let other = mirrored(&second);
    right.apply(vec![other.sa(Direction::In), other.sa(Direction::Out)]);
    assert!(passes(&a, &b), "by the second");
    assert!(passes(&b, &a), "by the first");
    left.apply(second.down());
    right.apply(other.down());
    assert!(passes(&a, &b) && passes(&b, &a));

    // The right one moves to another address.
    let (mut here, mut there) = (new.clone(), mirrored(&new));
    let (l, r): (SocketAddr, SocketAddr) =
        ("192.0.2.1:500".parse().unwrap(), "198.51.100.2:500".parse().unwrap());
    left.apply(here.moves(l, r));
    right.apply(there.moves(r, l));
    assert!(passes(&a, &b) && passes(&b, &a), "after the move");
    let id = here.outbound();
    let used = left.run(move |plane| usage(plane, id));
    assert!(used.packets >= 4, "counters go on: {used:?}");

    left.apply(here.down());
    assert!(!passes(&a, &b), "the other end still wants it protected");
    right.apply(there.down());
    assert!(passes(&a, &b), "in clear, in the end");
    assert!(left.run(|plane| plane.is_empty()) && right.run(|plane| plane.is_empty()));
}

pub(crate) fn a_trap_asks_and_asks_again() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let mut trap = Child::new(9, 9);
    trap.owner = "site".into();
    left.apply(vec![trap.trap()]);
    assert!(!passes(&a, &b));
    let (local, remote) = (ts("10.1.0.1[udp/1000]"), ts("10.2.0.1[udp/2000]"));
    let acquire = Event::Acquire { policy: PolicyId(9), local, remote, cpu: None };
    assert_eq!(left.events(1), [acquire]);
    // The kernel would keep silent for half a minute.
    let began = SystemClock.now();
    while left.run(events).is_empty() {
        assert!((SystemClock.now() - began) < Duration::from_secs(5), "it does not ask again");
        assert!(!passes(&a, &b));
    }
    assert!((SystemClock.now() - began) > Duration::from_millis(100));
    let child = Child::new(1, 1);
    right.apply(mirrored(&child).up());
    left.apply(child.up());
    assert!(passes(&a, &b) && passes(&b, &a));
    let waiting = left
        .run(|plane| plane.kernel_mut().states().unwrap().iter().filter(|s| s.id.spi == 0).count());
    assert_eq!(waiting, 0, "the acquire is answered");
    left.apply(child.down());
    assert!(!passes(&a, &b), "the trap is back");
    assert_eq!(left.events(1), [acquire]);
    assert!(!passes(&b, &a), "nor is anything taken in clear");
}

pub(crate) fn limits_expire() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let mut child = Child::new(1, 1);
    child.limits = Limits { soft_packets: 3, hard_packets: 6, ..Limits::default() };
    right.apply(mirrored(&Child { limits: Limits::default(), ..child.clone() }).up());
    left.apply(child.up());
    for _ in 0..4 {
        assert!(passes(&a, &b));
    }
    assert_eq!(left.events(1), [Event::SoftExpire(child.outbound())]);
    for _ in 0..6 {
        passes(&a, &b);
    }
    assert_eq!(left.events(1), [Event::HardExpire(child.outbound())]);
    assert!(!passes(&a, &b), "nothing leaves in clear");
    left.apply(child.down());
    assert!(left.run(|plane| plane.is_empty()));
}

pub(crate) fn families_modes_and_marks() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let (c, d) = (left.socket("[fd01::1]:1000"), right.socket("[fd02::1]:2000"));
    let four_in_six =
        Child { local: addr("2001:db8::1"), remote: addr("2001:db8::2"), ..Child::new(1, 1) };
    let six_in_four = Child::new(2, 2).between("fd01::/64", "fd02::/64");
    for child in [&four_in_six, &six_in_four] {
        left.apply(child.up());
        right.apply(mirrored(child).up());
    }
    assert!(passes(&a, &b) && passes(&b, &a) && passes(&c, &d) && passes(&d, &c));
    for child in [&four_in_six, &six_in_four] {
        let id = child.outbound();
        assert_eq!(left.run(move |plane| usage(plane, id)).packets, 1);
        left.apply(child.down());
        right.apply(mirrored(child).down());
    }

    let mut hosts = Child::new(3, 3).between("192.0.2.1", "198.51.100.1[udp/2000]");
    hosts.mode = Mode::Transport;
    left.apply(hosts.up());
    right.apply(mirrored(&hosts).up());
    let (e, f) = (left.socket("192.0.2.1:1000"), right.socket("198.51.100.1:2000"));
    assert!(passes(&e, &f) && passes(&f, &e));
    let id = hosts.outbound();
    assert_eq!(left.run(move |plane| usage(plane, id)).packets, 1);
    left.apply(hosts.down());
    right.apply(mirrored(&hosts).down());

    // Only what is marked.
    let mark = Mark { value: 7, mask: 0xff };
    let marked = Child::new(4, 4).with(|p| p.mark_out = mark);
    left.apply(marked.up());
    right.apply(mirrored(&Child::new(4, 4)).up());
    assert!(!passes(&a, &b), "the other end wants it protected");
    a.send_to(b"x", "10.2.0.1:2000").unwrap();
    nix::sys::socket::setsockopt(&a, nix::sys::socket::sockopt::Mark, &7).unwrap();
    assert!(passes(&a, &b));
    left.ip("link set wire down");
}

pub(crate) fn what_passes_and_what_is_dropped() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let act =
        |n, local: &str, remote: &str, action| Child::new(n, 1).between(local, remote).act(action);
    let any = "0.0.0.0/0";
    left.apply(vec![act(1, any, any, PolicyAction::Drop)]);
    assert!(!passes(&a, &b) && !passes(&b, &a));
    left.apply(vec![act(2, "10.1.0.0/16", "10.2.0.0/16[udp/2000]", PolicyAction::Pass)]);
    assert!(passes(&a, &b) && passes(&b, &a), "the narrower one counts");
    left.apply(vec![act(3, "10.1.0.0/16", "10.2.0.0/16[udp/1990-2010]", PolicyAction::Drop)]);
    assert!(passes(&a, &b), "still narrower");
    left.apply(vec![act(4, "10.1.0.1/32", "10.2.0.0/16", PolicyAction::Trap)]);
    assert!(!passes(&a, &b), "addresses weigh more than ports");
    left.apply(vec![Command::RemovePolicy(PolicyId(4)), Command::RemovePolicy(PolicyId(2))]);
    assert!(!passes(&a, &b));
    left.apply(vec![Command::RemovePolicy(PolicyId(3)), Command::RemovePolicy(PolicyId(1))]);
    let shunt = PolicyAction::Shunt { silent: false };
    left.apply(vec![act(5, "10.1.0.1/32", "10.2.0.1/32", shunt)]);
    assert!(!passes(&a, &b));
    left.apply(vec![act(6, any, any, PolicyAction::Pass)]);
    assert!(passes(&a, &b), "anything comes before a shunt");
    left.run(|plane| plane.apply(Command::Flush).unwrap());
    assert!(left.run(|plane| plane.is_empty()));
}

/// While an SA moves, packets that it should have taken make the kernel ask for one with its very SPI.
pub(crate) fn an_sa_moves_under_traffic() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let mut child = Child::new(1, 1);
    let mut other = mirrored(&child);
    left.apply(child.up());
    right.apply(other.up());
    let (stop, stopped) = mpsc::channel::<()>();
    let sender = a.try_clone().unwrap();
    let storm = std::thread::spawn(move || {
        let mut sent = 0_u64;
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            _ = sender.send_to(b"x", "10.2.0.1:2000");
            sent += 1;
        }
        sent
    });
    let l: SocketAddr = "192.0.2.1:500".parse().unwrap();
    for n in 0..100 {
        let r: SocketAddr = format!("198.51.100.{}:500", 1 + (n + 1) % 2).parse().unwrap();
        left.apply(child.moves(l, r));
        right.apply(other.moves(r, l));
        // A packet on its way finds the policy with the old name of the SA.
        let stale = child.outbound();
        left.run(move |plane| usage(plane, stale));
    }
    stop.send(()).unwrap();
    assert!(storm.join().unwrap() > 100);
    assert!(passes(&a, &b) && passes(&b, &a));
    left.apply(child.down());
    right.apply(other.down());
    assert!(left.run(|plane| plane.is_empty()) && right.run(|plane| plane.is_empty()));
}

/// The kernel's own state for a packet may have the SPI of the policy's template.
pub(crate) fn an_acquire_with_an_spi_makes_room() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let child = Child::new(1, 1);
    right.apply(mirrored(&child).up());
    left.apply(vec![child.protect()]);
    assert!(!passes(&a, &b));
    let spi = child.spi_out;
    let taken = left.run(move |plane| {
        plane.kernel_mut().states().unwrap().iter().any(|state| state.id.spi == spi)
    });
    assert!(taken, "by the kernel itself");
    left.apply(child.up());
    assert!(passes(&a, &b) && passes(&b, &a));
}

pub(crate) fn beet_mode_carries_packets() {
    mode_carries_packets(Mode::Beet);
}

pub(crate) fn iptfs_mode_carries_packets() {
    mode_carries_packets(Mode::Iptfs);
}

fn mode_carries_packets(mode: Mode) {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let mut child = Child::new(1, 1).between("10.1.0.1/32", "10.2.0.1/32");
    child.mode = mode;
    left.apply(child.up());
    right.apply(mirrored(&child).up());
    assert!(passes(&a, &b) && passes(&b, &a));
    let id = child.outbound();
    assert!(left.run(move |plane| usage(plane, id)).packets > 0);
    left.apply(child.down());
    right.apply(mirrored(&child).down());
}

/// RFC 9611: an SA for all CPUs, and one that the kernel asks for.
pub(crate) fn an_sa_for_each_cpu() {
    let (left, right) = hosts();
    let (a, b) = (left.socket("10.1.0.1:1000"), right.socket("10.2.0.1:2000"));
    let child = Child::new(1, 1).with(|p| p.per_cpu = true);
    left.apply(child.up());
    right.apply(mirrored(&child).up());
    assert!(passes(&a, &b), "by the SA for all");
    let raised = left.events(1);
    let [Event::Acquire { policy: PolicyId(1), cpu: Some(cpu), .. }] = raised[..] else {
        panic!("{raised:?}")
    };
    let own = Child::new(1, 2).with(|p| p.per_cpu = true);
    let mut commands = Vec::new();
    for direction in [Direction::In, Direction::Out] {
        let Command::InstallSa(mut spec) = own.sa(direction) else { panic!() };
        spec.cpu = Some(cpu);
        commands.push(Command::InstallSa(spec));
    }
    let other = mirrored(&own);
    right.apply(vec![other.sa(Direction::In), other.sa(Direction::Out)]);
    left.apply(commands);
    // The right one's policy asks as well, and goes on with what it has.
    for _ in 0..8 {
        assert!(passes(&a, &b) && passes(&b, &a));
        right.run(events);
    }
    let id = own.outbound();
    let used = left.run(move |plane| usage(plane, id));
    // Where there are several CPUs the sender may have been on another one.
    let one = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
    assert!(used.packets > 0 || !one, "{used:?}");
    assert!(
        left.run(move |plane| plane
            .kernel_mut()
            .states()
            .unwrap()
            .iter()
            .any(|s| s.cpu == Some(cpu)))
    );
    left.apply(vec![Command::RemoveSa(own.outbound()), Command::RemoveSa(own.inbound())]);
    assert!(passes(&a, &b), "by the SA for all again");
}
