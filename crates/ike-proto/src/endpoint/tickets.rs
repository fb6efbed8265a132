//! Session resumption (RFC 5723) beyond a single IKE SA: a client's tickets, and a gateway's work on tickets that
//! it has given.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{Carried, NewAttempt};
use super::responder::InitRequest;
use super::{Endpoint, Entry, Slot};
use crate::config::candidates::Candidates;
use crate::config::lookup::Lookup;
use crate::config::{ConnectionConfig, EndpointConfig, Shard};
use crate::crypto::CryptoProvider;
use crate::event::{Event, Failure, IkeSaId, Notice, Now, Output, Path, TransmitKind};
use crate::exchange::resume::former::Held;
use crate::exchange::resume::granting::wants_ticket;
use crate::exchange::resume::{fits, responder};
use crate::exchange::sa_init;
use crate::ike_sa::context::TicketChange;
use crate::ike_sa::state::Task;
use crate::reason::{DropReason, TicketReason};
use crate::table::OwnTable;
use crate::wire::Message;
use crate::wire::registry::NotifyType;

/// Tickets of lost IKE SAs that a client keeps.
const MAX_LOST: usize = 256;

/// The tickets of a client, in memory only.
#[derive(Default)]
pub(super) struct Tickets {
    /// Tickets of IKE SAs that exist.
    of: OwnTable<IkeSaId, Arc<Held>>,
    /// Tickets of lost IKE SAs, the oldest first.
    lost: VecDeque<(IkeSaId, Arc<Held>)>,
    /// At a gateway: the longest `lifetime` of the configurations so far.
    longest: Duration,
}

impl Tickets {
    fn lose(&mut self, ike: IkeSaId, held: Arc<Held>) {
        if self.lost.len() >= MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((ike, held));
    }

    //= https://www.rfc-editor.org/rfc/rfc5723#section-6.2
    //# when
    //# an IKE SA is deleted by the client or the gateway, the client MUST
    //# delete its stored ticket.
    fn forget(&mut self, ike: IkeSaId) {
        self.of.remove(&ike);
        self.lost.retain(|(other, _)| *other != ike);
    }

    /// Takes a ticket for `connection` by `path`: one of that gateway rather than of another one.
    fn take(
        &mut self,
        now: Instant,
        (config, lookup, crypto): (&EndpointConfig, &Lookup, &CryptoProvider),
        connection: &ConnectionConfig,
        path: Path,
    ) -> Option<Arc<Held>> {
        //= https://www.rfc-editor.org/rfc/rfc5723#section-4.3.1
        //# A client
        //# MUST NOT present a ticket when it knows that the ticket's lifetime
        //# has expired.
        self.lost.retain(|(_, held)| is_good(held, now));
        let remote: IpAddr = path.remote.ip().to_canonical();
        let fits = |held: &Held| {
            held.connection.name == connection.name
                && fits::may_keep(config, lookup, crypto, connection, held)
                && fits::may_present(config, connection, path, held)
        };
        let there = |(_, held): &(IkeSaId, Arc<Held>)| fits(held) && held.remote == remote;
        let anywhere = |(_, held): &(IkeSaId, Arc<Held>)| fits(held);
        let found = self.lost.iter().rposition(there);
        let index = found.or_else(|| self.lost.iter().rposition(anywhere))?;
        self.lost.remove(index).map(|(_, held)| held)
    }

    /// Records a lifetime that is not configured any more. Tickets with it may still exist.
    pub(super) fn lived(&mut self, lifetime: Duration) {
        self.longest = self.longest.max(lifetime);
    }

    /// Drops tickets that do not fit the new configuration.
    pub(super) fn reconfigure(
        &mut self,
        config: &EndpointConfig,
        lookup: &Lookup,
        crypto: &CryptoProvider,
    ) {
        let kept = |held: &Held| {
            let connection = lookup.connection(&held.connection.name);
            connection.is_some_and(|now| fits::may_keep(config, lookup, crypto, now, held))
        };
        let gone: Vec<_> =
            self.of.iter().filter(|(_, held)| !kept(held)).map(|(ike, _)| *ike).collect();
        for ike in gone {
            self.of.remove(&ike);
        }
        self.lost.retain(|(_, held)| kept(held));
    }
}

