//! A gateway and its clients in one thread and in virtual time; what each end holds is counted by itself.
//!
//! Datagrams, ciphers and PRFs are real. Key exchanges and signatures are stand-ins of the real lengths
//! ([`ike_tests::cheap`]): nothing of them outlives the handshake.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::EndpointConfig;
use ike_proto::dataplane::{self, Reply, Usage};
use ike_proto::{
    Answer, ChildState, Command, Endpoint, Event, Input, Now, Output, Path, PeerCertificate,
    Question, RequestId, Transmit, TransmitKind,
};
use ike_tests::Seeded;
use ike_tests::cheap::{self, Signer};
use ike_tests::heap::{self, Amount};

use super::config::{GATEWAY, PLANE, Times, address, clients, gateway, name, number};
use super::suite::{Auth, Suite};

/// Clients of one endpoint; a configuration of that many connections is searched from front to back.
const GROUP: usize = 800;

/// Lengths of an ECDSA P-256 certificate and signature.
const SIGNER: Signer = Signer { certificate: 467, signature: 72 };

/// Failures that are remembered.
const FAILURES: usize = 8;

/// One endpoint, and what it holds.
pub struct End {
    endpoint: Endpoint,
    /// What it holds, its configuration apart.
    pub held: Amount,
    /// The most octets it has held.
    pub most: i64,
    /// IKE SAs that came up, and children made or rekeyed.
    pub up: [u64; 2],
    /// IKE SAs that were rekeyed.
    pub ike_rekeys: u64,
    /// What went wrong, the first few.
    pub failures: Vec<String>,
    wake: Option<Instant>,
}

impl End {
    fn new(config: EndpointConfig, seed: u64) -> Self {
        let crypto = cheap::post_quantum();
        let rng = Box::new(Seeded::new(seed));
        let endpoint = Endpoint::new(config, crypto, rng, PLANE);
        Self {
            endpoint,
            held: Amount::default(),
            most: 0,
            up: [0; 2],
            ike_rekeys: 0,
            failures: Vec::new(),
            wake: None,
        }
    }

    /// The engine.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Runs `f`, and counts what it leaves or frees as this end's.
    fn within<T>(&mut self, f: impl FnOnce(&mut Endpoint) -> T) -> T {
        let before = heap::live();
        let result = f(&mut self.endpoint);
        self.held += heap::live() - before;
        self.most = self.most.max(self.held.octets);
        result
    }

    fn note(&mut self, event: Event) {
        let failed = match &event {
            Event::IkeUp(_) => {
                self.up[0] += 1;
                false
            }
            Event::ChildUp { .. } | Event::ChildRekeyed { .. } => {
                self.up[1] += 1;
                false
            }
            Event::IkeRekeyed { .. } => {
                self.ike_rekeys += 1;
                false
            }
            Event::Done(_, Err(_))
            | Event::PeerRefused(_)
            | Event::InitRefused { .. }
            | Event::ChildRefused { .. }
            | Event::ChildFailed { .. } => true,
            _ => false,
        };
        if failed && self.failures.len() < FAILURES {
            self.failures.push(format!("{event:?}"));
        }
        self.within(|_| drop(event));
    }
}

/// Which of the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The gateway.
    Gateway,
    /// The endpoint of these clients.
    Clients(usize),
}

struct Packet {
    from: Who,
    transmit: Transmit,
}

/// A gateway, its clients, and the datagrams between them.
pub struct Ends {
    suite: Suite,
    times: Option<Times>,
    now: Instant,
    dawn: Instant,
    /// The responder.
    pub gateway: End,
    /// The initiators. `None` where they are gone.
    pub clients: Vec<Option<End>>,
    wire: VecDeque<Packet>,
    /// What the gateway sent, and got, of IKE_SA_INIT: octets.
    pub init_octets: u64,
    /// What the gateway got, if it is to be remembered.
    pub tap: Option<Vec<(Path, Vec<u8>)>>,
}

