//! What an IKE SA may use of its endpoint while it handles one input.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::IkeSa;
use super::succession::Inheritance;
use crate::channel::io::Io;
use crate::channel::memory::Pool;
use crate::child::processing::{Asker, IfIds, Lease, NoneLeft, Numbers};
use crate::config::lookup::Lookup;
use crate::config::redirect::Load;
use crate::config::{ChildConfig, ConnectionConfig, Shard};
use crate::crypto::{CryptoProvider, SecureRandom};
use crate::dataplane::{self, Capabilities, PolicyAction, PolicyId, Processing, SaId};
use crate::endpoint::Shards;
use crate::endpoint::unattended::{Removal, Unattended};
use crate::endpoint::wants::Wants;
use crate::event::{
    ChildSaId, Event, Failure, IkeSaId, Network, Output, Path, RequestId, SecretsNow, Ticket,
};
use crate::exchange::auth::first_contact::LastAnswer;
use crate::exchange::auth::rounds::Authenticated;
use crate::exchange::redirect::Redirection;
use crate::exchange::resume::fits::InForce;
use crate::exchange::resume::former::Held;
use crate::ike_sa::Seen;
use crate::question::{Exchanged, Question};
use crate::table::{HashSeed, OwnTable, Table};
use crate::wants::Ended;

/// The lowest SPI that RFC 4303 §2.1 permits.
const FIRST_ESP_SPI: u32 = 256;

/// The parts of the endpoint that an SA borrows for one input.
pub(crate) struct Context<'a> {
    /// What the SA lends its channel.
    pub(crate) io: Io<'a>,
    pub(crate) lookup: &'a Lookup,
    pub(crate) crypto: &'a CryptoProvider,
    pub(crate) plane: Capabilities,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(crate) ids: &'a mut Ids,
    pub(crate) network: &'a Network,
    /// The load when the input came.
    pub(crate) load: Load,
    pub(crate) registry: &'a Shards,
    pub(crate) wants: &'a Wants,
}

