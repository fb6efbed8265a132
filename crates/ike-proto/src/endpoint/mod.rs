//! The endpoint: routes datagrams by SPI, admits new peers, and owns every IKE SA.

mod admission;
pub(crate) mod attempt;
mod brief;
mod closed;
mod commands;
mod cookie;
mod crash;
mod crossing;
mod deadline;
mod effects;
mod giving_way;
mod handover;
mod id_set;
mod index;
mod network;
mod parked;
mod redirect;
mod registry;
mod responder;
#[cfg(all(test, target_arch = "x86_64"))]
mod sizes;
mod spent;
mod tickets;
mod transports;
mod traps;
pub(crate) mod unattended;
mod unknown_spi;
mod usable;
pub(crate) mod wants;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::channel::io::{Io, StreamNames};
use crate::channel::memory::MemoryBudget;
use crate::channel::pmtu::PathMtus;
use crate::config::candidates::Lists;
use crate::config::lookup::Lookup;
use crate::config::{ChildConfig, EndpointConfig};
use crate::crypto::{CryptoProvider, SecureRandom};
use crate::dataplane::{self, Capabilities, TrafficSelector};
use crate::event::{
    Event, Failure, IkeSaId, IkeStatus, Input, Network, Now, Output, Path, RequestId, Ticket,
    TransmitKind,
};
use crate::exchange::resume::fits::InForce;
use crate::exchange::sa_init;
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::{Context, Effect, Ids};
use crate::ike_sa::path_probe::PathProbe;
use crate::ike_sa::state::State;
use crate::question::Answer;
use crate::reason::DropReason;
use crate::shares::Origin;
use crate::table::{HashSeed, OwnTable};
use crate::wire::registry::ExchangeType;
use crate::wire::{DecodeError, Message};
use admission::{Courtesy, HalfOpen, Refused};
use attempt::Attempt;
pub use brief::{ChildBrief, IkeBrief};
use closed::Closed;
use cookie::Cookies;
use crash::Crash;
use crossing::Crossings;
use deadline::{Deadline, Deadlines};
use handover::Handovers;
use index::Index;
use parked::Parked;
pub use registry::Registry;
pub(crate) use registry::Shards;
pub use spent::Void;
use tickets::Tickets;
use transports::BlockedUdp;
use traps::Trap;
use unattended::Chore;
use usable::usable;
use wants::Wants;

/// An IKEv2 endpoint: one shard of a daemon, or all of it.
///
/// - Input: [`handle`](Self::handle), at any time, with the time it happened.
/// - Output: [`poll_output`](Self::poll_output) until it returns [`Output::Timeout`]. Outputs that the caller does
///   not take stay queued, in order.
/// - Views: [`ike_sas`](Self::ike_sas), [`half_open`](Self::half_open).
pub struct Endpoint {
    config: EndpointConfig,
    lookup: Lookup,
    lists: Lists,
    crypto: Arc<CryptoProvider>,
    plane: Capabilities,
    rng: Box<dyn SecureRandom>,
    out: VecDeque<Output>,
    effects: VecDeque<Effect>,
    ids: Ids,
    budget: MemoryBudget,
    paths: Paths,
    network: Network,
    entries: Entries,
    /// By the SPIs that this end chose.
    by_spi: OwnTable<u64, IkeSaId>,
    registry: Shards,
    index: Index,
    /// IKE_SA_INIT requests answered, by a hash of the whole.
    answered: OwnTable<u64, IkeSaId>,
    deadlines: Deadlines,
    cookies: Option<Cookies>,
    half_open: HalfOpen,
    traps: Vec<Trap>,
    wants: Wants,
    /// Removals that failed and are to be repeated.
    chores: Vec<Chore>,
    closed: Closed,
    /// Answers to messages outside any SA that may still be sent in this second (RFC 7296 §2.21.4).
    courtesy: Courtesy,
    crash: Crash,
    /// IKE_SA_INIT requests refused in the last second.
    refused: Refused,
    blocked_udp: BlockedUdp,
    tickets: Tickets,
    crossings: Crossings,
    handovers: Handovers,
    shutdown: Shutdown,
    /// The time of the newest input.
    now: Option<Now>,
}

/// What the endpoint knows of paths.
struct Paths {
    mtus: PathMtus,
    /// The TCP connections that it opens.
    streams: StreamNames,
}

