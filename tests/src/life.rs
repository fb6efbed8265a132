//! A life: two endpoints meet on a bad network, do everything two endpoints can do, and part.
//!
//! All of it depends on one seed. In the end both must have the same SAs, and after a shutdown none.

mod changes;

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{ConnectionConfig, ProposalConfig, Retransmission, Unique};
use ike_proto::dataplane::Event as PlaneEvent;
use ike_proto::{Command, Event, RequestId};

use crate::cheap;
use crate::digest;
use crate::network::Conditions;
use crate::pair::{A, B, Pair};
use crate::prober::Prober;
use crate::random::Seeded;
use crate::setup::{Setup, Side};
use changes::Changes;

/// Times of ten seconds after which it is not for want of time that the two ends do not come to rest.
const CROWDED: u32 = 120;

/// What came of a life.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    /// Time that passed in it.
    pub lasted: Duration,
    /// Datagrams sent.
    pub datagrams: u64,
    /// IKE SAs and Child SAs that came up, were rekeyed or ended, at either end.
    pub events: u64,
    /// IKE SAs rekeyed, as both ends saw them.
    pub ike_rekeys: u64,
    /// Child SAs rekeyed, as both ends saw them.
    pub child_rekeys: u64,
    /// ESP packets whose fate was checked.
    pub packets: u64,
    /// Of all outputs; see [`crate::digest`].
    pub digest: u64,
}

/// The children both ends know, with the numbers of their networks.
const CHILDREN: [(&str, u8); 3] = [("net", 0), ("voice", 20), ("video", 40)];

/// Lives the life of `seed`. `tracing` keeps every datagram for the story of a failure.
///
/// # Errors
///
/// What went wrong, with the seed and, if `tracing`, the whole story.
pub fn live(seed: u64, tracing: bool) -> Result<Summary, String> {
    let mut life = Life::new(seed, tracing);
    life.meet();
    for _ in 0..life.operations {
        life.operate();
        life.reload()?;
    }
    life.undo_changes();
    life.check_traffic()?;
    life.calm()?;
    life.part()?;
    Ok(life.summary())
}

/// Gives one pair in four a post-quantum preshared key.
fn share_ppk(setup: &mut Setup) {
    let mut rng = Seeded::new(setup.seed ^ 0x5050_4b00);
    if rng.chance(250) {
        setup.share_ppk(&mut rng);
    }
}

/// Lets one pair in four have SAs per CPU (RFC 9611). What the CPUs of such a pair do is drawn by the
/// generator returned.
fn share_cpus(setup: &mut Setup, seed: u64) -> Option<Seeded> {
    let mut rng = Seeded::new(seed ^ 0x4350_5500);
    if !rng.chance(250) {
        return None;
    }
    for side in [&mut setup.a, &mut setup.b] {
        for child in &mut side.children {
            Arc::make_mut(&mut child.processing).per_cpu = true;
        }
        side.plane.capabilities.per_cpu = true;
        side.plane.capabilities.cpus = 1 + u32::try_from(rng.below(4)).unwrap_or_default();
    }
    Some(rng)
}

/// Lets three ends in four prefer ESP in UDP.
fn prefer_udp(setup: &mut Setup, seed: u64) {
    let mut rng = Seeded::new(seed ^ 0x7564_7000);
    for side in [&mut setup.a, &mut setup.b] {
        side.plane.capabilities.udp_costs_less = rng.chance(750);
    }
}

/// Gives one pair in four slow key exchanges, in one of the ways there are: how long they take at most.
fn be_slow(setup: &mut Setup, seed: u64, pfs: bool) -> Option<Duration> {
    let mut rng = Seeded::new(seed ^ 0x6b65_7800);
    if !rng.chance(250) || seed.is_multiple_of(40) {
        return None;
    }
    let methods = match rng.below(4) {
        0 => "modp2048",
        1 => "x25519-ke1_modp2048",
        2 => "modp2048-ke1_ecp256",
        _ => "modp2048-ke1_modp3072",
    };
    setup.both(|side| {
        side.ike_proposals(&[&format!("aes128gcm16-prfsha256-{methods}")]);
        if pfs {
            side.esp_proposals(&[&format!("aes128gcm16-{methods}")]);
        }
    });
    Some(Duration::from_millis([1, 100, 2000][usize::try_from(rng.below(3)).unwrap_or_default()]))
}