impl Context<'_> {
    /// Reports the end of a command, if one waits.
    pub(crate) fn done(&mut self, request: Option<RequestId>, result: Result<(), Failure>) {
        if let Some(request) = request {
            self.io.event(Event::Done(request, result));
        }
    }

    /// The connection whose children the peer of an SA may have: as it is configured now, if the IKE SA could have
    /// been made by it and with the same secrets, otherwise that of the SA.
    pub(crate) fn present_connection(
        &self,
        seen: Seen<'_>,
        authenticated: &Authenticated,
    ) -> Arc<ConnectionConfig> {
        let own = seen.channel.connection();
        let now = self.lookup.connection(&own.name).filter(|now| {
            let remote = seen.channel.route().path().remote.ip().to_canonical();
            Arc::ptr_eq(own, now)
                || own.could_be_of(now, remote, &seen.channel.session().selected)
                    && InForce::at(self).secrets(seen.peer, authenticated) == SecretsNow::Same
        });
        Arc::clone(now.unwrap_or(own))
    }

    /// Queues a batch for the data plane. If it only has removals, it is repeated until it succeeds.
    pub(crate) fn data_plane(&mut self, batch: Vec<dataplane::Command>) -> Ticket {
        let ticket = self.ids.ticket();
        let removals: Option<Vec<_>> = batch.iter().map(Removal::of).collect();
        if let Some(removals) = removals.filter(|removals| !removals.is_empty()) {
            let batch = Unattended::Removals { removals, failures: 0, issued: ticket };
            self.ids.unattended.insert(ticket, batch);
        }
        self.ids.policies.note(&batch, ticket);
        self.io.out.push_back(Output::DataPlane(ticket, batch));
        ticket
    }

    /// A child of this name is up.
    pub(super) fn tell_carried(&mut self, connection: &ConnectionConfig, name: &str) {
        if !self.wants.is_empty() || self.io.config.shard.count > 1 {
            let (connection, child) = (connection.name.clone(), Some(name.to_owned()));
            self.effects.push_back(Effect::Carried { connection, child });
        }
    }

    /// The tickets of `ike` are void. `spis` are its own if it is a gateway's and a ticket was given.
    pub(crate) fn void_tickets(&mut self, ike: IkeSaId, spis: Option<(u64, u64)>) {
        self.effects.push_back(Effect::Ticket(ike, TicketChange::Void(spis)));
    }

    /// Deletes an SA that this end has made and must not use.
    pub(crate) fn discard(&mut self, mut new: IkeSa) {
        new.mark_redundant();
        self.effects.push_back(Effect::Rekeyed(Box::new(new)));
    }

    /// Asks a question. The SA that handles the input gets the answer.
    pub(crate) fn ask(&mut self, question: Question) -> Ticket {
        let ticket = Ticket(self.ids.next());
        if let Some(owner) = self.ids.owner {
            self.ids.asked.insert(ticket, owner);
        }
        self.io.out.push_back(Output::Ask(ticket, question));
        ticket
    }

    /// Queues a change to children that are in use. If it fails, they are deleted at both ends, and the SAs that
    /// the data plane may still have under the names in `stale` are removed.
    pub(crate) fn change(
        &mut self,
        batch: Vec<dataplane::Command>,
        children: Vec<ChildSaId>,
        stale: Vec<SaId>,
    ) {
        let ticket = self.data_plane(batch);
        self.ids.unattended.insert(ticket, Unattended::Change { children, stale });
    }

    /// The interface ids of a new IKE SA.
    pub(crate) fn if_ids(&mut self, connection: &ConnectionConfig, asker: Asker) -> IfIds {
        self.ids.numbers.of_ike(self.ids.shard, connection, asker)
    }

    /// How packets of a new child are treated, and the owner of numbers that only it has. `if_ids` are those of
    /// its IKE SA.
    pub(crate) fn processing(
        &mut self,
        connection: &ConnectionConfig,
        config: &ChildConfig,
        if_ids: [u32; 2],
        asker: Asker,
    ) -> Result<(Arc<Processing>, Lease), NoneLeft> {
        self.ids.numbers.of_child(self.ids.shard, connection, config, if_ids, asker)
    }

    /// A new nonce of 32 octets: at least half the key size of every PRF here (RFC 7296 §2.10).
    pub(crate) fn nonce(&mut self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.io.rng.fill(&mut nonce);
        nonce
    }

    /// `base` minus a random part of up to `spread`.
    pub(crate) fn jittered(&mut self, base: Duration, spread: Duration) -> Duration {
        jittered(self.io.rng, base, spread)
    }
}

/// A number below `bound`, uniform enough for jitter.
fn below(rng: &mut dyn SecureRandom, bound: u64) -> u64 {
    let mut octets = [0; 8];
    rng.fill(&mut octets);
    u64::from_be_bytes(octets).checked_rem(bound).unwrap_or(0)
}

/// `base` minus a random part of up to `spread`.
pub(crate) fn jittered(rng: &mut dyn SecureRandom, base: Duration, spread: Duration) -> Duration {
    let spread = u64::try_from(spread.min(base).as_micros()).unwrap_or(u64::MAX - 1);
    base - Duration::from_micros(below(rng, spread + 1))
}

