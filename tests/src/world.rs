//! Hosts, a clock and a network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::crypto::CryptoProvider;
use ike_proto::dataplane::{self, DataPlane, DataPlaneError, Reply};
use ike_proto::wire::Header;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{
    Answer, Command, EapMessage, Endpoint, Event, IkeSaId, Input, Notice, Now, Output, Path,
    PeerCredentials, Question, Registry, RequestId, Ticket, Transmit, TransmitKind, Transport,
};
use pki::{HashAndUrl, sha1};

use crate::audit::Audit;
use crate::host::ExchangeFate;
use crate::host::{Host, SignedRecord};
use crate::machine::Resume;
use crate::network::{Fate, Network, Packet, arrival};
use crate::packets::Guard;
use crate::plane::Plane;
use crate::random::Seeded;
use crate::road::Road;
use crate::streams::Streams;
use crate::traffic::{Probe, Traffic};

/// More events than any test needs; a run that gets here goes round in circles.
const TOO_MANY: u64 = 5_000_000;

/// Endpoints, the network between them, and the time.
pub struct World {
    /// What everything random depends on.
    pub seed: u64,
    /// The endpoints.
    pub hosts: Vec<Host>,
    /// The network.
    pub net: Network,
    /// Watches message IDs and IVs.
    pub audit: Audit,
    /// Watches whether packets would arrive.
    pub traffic: Traffic,
    /// Watches that nothing leaves in clear that is to be protected.
    pub guard: Guard,
    /// TCP connections.
    pub streams: Streams,
    /// Commands and data-plane events given, with their times and hosts, if the network traces.
    pub commands: Vec<(Duration, usize, String)>,
    addresses: Vec<IpAddr>,
    /// Further addresses of hosts.
    further: Vec<(usize, IpAddr)>,
    /// Hosts without any route.
    pub offline: BTreeSet<usize>,
    /// What is around hosts that have routes of their own.
    pub roads: BTreeMap<usize, Rc<dyn Road>>,
    natt_ports: Vec<u16>,
    now: Duration,
    pub(crate) queue: BTreeMap<(Duration, u64), Work>,
    order: u64,
    requests: u64,
    pub(crate) rng: Seeded,
    /// For slow key exchanges, which are not the engine's to draw for.
    exchange_rng: Seeded,
}

/// Something that will happen.
pub(crate) enum Work {
    /// A packet arrives on the far side of every NAT but the receiver's.
    Arrive(Packet),
    /// The data plane of a host is through with a batch.
    Batch(usize, Ticket, Vec<dataplane::Command>),
    /// The keeper of a host's keys has thought about it.
    Answer(usize, Ticket, Box<Question>),
    /// Whoever does EAP has thought about a packet.
    Eap(usize, Ticket, Box<EapMessage>),
    /// An ESP packet arrives.
    Esp(Probe),
    /// A TCP connection is made, or not.
    StreamOpens(usize),
    /// A message arrives by a TCP connection, sent by the end that opened it or by the other.
    StreamArrives(usize, bool, Packet),
    /// One end closes a TCP connection.
    StreamEnds(usize, bool),
    /// One end gives up on what it sent, unless it gets through now.
    StreamSilent(usize, bool, Packet),
    /// A TCP connection is reset.
    StreamCut(usize),
    /// A datagram waited in a socket of this host, which was suspended.
    Received(usize, Packet),
    /// Another shard of the machine says something of an IKE SA of this one.
    Notice(usize, IkeSaId, Notice),
}

