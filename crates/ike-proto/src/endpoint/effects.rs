//! Effects of an IKE SA on other SAs of its endpoint.

use std::net::IpAddr;

use super::handover::To;
use super::traps::{follow, send_home};
use super::{Endpoint, Entry, Slot};
use crate::config::Unique;
use crate::event::{Event, Failure, IkeSaId, Notice, Now, Output, Transport};
use crate::exchange::auth::first_contact::LastAnswer;
use crate::ike_sa::context::Effect;
use crate::ike_sa::state::{IkePhase, State, Task};
use crate::ike_sa::succession::Inheritance;
use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// Replaced SAs of one line that may wait for the peer's Delete at the same time.
const MAX_PREDECESSORS: usize = 3;

impl Endpoint {
    /// Runs the effects that the input's SAs queued, and the effects that these cause.
    pub(super) fn run_effects(&mut self, now: Now) {
        while let Some(effect) = self.next_effect() {
            self.run_effect(now, effect);
        }
    }

    /// Out of line: most inputs have no effect, and its stack frame is large.
    #[inline(never)]
    fn run_effect(&mut self, now: Now, effect: Effect) {
        match effect {
            Effect::GiveWay(pool, ike) => self.give_way(now, pool, ike),
            Effect::Established { ike, initial_contact } => {
                self.on_established(now, ike, initial_contact);
            }
            Effect::EndOthers(ike, answer) => self.end_others(now, ike, *answer),
            Effect::Rekeyed(sa) => {
                let (id, spi) = (sa.channel.link().id(), sa.channel.link().local_spi());
                self.insert(now, id, spi, Entry::Sa(sa));
                self.index_identity(id, false);
            }
            Effect::Adopt { from, to } => {
                self.with_sa(now, from, |sa, ctx| {
                    sa.when_established(|established, stem| {
                        established.replaced_by(stem.channel, ctx, to)
                    });
                });
            }
            Effect::Uncross { from } => self.with_sa(now, from, |sa, _| {
                sa.when_established(|established, _| {
                    if let Some(sent) = &mut established.sent {
                        sent.uncross();
                    }
                });
            }),
            Effect::Seen(ike) => self.with_sa(now, ike, |sa, _| {
                sa.when_established(|established, _| established.life.note_sign());
            }),
            Effect::Redundant(ike) => self.with_sa(now, ike, |sa, ctx| {
                sa.when_established(|established, stem| {
                    established.await_delete(stem.channel, ctx)
                });
            }),
            Effect::MoveChildren { from, to, estate } => {
                self.move_children(now, from, to, estate);
            }
            Effect::Ended(ended) => {
                let connection = ended.connection.clone();
                self.on_ended(now, *ended);
                send_home(&mut self.traps, self.entries.values(), now, &connection);
                self.run_traps(now);
            }
            Effect::BringBack { connection, child, ends } => {
                self.bring_back(now, connection, child, ends);
            }
            Effect::Carried { connection, child } => {
                self.on_carried(now, &connection, child.as_deref());
            }
            Effect::Moved { connection, from, to } => {
                follow(&mut self.traps, now, &connection, (from, to));
                self.run_traps(now);
            }
            Effect::Redirect(redirection) => self.follow_redirect(now, *redirection),
            Effect::Ticket(ike, change) => self.on_ticket(now, ike, change),
            Effect::RemoveLater(all) => self.remove_later(now, all),
            Effect::HandOver(ike) => self.look_at_handovers(now, ike),
            Effect::Reauthenticate(ike) => {
                let _ = self.reauthenticate(now, ike, None);
            }
        }
    }

    fn next_effect(&mut self) -> Option<Effect> {
        let given_way = |(pool, ike)| Effect::GiveWay(pool, ike);
        self.effects.pop_front().or_else(|| self.budget.next_given_way().map(given_way))
    }