/// Work of an IKE SA for its endpoint, beyond the SA itself.
pub(crate) enum Effect {
    /// Other SAs have got the octets of a pool that this SA had.
    GiveWay(Pool, IkeSaId),
    /// Both ends of this SA are authenticated. `initial_contact` if the peer says that this is its only SA. The
    /// endpoint applies `unique` and indexes the SA.
    Established { ike: IkeSaId, initial_contact: bool },
    /// Ends the SAs that this one replaces. Then this one answers.
    EndOthers(IkeSaId, Box<LastAnswer>),
    /// A rekey made this SA.
    Rekeyed(Box<IkeSa>),
    /// The peer uses the SA `to` of its rekey of `from`. `to` has the children from now on.
    Adopt { from: IkeSaId, to: IkeSaId },
    /// The SA of the peer's rekey of this one, which crossed ours, is gone.
    Uncross { from: IkeSaId },
    /// The peer has deleted the predecessor of this SA, so it has this SA.
    Seen(IkeSaId),
    /// A rekey of the peer made this SA and lost against ours.
    Redundant(IkeSaId),
    /// The children that the first SA released belong to the second from now on.
    MoveChildren { from: IkeSaId, to: IkeSaId, estate: Inheritance },
    /// A child, or an attempt at one, has ended. `wants/aftermath.rs` says what follows.
    Ended(Box<Ended>),
    /// Two different rules have ended a child. It is to be up again.
    BringBack { connection: String, child: String, ends: (IpAddr, IpAddr) },
    /// A child of this connection is up.
    Carried { connection: String, child: Option<String> },
    /// The children of an IKE SA have moved, away from the peer's address `from`. The peer has proven its address.
    Moved { connection: String, from: IpAddr, to: Path },
    /// Goes to another gateway.
    Redirect(Box<Redirection>),
    /// The tickets of this SA change.
    Ticket(IkeSaId, TicketChange),
    /// Removes inbound SAs when no packet for them can be in flight any more.
    RemoveLater(Vec<SaId>),
    /// This IKE SA takes the place of another one, and its state may have changed.
    HandOver(IkeSaId),
    /// Starts a new IKE SA that replaces this one.
    Reauthenticate(IkeSaId),
}

/// How the tickets of an IKE SA change (RFC 5723).
pub(crate) enum TicketChange {
    /// This client has one.
    Given(Box<Held>),
    /// The gateway has given none.
    Refused,
    /// They are void. With the SPIs of the SA if it is a gateway's and a ticket was given.
    Void(Option<(u64, u64)>),
}

/// Numbers that are unique in an endpoint.
pub(crate) struct Ids {
    shard: Shard,
    next: u64,
    /// The SA that handles the input. New tickets belong to it.
    pub(crate) owner: Option<IkeSaId>,
    /// The SAs for which the data plane's answers are.
    pub(crate) tickets: OwnTable<Ticket, IkeSaId>,
    /// The SAs that have asked the open questions.
    pub(crate) asked: OwnTable<Ticket, IkeSaId>,
    /// Slow key exchanges that are done for the message that is being handled again.
    pub(crate) exchanged: Vec<Exchanged>,
    /// Batches for which no SA waits.
    pub(crate) unattended: OwnTable<Ticket, Unattended>,
    /// Owner of each inbound ESP SPI.
    pub(crate) esp: EspIndex,
    pub(crate) policies: Policies,
    pub(crate) numbers: Numbers,
}

/// The policies in the data plane, each with the ticket of its first installation and the SA by which it sends.
#[derive(Default)]
pub(crate) struct Policies {
    last: u32,
    installed: OwnTable<PolicyId, (Ticket, Option<SaId>)>,
}

impl Policies {
    /// Records the effect of a batch.
    pub(crate) fn note(&mut self, batch: &[dataplane::Command], ticket: Ticket) {
        for command in batch {
            match command {
                dataplane::Command::InstallPolicy(spec) => {
                    let outbound = match spec.action {
                        PolicyAction::Protect { outbound, .. } => outbound,
                        _ => None,
                    };
                    self.installed.entry(spec.id).or_insert((ticket, None)).1 = outbound;
                }
                dataplane::Command::RemovePolicy(id) => _ = self.installed.remove(id),
                _ => {}
            }
        }
    }

    /// An unused number of the shard `index`. The numbers are also the kernel's 32-bit reqids, and must differ
    /// between shards.
    fn unused(&mut self, index: u8) -> PolicyId {
        loop {
            self.last = (self.last + 1) & 0x00ff_ffff;
            let id = PolicyId(u64::from(index) << 24 | u64::from(self.last));
            if self.last != 0 && !self.installed.contains_key(&id) {
                return id;
            }
        }
    }
}