type Entries = OwnTable<IkeSaId, Slot>;

/// How far the end of an endpoint is.
#[derive(Clone, Copy)]
enum Shutdown {
    No,
    /// By this command, which is answered when no entry is left.
    Requested(RequestId),
    /// The command was answered.
    Reported,
}

impl Shutdown {
    /// True if nothing new begins.
    fn has_begun(self) -> bool {
        !matches!(self, Self::No)
    }
}

enum Entry {
    Attempt(Box<Attempt>),
    Sa(Box<IkeSa>),
    /// A half-open IKE SA in its small form.
    Parked(Box<Parked>),
}

struct Slot {
    entry: Entry,
    deadline: Option<Instant>,
    /// True if it counts as half-open.
    half_open: bool,
    identity: Option<Arc<registry::Identities>>,
    /// The hash of the IKE_SA_INIT request that it answered.
    request: Option<u64>,
    keys: index::Keys,
}

impl Slot {
    fn status(&self) -> IkeStatus {
        match &self.entry {
            Entry::Attempt(attempt) => attempt.status(),
            Entry::Sa(sa) => sa.status(),
            Entry::Parked(parked) => parked.status(),
        }
    }

    /// As [`status`](Self::status), with [`IkeStatus::secrets`] compared with the configuration in force at `endpoint`.
    fn status_at(&self, endpoint: &Endpoint) -> IkeStatus {
        let mut status = self.status();
        if let Entry::Sa(sa) = &self.entry
            && let Some(established) = sa.established()
        {
            let Endpoint { registry, lookup, config, .. } = endpoint;
            let authenticated = established.identity.authenticated();
            let in_force = InForce::new(registry.seed(), lookup, config);
            status.secrets = in_force.secrets(&sa.peer, authenticated);
        }
        status
    }
}

/// A trap policy as [`Endpoint::traps`] shows it.
#[derive(Debug, Clone)]
pub struct TrapStatus {
    /// Connection name.
    pub connection: String,
    /// The child that traffic brings up.
    pub child: Arc<ChildConfig>,
    /// Traffic of this end.
    pub local_ts: Arc<[TrafficSelector]>,
    /// Traffic of the peer.
    pub remote_ts: Arc<[TrafficSelector]>,
}

impl Endpoint {
    /// An endpoint without any SA. `plane` says what its data plane supports.
    pub fn new(
        config: EndpointConfig,
        crypto: Arc<CryptoProvider>,
        rng: Box<dyn SecureRandom>,
        plane: Capabilities,
    ) -> Self {
        Self::shard(config, crypto, rng, plane, Registry::default())
    }

    /// An endpoint that is one of several shards. `config.shard` says which one. All shards share `registry`.
    pub fn shard(
        config: EndpointConfig,
        crypto: Arc<CryptoProvider>,
        mut rng: Box<dyn SecureRandom>,
        plane: Capabilities,
        registry: Registry,
    ) -> Self {
        let config = usable(config, &crypto);
        let cookies = crypto.prf.first().map(|prf| Cookies::new(*prf, &mut *rng));
        // From the first secret of the cookies, which leaves the rest of the randomness as it is.
        let seed = cookies.as_ref().map_or_else(|| HashSeed::draw(&mut *rng), Cookies::seed);
        let registry = registry.join(seed);
        let seed = registry.seed();
        Self {
            ids: Ids::new(config.shard, &registry),
            budget: MemoryBudget::new(config.reassembly_memory, seed),
            paths: Paths {
                mtus: PathMtus::new(config.fragment_size),
                streams: StreamNames::new(config.shard),
            },
            network: Network::default(),
            lookup: Lookup::new(&config),
            lists: Lists::default(),
            config,
            crypto,
            plane,
            rng,
            out: VecDeque::new(),
            effects: VecDeque::new(),
            entries: Entries::default(),
            by_spi: OwnTable::default(),
            index: Index::new(registry.clone()),
            registry,
            answered: OwnTable::default(),
            deadlines: Deadlines::default(),
            cookies,
            half_open: HalfOpen::new(seed),
            traps: Vec::new(),
            wants: Wants::default(),
            chores: Vec::new(),
            closed: Closed::default(),
            courtesy: Courtesy::default(),
            crash: Crash::default(),
            refused: Refused::default(),
            blocked_udp: BlockedUdp::default(),
            tickets: Tickets::default(),
            crossings: Crossings::default(),
            handovers: Handovers::default(),
            shutdown: Shutdown::No,
            now: None,
        }
    }