impl Ends {
    /// A gateway without clients, and the default lifetimes if there are no `times`. `change` changes
    /// the gateway's settings.
    pub fn new(suite: Suite, times: Option<Times>, change: impl Fn(&mut EndpointConfig)) -> Self {
        let mut config = gateway(suite, times);
        change(&mut config);
        let now = Instant::now();
        Self {
            suite,
            times,
            now,
            dawn: now,
            gateway: End::new(config, 1),
            clients: Vec::new(),
            wire: VecDeque::new(),
            init_octets: 0,
            tap: None,
        }
    }

    /// Adds clients until there are `count`, and makes each send its IKE_SA_INIT.
    pub fn initiate(&mut self, count: usize) {
        for group in self.clients.len()..count.div_ceil(GROUP) {
            let numbers = group * GROUP..count.min((group + 1) * GROUP);
            let config = clients(self.suite, self.times, numbers.clone());
            self.clients.push(Some(End::new(config, 1000 + group as u64)));
            for number in numbers {
                let command = Command::Initiate {
                    connection: name(number),
                    child: Some("net".to_owned()),
                    local: address(number),
                    remote: GATEWAY,
                    packet: None,
                };
                self.command(Who::Clients(group), command);
            }
        }
    }

    /// Has `count` clients connect to the gateway, and forgets them: what is left is the gateway's.
    pub fn connect_and_forget(&mut self, count: usize) {
        for group in 1..=count.div_ceil(GROUP) {
            self.initiate(count.min(group * GROUP));
            self.run();
            if let Some(last) = self.clients.last_mut() {
                *last = None;
            }
        }
    }

    /// Delivers what is on the wire now, and not what follows from it.
    pub fn round(&mut self) {
        for _ in 0..self.wire.len() {
            self.deliver();
        }
    }

    /// Delivers until nothing is on the wire.
    pub fn run(&mut self) {
        while self.deliver() {}
    }