/// The children of an endpoint, by the names of their ESP SAs.
pub(crate) struct EspIndex {
    /// By inbound SPI.
    inbound: OwnTable<u32, Inbound>,
    /// By outbound SA.
    outbound: Table<SaId, Outbound>,
    /// Inbound SPIs by child.
    children: OwnTable<ChildSaId, u32>,
    /// The outbound SAs of all shards, and the index of this one, if there are several.
    shared: Option<(Shards, u8)>,
}

/// An inbound SPI in use.
struct Inbound {
    owner: (IkeSaId, ChildSaId),
    /// Since when, counted in tickets.
    since: u64,
    /// The outbound SA of the same child.
    outbound: Option<SaId>,
}

/// An outbound SA in use.
struct Outbound {
    /// The inbound SPI of the same child.
    spi_in: u32,
    since: u64,
}

impl EspIndex {
    /// An index of no children, of a shard of those in `shared` if there are several.
    fn new(seed: HashSeed, shared: Option<(Shards, u8)>) -> Self {
        Self {
            inbound: OwnTable::default(),
            outbound: Table::new(seed),
            children: OwnTable::default(),
            shared,
        }
    }

    pub(crate) fn get(&self, spi_in: &u32) -> Option<&(IkeSaId, ChildSaId)> {
        self.inbound.get(spi_in).map(|inbound| &inbound.owner)
    }

    /// The IKE SA that has `child`.
    pub(crate) fn ike_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        self.get(self.children.get(&child)?).map(|(ike, _)| *ike)
    }

    /// The child that has `sa`, in either direction.
    pub(crate) fn owner_of(&self, sa: SaId) -> Option<(IkeSaId, ChildSaId)> {
        if let Some(outbound) = self.outbound.get(&sa) {
            return self.get(&outbound.spi_in).copied();
        }
        // Peers choose these SPIs: the outbound SA of another shard may have the number of an inbound one here.
        let elsewhere = self.shared.as_ref().is_some_and(|(all, _)| all.is_claimed(&sa));
        self.get(&sa.spi).copied().filter(|_| !elsewhere)
    }

    /// The IKE SA whose child sends by `sa`.
    pub(crate) fn sender_by(&self, sa: SaId) -> Option<IkeSaId> {
        self.get(&self.outbound.get(&sa)?.spi_in).map(|(ike, _)| *ike)
    }

    /// Gives an SPI in use to another owner.
    pub(crate) fn hand_over(&mut self, spi_in: u32, owner: (IkeSaId, ChildSaId)) {
        if let Some(inbound) = self.inbound.get_mut(&spi_in) {
            inbound.owner = owner;
            self.children.insert(owner.1, spi_in);
        }
    }

    fn insert(&mut self, spi_in: u32, owner: (IkeSaId, ChildSaId), since: u64) {
        self.inbound.insert(spi_in, Inbound { owner, since, outbound: None });
        self.children.insert(owner.1, spi_in);
    }

    /// Releases the SPI and the outbound SA of the same child.
    pub(crate) fn remove(&mut self, spi_in: &u32) {
        let Some(Inbound { owner: (_, child), outbound, .. }) = self.inbound.remove(spi_in) else {
            return tracing::debug!(
                spi = format_args!("{spi_in:08x}"),
                "inbound SPI: released before"
            );
        };
        self.children.remove(&child);
        if let Some(outbound) = outbound {
            self.release(&outbound);
        }
    }

    /// Assigns the outbound SA `id` to the child with `spi_in`, instead of the one that it had. False if another
    /// child has it: peers choose these SPIs, and two peers behind one NAT have one address. A peer that could
    /// name the SA of another peer would replace or remove it.
    #[must_use]
    fn claim(&mut self, id: SaId, spi_in: u32, since: u64) -> bool {
        if let Some(known) = self.outbound.get(&id) {
            return known.spi_in == spi_in;
        }
        // A released SPI has no outbound SA.
        let Some(inbound) = self.inbound.get_mut(&spi_in) else { return false };
        if !self.shared.as_ref().is_none_or(|(all, index)| all.claim(id, *index)) {
            return false;
        }
        self.outbound.insert(id, Outbound { spi_in, since });
        if let Some(former) = inbound.outbound.replace(id) {
            self.release(&former);
        }
        true
    }

    fn release(&mut self, outbound: &SaId) {
        if self.outbound.remove(outbound).is_some()
            && let Some((all, _)) = &self.shared
        {
            all.release(outbound);
        }
    }
}

