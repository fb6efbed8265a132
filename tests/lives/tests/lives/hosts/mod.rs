//! Lives of a daemon on a host, with ESP in user space: its rules and routes stand in the tables of the host beside
//! others', every packet and every question goes through them, and other programs change them.
//!
//! The code that is put to the test is that of the daemon: `routes` (what is to be there, what is there, and the steps
//! from one to the other), `esp::io::Routed` (the routes that policies want), the shunts of `ike-tokio` (what is held and
//! blocked), `ike_control::choose_again` (between which addresses a connection starts), and the engine. The host is
//! `routes::sim`.
//!
//! Two properties are asked for. Nothing of a child leaves in clear from the start of the daemon to its stop; without `hold`
//! this begins with its trap, or when it is up for the first time. On a host without a second line (nf_tables) there is a gap: up
//! to a second after another program has removed a rule or a route.
//! And after the last disturbance each child carries traffic both ways within the time of its configuration: dead peer
//! detection, one schedule of retransmissions, one back-off. What another program has taken away is back within a second.
//!
//! The faults that make lives fail, put in alone, stand beside the checks that find them.

mod disturb;
mod driver;
mod host;
mod met;
mod plan;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::crypto::CryptoProvider;
use ike_tests::machine::Crash;
use ike_tests::{Seeded, World};

use driver::Driver;
use host::{End, Host};
pub use met::Met;
use plan::{ANNOUNCED, HERE, PLACES, Plan, Tunnel};

/// How often test packets are sent.
const STEP: Duration = Duration::from_secs(1);
/// How long all must be well at the end.
const STEADY: Duration = Duration::from_secs(20);
/// What another program has taken away is back by then.
const BACK: Duration = Duration::from_millis(1100);
/// The same where it takes things away all the time.
const BACK_SELDOM: Duration = Duration::from_secs(11);
const OCTETS: u64 = 84;

/// What came of a life.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    pub met: BTreeSet<Met>,
    pub lasted: Duration,
    pub packets: u64,
    /// From the last disturbance until all carried traffic, and the longest that this may take.
    pub back_after: Duration,
    pub bound: Duration,
}

/// A life under way.
pub struct Life {
    world: World,
    crypto: Arc<CryptoProvider>,
    rng: Seeded,
    plan: Plan,
    host: Rc<Host>,
    driver: Driver,
    /// The outer address.
    place: Ipv4Addr,
    met: BTreeSet<Met>,
    packets: u64,
    /// Without a second line packets may leave in clear until then.
    grace: Duration,
    /// When other programs took something away, lately.
    taken: Vec<Duration>,
    probed: Duration,
}

/// Lives the life of `seed`. `tracing` tells the whole story of a failure.
pub fn live(seed: u64, tracing: bool) -> Result<Summary, String> {
    let mut life = Life::new(seed, tracing);
    match life.run() {
        Ok(back_after) => Ok(Summary {
            met: life.met,
            lasted: life.world.now(),
            packets: life.packets,
            back_after,
            bound: life.plan.bound,
        }),
        Err(what) => {
            let story = match tracing {
                true => format!("{}{}", life.world.story(), life.host.sim.story()),
                false => String::new(),
            };
            Err(format!(
                "host life {seed}, at {:?}: {what}\n  {:?}\n{story}",
                life.world.now(),
                life.plan
            ))
        }
    }
}

impl Life {
    fn new(seed: u64, tracing: bool) -> Self {
        let mut rng = Seeded::new(!seed ^ 0x686f_7374);
        let mut plan = Plan::draw(&mut rng);
        let (mut world, crypto) = plan::build(&mut plan, seed, &mut rng);
        world.net.tracing = tracing;
        let host = Rc::new(Host::new(plan.second_line, plan.announced.then_some(ANNOUNCED)));
        world.roads.insert(HERE, Rc::clone(&host) as _);
        let driver = Driver::new(Rc::clone(&host));
        Self {
            world,
            crypto,
            rng,
            plan,
            host,
            driver,
            place: PLACES[0],
            met: BTreeSet::new(),
            packets: 0,
            grace: Duration::ZERO,
            taken: Vec::new(),
            probed: Duration::ZERO,
        }
    }

    fn run(&mut self) -> Result<Duration, String> {
        self.begin()?;
        for _ in 0..6 + self.rng.below(8) {
            self.operate()?;
        }
        self.calm();
        let took = self.prove_alive()?;
        self.part()?;
        Ok(took)
    }

    /// The host boots, or is up already when the daemon starts.
    fn begin(&mut self) -> Result<(), String> {
        for tunnel in self.plan.tunnels() {
            self.world.tell_network(tunnel.peer);
        }
        self.host.connect_lan();
        if self.plan.boots {
            self.start();
            self.met.insert(Met::Booted);
            self.pause(30_000)?;
            self.host.connect(self.place);
        } else {
            self.host.connect(self.place);
            self.start();
        }
        if self.plan.ends_early {
            self.end_early()?;
        }
        self.run_for(Duration::from_secs(20))
    }

