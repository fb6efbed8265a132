//! IKE SAs that both ends have begun at once. Both ends keep the same one, without a message about it.
//!
//! Two IKE SAs of one connection between the same identities and addresses *cross* if different ends have begun
//! them and their set-ups overlap in time, or nearly so. [`is_redundant`](crate::ike_sa::crossing::is_redundant)
//! decides by their SPIs which of them is redundant. The initiator of the redundant SA deletes it a second later.
//! If the peer does not know the rule, the other end deletes it after 15 s. Before that,
//!
//! - the SA that stays must have the same children; missing ones are made on it first;
//! - its peer must have answered on it since the two crossed. A peer with a rule of its own may keep the other SA.
//!   By then it has most likely ended this one, and then there is nothing left to decide;
//! - packets must leave by its children.
//!
//! If the peer ends the SA that stays while this end ends the other one, the children are started again.
//!
//! A second SA made on purpose does not cross: `unique = never`, another connection, another address, virtual IPs,
//! or identities that nobody has proven (RFC 7619).
//!
//! [`doubles`] treats second IKE SAs that have another cause.
//!
//! The two SAs may belong to different shards. What the shards must know is in [`Shards`], and [`Notice`]s say
//! when.

mod doubles;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::id_set::IdSet;
use super::index::{key_of, own_key};
use super::{Endpoint, Entry, Shards, Slot};
use crate::config::{ConnectionConfig, IdMatch, Unique};
use crate::event::{Failure, IkeSaId, Notice, Now, Path, Redundancy, RequestId};
use crate::exchange::auth::local_id_at;
use crate::ike_sa::context::Effect;
use crate::ike_sa::crossing::{self, AGAIN, Cover, OWN_STAYS, SetUp, THEIRS_STAYS};
use crate::ike_sa::{Carries, IkeSa};
use crate::table::{Hashed, OwnTable};
use crate::wants::Sought;
use crate::wire::registry::IdType;

/// After this time the verdict is void: a reason that has kept a redundant IKE SA for so long will not change.
const VERDICT_HOLDS: Duration = Duration::from_secs(50);
/// If the peer ends the SA that stays within this time after the redundant one, the peer has a rule of its own.
const OTHER_RULE: Duration = Duration::from_secs(5);
/// How long after ours a peer's IKE_SA_INIT request may come if it was sent before. The peer retransmitted it
/// while this host was not up, and continues with it.
const LATE_INIT: Duration = Duration::from_secs(60);
/// An IKE SA of this age is crossed by no other one: every set-up has ended by then.
const OLD: Duration = Duration::from_secs(15 * 60);

/// An established IKE SA that another one may cross. The registry keeps one for each IKE SA for a while, so it is
/// small.
#[derive(Debug, Clone, Copy)]
struct Party {
    /// Connection and the peer's address, hashed with a key of the registry. Another SA with the same hash may
    /// cross this one.
    with: u64,
    spis: (u64, u64),
    done: Instant,
    /// How long before `done` it was begun, in microseconds.
    took: u32,
    ours: bool,
}

impl Party {
    /// The party of `sa`; `None` if `sa` cannot cross others.
    fn of(sa: &IkeSa, registry: &Shards) -> Option<Self> {
        let established = sa.established()?;
        let connection = sa.channel.connection();
        let single = connection.unique != Unique::Never
            && connection.vips.is_empty()
            && sa.peer.assigned().get().is_none()
            && established.identity.owner_id().kind != IdType::NULL;
        let took = established
            .identity
            .since()
            .saturating_duration_since(sa.channel.link().started())
            .as_micros();
        single.then(|| Self {
            with: registry
                .digest((&connection.name, sa.channel.route().path().remote.ip().to_canonical())),
            spis: sa.channel.link().spis().pair(),
            done: established.identity.since(),
            // More than an hour counts as an hour.
            took: u32::try_from(took).unwrap_or(u32::MAX),
            ours: sa.channel.link().is_initiator(),
        })
    }

    fn set_up(&self) -> SetUp {
        let took = Duration::from_micros(self.took.into());
        let began = self.done.checked_sub(took).unwrap_or(self.done);
        SetUp { ours: self.ours, began, done: self.done }
    }

