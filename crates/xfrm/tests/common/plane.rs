//! A child's SAs and policies as the engine asks for them.
#![allow(dead_code, reason = "not every test file needs all of it")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, Secret};
use ipsec_types::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Direction, Event, Limits, Mode, Outer,
    PolicyAction, PolicyId, PolicySpec, Processing, Reply, SaId, SaSpec, TrafficSelector,
};
use xfrm::netlink::Transport;
use xfrm::plane::{Clock, Source, SystemClock};
use xfrm::{Packet, XfrmNetlink};

pub const LEFT: &str = "192.0.2.1";
pub const RIGHT: &str = "198.51.100.1";

pub fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn ts(text: &str) -> TrafficSelector {
    text.parse().unwrap()
}

pub fn capabilities() -> Capabilities {
    Capabilities {
        transport_mode: true,
        esn: true,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: false,
        iptfs: true,
        per_cpu: true,
        cpus: 1,
        processing: true,
        header_fields: true,
    }
}

/// The wall clock of tests at their start, in seconds since 1970: 40 years later.
pub const EPOCH: u64 = 40 * YEAR;
/// Seconds.
pub const YEAR: u64 = 365 * 24 * 3600;

/// A clock that stands still until it is told.
#[derive(Clone)]
pub struct Hand {
    start: Instant,
    milliseconds: Arc<AtomicU64>,
    /// Seconds by which the wall clock was set forwards.
    set: Arc<AtomicI64>,
}

impl Hand {
    pub fn new() -> Self {
        Self { start: SystemClock.now(), milliseconds: Arc::default(), set: Arc::default() }
    }

    pub fn advance(&self, by: Duration) {
        self.milliseconds.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets the wall clock by so many seconds, forwards or back.
    pub fn step(&self, seconds: i64) {
        self.set.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    fn wall(&self) -> u64 {
        let wall = EPOCH + self.milliseconds.load(Ordering::Relaxed) / 1000;
        wall.saturating_add_signed(self.set.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }
}

/// One end's view of a child.
#[derive(Clone)]
pub struct Child {
    pub policy: u64,
    pub owner: String,
    pub spi_in: u32,
    pub spi_out: u32,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    pub mode: Mode,
    pub processing: Arc<Processing>,
    pub limits: Limits,
    pub lifetime: Duration,
    pub esn: bool,
    pub priority: u32,
}

impl Child {
    /// Tunnel 10.1/16 === 10.2/16 by SPIs `n` and `n + 1` (hundreds of 0x1000).
    pub fn new(policy: u64, n: u32) -> Self {
        Self {
            policy,
            owner: "site [right]".into(),
            spi_in: 0x1000 * n,
            spi_out: 0x1000 * n + 1,
            local: addr(LEFT),
            remote: addr(RIGHT),
            local_ts: vec![ts("10.1.0.0/16")],
            remote_ts: vec![ts("10.2.0.0/16")],
            mode: Mode::Tunnel,
            processing: Arc::default(),
            limits: Limits::default(),
            lifetime: Duration::ZERO,
            esn: true,
            priority: 0,
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut Processing)) -> Self {
        let mut processing = (*self.processing).clone();
        change(&mut processing);
        self.processing = Arc::new(processing);
        self
    }

    pub fn between(mut self, local: &str, remote: &str) -> Self {
        (self.local_ts, self.remote_ts) = (vec![ts(local)], vec![ts(remote)]);
        self
    }

    pub fn inbound(&self) -> SaId {
        SaId { spi: self.spi_in, dst: self.local }
    }

    pub fn outbound(&self) -> SaId {
        SaId { spi: self.spi_out, dst: self.remote }
    }

    pub fn sa(&self, direction: Direction) -> Command {
        let inbound = direction == Direction::In;
        let (id, src) =
            if inbound { (self.inbound(), self.remote) } else { (self.outbound(), self.local) };
        Command::InstallSa(Box::new(SaSpec {
            id,
            src,
            direction,
            mode: self.mode,
            policy: PolicyId(self.policy),
            suite: CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE },
            encr_key: Secret::new(vec![id.spi as u8; 20]),
            integ_key: Secret::new(Vec::new()),
            esn: self.esn,
            replay_window: if inbound { 64 } else { 0 },
            encap: None,
            local_ts: self.local_ts.clone(),
            remote_ts: self.remote_ts.clone(),
            limits: self.limits,
            lifetime: self.lifetime,
            cpu: None,
            processing: Arc::clone(&self.processing),
        }))
    }

    pub fn spec(&self, action: PolicyAction) -> PolicySpec {
        PolicySpec {
            id: PolicyId(self.policy),
            child: format!("net{}", self.policy),
            owner: self.owner.clone(),
            local_ts: self.local_ts.clone(),
            remote_ts: self.remote_ts.clone(),
            action,
            priority: self.priority,
            processing: Arc::clone(&self.processing),
            outer: Some(Outer { mode: self.mode, local: self.local, remote: self.remote }),
            standby: false,
        }
    }

    pub fn act(&self, action: PolicyAction) -> Command {
        Command::InstallPolicy(Box::new(self.spec(action)))
    }

    pub fn protect(&self) -> Command {
        self.protect_by(Some(self.outbound()))
    }

    pub fn protect_by(&self, outbound: Option<SaId>) -> Command {
        let (mode, local, remote) = (self.mode, self.local, self.remote);
        self.act(PolicyAction::Protect { mode, local, remote, outbound })
    }

    pub fn trap(&self) -> Command {
        self.act(PolicyAction::Trap)
    }

    /// What an initiator installs.
    pub fn up(&self) -> Vec<Command> {
        vec![self.sa(Direction::In), self.sa(Direction::Out), self.protect()]
    }

    /// How a child goes.
    pub fn down(&self) -> Vec<Command> {
        vec![
            Command::RemovePolicy(PolicyId(self.policy)),
            Command::RemoveSa(self.outbound()),
            Command::RemoveSa(self.inbound()),
        ]
    }

    /// The commands that move both halves to another path.
    pub fn moves(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Command> {
        let (inbound, outbound) = (self.inbound(), self.outbound());
        (self.local, self.remote) = (local.ip(), remote.ip());
        vec![
            Command::UpdateSa { id: inbound, src: remote, dst: local, encap: None },
            Command::UpdateSa { id: outbound, src: local, dst: remote, encap: None },
            self.protect(),
        ]
    }
}

/// A packet from left to right.
pub fn out() -> Packet {
    Packet::udp(addr("10.1.0.1"), addr("10.2.0.1"))
}

/// A packet from right to left.
pub fn back() -> Packet {
    Packet::udp(addr("10.2.0.1"), addr("10.1.0.1"))
}

/// Applies all, and stops at the first failure.
pub fn apply<T: Transport, S: Source>(
    plane: &mut XfrmNetlink<T, S>,
    commands: impl IntoIterator<Item = Command>,
) -> Result<(), DataPlaneError> {
    commands.into_iter().try_for_each(|command| plane.apply(command).map(drop))
}

pub fn events<T: Transport, S: Source>(plane: &mut XfrmNetlink<T, S>) -> Vec<Event> {
    std::iter::from_fn(|| plane.poll_event()).collect()
}

pub fn usage<T: Transport, S: Source>(
    plane: &mut XfrmNetlink<T, S>,
    id: SaId,
) -> ipsec_types::dataplane::Usage {
    match plane.apply(Command::QueryUsage(id)) {
        Ok(Reply::Usage(_, usage)) => usage,
        other => panic!("{other:?}"),
    }
}
