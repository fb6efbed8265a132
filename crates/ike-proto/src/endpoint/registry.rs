//! What the shards of a host share: which identities have an IKE SA, and which shard owns an outbound SA.
//!
//! It is locked when an IKE SA comes or goes and when a child gets its outbound SA, never for a datagram. A single
//! endpoint has a registry of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::crossing::SharedCrossings;
use super::id_set::IdSet;
use super::index::IdKey;
use super::spent::{Spent, Void};
use crate::dataplane::SaId;
use crate::event::{IkeSaId, Now};
use crate::table::{HashSeed, Hashed, OwnTable};
use crate::wire::payload::IdData;

/// Identities and outbound SAs of several [`Endpoint`](crate::Endpoint)s of one host. Clones share one registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Tables>>);

/// The registry, as its shards use it.
#[derive(Clone)]
pub(crate) struct Shards {
    registry: Registry,
    /// The same in all shards.
    seed: HashSeed,
}

/// An identity of this host and one of its peer. Tables and SAs share one copy.
pub(super) type Identities = Hashed<(IdData, IdData)>;

/// The same, as far as it is known.
pub(super) type Between = Hashed<(IdKey, Option<IdKey>)>;

#[derive(Default)]
struct Tables {
    /// Established IKE SAs by identities, for INITIAL_CONTACT and `unique`.
    established: OwnTable<Arc<Identities>, IdSet>,
    crossings: SharedCrossings,
    /// New IKE SAs that other shards look at, with the address of the peer.
    newcomers: OwnTable<IkeSaId, IpAddr>,
    /// Shards that wait for a child of another shard, by its digest.
    waiting: OwnTable<u64, Vec<u8>>,
    /// The number of attempts and established SAs of this host's identities, by the peer's identity; `None` is an
    /// identity that is not known yet.
    contacts: OwnTable<Arc<Between>, Contact>,
    /// How many of these are attempts that [`Shards::take_attempts`] would return.
    attempts: usize,
    /// The number of these for each identity of this host.
    locals: BTreeMap<IdKey, usize>,
    /// Outbound SAs of several shards, because peers choose their SPIs.
    outbound: BTreeMap<SaId, u8>,
    /// IKE SAs whose tickets are void.
    spent: Spent,
    /// The virtual IPs of the peers of IKE SAs with a ticket, by the SPIs of these.
    lent: BTreeMap<(u64, u64), Box<[IpAddr]>>,
    /// Of the first shard: for digests, and for the hashes of identities.
    seed: Option<HashSeed>,
}

/// Attempts and established SAs between two identities.
#[derive(Default)]
struct Contact {
    count: usize,
    attempts: IdSet,
}

impl Registry {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The registry for a shard. The first one to come has its `seed` used by all.
    pub(crate) fn join(self, seed: HashSeed) -> Shards {
        let seed = *self.tables().seed.get_or_insert(seed);
        Shards { registry: self, seed }
    }

    /// Makes the tickets of the IKE SA with these SPIs (the initiator's first) void, `until` none can be valid.
    /// For the list of an earlier run (RFC 5723 §9.8).
    pub fn make_void(&self, spis: (u64, u64), now: Now, until: SystemTime) {
        self.tables().spent.add(spis, now, until);
    }

    /// The IKE SAs whose tickets have become void after the first `seen` ones, and until when each counts; and
    /// their number by now. A caller that stores them can tell a later run.
    pub fn void_since(&self, seen: u64) -> (u64, Vec<Void>) {
        self.tables().spent.since(seen)
    }
}