/// Lets one pair in four name no proposals, so that all its key exchanges are hybrid; or one end of it, so
/// that none is.
fn name_none(setup: &mut Setup, seed: u64) {
    let mut rng = Seeded::new(seed ^ 0x6465_6600);
    if !rng.chance(250) || seed.is_multiple_of(40) {
        return;
    }
    let one = rng.chance(250).then(|| rng.below(2));
    for (index, side) in (0..).zip([&mut setup.a, &mut setup.b]) {
        if one.is_none_or(|one| one == index) {
            side.connection.proposals = ProposalConfig::default_ike();
            for child in &mut side.children {
                child.esp_proposals = ProposalConfig::default_esp();
            }
        }
        side.crypto = cheap::hybrid();
    }
}

struct Life {
    pair: Pair,
    rng: Seeded,
    operations: u64,
    /// True if nothing is ever deleted on purpose: then no packet may be lost.
    peaceful: bool,
    /// Commands given, and to whom.
    requests: Vec<(usize, RequestId)>,
    /// Draws which CPUs meet packets, if the ends have SAs for each.
    cpus: Option<Seeded>,
    /// The configurations of the ends, if these change.
    changes: Option<Changes>,
    prober: Prober,
}

impl Life {
    fn new(seed: u64, tracing: bool) -> Self {
        let mut rng = Seeded::new(!seed);
        let mut setup = Setup::new(seed);
        if seed.is_multiple_of(40) {
            setup = setup.real();
        }
        setup.conditions = Conditions {
            loss: u32::try_from(rng.below(301)).unwrap_or_default(),
            duplication: u32::try_from(rng.below(201)).unwrap_or_default(),
            delay: Duration::from_millis(1 + rng.below(50)),
            jitter: Duration::from_millis(rng.below(300)),
        };
        let pfs = rng.chance(300);
        let unique = match rng.below(8) {
            0 => Unique::Never,
            1 => Unique::Replace,
            2 => Unique::Keep,
            _ => Unique::No,
        };
        let tries = 5 + u32::try_from(rng.below(6)).unwrap_or_default();
        for (side, local, remote) in [(&mut setup.a, 1, 2), (&mut setup.b, 2, 1)] {
            for (name, net) in &CHILDREN[1..] {
                side.add_child(name, local + net, remote + net);
            }
            if pfs {
                side.esp_proposals(&["aes128gcm16-x25519"]);
            }
            arrange(side, &mut rng, unique, tries);
        }
        share_ppk(&mut setup);
        let cpus = share_cpus(&mut setup, seed);
        name_none(&mut setup, seed);
        prefer_udp(&mut setup, seed);
        let slow = be_slow(&mut setup, seed, pfs);
        let changes = Changes::draw(&setup);
        let mut pair = setup.build();
        for host in &mut pair.hosts {
            host.exchange_delay = slow.or(host.exchange_delay);
            host.exchanges_vary = slow.is_some();
        }
        pair.net.tracing = tracing;
        pair.traffic.first_packets = rng.chance(500);
        let peaceful = rng.chance(500);
        let operations = 5 + rng.below(30);
        let prober = Prober::new(seed, &mut pair);
        Self { pair, rng, operations, peaceful, requests: Vec::new(), cpus, changes, prober }
    }

    /// One end, or both at once, begin.
    fn meet(&mut self) {
        let both = !self.peaceful && self.rng.chance(200);
        let first = if self.rng.chance(500) { A } else { B };
        self.initiate(first, 0);
        if both {
            self.pair.run_for(Duration::from_millis(self.rng.below(200)));
            self.initiate(Pair::other(first), 0);
        }
        let up = |pair: &crate::World| pair.hosts.iter().all(|h| !h.children_up().is_empty());
        self.pair.run_until(Duration::from_secs(600), up);
        self.pair.traffic.watch();
    }