    /// True if the two crossed. The peer's request may come up to `late` after.
    fn crosses(&self, other: &Self, late: Duration) -> bool {
        self.with == other.with && crossing::crosses(self.set_up(), other.set_up(), late)
    }

    /// True if this one of two that crossed is redundant.
    fn yields_to(&self, other: &Self) -> bool {
        crossing::is_redundant(self.spis, other.spis)
    }

    /// True if no SA can cross it any more.
    fn is_old(&self, now: Instant) -> bool {
        self.done + OLD <= now
    }
}

/// An IKE SA that a new one crossed.
pub(super) struct Crossed {
    pub(super) other: IkeSaId,
    /// True if this is the redundant one of the two.
    pub(super) yields: bool,
    /// True if neither end knew of one of the two when it began the other.
    pub(super) overlaps: bool,
}

/// What a redundant IKE SA carries, for the SA that takes its place.
#[derive(Debug, Clone)]
struct Estate {
    children: Vec<Carries>,
    /// When this end found that the two had crossed.
    since: Instant,
    /// Missing children have been requested.
    asked: bool,
    /// Which others may stand in for it, where no other one is named.
    claim: Option<Claim>,
}

/// By what another IKE SA knows whether it may stand in for one.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// As of a [`Party`].
    with: u64,
    spis: (u64, u64),
    /// The peer has had time to end its own.
    late: bool,
    /// The configuration alone has begun it: one that the peer has begun may stand in for it, too.
    configured: bool,
}

/// What the shards of a host share of IKE SAs that cross, or are one too many.
#[derive(Default)]
pub(super) struct SharedCrossings {
    /// Established IKE SAs that another one may still cross.
    parties: Parties,
    /// What redundant IKE SAs carry until they end.
    estates: OwnTable<IkeSaId, Estate>,
}

/// Established SAs that another one may cross. They are in two tables. The older table is dropped as a whole when
/// all of its SAs are too old to be crossed.
#[derive(Default)]
struct Parties {
    new: OwnTable<IkeSaId, Party>,
    old: OwnTable<IkeSaId, Party>,
    /// When `new` was started.
    since: Option<Instant>,
}

impl Parties {
    fn insert(&mut self, id: IkeSaId, party: Party, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if since + OLD <= now {
            self.old = std::mem::take(&mut self.new);
            self.since = Some(now);
        }
        self.new.insert(id, party);
    }

    fn get(&self, id: IkeSaId) -> Option<&Party> {
        self.new.get(&id).or_else(|| self.old.get(&id))
    }
}

impl SharedCrossings {
    /// The IKE SA has ended.
    pub(super) fn remove(&mut self, id: IkeSaId) {
        self.parties.new.remove(&id);
        self.parties.old.remove(&id);
        self.estates.remove(&id);
    }

    /// Those of `established` that others may cross.
    fn parties_of(&self, established: &IdSet) -> impl Iterator<Item = (IkeSaId, &Party)> {
        established.iter().filter_map(|id| Some((id, self.parties.get(id)?)))
    }

    /// Adds an established SA as one that others may cross. Returns those of `established`, which are between the same
    /// identities, that it crosses.
    fn note_party(
        &mut self,
        established: &IdSet,
        id: IkeSaId,
        party: Party,
        now: Instant,
    ) -> Vec<Crossed> {
        let others = self.parties_of(established).filter(|(other, known)| {
            *other != id && !known.is_old(now) && party.crosses(known, LATE_INIT)
        });
        let crossed = others.map(|(other, known)| Crossed {
            other,
            yields: known.yields_to(&party),
            overlaps: party.crosses(known, Duration::ZERO),
        });
        let crossed = crossed.collect();
        self.parties.insert(id, party, now);
        crossed
    }

    /// Those of `established` whose set-ups overlap with that of `party`.
    fn crossed_by(&self, established: &IdSet, party: &Party) -> Vec<IkeSaId> {
        let others = self.parties_of(established);
        others.filter(|(_, other)| party.crosses(other, Duration::ZERO)).map(|(id, _)| id).collect()
    }

    /// Records what the redundant IKE SA `id` carries.
    fn set_estate(&mut self, id: IkeSaId, mut estate: Estate) {
        estate.asked |= self.estates.get(&id).is_some_and(|known| known.asked);
        self.estates.insert(id, estate);
    }