    /// Ends the older SAs that `ike` ends without a Delete, and then lets `ike` answer. SAs of another shard end
    /// when that shard hears of it.
    fn end_others(&mut self, now: Now, ike: IkeSaId, answer: LastAnswer) {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else {
            return tracing::debug!(?ike, "IKE SA: ended before its last answer was sent");
        };
        let forgets = sa.forgets_others(answer.initial_contact);
        let identities = sa.identities();
        let others = identities.map(|both| self.registry.all_established(both)).unwrap_or_default();
        if let Some(spis) = self.resumes(ike) {
            self.tell_resumed(now, &others, spis);
        }
        let crossed = if forgets { self.crossed_by(ike) } else { Vec::new() };
        let over = |other: &IkeSaId| forgets && *other != ike && !crossed.contains(other);
        for other in others.into_iter().filter(over) {
            self.notify(now, other, Notice::Forgotten);
        }
        self.with_sa(now, ike, |sa, ctx| sa.answer_now(ctx, answer));
    }

    fn on_established(&mut self, now: Now, ike: IkeSaId, initial_contact: bool) {
        let gone = || tracing::debug!(?ike, "IKE SA: ended before it was recorded as established");
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else { return gone() };
        let matters = match sa.channel.connection().unique {
            Unique::Never => false,
            Unique::No => initial_contact,
            Unique::Keep | Unique::Replace => true,
        };
        // There may be many of them, so they are examined only if that matters.
        let (matters, initiator) =
            (matters && !sa.channel.link().is_initiator(), sa.channel.link().is_initiator());
        let resumes = if initiator { None } else { self.resumes(ike) };
        let mut others = self.index_identity(ike, matters || resumes.is_some());
        if let Some(spis) = resumes {
            let replaced = self.resumed_of(&others, spis);
            self.tell_resumed(now, &others, spis);
            others.retain(|other| Some(*other) != replaced);
            if !matters {
                others.clear();
            }
        }
        let Some(Slot { entry: Entry::Sa(sa), identity: Some(identity), .. }) =
            self.entries.get_mut(&ike)
        else {
            return gone();
        };
        let replaced = sa.peer.reauthenticates();
        let unique = sa.channel.connection().unique;
        let address = sa.channel.route().path().remote.ip().to_canonical();
        let waiting = std::mem::take(&mut sa.waiting);
        let identity = identity.clone();
        let crossed = self.note_crossings(now, ike);
        self.look_for_doubles(now, ike);
        self.deny_first_contact(now, &identity);
        self.end_rivals(now, ike);
        for request in waiting {
            self.done(request, Ok(()));
        }
        if !self.wants.is_empty()
            && let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike)
        {
            let connection = sa.channel.connection().name.clone();
            self.effects.push_back(Effect::Carried { connection, child: None });
        }
        if let Some(old) = replaced {
            self.hand_over(now, ike, old);
        }
        //= https://www.rfc-editor.org/rfc/rfc7619#section-2.3
        //# INITIAL_CONTACT
        //# notifications MUST NOT be used to delete any other IKE SAs based on
        //# the same peer identity without additional verification
        if initiator || identity.1.kind == IdType::NULL {
            return;
        }
        let spared = |id: &IkeSaId| {
            crossed.iter().any(|it| it.other == *id && (it.overlaps || !initial_contact))
        };
        let others = others.into_iter().filter(|other| Some(*other) != replaced && !spared(other));
        let others: Vec<_> = others.collect();
        match unique {
            Unique::Never => {}
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
            //# It MAY be sent when an IKE SA is established after a crash, and the
            //# recipient MAY use this information to delete any other IKE SAs it has
            //# to the same authenticated identity without waiting for a timeout.
            // No Delete is sent, because the peer has forgotten them.
            _ if initial_contact => {
                let (local, remote) = (**identity).clone();
                self.out.push_back(Output::Event(Event::Unique { ike, local, remote }));
                for other in others {
                    self.notify(now, other, Notice::Forgotten);
                }
            }
            // An SA from the same address is a new authentication of the same client, as in charon.
            Unique::Keep => self.keep_others(now, &others, ike, address),
            Unique::Replace => {
                let (local, remote) = (**identity).clone();
                self.out.push_back(Output::Event(Event::Unique { ike, local, remote }));
                for other in others {
                    match self.config.shard.has(other.0) {
                        true => self.replace(now, To::Here(ike), other),
                        false => self.notify(now, other, Notice::Replaced),
                    }
                }
            }
            Unique::No => {}
        }
    }

    /// `unique = keep`: `ike`, which is new and has its peer at `address`, ends if the peer of one of `others` has
    /// another address. What another shard has, that shard looks at.
    fn keep_others(&mut self, now: Now, others: &[IkeSaId], ike: IkeSaId, address: IpAddr) {
        let (here, elsewhere): (Vec<IkeSaId>, Vec<IkeSaId>) =
            others.iter().copied().partition(|other| self.config.shard.has(other.0));
        let is_apart = |other: IkeSaId| self.peer_address(other).is_some_and(|it| it != address);
        if here.into_iter().any(is_apart) {
            return self.refuse_newcomer(now, ike);
        }
        if !elsewhere.is_empty() {
            self.registry.note_newcomer(ike, address);
        }
        for other in elsewhere {
            self.notify(now, other, Notice::Newcomer(ike));
        }
    }

    /// `ike` is of this shard, and the IKE SA `newcomer` of another one is between the same identities.
    fn on_newcomer(&mut self, now: Now, ike: IkeSaId, newcomer: IkeSaId) {
        let stays = self.line_from(ike).last().and_then(|ike| self.peer_address(*ike));
        if let (Some(address), Some(other)) = (stays, self.registry.newcomer(newcomer))
            && address != other
        {
            self.notify(now, newcomer, Notice::Unwelcome);
        }
    }

    fn refuse_newcomer(&mut self, now: Now, ike: IkeSaId) {
        let task = Task::DeleteIke { reason: Failure::Replaced, request: None };
        self.with_sa(now, ike, |sa, _| sa.push_first(task));
    }

    fn peer_address(&self, ike: IkeSaId) -> Option<IpAddr> {
        match &self.entries.get(&ike)?.entry {
            Entry::Sa(sa) => Some(sa.channel.route().path().remote.ip().to_canonical()),
            _ => None,
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
    //# Multiple IKE SAs MUST NOT share a single TCP connection, unless one
    //# is a rekey of an existing IKE SA
    /// Ends IKE SAs that the peer has begun on the connection of `ike` and that are not authenticated.
    fn end_rivals(&mut self, now: Now, ike: IkeSaId) {
        let path = match self.entries.get(&ike).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => Some(sa.channel.route().path()),
            _ => None,
        };
        let path = path.filter(|path| path.transport == Transport::Tcp);
        let rivals = path.map(|path| self.index.users_of(&path)).unwrap_or_default();
        for rival in rivals {
            if let Some(Slot { entry: Entry::Parked(_), .. }) = self.entries.get(&rival) {
                self.remove(now, rival, Failure::Replaced);
                continue;
            }
            self.with_sa(now, rival, |sa, ctx| {
                if sa.state.half_open().is_some() {
                    sa.close(ctx, Failure::Replaced);
                }
            });
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
    //# The INITIAL_CONTACT notification asserts that this IKE SA is the only
    //# IKE SA currently active between the authenticated identities.
    /// Attempts that began when there was no IKE SA with this peer must not send INITIAL_CONTACT any more: it
    /// would end the SA that exists now.
    fn deny_first_contact(&mut self, now: Now, (local, remote): &(IdData, IdData)) {
        for id in self.index.take_attempts(local, remote) {
            self.notify(now, id, Notice::NotFirstContact);
        }
    }

    /// Sends a notice to an IKE SA or an attempt, of this shard or another.
    pub(super) fn notify(&mut self, now: Now, ike: IkeSaId, notice: Notice) {
        if self.config.shard.has(ike.0) {
            self.on_notice(now, ike, notice);
        } else {
            self.out.push_back(Output::Event(Event::Notice(ike, notice)));
        }
    }

    pub(super) fn on_notice(&mut self, now: Now, ike: IkeSaId, notice: Notice) {
        match notice {
            // A notice to an SA that is rekeyed meanwhile is for its successor, too.
            Notice::Forgotten => {
                for ike in self.line_from(ike) {
                    self.with_sa(now, ike, |sa, ctx| sa.close(ctx, Failure::Replaced));
                }
            }
            Notice::Replaced => {
                for ike in self.line_from(ike) {
                    self.replace(now, To::Elsewhere, ike);
                }
            }
            Notice::UnknownSpi(sa) => self.doubt(now, sa),
            Notice::Newcomer(newcomer) => self.on_newcomer(now, ike, newcomer),
            Notice::Unwelcome => self.refuse_newcomer(now, ike),
            Notice::Redundancy(redundancy) => self.on_redundancy(now, ike, redundancy),
            Notice::Child(digest, what) => self.on_child_elsewhere(digest, what),
            Notice::Resumed(spi_i, spi_r) => self.on_resumed(now, ike, (spi_i, spi_r)),
            Notice::NotFirstContact => {
                let entry = self.entries.get_mut(&ike).map(|slot| &mut slot.entry);
                if let Some(Entry::Attempt(attempt)) = entry {
                    attempt.is_not_first_contact();
                }
            }
        }
    }

    /// An IKE SA and its successors by rekeys, in order.
    pub(super) fn line_from(&self, ike: IkeSaId) -> Vec<IkeSaId> {
        let successor = |ike: &IkeSaId| match self.entries.get(ike).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => match &sa.state {
                State::Established(established) => match established.phase {
                    // A redundant SA names itself.
                    IkePhase::Replaced(to) if to != *ike => Some(to),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        std::iter::successors(Some(ike), successor).collect()
    }

    /// Records the identities of an established SA. Returns the other SAs of all shards between them, if they are
    /// `asked` for.
    fn index_identity(&mut self, id: IkeSaId, asked: bool) -> Vec<IkeSaId> {
        let Some(slot) = self.entries.get_mut(&id) else { return Vec::new() };
        let Entry::Sa(sa) = &slot.entry else { return Vec::new() };
        let Some(established) = sa.established() else { return Vec::new() };
        let identity = established.identity.both();
        let (identity, others) = self.registry.establish(identity, id, asked);
        slot.identity = Some(identity);
        others
    }

    fn move_children(&mut self, now: Now, from: IkeSaId, to: IkeSaId, estate: Inheritance) {
        let alive = matches!(
            self.entries.get(&to),
            Some(Slot { entry: Entry::Sa(sa), .. }) if matches!(sa.state, State::Established(_))
        );
        if !alive {
            return self.with_sa(now, from, |sa, ctx| sa.disown(ctx, estate));
        }
        self.with_sa(now, to, |sa, ctx| sa.inherit(ctx, estate));
        // A reauthentication in progress replaces the successor of the SA with which it began.
        for id in self.index.replacing(from) {
            let Some(slot) = self.entries.get_mut(&id) else { continue };
            match &mut slot.entry {
                Entry::Attempt(attempt) => attempt.replaces = Some(to),
                Entry::Sa(sa) => sa.peer.set_reauthenticates(Some(to)),
                Entry::Parked(_) => {}
            }
            self.index.update(id, slot);
        }
        self.wants.replace_parked(from, to);
        self.thin_out_predecessors(now, from, to);
        self.move_crossing(now, from, to);
        self.move_handovers(now, from, to);
        self.renew_ticket(now, from, to);
    }

    /// A replaced SA waits for the peer's Delete. If a peer rekeys repeatedly without a Delete, only a few of its
    /// SAs wait.
    fn thin_out_predecessors(&mut self, now: Now, from: IkeSaId, to: IkeSaId) {
        let mut predecessors = match self.entries.get_mut(&from).map(|slot| &mut slot.entry) {
            Some(Entry::Sa(sa)) => sa.peer.take_predecessors(),
            _ => Vec::new(),
        };
        predecessors.push(from);
        let surplus = predecessors.len().saturating_sub(MAX_PREDECESSORS);
        for old in predecessors.drain(..surplus) {
            self.with_sa(now, old, |sa, ctx| sa.close(ctx, Failure::Replaced));
        }
        if let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get_mut(&to) {
            sa.peer.set_predecessors(predecessors);
        }
    }
}
