//! Lives with everything that happens to real hosts: suspends, crashes, other addresses, wrong clocks, faults of the
//! data plane, lost reauthentications, limits that are reached in the middle of a rekey.
//!
//! Where the lives of [`life`](crate::life) prove that two ends agree, these prove what a user wants: that a child
//! which is wanted carries traffic again soon after the last disturbance, that there is one of it, and that nothing of
//! it ever leaves in clear. All of a life depends on its seed.

mod disturb;
mod driver;
mod met;
mod plan;
mod proof;

use std::time::Duration;

use ike_proto::{Command, IkeState};

use crate::digest;
use crate::machine::Crash;
use crate::pair::{A, B};
use crate::prober::Prober;
use crate::random::Seeded;
use crate::setup::address;
use crate::world::World;
use driver::Driver;
pub use met::Met;
use plan::{Plan, Prepared, SETTLE};
pub use proof::Properties;

/// What came of a life.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// What it has met.
    pub met: Vec<Met>,
    /// Time that passed in it.
    pub lasted: Duration,
    /// Datagrams sent.
    pub datagrams: u64,
    /// IKE SAs rekeyed, as both ends saw them.
    pub ike_rekeys: u64,
    /// Child SAs rekeyed, as both ends saw them.
    pub child_rekeys: u64,
    /// Test packets sent.
    pub packets: u64,
    /// Packets that a machine was asked about, whether they would leave in clear.
    pub judged: u64,
    /// From the end of all disturbances until every wanted child carried traffic.
    pub back_after: Duration,
    /// The longest that may take, of its configuration.
    pub bound: Duration,
    /// The same after an own change of address, if there was one.
    pub back_after_move: Option<Duration>,
    /// The longest that may take, of its configuration.
    pub move_bound: Duration,
    /// Of all outputs; see [`crate::digest`].
    pub digest: u64,
}

/// A life under way.
pub struct Life {
    world: World,
    rng: Seeded,
    plan: Plan,
    crypto: std::sync::Arc<ike_proto::crypto::CryptoProvider>,
    drivers: [Driver; 2],
    met: Vec<Met>,
    packets: u64,
    /// When what a crashed program left in the kernel goes: not while the machine sleeps.
    leftover_until: [Option<Duration>; 2],
    properties: Properties,
    prober: Prober,
}

/// Lives the life of `seed`. `tracing` keeps every datagram for the story of a failure.
///
/// # Errors
///
/// What went wrong, with the seed, the plan of the life, and, if `tracing`, the whole story.
pub fn live(seed: u64, tracing: bool, properties: Properties) -> Result<Summary, String> {
    let mut life = Life::new(seed, tracing, properties);
    let outcome = life.run();
    match outcome {
        Ok((back_after, back_after_move)) => Ok(life.summary(back_after, back_after_move)),
        Err(what) => {
            let story = if tracing { life.world.story() } else { String::new() };
            Err(format!("life {seed}: {what}\n  {:?}\n{story}", life.plan))
        }
    }
}

impl Life {
    fn new(seed: u64, tracing: bool, properties: Properties) -> Self {
        let mut rng = Seeded::new(!seed ^ 0x0064_6973_7475_7262);
        let Prepared { plan, mut world, crypto } = plan::prepare(seed, &mut rng, tracing);
        let mut home = |machine: usize| {
            let shards = world.shards_of(machine);
            shards[usize::try_from(rng.below(u64::from(plan.shards[machine]))).unwrap_or_default()]
        };
        let homes = [home(A), home(B)];
        let drivers = [
            Driver::new(&world, A, address(2), homes[A]),
            Driver::new(&world, B, address(1), homes[B]),
        ];
        let prober = Prober::new(seed, &mut world);
        let mut life = Self {
            world,
            rng,
            plan,
            crypto,
            drivers,
            met: Vec::new(),
            packets: 0,
            leftover_until: [None; 2],
            properties,
            prober,
        };
        life.meet_plan();
        life
    }