    /// The children that another IKE SA lacks have been requested for `id`, if that is still on record: another shard
    /// may have removed it.
    fn note_asked(&mut self, id: IkeSaId) {
        if let Some(estate) = self.estates.get_mut(&id) {
            estate.asked = true;
        }
    }

    /// Removes the record of what the SA carries: it is gone, or stays.
    fn forget_estate(&mut self, id: IkeSaId) {
        self.estates.remove(&id);
    }
}

/// This shard's IKE SAs that crossed another one.
#[derive(Default)]
pub(super) struct Crossings {
    redundant: OwnTable<IkeSaId, Redundant>,
    kept: OwnTable<IkeSaId, Kept>,
    /// IKE SAs that may be one too many.
    doubles: OwnTable<IkeSaId, doubles::Double>,
    /// When to examine which of them.
    due: BTreeSet<(Instant, IkeSaId)>,
}

/// An IKE SA that is to end.
#[derive(Clone, Copy)]
struct Redundant {
    kept: IkeSaId,
    since: Instant,
}

/// The SA for which another one has just ended.
struct Kept {
    connection: String,
    path: Path,
    children: Vec<String>,
    until: Instant,
}

impl Endpoint {
    /// Records that `ike` is established. Returns the SAs that it crossed. `unique` does not apply to these, nor
    /// does INITIAL_CONTACT if their set-ups overlap.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.4
    //# The INITIAL_CONTACT notification asserts that this IKE SA is the only
    //# IKE SA currently active between the authenticated identities.
    // A peer that sends INITIAL_CONTACT while its own request is in flight does not know of our SA yet.
    pub(super) fn note_crossings(&mut self, now: Now, ike: IkeSaId) -> Vec<Crossed> {
        let Some(Slot { entry: Entry::Sa(sa), identity: Some(identity), .. }) =
            self.entries.get(&ike)
        else {
            return Vec::new();
        };
        let Some(party) = Party::of(sa, &self.registry) else { return Vec::new() };
        let crossed = self.registry.with_crossings_of(identity, |shared, established| {
            shared.note_party(established, ike, party, now.mono)
        });
        for Crossed { other, yields, .. } in &crossed {
            let (redundant, kept) = if *yields { (*other, ike) } else { (ike, *other) };
            self.notify(now, redundant, Notice::Redundancy(Redundancy::Crossed(kept)));
        }
        crossed
    }

    /// The SAs that `ike` crosses. `ike` is established and not recorded yet.
    pub(super) fn crossed_by(&self, ike: IkeSaId) -> Vec<IkeSaId> {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else {
            return Vec::new();
        };
        match (sa.identities(), Party::of(sa, &self.registry)) {
            (Some(identities), Some(party)) => {
                let identities = Hashed::new(identities, self.registry.seed());
                self.registry.with_crossings_of(&identities, |shared, established| {
                    shared.crossed_by(established, &party)
                })
            }
            _ => Vec::new(),
        }
    }

    /// Handles what another IKE SA with the same peer says of `ike`, or asks of it.
    pub(super) fn on_redundancy(&mut self, now: Now, ike: IkeSaId, redundancy: Redundancy) {
        match redundancy {
            Redundancy::Crossed(kept) => self.on_crossed(now, ike, kept),
            Redundancy::TakeOver(redundant) => self.on_take_over(now, ike, redundant),
            Redundancy::Another => self.on_another(now, ike),
            Redundancy::StandIn(double) => self.on_offered(now, ike, double),
            Redundancy::Covered => self.on_covered(now, ike),
        }
    }

    /// What the redundant IKE SA `ike` carries, as last recorded.
    fn estate(&self, ike: IkeSaId) -> Option<Estate> {
        self.registry.with_crossings(|shared| shared.estates.get(&ike).cloned())
    }