impl Ids {
    pub(crate) fn new(shard: Shard, registry: &Shards) -> Self {
        let shared = (shard.count > 1).then(|| (registry.clone(), shard.index));
        Self {
            shard,
            next: shard.index.into(),
            owner: None,
            tickets: OwnTable::default(),
            asked: OwnTable::default(),
            exchanged: Vec::new(),
            unattended: OwnTable::default(),
            esp: EspIndex::new(registry.seed(), shared),
            policies: Policies::default(),
            numbers: Numbers::default(),
        }
    }

    /// See [`EspIndex::claim`].
    #[must_use]
    pub(crate) fn claim(&mut self, id: SaId, spi_in: u32) -> bool {
        let since = self.next();
        self.esp.claim(id, spi_in, since)
    }

    /// True if another owner has taken the name in `removal` since the removal was first requested. Then its old
    /// object no longer exists.
    pub(crate) fn is_taken_anew(&self, removal: Removal, issued: Ticket) -> bool {
        match removal {
            Removal::Policy(id) => {
                self.policies.installed.get(&id).is_some_and(|(since, _)| *since > issued)
            }
            Removal::Sa(id) => {
                let outbound = self.esp.outbound.get(&id).map(|sa| sa.since);
                let inbound = || self.esp.inbound.get(&id.spi).map(|sa| sa.since);
                outbound.or_else(inbound).is_some_and(|since| since > issued.0)
            }
        }
    }

    /// The IKE SA of the child by which `policy` sends.
    pub(crate) fn user_of(&self, policy: PolicyId) -> Option<IkeSaId> {
        let (_, outbound) = self.policies.installed.get(&policy)?;
        self.esp.owner_of((*outbound)?).map(|(ike, _)| ike)
    }

    /// How packets that meet the trap of a child are treated.
    pub(crate) fn of_trap(
        &mut self,
        connection: &ConnectionConfig,
        config: &ChildConfig,
    ) -> Result<Arc<Processing>, NoneLeft> {
        self.numbers.of_trap(self.shard, connection, config)
    }

    /// A number that no other shard uses.
    pub(crate) fn next(&mut self) -> u64 {
        self.next += u64::from(self.shard.count.max(1));
        self.next
    }

    pub(crate) fn ike(&mut self) -> IkeSaId {
        IkeSaId(self.next())
    }