    fn initiate(&mut self, host: usize, child: usize) {
        let (name, _) = CHILDREN[child];
        let request = self.pair.initiate(host, Some(name));
        self.requests.push((host, request));
    }

    fn command(&mut self, host: usize, command: Command) {
        let request = self.pair.command(host, command);
        self.requests.push((host, request));
    }

    /// Something an operator, a limit or traffic may cause.
    fn operate(&mut self) {
        let host = if self.rng.chance(500) { A } else { B };
        self.meet_on_cpus();
        self.prober.ask(&mut self.pair);
        match self.rng.below(if self.peaceful { 80 } else { 100 }) {
            0..20 => self.rekey_child(host),
            20..35 => {
                self.rekey_child(host);
                self.pause(60);
                self.rekey_child(Pair::other(host));
            }
            35..45 => self.rekey_ike(host),
            45..55 => {
                self.rekey_ike(host);
                self.pause(60);
                self.rekey_ike(Pair::other(host));
            }
            55..60 => {
                self.rekey_child(host);
                self.pause(60);
                self.rekey_ike(Pair::other(host));
            }
            60..70 => {
                let child = usize::try_from(self.rng.below(3)).unwrap_or_default();
                self.initiate(host, child);
            }
            70..75 => {
                self.pair.send_traffic(A, 100);
                self.pair.send_traffic(B, 100);
            }
            75..80 => self.soft_limit(host),
            80..90 => self.delete_child(host),
            90..93 => {
                self.delete_child(host);
                self.pause(60);
                self.delete_child(Pair::other(host));
            }
            93..95 => {
                self.rekey_child(host);
                self.pause(60);
                self.delete_child(Pair::other(host));
            }
            95..97 => self.hard_limit(host),
            97..98 => self.reauthenticate(host),
            _ => self.delete_ike(host),
        }
        match self.rng.below(4) {
            0 => {}
            1 => self.pause(300),
            2 => self.pause(3_000),
            _ => self.pause(20_000),
        }
    }

    /// An end may take another configuration. A moment later its traps are what that says, whatever is up.
    fn reload(&mut self) -> Result<(), String> {
        let Some(mut changes) = self.changes.take() else { return Ok(()) };
        let changed = changes.change();
        let mut wrong = None;
        if let Some((host, commands)) = changed {
            let mut commands = commands.into_iter();
            // The program installs traps later, once it has the addresses of their peers.
            commands.by_ref().take(1).for_each(|reload| self.command(host, reload));
            self.pair.run_for(Duration::from_millis(500));
            wrong = changes.stale(&self.pair, host);
            commands.for_each(|install| self.command(host, install));
            self.pair.run_for(Duration::from_millis(500));
            wrong = wrong.or_else(|| changes.wrong(&self.pair, host));
        }
        self.changes = Some(changes);
        wrong.map_or(Ok(()), |wrong| self.fail(&wrong))
    }

    /// Both ends are configured to agree again.
    fn undo_changes(&mut self) {
        for (host, commands) in self.changes.iter_mut().flat_map(Changes::undo).collect::<Vec<_>>()
        {
            for command in commands {
                self.command(host, command);
            }
        }
    }

    /// Some CPUs meet packets that no SA of their own is there for.
    fn meet_on_cpus(&mut self) {
        let Some(rng) = &mut self.cpus else { return };
        for host in [A, B] {
            let end = &self.pair.hosts[host];
            let cpu = u32::try_from(rng.below(end.plane.capabilities.cpus.into()));
            let children = end.children_up();
            let child = usize::try_from(rng.below(8)).ok().and_then(|n| children.get(n));
            if let (Ok(cpu), Some(child)) = (cpu, child) {
                let (policy, cpu) = (child.policy, Some(cpu));
                let (local, remote) = (child.local_ts.first(), child.remote_ts.first());
                let (Some(&local), Some(&remote)) = (local, remote) else { continue };
                let acquire = PlaneEvent::Acquire { policy, local, remote, cpu };
                self.pair.plane_event(host, acquire);
            }
        }
    }

    fn pause(&mut self, most_ms: u64) {
        let time = Duration::from_millis(self.rng.below(most_ms + 1));
        self.pair.run_for(time);
    }