fn is_good(held: &Held, now: Instant) -> bool {
    held.expires > now && held.reauth_by.is_none_or(|by| by > now)
}

impl Endpoint {
    /// Handles a change of the tickets of an IKE SA.
    pub(super) fn on_ticket(&mut self, now: Now, ike: IkeSaId, change: TicketChange) {
        match change {
            TicketChange::Given(held) => {
                if self.entries.contains_key(&ike) {
                    self.tickets.of.insert(ike, Arc::from(held));
                }
            }
            TicketChange::Refused => self.on_no_ticket(now, ike),
            TicketChange::Void(given) => self.end_ticket(now, ike, given),
        }
    }

    // ---- client ----

    /// Handles the end of an IKE SA. If it was lost, the next attempt may use its ticket.
    pub(super) fn lose_ticket(&mut self, ike: IkeSaId) {
        if let Some(held) = self.tickets.of.remove(&ike) {
            self.tickets.lose(ike, held);
        }
    }

    /// Handles a refusal of another ticket. The gateway may change its mind while the present ticket is valid.
    fn on_no_ticket(&mut self, now: Now, ike: IkeSaId) {
        if self.tickets.of.get(&ike).is_some_and(|held| is_good(held, now.mono)) {
            self.with_sa(now, ike, |sa, ctx| {
                sa.when_established(|established, _| established.life.ask_again(ctx.io.now.mono));
            });
        }
    }

    /// Drops the tickets of the lost IKE SAs of `connection`; true if there were any.
    pub(super) fn forget_tickets(&mut self, connection: &str) -> bool {
        let before = self.tickets.lost.len();
        self.tickets.lost.retain(|(_, held)| held.connection.name != connection);
        self.tickets.lost.len() < before
    }

    /// The ticket for a new attempt, if there is one.
    pub(super) fn ticket_for(&mut self, now: Now, new: &NewAttempt) -> Option<Carried> {
        if !new.connection.session_resumption {
            return None;
        }
        match (new.replaces, new.redirected) {
            (None, _) => {
                let settings = (&self.config, &self.lookup, &*self.crypto);
                self.tickets.take(now.mono, settings, &new.connection, new.path)
            }
            // The IKE SA still exists, and is to continue at another gateway.
            (Some(ike), Some(_)) => {
                let held = self.tickets.of.get(&ike).cloned();
                held.filter(|held| {
                    let (config, lookup, crypto) = (&self.config, &self.lookup, &self.crypto);
                    is_good(held, now.mono)
                        && fits::may_keep(config, lookup, crypto, &new.connection, held)
                        && fits::may_present(&self.config, &new.connection, new.path, held)
                })
            }
            // A reauthentication uses no ticket.
            (Some(_), None) => None,
        }
        .map(Carried::new)
    }

    /// Keeps the ticket of an attempt that has failed for good. The gateway may not have answered, and the ticket
    /// may still be valid.
    pub(super) fn put_back(&mut self, now: Now, attempt: IkeSaId, carried: Carried) {
        let Carried { held, .. } = carried;
        let alive = self.tickets.of.values().any(|other| Arc::ptr_eq(other, &held));
        if is_good(&held, now.mono) && !alive {
            self.tickets.lose(attempt, held);
        }
    }

    /// The ticket for the next try.
    pub(super) fn presented_again(carried: Option<Carried>) -> Option<Carried> {
        carried.map(|carried| Carried::new(carried.held))
    }

    // ---- both ----

    /// Makes the tickets of an IKE SA void.
    fn end_ticket(&mut self, now: Now, ike: IkeSaId, given: Option<(u64, u64)>) {
        self.tickets.forget(ike);
        if let Some(spis) = given {
            let until = now.wall + self.config.resumption.lifetime.max(self.tickets.longest);
            self.registry.spend(spis, now, until);
        }
    }