    pub(crate) fn child(&mut self) -> ChildSaId {
        ChildSaId(self.next())
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next());
        if let Some(owner) = self.owner {
            self.tickets.insert(ticket, owner);
        }
        ticket
    }

    /// An unused policy id.
    pub(crate) fn policy(&mut self) -> PolicyId {
        self.policies.unused(self.shard.index)
    }

    /// An IKE SPI with the shard in its top octet. Never 0 (RFC 7296 §3.1).
    pub(crate) fn ike_spi(&mut self, rng: &mut dyn SecureRandom) -> u64 {
        let mut octets = [0; 8];
        rng.fill(&mut octets);
        if self.shard.count > 1 {
            octets[0] = self.shard.index;
        }
        u64::from_be_bytes(octets).max(1)
    }

    /// An IKE SPI for a request of this end. If the request comes back to this host, it comes to this shard, which
    /// recognizes it as its own.
    pub(crate) fn first_spi(&mut self, rng: &mut dyn SecureRandom) -> u64 {
        loop {
            let spi = self.ike_spi(rng);
            if Shard::of_initiator(self.shard.count, spi) == self.shard.index {
                return spi;
            }
        }
    }

    /// An unused ESP SPI with the shard in its top octet. It is marked as used by `owner`.
    pub(crate) fn esp_spi(
        &mut self,
        rng: &mut dyn SecureRandom,
        owner: (IkeSaId, ChildSaId),
    ) -> u32 {
        loop {
            let mut octets = [0; 4];
            rng.fill(&mut octets);
            // A single shard uses the range from which strongSwan and kernels choose.
            octets[0] =
                if self.shard.count > 1 { self.shard.index } else { 0xc0 | octets[0] & 0x0f };
            let spi = u32::from_be_bytes(octets);
            if spi >= FIRST_ESP_SPI && self.esp.get(&spi).is_none() {
                let since = self.next();
                self.esp.insert(spi, owner, since);
                return spi;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::endpoint::Registry;

    /// An authenticated peer may choose for its inbound SA the SPI of somebody else's inbound SA here.
    #[test]
    fn an_outbound_sa_of_another_shard_is_nobodys_here() {
        let registry = Registry::default().join(HashSeed::TEST);
        let shard = |index| EspIndex::new(HashSeed::TEST, Some((registry.clone(), index)));
        let (mut ours, mut theirs) = (shard(0), shard(1));
        let at = |n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n));
        let (victim, other) = ((IkeSaId(1), ChildSaId(1)), (IkeSaId(2), ChildSaId(2)));
        let (spi, host, peer) = (0x0000_1234, at(1), at(9));
        ours.insert(spi, victim, 1);
        theirs.insert(0x0100_0001, other, 1);
        let outbound = SaId { spi, dst: peer };
        assert!(theirs.claim(outbound, 0x0100_0001, 1));
        assert_eq!(theirs.owner_of(outbound), Some(other));
        assert_eq!(ours.owner_of(outbound), None);
        assert_eq!(ours.owner_of(SaId { spi, dst: host }), Some(victim));
    }

    /// Of two shards whose peers chose the same outbound SA one has it, until that one is gone.
    #[test]
    fn an_outbound_sa_is_one_shards_at_a_time() {
        let registry = Registry::default().join(HashSeed::TEST);
        let shard = |index| EspIndex::new(HashSeed::TEST, Some((registry.clone(), index)));
        let (mut one, mut two) = (shard(0), shard(1));
        one.insert(0x0000_0001, (IkeSaId(2), ChildSaId(2)), 0);
        two.insert(0x0100_0001, (IkeSaId(1), ChildSaId(1)), 0);
        let at = |n| SaId { spi: 0x1234, dst: IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)) };
        assert!(one.claim(at(9), 0x0000_0001, 1));
        assert!(one.claim(at(9), 0x0000_0001, 2), "again");
        assert!(!two.claim(at(9), 0x0100_0001, 3));
        // What was refused is not given back for the other.
        two.remove(&0x0100_0001);
        two.insert(0x0100_0001, (IkeSaId(1), ChildSaId(1)), 0);
        assert!(!two.claim(at(9), 0x0100_0001, 4));
        // By a move, or by its end.
        assert!(one.claim(at(8), 0x0000_0001, 5));
        assert!(two.claim(at(9), 0x0100_0001, 6));
        assert!(!two.claim(at(8), 0x0100_0001, 7));
        one.remove(&0x0000_0001);
        assert!(two.claim(at(8), 0x0100_0001, 8));
        assert!(!one.claim(at(9), 0x0000_0001, 9), "for an SPI that is gone");
        one.insert(0x0000_0001, (IkeSaId(2), ChildSaId(2)), 0);
        assert!(one.claim(at(9), 0x0000_0001, 9), "given back by the move");
    }
}