    fn some_child(&mut self, host: usize) -> Option<ike_proto::ChildSaId> {
        let ids: Vec<_> = self.pair.hosts[host].children().iter().map(|child| child.id).collect();
        self.rng.any(&ids)
    }

    fn some_ike(&mut self, host: usize) -> Option<ike_proto::IkeSaId> {
        let ids: Vec<_> = self.pair.hosts[host].ikes().iter().map(|ike| ike.id).collect();
        self.rng.any(&ids)
    }

    fn rekey_child(&mut self, host: usize) {
        if let Some(child) = self.some_child(host) {
            self.command(host, Command::RekeyChild(child));
        }
    }

    fn rekey_ike(&mut self, host: usize) {
        if let Some(ike) = self.some_ike(host) {
            self.command(host, Command::RekeyIke(ike));
        }
    }

    fn reauthenticate(&mut self, host: usize) {
        if let Some(ike) = self.some_ike(host) {
            self.command(host, Command::Reauthenticate(ike));
        }
    }

    fn delete_child(&mut self, host: usize) {
        if let Some(child) = self.some_child(host) {
            self.command(host, Command::TerminateChild(child));
        }
    }

    fn delete_ike(&mut self, host: usize) {
        if let Some(ike) = self.some_ike(host) {
            self.command(host, Command::TerminateIke(ike));
        }
        if self.rng.chance(700) {
            self.pause(1_000);
            let host = if self.rng.chance(500) { A } else { B };
            self.initiate(host, 0);
        }
    }

    fn soft_limit(&mut self, host: usize) {
        let sas: Vec<_> = self.pair.hosts[host].plane.outbound().map(|(id, _)| id).collect();
        let mut sas = sas;
        sas.sort_by_key(|sa| sa.spi);
        if let Some(sa) = self.rng.any(&sas) {
            self.pair.plane_event(host, PlaneEvent::SoftExpire(sa));
        }
    }

    fn hard_limit(&mut self, host: usize) {
        let sas: Vec<_> = self.pair.hosts[host].plane.inbound().map(|(id, _)| id).collect();
        let mut sas = sas;
        sas.sort_by_key(|sa| sa.spi);
        if let Some(sa) = self.rng.any(&sas) {
            self.pair.plane_event(host, PlaneEvent::HardExpire(sa));
        }
    }

    /// Where nothing was deleted and nobody gave up, no packet was lost.
    fn check_traffic(&mut self) -> Result<(), String> {
        let ended = |event: &Event| {
            matches!(event, Event::IkeDown { established: true, .. } | Event::ChildDown { .. })
        };
        let ends = self.pair.hosts.iter().any(|host| host.log.iter().any(|(_, e)| ended(e)));
        if self.peaceful
            && self.changes.is_none()
            && !ends
            && let Some(lost) = self.pair.traffic.lost.first()
        {
            return self.fail(&format!("a packet was lost: {lost:?}"));
        }
        Ok(())
    }

    /// The network recovers, and both ends come to agree.
    fn calm(&mut self) -> Result<(), String> {
        let seed = self.pair.seed;
        // Some must find together in spite of the losses.
        if seed.is_multiple_of(2) {
            self.pair.net.conditions.loss = 0;
        }
        let mut last = String::new();
        for round in 0..360 {
            self.pair.run_for(Duration::from_secs(10));
            if round >= CROWDED {
                self.thin_out();
            }
            match (self.pair.agreement(), self.pending()) {
                (Ok(()), None) => return Ok(()),
                (Ok(()), Some(pending)) => last = pending,
                (Err(what), _) => last = what,
            }
        }
        self.fail(&format!("no agreement: {last}"))
    }

    /// With a dozen children, slow key exchanges and short rekey times there is always a rekey in flight, or an old SA
    /// that lingers, and so never a moment to compare the two ends in: an operator ends one child of which there is
    /// another.
    fn thin_out(&mut self) {
        let mut seen = Vec::new();
        let up = self.pair.a().children_up();
        let double = up.into_iter().find(|child| {
            let known = seen.contains(&child.name);
            seen.push(child.name.clone());
            known
        });
        if let Some(child) = double {
            self.command(A, Command::TerminateChild(child.id));
        }
    }