    fn start(&mut self) {
        let Self { driver, world, plan, .. } = self;
        driver.start(world, plan);
    }

    fn end(&mut self, end: End) {
        self.world.crash(HERE, &self.crypto, Crash::Machine);
        let Self { driver, world, .. } = self;
        driver.end(world, end);
    }

    /// Lets time pass. Test packets are sent each second.
    fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.world.now() + time;
        loop {
            let probe = self.probed + STEP;
            let until = probe.min(end);
            self.advance(until);
            if probe > end {
                return self.prove_closed();
            }
            let _ = self.carried();
            self.prove_closed()?;
        }
    }

    fn advance(&mut self, end: Duration) {
        loop {
            let wake = self.driver.wake(&self.world).filter(|at| *at > self.world.now());
            let next = self.world.next_event().into_iter().chain(wake).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            if self.world.next_event() == Some(next) {
                self.world.step();
            } else {
                let now = self.world.now();
                self.world.run_for(next.saturating_sub(now));
            }
            self.driver.react(&mut self.world);
        }
        let now = self.world.now();
        self.world.run_for(end.saturating_sub(now));
        self.driver.react(&mut self.world);
    }

    fn pause(&mut self, most_ms: u64) -> Result<(), String> {
        let time = Duration::from_millis(self.rng.below(most_ms + 1));
        self.run_for(time)
    }

    /// Sends a packet each way for each child. Returns of how many both have arrived, and what became of the first that has
    /// not.
    fn carried(&mut self) -> (usize, Result<(), String>) {
        self.probed = self.world.now();
        let (mut both, mut outcome) = (0, Ok(()));
        for tunnel in self.plan.tunnels() {
            let sent = self.send(tunnel);
            both += usize::from(sent.is_ok());
            outcome = outcome.and(sent.map_err(|why| format!("{}: {why}", tunnel.name)));
        }
        (both, outcome)
    }

    fn send(&mut self, tunnel: &Tunnel) -> Result<(), String> {
        self.packets += 2;
        let there = self.world.send_packet(HERE, tunnel.peer, tunnel.out(), OCTETS);
        self.driver.react(&mut self.world);
        let back = self.world.send_packet(tunnel.peer, HERE, tunnel.out().reversed(), OCTETS);
        self.driver.react(&mut self.world);
        there.and(back.map_err(|why| format!("from the peer: {why}")))
    }

    /// Nothing has left in clear, but where the host has no second line, and only until what was taken away is back.
    ///
    /// Faults, each by itself: in `Shunts::arm_first` of ike-tokio, arm nothing that is `Stage::Early`; in `Table::block` of
    /// routes, leave `keeps` alone, so that a restart unblocks what is trapped without `hold`.
    fn prove_closed(&mut self) -> Result<(), String> {
        let leaks = std::mem::take(&mut self.world.guard.leaks);
        let excused = |at: Duration| !self.plan.second_line && at <= self.grace;
        match leaks.iter().find(|leak| !excused(leak.at)) {
            Some(leak) => Err(format!("in clear: {leak:?}")),
            None => Ok(()),
        }
    }

    /// All carry traffic within the bound, and for [`STEADY`] from then on.
    ///
    /// Fault: in `net::source::asking` of ike-tokio, set `mark: None`. The blocks of a child that is down answer the question for
    /// the way to its peer.
    fn prove_alive(&mut self) -> Result<Duration, String> {
        let begun = self.world.now();
        let mut since = None;
        loop {
            let took = self.world.now() - begun;
            let (_, outcome) = self.carried();
            match (outcome, since) {
                (Ok(()), None) => since = Some(took),
                (Ok(()), Some(well)) if took >= well + STEADY => return Ok(well),
                (Ok(()), Some(_)) => {}
                (Err(why), _) if took >= self.plan.bound => {
                    return Err(format!("{took:?} after the last disturbance: {why}"));
                }
                (Err(_), _) => since = None,
            }
            self.run_for(STEP)?;
        }
    }

    /// The last disturbance is over.
    fn calm(&mut self) {
        for tunnel in self.plan.tunnels() {
            self.world.offline.remove(&tunnel.peer);
        }
        self.world.net.conditions.loss = 0;
        self.host.connect_lan();
        self.host.connect(self.place);
        if !self.driver.runs() {
            self.start();
        }
    }

    /// The daemon is stopped, and leaves nothing.
    fn part(&mut self) -> Result<(), String> {
        self.stop(End::Stop)?;
        match self.host.left() {
            0 => Ok(()),
            left => Err(format!("{left} rules and routes are left after the stop")),
        }
    }
}