    /// Handles one input. Its outputs are appended to the queue.
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        self.now = Some(now);
        self.crash.begin(now.mono);
        match input {
            Input::Datagram(path, octets) => self.on_datagram(now, path, octets),
            Input::Timeout => self.on_timeout(now),
            Input::Command(request, command) => self.on_command(now, request, command),
            Input::Completed(ticket, result) => {
                let owner = self.ids.tickets.remove(&ticket);
                if let Some(batch) = self.ids.unattended.remove(&ticket) {
                    self.on_unattended(now, batch, result.map(|_| ()));
                } else if let Some(owner) = owner {
                    self.with_sa(now, owner, |sa, ctx| sa.on_completed(ctx, ticket, result));
                }
            }
            Input::Answered(ticket, answer) => self.on_answered(now, ticket, answer),
            Input::DataPlane(event) => self.on_data_plane_event(now, event),
            Input::Stream(path, event) => self.on_stream(now, path, &event),
            Input::PathMtu(path, octets) => self.on_path_mtu(now, path.remote.ip(), octets),
            Input::Behind(behind) => self.half_open.behind = behind,
            Input::Network(network) => self.on_network(now, network),
            Input::Notice(ike, notice) => self.on_notice(now, ike, notice),
        }
        self.run_effects(now);
        self.arm_starts();
        self.check_shutdown();
    }

    /// The next output. [`Output::Timeout`] means that there is none before that time.
    pub fn poll_output(&mut self) -> Output {
        match self.out.pop_front() {
            Some(output) => output,
            None => Output::Timeout(self.deadlines.first().map(|(at, _)| at)),
        }
    }

    /// One IKE SA or attempt.
    pub fn ike_sa(&self, id: IkeSaId) -> Option<IkeStatus> {
        self.entries.get(&id).map(|slot| slot.status_at(self))
    }

    /// Every IKE SA and attempt, in the order in which they were made.
    pub fn ike_sas(&self) -> Vec<IkeStatus> {
        let mut all: Vec<_> = self.entries.values().map(|slot| slot.status_at(self)).collect();
        all.sort_by_key(|status| status.id);
        all
    }

    /// The number of IKE SAs and attempts, and how many of them are not established.
    pub fn counts(&self) -> (usize, usize) {
        let established = |slot: &&Slot| matches!(&slot.entry, Entry::Sa(sa) if matches!(sa.state, State::Established(_)));
        let all = self.entries.len();
        (all, all - self.entries.values().filter(established).count())
    }

    /// The trap policies that are installed.
    pub fn traps(&self) -> Vec<TrapStatus> {
        let status = |trap: &Trap| TrapStatus {
            connection: trap.connection.clone(),
            child: Arc::clone(&trap.child),
            local_ts: Arc::clone(&trap.selectors.0),
            remote_ts: Arc::clone(&trap.selectors.1),
        };
        self.traps.iter().map(status).collect()
    }

    /// True if there is an IKE SA of this connection with the peer at `remote`, or an attempt at one, on which a
    /// new child would be made.
    pub fn serves(&self, connection: &str, remote: IpAddr) -> bool {
        self.sa_towards(connection, remote).is_some()
    }

    /// IKE SAs as responder that are not authenticated yet.
    pub fn half_open(&self) -> usize {
        self.half_open.all()
    }

    /// IKE SAs whose tickets were made void before they expired (RFC 5723 §9.8), of all shards.
    pub fn void_tickets(&self) -> usize {
        self.registry.spent()
    }

    /// The settings in force.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Octets of incomplete fragmented messages held now.
    pub fn reassembly_memory(&self) -> usize {
        self.budget.used()
    }

    fn on_datagram(&mut self, now: Now, path: Path, octets: &[u8]) {
        let message = match Message::decode(octets) {
            Ok(message) => message,
            Err(error) => return self.on_undecodable(now, path, octets, error),
        };
        let header = message.header;
        let begins =
            matches!(header.exchange, ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME);
        if begins && !header.flags.response {
            return self.on_init_request(now, path, octets, &message);
        }
        // The receiver's SPI: a message with the I flag comes from the initiator.
        let spi = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let Some(&id) = self.by_spi.get(&spi) else {
            return self.on_unknown_spi(now, path, &message, octets);
        };
        if crate::exchange::qcd::is_in_clear(&message) && self.on_token(now, path, id, &message) {
            return;
        }
        self.tell_cookies(now, id);
        let (slot, mut ctx) = self.lend(now, id);
        let Some(Slot { entry, .. }) = slot else {
            return self.on_unknown_spi(now, path, &message, octets);
        };
        if let Entry::Parked(parked) = entry {
            match parked.on_datagram(&ctx, path, &message) {
                Ok(sa) => *entry = Entry::Sa(Box::new(sa)),
                Err(why) => return ctx.io.dropped(path, why),
            }
        }
        match entry {
            Entry::Attempt(attempt) => attempt.on_datagram(&mut ctx, path, octets, &message),
            Entry::Sa(sa) => sa.on_datagram(&mut ctx, path, octets, &message),
            Entry::Parked(_) => {}
        }
        self.settle(now, id);
    }

    /// Hands an answer to the SA that asked, if it still exists and still waits.
    fn on_answered(&mut self, now: Now, ticket: Ticket, answer: Answer) {
        if let Some(asked) = self.wants.asked.remove(&ticket) {
            return self.on_ends(now, asked, answer);
        }
        let Some(owner) = self.ids.asked.remove(&ticket) else {
            return self.refuse_lease(answer);
        };
        let (slot, mut ctx) = self.lend(now, owner);
        match slot.map(|slot| &mut slot.entry) {
            Some(Entry::Attempt(attempt)) => attempt.on_answered(&mut ctx, ticket, answer),
            Some(Entry::Sa(sa)) => sa.on_answered(&mut ctx, ticket, answer),
            Some(Entry::Parked(_)) => return self.on_init_exchanged(now, owner, ticket, answer),
            None => return tracing::debug!(ike = ?owner, "answer not used: its IKE SA has ended"),
        }
        self.settle(now, owner);
    }

    /// Gives back addresses for which no SA waits any more.
    fn refuse_lease(&mut self, answer: Answer) {
        if let Answer::Leased(request, lease) = answer {
            let assignment = Arc::new(request.assignment(lease));
            self.out.push_back(Output::Event(Event::Unassigned(assignment)));
        }
    }

    fn drop_datagram(&mut self, path: Path, why: DropReason) {
        self.out.push_back(Output::Event(Event::Dropped { path, why }));
    }

    /// A message that is not IKEv2, or is malformed outside its SK payload.
    fn on_undecodable(&mut self, now: Now, path: Path, octets: &[u8], error: DecodeError) {
        self.drop_datagram(path, DropReason::Malformed);
        if let Some(refusal) = sa_init::refusal_of(octets, error)
            && self.courtesy.take(now.mono)
        {
            self.send_unprotected(path, refusal);
        }
    }

    fn on_timeout(&mut self, now: Now) {
        while let Some((at, due)) = self.deadlines.first()
            && at <= now.mono
        {
            self.deadlines.pop_first();
            match due {
                Deadline::Housekeeping => {
                    self.run_chores(now);
                    self.run_traps(now);
                    self.run_crossings(now);
                    let next = self.closed.expire(now.mono);
                    self.deadlines.extend(next.map(|at| (at, Deadline::Housekeeping)));
                    continue;
                }
                Deadline::Sa(id) => {
                    let (slot, mut ctx) = self.lend(now, id);
                    if let Some(slot) = slot {
                        // `settle` sets the next one.
                        slot.deadline = None;
                        match &mut slot.entry {
                            Entry::Attempt(attempt) => attempt.on_timeout(&mut ctx),
                            Entry::Sa(sa) => sa.on_timeout(&mut ctx),
                            Entry::Parked(_) => {}
                        }
                    }
                    self.settle(now, id);
                }
                Deadline::Handovers => self.run_handovers(now),
                Deadline::Starts => self.on_starts_due(now),
            }
            self.run_effects(now);
        }
    }

    fn on_data_plane_event(&mut self, now: Now, event: dataplane::Event) {
        use dataplane::Event as Plane;
        let sa = match event {
            Plane::Acquire { policy, local, remote, cpu } => {
                return self.on_acquire(now, policy, dataplane::Flow { local, remote }, cpu);
            }
            Plane::SoftExpire(sa) | Plane::HardExpire(sa) | Plane::FirstPacket(sa) => sa,
            Plane::Mapping { sa, .. } | Plane::ProbePath { sa, .. } => sa,
            Plane::UnknownSpi { spi, local, remote, octets } => {
                return self.on_unknown_esp(now, spi, (local, remote), octets);
            }
        };
        let Some((ike, child)) = self.ids.esp.owner_of(sa) else {
            return tracing::debug!(?event, "event of an SA that has ended");
        };
        self.with_sa(now, ike, |sa, ctx| match event {
            Plane::SoftExpire(_) => sa.on_soft_limit(child),
            Plane::Mapping { remote, .. } => sa.follow_esp(ctx, child, remote),
            Plane::HardExpire(_) => sa.expire_child(ctx, child),
            Plane::ProbePath { octets, .. } => {
                sa.when_established(|established, stem| {
                    PathProbe::new(child, octets).queue(established, stem, ctx);
                });
            }
            _ => sa.activate(ctx, child),
        });
    }

    /// What may be used of the endpoint while the SA `owner` handles an input, or while work of no SA is done.
    fn context(&mut self, now: Now, owner: Option<IkeSaId>) -> Context<'_> {
        self.lend_all(now, owner).1
    }

    /// The entry of `id`, and what it may use of the rest while it handles an input.
    fn lend(&mut self, now: Now, id: IkeSaId) -> (Option<&mut Slot>, Context<'_>) {
        let (entries, ctx) = self.lend_all(now, Some(id));
        (entries.get_mut(&id), ctx)
    }

    fn lend_all(&mut self, now: Now, owner: Option<IkeSaId>) -> (&mut Entries, Context<'_>) {
        self.ids.owner = owner;
        let load = self.load();
        let io = Io {
            now,
            config: &self.config,
            rng: &mut *self.rng,
            out: &mut self.out,
            budget: &mut self.budget,
            mtus: &mut self.paths.mtus,
            streams: &mut self.paths.streams,
            seed: self.registry.seed(),
        };
        let ctx = Context {
            io,
            load,
            lookup: &self.lookup,
            crypto: &self.crypto,
            plane: self.plane,
            effects: &mut self.effects,
            ids: &mut self.ids,
            network: &self.network,
            registry: &self.registry,
            wants: &self.wants,
        };
        (&mut self.entries, ctx)
    }

    /// Runs `f` on an SA, and settles it.
    fn with_sa(&mut self, now: Now, id: IkeSaId, f: impl FnOnce(&mut IkeSa, &mut Context<'_>)) {
        let (slot, mut ctx) = self.lend(now, id);
        if let Some(Slot { entry: Entry::Sa(sa), .. }) = slot {
            f(sa, &mut ctx);
            self.settle(now, id);
        }
    }

    /// Ends an input for one entry: sends queued requests, recognizes a winner or a loser, and sets the deadline.
    fn settle(&mut self, now: Now, id: IkeSaId) {
        self.take_winner(now, id);
        let (slot, mut ctx) = self.lend(now, id);
        let Some(slot) = slot else {
            return tracing::debug!(ike = ?id, "IKE SA or attempt: has ended before it was settled");
        };
        let deadline = match &mut slot.entry {
            Entry::Attempt(attempt) => attempt.deadline(&mut ctx),
            Entry::Sa(sa) => sa.finish(&mut ctx),
            Entry::Parked(parked) => Some(parked.deadline()),
        };
        let over = match &slot.entry {
            Entry::Attempt(attempt) => attempt.failed(now.mono),
            Entry::Sa(sa) => match &sa.state {
                State::Closed(reason) => Some(reason.clone()),
                _ => None,
            },
            Entry::Parked(parked) => (now.mono >= parked.deadline()).then_some(Failure::Timeout),
        };
        if let Some(reason) = over {
            return self.remove(now, id, reason);
        }
        // It was there above, and what handles an input is not lent the table of entries.
        let Some(slot) = self.entries.get_mut(&id) else {
            return debug_assert!(false, "an entry has gone, and nothing has removed it");
        };
        self.index.update(id, slot);
        let half_open = match &slot.entry {
            Entry::Sa(sa) => {
                sa.half_open_octets().map(|octets| (sa.channel.route().path(), octets))
            }
            Entry::Parked(parked) => Some((parked.path(), parked.octets())),
            Entry::Attempt(_) => None,
        };
        match (slot.half_open, half_open) {
            (false, Some((path, octets))) => {
                self.half_open.add(id, Origin::of(path.remote.ip()), octets);
            }
            (true, None) => self.half_open.remove(id),
            _ => {}
        }
        slot.half_open = half_open.is_some();
        let old = std::mem::replace(&mut slot.deadline, deadline);
        if old != deadline {
            if let Some(at) = old {
                self.deadlines.remove(&(at, Deadline::Sa(id)));
            }
            self.deadlines.extend(deadline.map(|at| (at, Deadline::Sa(id))));
        }
        self.crash.update(id, slot);
        if let Some(change) = self.index.update_stream(id, slot) {
            self.tell_streams(change);
        }
        self.note_handover(id);
    }

    /// Puts the candidate that is established in the place of its attempt.
    fn take_winner(&mut self, now: Now, id: IkeSaId) {
        if let Some(slot) = self.entries.get_mut(&id)
            && let Entry::Attempt(attempt) = &mut slot.entry
            && let Some(winner) = attempt.take_winner()
            && let Entry::Attempt(attempt) =
                std::mem::replace(&mut slot.entry, Entry::Sa(Box::new(winner)))
        {
            let (path, origin) = (attempt.path, attempt.origin);
            attempt.dispose(&mut self.context(now, Some(id)), &Failure::Replaced);
            self.learn(now, path, origin, true);
        }
    }

    /// Adds an entry and indexes it by `spi`.
    fn insert(&mut self, now: Now, id: IkeSaId, spi: u64, entry: Entry) {
        self.by_spi.insert(spi, id);
        let slot = Slot {
            entry,
            deadline: None,
            half_open: false,
            identity: None,
            request: None,
            keys: index::Keys::default(),
        };
        self.entries.insert(id, slot);
        self.settle(now, id);
    }

    fn remove(&mut self, now: Now, id: IkeSaId, reason: Failure) {
        let Some(mut slot) = self.entries.remove(&id) else {
            return tracing::debug!(ike = ?id, "IKE SA or attempt: not removed, because it has already ended");
        };
        self.crash.forget_coming(id, slot.keys.coming.take());
        if let Some(unused) = self.index.remove(id, slot.keys) {
            self.tell_streams(unused);
        }
        if let Some(at) = slot.deadline {
            self.deadlines.remove(&(at, Deadline::Sa(id)));
        }
        if slot.half_open {
            self.half_open.remove(id);
        }
        let known = slot.identity.is_some();
        if let Some(identity) = slot.identity {
            self.registry.forget(&identity, id);
        }
        if let Some(key) = slot.request
            && self.answered.get(&key) == Some(&id)
        {
            self.answered.remove(&key);
        }
        let spi = match &slot.entry {
            Entry::Attempt(attempt) => attempt.spi_i,
            Entry::Sa(sa) => sa.channel.link().local_spi(),
            Entry::Parked(parked) => parked.spi(),
        };
        if self.by_spi.get(&spi) == Some(&id) {
            self.by_spi.remove(&spi);
        }
        match slot.entry {
            Entry::Attempt(attempt) => self.on_attempt_failed(now, *attempt, reason),
            Entry::Sa(mut sa) => {
                self.lose_ticket(id);
                self.end_crossing(now, id, &reason);
                self.leave_handovers(now, id);
                if let Some(spis) = sa.peer.spis_of_tickets(&sa.channel) {
                    self.registry.take_back(spis);
                }
                let due = self.closed.keep(now.mono, &mut sa, known);
                self.deadlines.extend(due.map(|at| (at, Deadline::Housekeeping)));
            }
            Entry::Parked(parked) => {
                if let Some(ticket) = parked.ticket() {
                    self.ids.asked.remove(&ticket);
                }
                // The same event as for a half-open SA that is not parked.
                let connection = String::new();
                let down = Event::IkeDown { ike: id, connection, established: false, reason };
                self.out.push_back(Output::Event(down));
            }
        }
    }

    fn send_unprotected(&mut self, path: Path, octets: Vec<u8>) {
        self.transmit_init(path, octets.into(), TransmitKind::Ike);
    }

    fn check_shutdown(&mut self) {
        if let Shutdown::Requested(request) = self.shutdown
            && self.entries.is_empty()
        {
            self.shutdown = Shutdown::Reported;
            self.out.push_back(Output::Event(Event::Done(request, Ok(()))));
        }
    }
}