    fn run(&mut self) -> Result<(Duration, Option<Duration>), String> {
        self.begin();
        let operations = 5 + self.rng.below(25);
        for _ in 0..operations {
            self.operate();
        }
        self.calm();
        if self.world.hosts.iter().any(|host| host.notices > 0) {
            self.meet(Met::Notices);
        }
        let back_after = self.prove_alive(self.plan.bound)?;
        let back_after_move = self.prove_moving()?;
        self.prove_agreement()?;
        Prober::check(&self.world)?;
        self.part()?;
        Ok((back_after, back_after_move))
    }

    /// Both daemons start.
    fn begin(&mut self) {
        let first = if self.rng.chance(500) { A } else { B };
        self.start(first);
        if self.rng.chance(500) {
            self.pause(1000);
        }
        self.start(1 - first);
        for _ in 0..60 {
            self.run_for(Duration::from_secs(10));
            self.send_test_packets();
            if [A, B].into_iter().all(|machine| self.has_children(machine)) {
                break;
            }
        }
    }

    fn start(&mut self, machine: usize) {
        let Self { drivers, world, .. } = self;
        drivers[machine].start(world);
        self.react();
    }

    fn has_children(&self, machine: usize) -> bool {
        let shards = self.world.shards_of(machine);
        shards.iter().any(|host| !self.world.hosts[*host].children_up().is_empty())
    }