    /// The IKE SA `from` was rekeyed into `to`.
    //= https://www.rfc-editor.org/rfc/rfc5723#section-6.2
    //# When the IKE SA is rekeyed, the ticket is
    //# invalidated, and the client SHOULD request a new ticket.
    pub(super) fn renew_ticket(&mut self, now: Now, from: IkeSaId, to: IkeSaId) {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&from) else {
            return tracing::debug!(ike = ?from, "ticket not renewed: the former IKE SA has ended");
        };
        if !sa.channel.connection().session_resumption {
            return;
        }
        let given = sa.peer.spis_of_tickets(&sa.channel);
        // A gateway that has given no ticket is not asked again.
        let client = wants_ticket(sa.channel.link()) && self.tickets.of.contains_key(&from);
        self.end_ticket(now, from, given);
        if client {
            self.with_sa(now, to, |sa, _| sa.push(Task::RequestTicket));
        }
    }

    // ---- gateway ----

    /// The SPIs of the IKE SA that `ike` has resumed.
    pub(super) fn resumes(&self, ike: IkeSaId) -> Option<(u64, u64)> {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else { return None };
        let established = sa.established()?;
        established.identity.authenticated().resumed.as_ref().map(|resumed| resumed.spis)
    }

    /// The SA of `others` that has been resumed. Of an SA of another shard only the shard is known. If it is the
    /// only one, which it usually is when this matters, the SPIs tell.
    pub(super) fn resumed_of(&self, others: &[IkeSaId], spis: (u64, u64)) -> Option<IkeSaId> {
        let is_it = |ike: &&IkeSaId| match self.entries.get(*ike).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => sa.channel.link().spis().pair() == spis,
            _ => false,
        };
        if let Some(found) = others.iter().find(is_it) {
            return Some(*found);
        }
        let shard = self.config.shard;
        let chose = |index: u8, spi: u64| spi.to_be_bytes().first() == Some(&index);
        match others {
            [other] if !shard.has(other.0) => {
                let index = Shard::of_number(shard.count, other.0);
                (chose(index, spis.0) || chose(index, spis.1)).then_some(*other)
            }
            _ => None,
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc5723#section-4.3.4
    //# the old SA SHOULD be silently
    //# deleted without sending a DELETE informational exchange.
    /// Ends `ike` if it is the IKE SA that has been resumed.
    pub(super) fn on_resumed(&mut self, now: Now, ike: IkeSaId, spis: (u64, u64)) {
        self.with_sa(now, ike, |sa, ctx| {
            if sa.channel.link().spis().pair() == spis {
                sa.close(ctx, Failure::Replaced);
            }
        });
    }

    /// Tells the client's other IKE SAs that one of them may have been resumed.
    pub(super) fn tell_resumed(&mut self, now: Now, others: &[IkeSaId], spis: (u64, u64)) {
        for other in others {
            self.notify(now, *other, Notice::Resumed(spis.0, spis.1));
        }
    }

    /// Answers an IKE_SESSION_RESUME request that was admitted.
    pub(super) fn answer_resume(
        &mut self,
        now: Now,
        request: &InitRequest<'_>,
        connections: &Candidates,
    ) {
        let InitRequest { id, path, octets, message, .. } = *request;
        let mut ctx = self.context(now, Some(id));
        match responder::respond(&mut ctx, connections, path, message, octets) {
            Ok(answer) => self.answer_with(now, request, answer, None),
            Err(why) => {
                self.remove(now, id, Failure::Refused(NotifyType::TICKET_NACK));
                self.refuse_ticket(now, path, message, why);
            }
        }
    }

    /// Tells a client to begin with IKE_SA_INIT. The answer is smaller than the request. It must not depend on how
    /// many other answers a flood has used, because the client would wait.
    pub(super) fn refuse_ticket(
        &mut self,
        now: Now,
        path: Path,
        message: &Message<'_>,
        why: TicketReason,
    ) {
        self.drop_datagram(path, DropReason::TicketRefused);
        self.refused.count(now.mono);
        if self.courtesy.take(now.mono) {
            self.out.push_back(Output::Event(Event::TicketRefused { path, client: false, why }));
        }
        let answer = sa_init::answer_alone(&message.header, NotifyType::TICKET_NACK, &[]);
        self.transmit_init(path, answer.into(), TransmitKind::Ike);
    }
}