    /// Handles the verdict that the IKE SA `ike` is redundant.
    fn on_crossed(&mut self, now: Now, ike: IkeSaId, kept: IkeSaId) {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&ike) else {
            return tracing::debug!(?ike, ?kept, "crossing IKE SAs: the redundant one has ended");
        };
        let stays = if sa.channel.link().is_initiator() { OWN_STAYS } else { THEIRS_STAYS };
        self.crossings.redundant.insert(ike, Redundant { kept, since: now.mono });
        self.look_at_crossing(ike, now.mono + stays);
    }

    fn look_at_crossing(&mut self, ike: IkeSaId, at: Instant) {
        self.crossings.due.insert((at, ike));
        self.deadlines.insert((at, Deadline::Housekeeping));
    }

    /// Examines the SAs that are due.
    pub(super) fn run_crossings(&mut self, now: Now) {
        while let Some(&(at, ike)) = self.crossings.due.first()
            && at <= now.mono
        {
            self.crossings.due.remove(&(at, ike));
            if self.crossings.kept.get(&ike).is_some_and(|kept| kept.until <= now.mono) {
                self.crossings.kept.remove(&ike);
            }
            if let Some(Redundant { kept, since }) = self.crossings.redundant.get(&ike).copied() {
                self.end_if_covered(now, ike, kept, since);
            }
            if let Some(double) = self.crossings.doubles.get(&ike).copied() {
                self.offer(now, ike, double);
            }
        }
        let next = self.crossings.due.first().map(|(at, _)| (*at, Deadline::Housekeeping));
        self.deadlines.extend(next);
    }

    /// Asks the shard of the SA that stays whether `ike` may end.
    fn end_if_covered(&mut self, now: Now, ike: IkeSaId, kept: IkeSaId, since: Instant) {
        if now.mono >= since + VERDICT_HOLDS {
            tracing::debug!(?ike, ?kept, "crossing IKE SAs: both stay");
            self.crossings.redundant.remove(&ike);
            return self.registry.with_crossings(|shared| shared.forget_estate(ike));
        }
        if let Some(children) = self.established(ike).and_then(IkeSa::carried) {
            let estate = Estate { children, since, asked: false, claim: None };
            self.registry.with_crossings(|shared| shared.set_estate(ike, estate));
            self.notify(now, kept, Notice::Redundancy(Redundancy::TakeOver(ike)));
        }
        if self.crossings.redundant.contains_key(&ike) {
            self.look_at_crossing(ike, now.mono + AGAIN);
        }
    }

    /// The IKE SA `redundant` is to end for `kept`, which belongs to this shard.
    fn on_take_over(&mut self, now: Now, kept: IkeSaId, redundant: IkeSaId) {
        let both = self.established(kept).zip(self.estate(redundant));
        let Some((sa, estate)) = both else {
            return tracing::debug!(?kept, ?redundant, "IKE SAs for the same: one has ended");
        };
        match sa.covers(&estate.children) {
            Cover::Whole if sa.channel.last_heard() > estate.since => {
                let until = now.mono + OTHER_RULE;
                let children = estate.children.iter().map(|child| child.name().to_owned());
                let (connection, path) =
                    (sa.channel.connection().name.clone(), sa.channel.route().path());
                let children = children.collect();
                let known = Kept { connection, path, children, until };
                self.crossings.kept.insert(kept, known);
                self.look_at_crossing(kept, until);
                self.notify(now, redundant, Notice::Redundancy(Redundancy::Covered));
            }
            Cover::Whole => self.with_sa(now, kept, |sa, _| {
                sa.when_established(|established, _| established.ask_for_life());
            }),
            Cover::Lacks(lacks) if !estate.asked => {
                self.registry.with_crossings(|shared| shared.note_asked(redundant));
                self.with_sa(now, kept, |sa, _| sa.make_missing(lacks));
            }
            Cover::Lacks(_) | Cover::Later | Cover::Never => {}
        }
    }

    /// Ends the IKE SA `ike`, because the other one has its children.
    fn on_covered(&mut self, now: Now, ike: IkeSaId) {
        let carried = self.established(ike).and_then(IkeSa::carried);
        let known = self.estate(ike).map(|estate| estate.children);
        let asked = self.crossings.redundant.contains_key(&ike)
            || self.crossings.doubles.contains_key(&ike);
        if !asked || carried.is_none() || carried != known {
            // It has got another child meanwhile.
            return;
        }
        self.forget_crossing(ike);
        self.with_sa(now, ike, |sa, ctx| {
            sa.when_established(|established, _| established.end_crossed(ctx));
        });
    }

    fn forget_crossing(&mut self, ike: IkeSaId) {
        let crossed = self.crossings.redundant.remove(&ike).is_some();
        if self.crossings.doubles.remove(&ike).is_some() || crossed {
            self.registry.with_crossings(|shared| shared.forget_estate(ike));
        }
    }

    /// Handles the end of an IKE SA: starts the children again that two different rules have ended.
    pub(super) fn end_crossing(&mut self, now: Now, ike: IkeSaId, reason: &Failure) {
        self.forget_crossing(ike);
        let kept = self.crossings.kept.remove(&ike);
        let by_rule = |kept: &Kept| *reason == Failure::DeletedByPeer && kept.until > now.mono;
        if let Some(Kept { connection, path, children, .. }) = kept.filter(by_rule) {
            for child in children {
                let connection = connection.clone();
                let ends = (path.local.ip(), path.remote.ip());
                self.effects.push_back(Effect::BringBack { connection, child, ends });
            }
        }
    }

    /// Handles a rekey: the children of `from` belong to `to` from now on.
    pub(super) fn move_crossing(&mut self, now: Now, from: IkeSaId, to: IkeSaId) {
        let renamed = self.crossings.redundant.iter().filter(|(_, other)| other.kept == from);
        let renamed: Vec<_> = renamed.map(|(ike, _)| *ike).collect();
        for ike in renamed {
            if let Some(redundant) = self.crossings.redundant.get_mut(&ike) {
                redundant.kept = to;
            }
        }
        self.move_double(now, from, to);
        if let Some(redundant) = self.crossings.redundant.get(&from).copied() {
            self.forget_crossing(from);
            self.crossings.redundant.insert(to, redundant);
            self.look_at_crossing(to, now.mono + AGAIN);
        }
        if let Some(kept) = self.crossings.kept.remove(&from) {
            let until = kept.until;
            self.crossings.kept.insert(to, kept);
            self.look_at_crossing(to, until);
        }
    }

    /// Brings up a child that is to be up, unless it is up or being made.
    pub(super) fn on_ensure(
        &mut self,
        now: Now,
        request: RequestId,
        connection: &str,
        child: &str,
        (local, remote): (IpAddr, IpAddr),
    ) {
        let found = self.lookup.connection(connection).cloned();
        let found = found.filter(|found| found.child(child).is_some());
        if let Some(found) = &found {
            self.want(now, found, Some(child), Some((local, remote)));
        }
        if self.has_or_makes(connection, remote, child) {
            // The peer is making it, and may not come to an end.
            if !self.carries(connection, Some(child)) {
                self.look_again(now, connection, child);
            }
            return self.done(request, Ok(()));
        }
        if let Some(found) = found
            && !self.serves(connection, remote)
            && self.is_known_elsewhere(&found, (local, remote))
            && self.put_off_start(now, connection, child)
        {
            return self.done(request, Ok(()));
        }
        self.on_initiate(now, request, connection, Some(child), (local, remote), None);
    }

    /// True if another shard has or makes an IKE SA with the peer of `connection`. The shards were asked one after
    /// the other for the child. Meanwhile the peer may have moved the child from one IKE SA to another by a
    /// reauthentication.
    fn is_known_elsewhere(
        &self,
        connection: &ConnectionConfig,
        (local, remote): (IpAddr, IpAddr),
    ) -> bool {
        let IdMatch::Exact(id) = connection.remote_id() else { return false };
        if self.config.shard.count <= 1 {
            return false;
        }
        let path = self.path_to(connection, local, remote);
        let between = (own_key(&local_id_at(connection, path)), Some(key_of(id)));
        let between = self.registry.shared(between);
        let is_own =
            |id: &IkeSaId| self.entries.get(id).is_some_and(|slot| slot.keys.is_between(&between));
        let own = self.index.of(&connection.name).filter(is_own).count();
        self.registry.contacts(&between) > own
    }

    /// True if there is a child of this name with the peer at `remote`, or if either end is making one.
    pub(super) fn has_or_makes(&self, connection: &str, remote: IpAddr, child: &str) -> bool {
        let sought = Sought::present(&self.lookup, connection, Some(child));
        let name = Some(child.to_owned());
        let makes = |id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Attempt(attempt)) => {
                attempt.replaces.is_none() && attempt.wanted.iter().any(|it| it.is_for(&name))
            }
            Some(Entry::Sa(sa)) => sa.has_or_makes(sought),
            Some(Entry::Parked(_)) | None => false,
        };
        self.index.towards(connection, remote).any(makes)
    }
}