impl Shards {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.registry.tables()
    }

    /// For hash tables whose keys a peer may choose.
    pub(crate) fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Adds an established SA. Returns the copy of its identities to keep, and, if `asked`, the other SAs between
    /// them. Of two that come at once the second finds the first, and not the other way round.
    pub(super) fn establish(
        &self,
        identities: (IdData, IdData),
        id: IkeSaId,
        asked: bool,
    ) -> (Arc<Identities>, Vec<IkeSaId>) {
        let mut tables = self.tables();
        let identities = Hashed::new(identities, self.seed);
        let known = tables.established.get_key_value(&identities).map(|(known, _)| known.clone());
        let identities = known.unwrap_or_else(|| Arc::new(identities));
        let all = tables.established.entry(Arc::clone(&identities)).or_default();
        all.insert(id);
        let others = match asked {
            true => all.iter().filter(|other| *other != id).collect(),
            false => Vec::new(),
        };
        (identities, others)
    }

    /// Removes it again.
    pub(super) fn forget(&self, identities: &Identities, id: IkeSaId) {
        let mut tables = self.tables();
        tables.crossings.remove(id);
        tables.newcomers.remove(&id);
        IdSet::leave(&mut tables.established, identities, id);
    }

    /// Lends what the shards share of IKE SAs that cross.
    pub(super) fn with_crossings<T>(&self, f: impl FnOnce(&mut SharedCrossings) -> T) -> T {
        f(&mut self.tables().crossings)
    }

    /// The same with the SAs established between these identities, in one step.
    pub(super) fn with_crossings_of<T>(
        &self,
        identities: &Identities,
        f: impl FnOnce(&mut SharedCrossings, &IdSet) -> T,
    ) -> T {
        let mut tables = self.tables();
        let Tables { crossings, established, .. } = &mut *tables;
        f(crossings, established.get(identities).unwrap_or(&IdSet::default()))
    }

    /// A number for `value` that is the same in all shards and that no peer can predict.
    pub(super) fn digest(&self, value: impl Hash) -> u64 {
        self.seed.hash_one(value)
    }

    /// Those established between these identities beside `id`, if they are `most` at the most.
    pub(super) fn others(&self, identities: &Identities, id: IkeSaId, most: usize) -> Vec<IkeSaId> {
        let tables = self.tables();
        let few = tables.established.get(identities).filter(|all| all.len() <= most + 1);
        let others = few.into_iter().flat_map(IdSet::iter).filter(|other| *other != id);
        others.collect()
    }

    /// True if an SA other than `id` is established between these identities.
    pub(crate) fn has_another(&self, identities: (IdData, IdData), id: IkeSaId) -> bool {
        self.tables().established_between(self.seed, identities).any(|other| other != id)
    }

    /// The IKE SA `id` is new, and its peer has `address`.
    pub(super) fn note_newcomer(&self, id: IkeSaId, address: IpAddr) {
        self.tables().newcomers.insert(id, address);
    }

    /// The address of its peer.
    pub(super) fn newcomer(&self, id: IkeSaId) -> Option<IpAddr> {
        self.tables().newcomers.get(&id).copied()
    }

    /// The shard `index` hears when another shard has the child with this digest up.
    pub(super) fn await_child(&self, digest: u64, index: u8) {
        let mut tables = self.tables();
        let waiting = tables.waiting.entry(digest).or_default();
        if !waiting.contains(&index) {
            waiting.push(index);
        }
    }

    /// The shards that wait for the child with this digest. Each is told once.
    pub(super) fn take_waiting(&self, digest: u64) -> Vec<u8> {
        self.tables().waiting.remove(&digest).unwrap_or_default()
    }

    /// The copy of `between` in this registry, if there is one.
    pub(super) fn shared(&self, between: (IdKey, Option<IdKey>)) -> Arc<Between> {
        let tables = self.tables();
        let between = Hashed::new(between, self.seed);
        let known = tables.contacts.get_key_value(&between).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(between))
    }

    /// Removes the count of `id` and counts it as `new`, in one step, so that other shards always find one of the
    /// two. `new` is an established SA, or an attempt, between these identities. True if there is, or may be,
    /// another one between them: of two that begin at once the second finds the first, and not the other way
    /// round.
    pub(super) fn swap_contact(
        &self,
        id: IkeSaId,
        old: Option<&Between>,
        new: Option<(&Arc<Between>, bool)>,
    ) -> bool {
        let mut tables = self.tables();
        if let Some(old) = old {
            tables.remove_contact(id, old);
        }
        let Some((between, established)) = new else { return false };
        let company = tables.knows(self.seed, between);
        tables.add_contact(between, (!established).then_some(id));
        company
    }

    /// The number of attempts and established SAs between two identities.
    pub(super) fn contacts(&self, between: &Between) -> usize {
        self.tables().contacts.get(between).map_or(0, |contact| contact.count)
    }

    /// True if [`take_attempts`](Self::take_attempts) may find one.
    pub(super) fn has_attempts(&self) -> bool {
        self.tables().attempts > 0
    }

    /// Attempts of `local` that may lead to an SA with `remote` and that were not returned before. The caller
    /// notifies them.
    pub(super) fn take_attempts(&self, local: IdKey, remote: IdKey) -> Vec<IkeSaId> {
        let mut tables = self.tables();
        let mut all = Vec::new();
        for between in [(local.clone(), None), (local, Some(remote))] {
            let between = Hashed::new(between, self.seed);
            if let Some(contact) = tables.contacts.get_mut(&between) {
                all.extend(std::mem::take(&mut contact.attempts).iter());
            }
        }
        tables.attempts -= all.len();
        all
    }

    /// Makes the tickets of the IKE SA with `spis` void from now on, `until` none of them can be valid. False if
    /// they were void before.
    pub(crate) fn spend(&self, spis: (u64, u64), now: Now, until: SystemTime) -> bool {
        self.tables().spent.add(spis, now, until)
    }

    /// True if tickets of the IKE SA with `spis` are void.
    pub(crate) fn is_spent(&self, spis: (u64, u64)) -> bool {
        self.tables().spent.holds(spis)
    }

    /// The number of IKE SAs whose tickets are void.
    pub(super) fn spent(&self) -> usize {
        self.tables().spent.len()
    }

    /// Records the virtual IPs of the peer of the IKE SA with `spis`, which has a ticket.
    pub(crate) fn lend(&self, spis: (u64, u64), addresses: &[IpAddr]) {
        self.tables().lent.insert(spis, addresses.into());
    }

    /// The virtual IPs of that peer, if its IKE SA still exists.
    pub(crate) fn lent(&self, spis: (u64, u64)) -> Vec<IpAddr> {
        self.tables().lent.get(&spis).map(|addresses| addresses.to_vec()).unwrap_or_default()
    }

    /// Removes them when the IKE SA ends.
    pub(super) fn take_back(&self, spis: (u64, u64)) {
        self.tables().lent.remove(&spis);
    }

    /// The SAs established between these identities.
    pub(super) fn all_established(&self, identities: (IdData, IdData)) -> Vec<IkeSaId> {
        self.tables().established_between(self.seed, identities).collect()
    }

    /// Assigns the outbound SA `id` to the shard `index`. False if another shard has it.
    pub(crate) fn claim(&self, id: SaId, index: u8) -> bool {
        *self.tables().outbound.entry(id).or_insert(index) == index
    }

    /// True if some shard has the outbound SA.
    pub(crate) fn is_claimed(&self, id: &SaId) -> bool {
        self.tables().outbound.contains_key(id)
    }

    /// The shard that has the outbound SA, if there are several shards.
    pub(super) fn claimant(&self, id: &SaId) -> Option<u8> {
        self.tables().outbound.get(id).copied()
    }

    /// Releases the outbound SA.
    pub(crate) fn release(&self, id: &SaId) {
        self.tables().outbound.remove(id);
    }
}