impl World {
    /// When every world begins: 2030-06-01.
    pub fn dawn() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_906_502_400)
    }

    /// An empty world.
    pub fn new(seed: u64) -> Self {
        let mut rng = Seeded::new(seed);
        Self {
            seed,
            hosts: Vec::new(),
            net: Network::new(rng.fork()),
            audit: Audit::default(),
            traffic: Traffic::default(),
            guard: Guard::default(),
            streams: Streams::default(),
            commands: Vec::new(),
            addresses: Vec::new(),
            further: Vec::new(),
            offline: BTreeSet::new(),
            roads: BTreeMap::new(),
            natt_ports: Vec::new(),
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            order: 0,
            requests: 0,
            rng,
            exchange_rng: Seeded::new(seed ^ 0x6b65),
        }
    }

    /// Adds an endpoint that listens on ports 500 and `natt_port` of `address`. Several with one
    /// address are its shards, and are told apart by SPI.
    pub fn add(
        &mut self,
        address: IpAddr,
        config: EndpointConfig,
        crypto: Arc<CryptoProvider>,
        plane: Plane,
    ) -> usize {
        let machine = self.hosts.len();
        self.add_shard(address, config, crypto, plane, (machine, Registry::default()))
    }

    /// Adds an endpoint that is one of several of a machine, which share a registry.
    pub fn add_shard(
        &mut self,
        address: IpAddr,
        config: EndpointConfig,
        crypto: Arc<CryptoProvider>,
        plane: Plane,
        (machine, registry): (usize, Registry),
    ) -> usize {
        self.natt_ports.push(config.natt_port);
        let rng = Box::new(self.rng.fork());
        let endpoint = Endpoint::shard(config, crypto, rng, plane.capabilities(), registry);
        self.hosts.push(Host::new(endpoint, plane, machine));
        self.addresses.push(address);
        self.hosts.len() - 1
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> IpAddr {
        self.addresses[host]
    }

    /// Moves a host to another address.
    pub fn set_address(&mut self, host: usize, address: IpAddr) {
        self.addresses[host] = address;
    }

    /// Gives a host one more address.
    pub fn add_address(&mut self, host: usize, address: IpAddr) {
        self.further.push((host, address));
    }

    /// Takes one of these away again.
    pub fn remove_address(&mut self, host: usize, address: IpAddr) {
        self.further.retain(|known| *known != (host, address));
    }

    /// True if `address` is one of the host's.
    pub fn has_address(&self, host: usize, address: IpAddr) -> bool {
        if let Some(road) = self.roads.get(&host) {
            return road.has(address);
        }
        let known = self.addresses[host] == address || self.further.contains(&(host, address));
        !self.offline.contains(&host) && known
    }

    /// The addresses of a host, whether it has routes or not.
    pub(crate) fn known_addresses(&self, host: usize) -> Vec<IpAddr> {
        let own = self.further.iter().filter(|(of, _)| *of == host).map(|(_, address)| *address);
        std::iter::once(self.addresses[host]).chain(own).collect()
    }

    /// The same of one that has routes.
    pub(crate) fn own_addresses(&self, host: usize) -> Vec<IpAddr> {
        if self.offline.contains(&host) { Vec::new() } else { self.known_addresses(host) }
    }

    /// Tells a host that what arrives has to wait, or no longer has to.
    pub fn set_behind(&mut self, host: usize, behind: bool) {
        self.handle(host, Input::Behind(behind));
    }

    /// Moves a host to another address, and tells it.
    pub fn roam(&mut self, host: usize, address: IpAddr) {
        self.set_address(host, address);
        self.tell_network(host);
    }

    /// Time since the world began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The instant of [`now`](Self::now).
    pub fn instant(&self) -> Instant {
        beginning() + self.now
    }

    /// The wall-clock time.
    pub fn wall(&self) -> SystemTime {
        Self::dawn() + self.now
    }

    /// The time of an instant an endpoint speaks of.
    pub fn time_of(&self, at: Instant) -> Duration {
        at.saturating_duration_since(beginning())
    }

    /// Gives a command; [`Host::done`] tells how it ended.
    pub fn command(&mut self, host: usize, command: Command) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        if self.net.tracing {
            self.commands.push((self.now, host, format!("{request:?}: {command:?}")));
        }
        self.handle(host, Input::Command(request, command));
        request
    }

    /// Lets the data plane of a host report something.
    pub fn plane_event(&mut self, host: usize, event: dataplane::Event) {
        if self.net.tracing {
            self.commands.push((self.now, host, format!("{event:?}")));
        }
        self.handle(host, Input::DataPlane(event));
    }

    /// Tells a host the MTU of its path to another one, as its driver would.
    pub fn path_mtu(&mut self, host: usize, to: usize, octets: u32) {
        let (local, remote) = (self.socket(host, 500), self.socket(to, 500));
        let path = Path { local, remote, transport: Transport::Udp };
        self.handle(host, Input::PathMtu(path, octets));
    }

    /// Restarts a host that has no Child SA yet: nothing is left of what it knew.
    pub fn restart(&mut self, host: usize, crypto: Arc<CryptoProvider>) {
        let rng = Box::new(self.rng.fork());
        let host = &mut self.hosts[host];
        let config = host.endpoint.config().clone();
        host.endpoint = Endpoint::new(config, crypto, rng, host.plane.capabilities());
    }

    /// Puts a packet on the wire: it arrives at once.
    pub fn inject(&mut self, packet: Packet) {
        self.deliver(packet);
    }

    /// Suspends a machine for `time`, which its clock counts. It hears nothing and does nothing meanwhile.
    pub fn sleep_through(&mut self, machine: usize, time: Duration) {
        self.suspend(machine, false);
        self.run_for(time);
        self.resume(machine, Resume { clock_stood: false, timers_first: true });
    }

    /// Wakes a host that did not ask for it.
    pub fn wake(&mut self, host: usize) {
        self.handle(host, Input::Timeout);
    }

    // ---- time ----

    /// Lets the next thing happen. False if nothing ever will.
    pub fn step(&mut self) -> bool {
        match self.next_event() {
            Some(at) => {
                self.happen(at);
                true
            }
            None => false,
        }
    }

    /// When the next thing happens.
    pub fn next_event(&self) -> Option<Duration> {
        let work = self.queue.keys().next().map(|(at, _)| *at);
        let awake = self.hosts.iter().filter(|host| host.frozen.is_none());
        let wakes = awake.filter_map(|host| host.wake);
        work.into_iter().chain(wakes).min()
    }

    fn happen(&mut self, at: Duration) {
        self.order += 1;
        assert!(self.order < TOO_MANY, "seed {}: no end in sight", self.seed);
        self.now = self.now.max(at);
        if let Some((&key, _)) = self.queue.first_key_value()
            && key.0 <= self.now
            && let Some(work) = self.queue.remove(&key)
        {
            let Some(work) = self.unless_frozen(work) else { return };
            return match work {
                Work::Arrive(packet) => self.deliver(packet),
                Work::Batch(host, ticket, batch) => {
                    self.hosts[host].batches -= 1;
                    self.apply(host, ticket, batch);
                }
                Work::Eap(host, ticket, message) => self.answer_eap(host, ticket, *message),
                Work::Answer(host, ticket, question) => {
                    self.answer(host, ticket, &question);
                }
                Work::Esp(probe) => self.esp(probe),
                Work::StreamOpens(n) => self.stream_opens(n),
                Work::StreamArrives(n, by_opener, packet) => {
                    self.stream_arrives(n, by_opener, packet);
                }
                Work::StreamEnds(n, by_opener) => self.stream_ends(n, by_opener),
                Work::StreamSilent(n, ours, packet) => self.stream_silent(n, ours, packet),
                Work::StreamCut(n) => self.cut(n),
                Work::Received(host, packet) => self.take_in(host, &packet),
                Work::Notice(host, ike, notice) => self.handle(host, Input::Notice(ike, notice)),
            };
        }
        let due = |host: &Host| host.frozen.is_none() && host.wake.is_some_and(|wake| wake <= at);
        if let Some(host) = self.hosts.iter().position(due) {
            self.handle(host, Input::Timeout);
            let still = self.hosts[host].wake.is_some_and(|wake| wake < at);
            assert!(!still, "seed {}: host {host} wakes for the past", self.seed);
        }
    }

    /// Runs for `time`.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.happen(at);
        }
        self.now = end;
    }

    /// Runs until `done`, at most for `limit`. True if it was.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            match self.next_event().filter(|at| *at <= end) {
                Some(at) => self.happen(at),
                None => {
                    self.now = end;
                    return done(self);
                }
            }
        }
    }

    /// Runs until nothing is under way: no packet, no batch. Timers do not count.
    pub fn settle(&mut self) {
        while let Some((&(at, _), _)) = self.queue.first_key_value() {
            self.happen(at);
        }
    }

    /// True if nothing is under way.
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty()
    }

    // ---- inside ----

    pub(crate) fn handle(&mut self, host: usize, input: Input<'_>) {
        assert!(self.hosts[host].frozen.is_none(), "seed {}: host {host} is suspended", self.seed);
        let clock = self.hosts[host].clock;
        let now = Now { mono: self.instant() - clock.behind, wall: self.wall_of(host) };
        self.hosts[host].endpoint.handle(now, input);
        self.drain(host);
    }

    fn drain(&mut self, host: usize) {
        loop {
            let output = self.hosts[host].endpoint.poll_output();
            if let Output::Timeout(at) = output {
                let behind = self.hosts[host].clock.behind;
                self.hosts[host].wake = at.map(|at| self.time_of(at) + behind);
            }
            let wake = self.hosts[host].wake;
            self.hosts[host].digest.add(self.now, &output, wake);
            match output {
                Output::Timeout(_) => return,
                Output::Transmit(transmit) => self.send(host, transmit),
                Output::DataPlane(ticket, batch) => {
                    let delay = self.hosts[host].plane.delay;
                    if delay.is_zero() && self.hosts[host].batches == 0 {
                        self.apply(host, ticket, batch);
                    } else {
                        self.hosts[host].batches += 1;
                        self.schedule(self.now + delay, Work::Batch(host, ticket, batch));
                    }
                }
                Output::Stream(path, command) => self.on_stream_command(host, path, command),
                Output::Ask(ticket, question) => self.ask(host, ticket, question),
                Output::Event(Event::Notice(ike, notice)) => self.pass_on(host, ike, notice),
                Output::Event(Event::Dropped { why, .. }) => self.hosts[host].dropped.push(why),
                Output::Event(event) => self.hosts[host].log.push((self.now, event)),
            }
        }
    }

    fn ask(&mut self, host: usize, ticket: Ticket, question: Question) {
        let asked = match &question {
            Question::Sign(_) => "sign",
            Question::Judge(_) => "judge",
            Question::Revocation(_) => "revocation",
            Question::Resume(_) => "resume",
            Question::Lease(_) => "lease",
            Question::Exchange(_) => return self.ask_exchange(host, ticket, question),
            Question::Eap(_) => "eap",
            Question::Ends { connection, last } => {
                let answer = self.ends(host, connection, *last);
                return self.handle(host, Input::Answered(ticket, answer));
            }
        };
        self.hosts[host].asked.push(asked);
        let question = match question {
            Question::Eap(message) => return self.ask_eap(host, ticket, *message),
            other => other,
        };
        match self.hosts[host].answer_delay {
            None => {}
            Some(Duration::ZERO) => self.answer(host, ticket, &question),
            Some(delay) => {
                self.schedule(self.now + delay, Work::Answer(host, ticket, Box::new(question)));
            }
        }
    }

    fn ask_eap(&mut self, host: usize, ticket: Ticket, message: EapMessage) {
        match self.hosts[host].answer_delay {
            None => {}
            Some(Duration::ZERO) => self.answer_eap(host, ticket, message),
            Some(delay) => {
                self.schedule(self.now + delay, Work::Eap(host, ticket, Box::new(message)));
            }
        }
    }

    fn answer_eap(&mut self, host: usize, ticket: Ticket, message: EapMessage) {
        let answer = match &mut self.hosts[host].eap {
            Some(eap) => Answer::Eap(Box::new(eap(message))),
            None => Answer::Failed("no EAP here".to_owned()),
        };
        self.handle(host, Input::Answered(ticket, answer));
    }

    fn ask_exchange(&mut self, host: usize, ticket: Ticket, question: Question) {
        let asker = &mut self.hosts[host];
        asker.exchanges += 1;
        let mut delay = asker.exchange_delay;
        if let (true, Some(longest)) = (asker.exchanges_vary, &mut delay) {
            let longest_us = u64::try_from(longest.as_micros()).expect("a short time");
            *longest = Duration::from_micros(self.exchange_rng.below(longest_us + 1));
        }
        match asker.exchange_fates.pop_front() {
            Some(ExchangeFate::After(time)) => delay = Some(time),
            Some(ExchangeFate::Never) => delay = None,
            Some(ExchangeFate::Broken) => {
                let broken = Answer::Failed("broken off".to_owned());
                return self.handle(host, Input::Answered(ticket, broken));
            }
            None => {}
        }
        match delay {
            None => {}
            Some(Duration::ZERO) => self.answer(host, ticket, &question),
            Some(delay) => {
                self.schedule(self.now + delay, Work::Answer(host, ticket, Box::new(question)));
            }
        }
    }

    /// What was sent by hash and URL comes from the host's web.
    fn answer_by_web(&self, host: usize, question: &Question, peer: &PeerCredentials) -> Answer {
        let Host { web, answerer, .. } = &self.hosts[host];
        let mut resolved = PeerCredentials { certs: Vec::new(), ..peer.clone() };
        for cert in &peer.certs {
            match HashAndUrl::read(cert) {
                Ok(named) => {
                    let Some(found) = web.iter().find(|octets| sha1(octets) == named.hash) else {
                        return Answer::Failed(format!("{}: not found", named.url));
                    };
                    resolved.certs.extend(named.unpack(found).expect("what was published"));
                }
                Err(_) => resolved.certs.push(cert.clone()),
            }
        }
        let question = match question {
            Question::Revocation(_) => Question::Revocation(resolved),
            _ => Question::Judge(resolved),
        };
        answerer.answer(&question, self.wall_of(host))
    }

    fn answer(&mut self, host: usize, ticket: Ticket, question: &Question) {
        let signer = self.hosts[host].signer;
        let answer = match (question, signer) {
            (Question::Lease(request), _) => match &mut self.hosts[host].leaser {
                Some(leaser) => leaser(request),
                None => Answer::Failed("no addresses".to_owned()),
            },
            (Question::Exchange(exchange), _) => exchange.perform(&mut self.exchange_rng),
            (Question::Judge(_), Some(_)) if !self.finds_valid(host) => {
                Answer::Failed("the certificate is not valid now".to_owned())
            }
            (_, Some(signer)) => signer.answer(question),
            (Question::Judge(peer) | Question::Revocation(peer), None)
                if peer.certs.iter().any(|cert| HashAndUrl::is(cert.encoding)) =>
            {
                self.answer_by_web(host, question, peer)
            }
            (_, None) => self.hosts[host].answerer.answer(question, self.wall_of(host)),
        };
        if let (Question::Sign(request), Answer::Signed(signed)) = (question, &answer) {
            let signatures = request.octets.iter().zip(&signed.signatures);
            let record = signatures.map(|(octets, signature)| SignedRecord {
                octets: octets.as_bytes().to_vec(),
                scheme: signed.scheme.clone(),
                signature: signature.clone(),
                certs: signed.certs.clone(),
            });
            self.hosts[host].signed.extend(record);
        }
        self.handle(host, Input::Answered(ticket, answer));
    }

    pub(crate) fn schedule(&mut self, at: Duration, work: Work) {
        self.order += 1;
        self.queue.insert((at, self.order), work);
    }

    fn send(&mut self, host: usize, transmit: Transmit) {
        if transmit.path.transport == Transport::Tcp {
            return self.send_by_stream(host, transmit);
        }
        let Transmit { path, kind, dscp, octets } = transmit;
        self.hosts[host].codepoints.insert(dscp);
        let keepalive = kind == TransmitKind::KeepAlive;
        let counter =
            if keepalive { &mut self.hosts[host].keepalives } else { &mut self.hosts[host].sent };
        *counter += 1;
        if kind == TransmitKind::Probe && !self.audit.off {
            self.audit.on_probe(&octets);
        }
        if !self.sends(host, path.local.ip(), path.remote.ip()) {
            // The kernel refuses a source that is not the host's own, or has no route.
            self.net.unsendable += 1;
            return;
        }
        let mut packet = Packet {
            sent: self.now,
            from: Some(host),
            src: path.local,
            dst: path.remote,
            marker: path.transport == Transport::UdpEncap && !keepalive,
            stream: None,
            kind,
            octets,
        };
        if !keepalive {
            self.hosts[host].sent_octets += packet.octets.len() as u64;
            self.hosts[host].sent_ip_octets += packet.ip_octets() as u64;
        }
        if !keepalive && !self.audit.off {
            self.audit.on_sent(&packet);
        }
        if self.net.tracing {
            self.net.trace.push(packet.clone());
        }
        let fate = self.net.tapped(&mut packet);
        self.net.leave(self.now, &mut packet);
        if fate == Fate::Drop {
            return;
        }
        if self.net.manual {
            return self.net.mailbox.push(packet);
        }
        let to = (0..self.hosts.len()).find(|host| self.has_address(*host, packet.dst.ip()));
        for at in self.net.carry(self.now, host, to.unwrap_or(usize::MAX), &packet) {
            self.schedule(at, Work::Arrive(packet.clone()));
        }
    }

    pub(crate) fn deliver(&mut self, mut packet: Packet) {
        if !self.net.enter(self.now, &mut packet) {
            return;
        }
        let Some(host) = self.receiver(&packet) else { return };
        if let Some(frozen) = &mut self.hosts[host].frozen {
            return frozen.take(host, packet);
        }
        self.take_in(host, &packet);
    }

    /// A datagram reaches the driver of a host.
    fn take_in(&mut self, host: usize, packet: &Packet) {
        if packet.octets.len() == 1 {
            // A keepalive ends in the driver.
            return;
        }
        let Some(path) = arrival(packet, self.natt_ports[host]) else {
            self.net.misdirected += 1;
            return;
        };
        if !self.audit.off {
            self.audit.on_delivered(packet);
        }
        let octets = Arc::clone(&packet.octets);
        self.handle(host, Input::Datagram(path, &octets));
    }

    /// The host a packet goes to; of several shards the one whose number is in the SPI.
    fn receiver(&self, packet: &Packet) -> Option<usize> {
        let here = |host: &usize| self.has_address(*host, packet.dst.ip());
        let shards: Vec<_> = (0..self.hosts.len()).filter(here).collect();
        if shards.len() < 2 {
            return shards.first().copied();
        }
        let count = self.hosts[shards[0]].shard.count;
        if count > 1 {
            // What is of no shard goes to any.
            let index = Shard::steer(count, &packet.octets).unwrap_or_default();
            return shards.into_iter().find(|shard| self.hosts[*shard].shard.index == index);
        }
        let header = Header::peek(&packet.octets)?;
        let first = header.exchange == ExchangeType::IKE_SA_INIT && header.spi_r == 0;
        let by = match (first, header.flags.initiator) {
            (true, true) => header.spi_i.to_be_bytes()[7],
            (false, true) => header.spi_r.to_be_bytes()[0],
            (_, false) => header.spi_i.to_be_bytes()[0],
        };
        shards.get(usize::from(by) % shards.len()).copied()
    }

    fn apply(&mut self, host: usize, ticket: Ticket, batch: Vec<dataplane::Command>) {
        self.probe(host, false);
        self.hosts[host].plane.set_now(self.now);
        let mut apply = |command| {
            let reply = self.hosts[host].plane.apply(command);
            self.look_for_clear(host);
            reply
        };
        // In order, and up to the first failure.
        let result: Result<Vec<Reply>, DataPlaneError> =
            batch.into_iter().map(&mut apply).collect();
        self.probe(host, true);
        self.handle(host, Input::Completed(ticket, result));
    }

    /// The host with this address.
    pub(crate) fn host_at(&self, address: IpAddr) -> Option<usize> {
        self.addresses.iter().position(|other| *other == address)
    }

    /// A socket address of a host.
    pub fn socket(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[host], port)
    }
}

/// The instant at which every world begins.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(|| {
        // Clear of whatever a test subtracts.
        Instant::now() + Duration::from_secs(3600)
    })
}