    /// Loses what is on the wire.
    pub fn lose(&mut self) {
        while let Some(packet) = self.wire.pop_front() {
            self.release(packet);
        }
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((at, who)) = self.next().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.handle(who, Input::Timeout);
            self.run();
        }
        self.now = until;
    }

    /// Lets each client rekey, its child or its IKE SA; one group after the other, with time between them
    /// for what a rekeyed SA leaves.
    pub fn rekey(&mut self, ike: bool) {
        for group in 0..self.clients.len() {
            let Some(clients) = &self.clients[group] else { continue };
            for status in clients.endpoint.ike_sas() {
                let children = status.children.iter();
                let mut children = children.filter(|child| child.state == ChildState::Installed);
                let command = match children.next() {
                    Some(child) if !ike => Command::RekeyChild(child.id),
                    _ => Command::RekeyIke(status.id),
                };
                self.command(Who::Clients(group), command);
            }
            self.run();
            self.pass(Duration::from_secs(6));
        }
    }

    /// What the initiators hold together.
    pub fn held_by_clients(&self) -> Amount {
        self.clients.iter().flatten().fold(Amount::default(), |sum, end| sum + end.held)
    }

    /// The most octets they have held, each at its own time.
    pub fn most_of_clients(&self) -> i64 {
        self.clients.iter().flatten().map(|end| end.most).sum()
    }

    /// Forgets the peaks.
    pub fn forget_peaks(&mut self) {
        for end in self.clients.iter_mut().flatten().chain([&mut self.gateway]) {
            end.most = end.held.octets;
        }
    }

    /// Gives the gateway a datagram from anywhere; returns how many it sends then. They are lost.
    pub fn give(&mut self, path: Path, octets: &[u8]) -> usize {
        self.handle(Who::Gateway, Input::Datagram(path, octets));
        let sent = self.wire.len();
        self.lose();
        sent
    }

    /// What went wrong at any end.
    ///
    /// # Errors
    ///
    /// If anything did.
    pub fn check(&self) -> Result<(), String> {
        let ends = self.clients.iter().flatten().chain([&self.gateway]);
        match ends.flat_map(|end| &end.failures).next() {
            Some(failure) => Err(format!("{}: {failure}", self.suite.name)),
            None => Ok(()),
        }
    }

    fn next(&self) -> Option<(Instant, Who)> {
        let clients = self.clients.iter().enumerate();
        let clients =
            clients.filter_map(|(group, end)| Some((end.as_ref()?.wake?, Who::Clients(group))));
        let gateway = self.gateway.wake.map(|at| (at, Who::Gateway));
        clients.chain(gateway).min_by_key(|(at, _)| *at)
    }

    fn command(&mut self, who: Who, command: Command) {
        self.handle(who, Input::Command(RequestId(0), command));
    }

    fn end(&mut self, who: Who) -> Option<&mut End> {
        match who {
            Who::Gateway => Some(&mut self.gateway),
            Who::Clients(group) => self.clients.get_mut(group)?.as_mut(),
        }
    }

    fn deliver(&mut self) -> bool {
        let Some(packet) = self.wire.pop_front() else { return false };
        let Transmit { path, kind, octets, .. } = &packet.transmit;
        if *kind == TransmitKind::KeepAlive {
            self.release(packet);
            return true;
        }
        let to = match number(path.remote.ip()) {
            Some(number) => Who::Clients(number / GROUP),
            None => Who::Gateway,
        };
        // IKE_SA_INIT is the exchange type 34.
        if octets.get(18) == Some(&34) {
            self.init_octets += octets.len() as u64;
        }
        let arrival = Path { local: path.remote, remote: path.local, transport: path.transport };
        if let Some(tap) = self.tap.as_mut().filter(|_| to == Who::Gateway) {
            tap.push((arrival, octets.to_vec()));
        }
        let octets = Arc::clone(octets);
        self.handle(to, Input::Datagram(arrival, &octets));
        drop(octets);
        self.release(packet);
        true
    }

    /// A datagram's octets belong to the end that made it.
    fn release(&mut self, packet: Packet) {
        let Packet { from, transmit } = packet;
        if let Some(end) = self.end(from) {
            end.within(|_| drop(transmit));
        }
    }

    fn handle(&mut self, who: Who, input: Input<'_>) {
        let now = Now {
            mono: self.now,
            wall: SystemTime::UNIX_EPOCH + DAWN + self.now.duration_since(self.dawn),
        };
        let suite = self.suite;
        let Some(end) = self.end(who) else { return };
        end.within(|endpoint| endpoint.handle(now, input));
        loop {
            let Some(end) = self.end(who) else { return };
            match end.within(Endpoint::poll_output) {
                Output::Timeout(at) => {
                    end.wake = at;
                    return;
                }
                Output::Transmit(transmit) => self.wire.push_back(Packet { from: who, transmit }),
                Output::DataPlane(ticket, batch) => end.within(|endpoint| {
                    let replies = batch.iter().map(reply).collect();
                    drop(batch);
                    endpoint.handle(now, Input::Completed(ticket, Ok(replies)));
                }),
                Output::Ask(ticket, question) => end.within(|endpoint| {
                    let answer = answer(suite, &question);
                    drop(question);
                    endpoint.handle(now, Input::Answered(ticket, answer));
                }),
                Output::Stream(..) => {}
                Output::Event(event) => end.note(event),
            }
        }
    }
}

/// What a data plane answers that is always idle.
fn reply(command: &dataplane::Command) -> Reply {
    match command {
        dataplane::Command::QueryUsage(sa) => Reply::Usage(*sa, Usage::default()),
        _ => Reply::Done,
    }
}

fn answer(suite: Suite, question: &Question) -> Answer {
    // A slow key exchange is asked of every suite that has one.
    debug_assert!(
        suite.auth == Auth::Certificates || matches!(question, Question::Exchange(_)),
        "secrets ask nothing about the peer: {question:?}"
    );
    let mut answer = SIGNER.answer(question);
    if let (Answer::Key(key), Question::Judge(peer) | Question::Revocation(peer)) =
        (&mut answer, question)
    {
        let name = String::from_utf8_lossy(&peer.id.data);
        let subject = format!("C=CH, O=Example, CN={name}").into();
        // As much as the path of a certificate by a root has.
        let path = [0; 38].into();
        key.certificate = Some(Arc::new(PeerCertificate { subject, path, unchecked: false }));
    }
    answer
}

/// Some day in 2026.
const DAWN: Duration = Duration::from_secs(1_770_000_000);