impl Tables {
    /// Established SAs between these identities.
    fn established_between(
        &self,
        seed: HashSeed,
        identities: (IdData, IdData),
    ) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let all = self.established.get(&Hashed::new(identities, seed));
        all.into_iter().flat_map(IdSet::iter)
    }

    fn add_contact(&mut self, between: &Arc<Between>, attempt: Option<IkeSaId>) {
        match self.locals.get_mut(&between.0) {
            Some(count) => *count += 1,
            None => _ = self.locals.insert(between.0.clone(), 1),
        }
        let contact = self.contacts.entry(Arc::clone(between)).or_default();
        contact.count += 1;
        if let Some(attempt) = attempt
            && contact.attempts.insert(attempt)
        {
            self.attempts += 1;
        }
    }

    fn remove_contact(&mut self, id: IkeSaId, between: &Between) {
        let Some(contact) = self.contacts.get_mut(between) else {
            return debug_assert!(false, "a contact is taken back that was never given");
        };
        let attempt = contact.attempts.remove(id);
        contact.count = contact.count.saturating_sub(1);
        if contact.count == 0 {
            self.contacts.remove(between);
        }
        self.attempts -= usize::from(attempt);
        if let Some(count) = self.locals.get_mut(&between.0) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.locals.remove(&between.0);
            }
        }
    }

    /// True if there is, or may be, an attempt or an SA between these identities; with any peer, if the peer's is
    /// `None`.
    fn knows(&self, seed: HashSeed, between: &Between) -> bool {
        let (local, remote) = &**between;
        let with_any = || Hashed::new((local.clone(), None), seed);
        self.locals.contains_key(local)
            && (remote.is_none()
                || self.contacts.contains_key(between)
                || self.contacts.contains_key(&with_any()))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::own_key;
    use super::*;

    #[test]
    fn the_first_between_two_identities_is_alone() {
        let registry = Registry::default().join(HashSeed::TEST);
        let local = || own_key(&IdData::fqdn("a.example"));
        let remote = |peer: u8| (2, Box::from([peer]));
        let between = |peer: Option<u8>| registry.shared((local(), peer.map(remote)));
        let [one, other, any] = [Some(1), Some(2), None].map(between);
        let id = IkeSaId;
        assert!(!registry.swap_contact(id(1), None, Some((&one, false))));
        assert!(!registry.swap_contact(id(2), None, Some((&other, false))), "somebody else");
        assert!(registry.swap_contact(id(3), None, Some((&any, false))), "it may be any of them");
        assert!(registry.swap_contact(id(4), None, Some((&one, false))));
        // Each is told once, however many come to be established.
        assert_eq!(registry.take_attempts(local(), remote(1)), [id(3), id(1), id(4)]);
        assert!(registry.take_attempts(local(), remote(1)).is_empty());
        assert_eq!(registry.take_attempts(local(), remote(2)), [id(2)]);
        // From a peer not known yet to one that is.
        registry.swap_contact(id(3), Some(&any), Some((&one, true)));
        assert!(registry.swap_contact(id(5), None, Some((&one, false))));
        for (id, between) in [(1, &one), (2, &other), (3, &one), (4, &one), (5, &one)] {
            registry.swap_contact(IkeSaId(id), Some(between), None);
        }
        let tables = registry.tables();
        assert!(tables.contacts.is_empty() && tables.locals.is_empty());
    }
}