    /// Lets time pass, and the daemons do their part.
    fn run_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        loop {
            let wakes = self.drivers.iter().filter_map(Driver::wake);
            let wakes = wakes.chain([A, B].into_iter().filter_map(|it| self.leftover_wake(it)));
            let wake = wakes.filter(|at| *at > self.world.now()).min();
            let next = self.world.next_event().into_iter().chain(wake).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            if wake.is_some_and(|wake| wake <= next) && self.world.next_event() != Some(next) {
                let now = self.world.now();
                self.world.run_for(next.saturating_sub(now));
            } else {
                self.world.step();
            }
            self.react();
        }
        let now = self.world.now();
        self.world.run_for(end.saturating_sub(now));
        self.react();
    }

    /// The daemons act on what their engines say, until those say nothing more.
    fn react(&mut self) {
        let Self { drivers, world, .. } = self;
        for driver in drivers.iter_mut() {
            driver.react(world);
        }
        for machine in [A, B] {
            if self.leftover_wake(machine).is_some_and(|at| at <= self.world.now()) {
                self.forget_leftover(machine);
            }
        }
    }

    fn leftover_wake(&self, machine: usize) -> Option<Duration> {
        self.leftover_until[machine].filter(|_| !self.world.is_suspended(machine))
    }

    /// What a crashed program left goes: by the daemon that has started again, or by the kernel's own limits.
    fn forget_leftover(&mut self, machine: usize) {
        self.leftover_until[machine] = None;
        for host in self.world.shards_of(machine) {
            self.world.hosts[host].plane.forget_leftover();
        }
        self.world.look_for_clear_of(machine);
    }

    fn crash(&mut self, machine: usize, what: Crash) {
        let Self { world, crypto, .. } = self;
        world.crash(machine, crypto, what);
        let children = self.world.hosts[self.drivers[machine].home].endpoint.config().connections
            [0]
        .children
        .iter();
        let longest = children.map(|child| child.life_time).max().unwrap_or_default();
        let keeps = self.keeps_after_crash();
        self.leftover_until[machine] = match what {
            Crash::Program if keeps => Some(self.world.now() + longest),
            Crash::Program => Some(self.world.now() + SETTLE),
            Crash::Machine => None,
        };
        if !keeps {
            for host in self.world.shards_of(machine) {
                self.world.hosts[host].plane.forget_leftover_sas();
            }
        }
        self.start(machine);
    }

    /// True if the SAs of a crashed daemon stay in its kernel up to their own limits (`--keep-sas`). A trap does not take
    /// the place of a child that goes on: it is not meant to.
    fn keeps_after_crash(&self) -> bool {
        self.plan.keeps_sas && !self.plan.traps
    }

    fn pause(&mut self, most_ms: u64) {
        let time = Duration::from_millis(self.rng.below(most_ms + 1));
        self.run_for(time);
    }

    /// The last disturbance is over: both machines run, have their addresses, and the network and the data planes do
    /// as they are told.
    fn calm(&mut self) {
        for machine in [A, B] {
            if self.world.is_suspended(machine) {
                self.resume(machine);
            }
            for host in self.world.shards_of(machine) {
                self.world.hosts[host].plane.inner.heal();
            }
            // Certificates are worth nothing to a host that has lost the time.
            if self.plan.certificates {
                self.world.set_wall(machine, 0);
            }
        }
        self.world.net.conditions.loss = 0;
        self.go_to(Some(0), true);
    }

    /// Both ends shut down, nearly at once; nothing is left.
    fn part(&mut self) -> Result<(), String> {
        let first = if self.rng.chance(500) { A } else { B };
        for machine in [first, 1 - first] {
            for host in self.world.shards_of(machine) {
                let Self { drivers, world, .. } = self;
                let _ = drivers[machine].command(world, host, Command::Shutdown);
            }
            self.pause(400);
        }
        for machine in [A, B] {
            self.forget_leftover(machine);
        }
        self.world.run_until(Duration::from_secs(7200), |world| {
            world.hosts.iter().all(|host| host.ikes().is_empty()) && world.is_settled()
        });
        if let Some(pending) = self.pending() {
            return Err(pending);
        }
        // The last answers are kept for a while.
        self.world.run_for(Duration::from_secs(61));
        for (host, end) in self.world.hosts.iter().enumerate() {
            let left = match () {
                () if !end.ikes().is_empty() => "an IKE SA",
                () if !end.plane.table().is_empty() => "something in its data plane",
                () if end.endpoint.half_open() != 0 => "something half-open",
                () if end.endpoint.reassembly_memory() != 0 => "fragments",
                () if end.endpoint.offered() != 0 => "an offer of an IKE SA",
                () if end.wake().is_some() => "a timer",
                () => continue,
            };
            return Err(format!("host {host} has {left} left"));
        }
        match self.world.audit.complaints.first() {
            Some(complaint) => Err(format!("audit: {complaint}")),
            None => Ok(()),
        }
    }

    fn pending(&mut self) -> Option<String> {
        let Self { drivers, world, .. } = self;
        drivers.iter_mut().find_map(|driver| driver.pending(world))
    }

    /// True if a machine has begun an IKE SA that is not there yet.
    fn is_connecting(&self, machine: usize) -> bool {
        let shards = self.world.shards_of(machine);
        let connecting =
            |host: &usize| !self.world.hosts[*host].ikes_in(IkeState::Connecting).is_empty();
        shards.iter().any(connecting)
    }

    fn summary(&self, back_after: Duration, back_after_move: Option<Duration>) -> Summary {
        let hosts = &self.world.hosts;
        let count = |n: usize| u64::try_from(n).unwrap_or_default();
        Summary {
            met: self.met.clone(),
            lasted: self.world.now(),
            datagrams: hosts.iter().map(|host| host.sent).sum(),
            ike_rekeys: hosts.iter().map(|host| count(host.ike_rekeys().len())).sum(),
            child_rekeys: hosts.iter().map(|host| count(host.child_rekeys().len())).sum(),
            packets: self.packets,
            judged: self.world.guard.packets,
            back_after,
            bound: self.plan.bound,
            back_after_move,
            move_bound: self.plan.move_bound,
            digest: digest::of_all(hosts.iter().map(|host| host.digest.value())),
        }
    }
}