    /// A command that never ended.
    fn pending(&self) -> Option<String> {
        let open =
            |(host, request): &&(usize, RequestId)| self.pair.hosts[*host].done(*request).is_none();
        let (host, request) = self.requests.iter().find(open)?;
        Some(format!("{request:?} of host {host} never ended"))
    }

    /// Both ends shut down, nearly at once; nothing is left.
    fn part(&mut self) -> Result<(), String> {
        let first = if self.rng.chance(500) { A } else { B };
        self.command(first, Command::Shutdown);
        self.pause(400);
        self.command(Pair::other(first), Command::Shutdown);
        let pair = &mut self.pair;
        pair.run_until(Duration::from_secs(7200), |w| {
            w.hosts.iter().all(|host| host.ikes().is_empty()) && w.is_settled()
        });
        if let Some(pending) = self.pending() {
            return self.fail(&pending);
        }
        // The last answers are kept for a while.
        self.pair.run_for(Duration::from_secs(31));
        for host in [A, B] {
            let end = &self.pair.hosts[host];
            if !end.ikes().is_empty() {
                return self.fail(&format!("host {host} still has an IKE SA"));
            }
            if !end.plane.table().is_empty() {
                return self.fail(&format!("host {host} left something in its data plane"));
            }
            if end.endpoint.half_open() != 0 || end.endpoint.reassembly_memory() != 0 {
                return self.fail(&format!("host {host} holds something half-open"));
            }
            if end.endpoint.offered() != 0 {
                return self.fail(&format!("host {host} still offers an IKE SA"));
            }
            if end.wake().is_some() {
                return self.fail(&format!("host {host} has a timer left"));
            }
        }
        if let Err(lie) = Prober::check(&self.pair) {
            return self.fail(&lie);
        }
        match self.pair.audit.complaints.first() {
            Some(complaint) => self.fail(&format!("audit: {complaint}")),
            None => Ok(()),
        }
    }

    fn fail(&self, what: &str) -> Result<(), String> {
        let seed = self.pair.seed;
        let story = if self.pair.net.tracing { self.pair.story() } else { String::new() };
        Err(format!("life {seed}: {what}\n{story}"))
    }

    fn summary(&self) -> Summary {
        let hosts = &self.pair.hosts;
        let count = |n: usize| u64::try_from(n).unwrap_or_default();
        Summary {
            lasted: self.pair.now(),
            datagrams: hosts.iter().map(|host| host.sent).sum(),
            events: hosts.iter().map(|host| count(host.log.len())).sum(),
            ike_rekeys: hosts.iter().map(|host| count(host.ike_rekeys().len())).sum(),
            child_rekeys: hosts.iter().map(|host| count(host.child_rekeys().len())).sum(),
            packets: self.pair.traffic.arrived + count(self.pair.traffic.lost.len()),
            digest: digest::of_all(hosts.iter().map(|host| host.digest.value())),
        }
    }
}

/// Timers short enough to fire during a life.
fn arrange(side: &mut Side, rng: &mut Seeded, unique: Unique, tries: u32) {
    let seconds = |n| Duration::from_secs(n);
    let rekey_time = seconds(60 + rng.below(600));
    side.connection = ConnectionConfig {
        rekey_time,
        rand_time: rekey_time / 5,
        over_time: seconds(300),
        dpd_delay: seconds(20 + rng.below(40)),
        keyingtries: 0,
        unique,
        ..side.connection.clone()
    };
    side.settings.retransmission = Retransmission {
        timeout: Some(seconds(2)),
        base: 1.4,
        tries: Some(tries),
        ..Retransmission::default()
    };
    if rng.chance(200) {
        side.settings.fragment_size = Some(200);
    }
    if rng.chance(300) {
        side.plane.delay = Duration::from_millis(1 + rng.below(100));
    }
    for child in &mut side.children {
        child.rekey_time = seconds(40 + rng.below(400));
        child.life_time = child.rekey_time + seconds(400);
        child.rand_time = child.rekey_time / 5;
    }
}
