//! What the shards of a host know in common: who is up with whom, and whose outbound SA is whose.
//!
//! It is locked where an IKE SA comes or goes and where a child gets its outbound SA, never for a datagram.
//! A single endpoint has one to itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::id_set::IdSet;
use super::index::IdKey;
use crate::dataplane::SaId;
use crate::event::IkeSaId;
use crate::wire::payload::IdData;

/// Identities and outbound SAs of several [`Endpoint`](crate::Endpoint)s of one host. Clones are the same
/// one.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Tables>>);

/// An identity of this host, and of its peer. Tables and those they are about share one copy.
pub(super) type Identities = (IdData, IdData);

/// The same as far as it is known.
pub(super) type Between = (IdData, Option<IdKey>);

#[derive(Default)]
struct Tables {
    /// IKE SAs by their peers, for INITIAL_CONTACT and `unique`.
    established: HashMap<Arc<Identities>, IdSet>,
    /// How many attempts and established SAs this host's identities have, and with whom; `None` is
    /// somebody not known yet.
    contacts: HashMap<Arc<Between>, Contact>,
    /// How many of these this host's identities have.
    locals: HashMap<IdData, usize>,
    /// Outbound SAs of several shards: peers choose their SPIs.
    outbound: HashMap<SaId, u8>,
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

    /// Adds an established SA. The copy of its identities to keep, and the others between them: of two
    /// that come at once the second finds the first, and not the other way round.
    pub(super) fn establish(
        &self,
        identities: Identities,
        id: IkeSaId,
    ) -> (Arc<Identities>, Vec<IkeSaId>) {
        let mut tables = self.tables();
        let known = tables.established.get_key_value(&identities).map(|(known, _)| known.clone());
        let identities = known.unwrap_or_else(|| Arc::new(identities));
        let all = tables.established.entry(Arc::clone(&identities)).or_default();
        all.insert(id);
        let others = all.iter().filter(|other| *other != id).collect();
        (identities, others)
    }

    /// Takes it out again.
    pub(super) fn forget(&self, identities: &Identities, id: IkeSaId) {
        let mut tables = self.tables();
        let Some(all) = tables.established.get_mut(identities) else { return };
        all.remove(id);
        if all.is_empty() {
            tables.established.remove(identities);
        }
    }

    /// The copy of `between` that is here, if there is one.
    pub(super) fn shared(&self, between: Between) -> Arc<Between> {
        let tables = self.tables();
        let known = tables.contacts.get_key_value(&between).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(between))
    }

    /// Counts an attempt, or an established SA, between these identities.
    pub(super) fn add_contact(&self, between: &Arc<Between>, attempt: Option<IkeSaId>) {
        let mut tables = self.tables();
        *tables.locals.entry(between.0.clone()).or_default() += 1;
        let contact = tables.contacts.entry(Arc::clone(between)).or_default();
        contact.count += 1;
        if let Some(attempt) = attempt {
            contact.attempts.insert(attempt);
        }
    }

    /// Takes it out again.
    pub(super) fn remove_contact(&self, id: IkeSaId, between: &Between) {
        let mut tables = self.tables();
        let Some(contact) = tables.contacts.get_mut(between) else { return };
        contact.attempts.remove(id);
        contact.count = contact.count.saturating_sub(1);
        if contact.count == 0 {
            tables.contacts.remove(between);
        }
        if let Some(count) = tables.locals.get_mut(&between.0) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                tables.locals.remove(&between.0);
            }
        }
    }

    /// True if `local` has an attempt or an SA with `remote`, or may have; with anybody, if that is `None`.
    pub(super) fn knows(&self, local: IdData, remote: Option<IdKey>) -> bool {
        let tables = self.tables();
        if !tables.locals.contains_key(&local) {
            return false;
        }
        remote.is_none_or(|remote| {
            tables.contacts.contains_key(&(local.clone(), None))
                || tables.contacts.contains_key(&(local, Some(remote)))
        })
    }

    /// Attempts of `local` that may come to be with `remote`.
    pub(super) fn attempts_between(&self, local: IdData, remote: IdKey) -> Vec<IkeSaId> {
        let tables = self.tables();
        let known = [(local.clone(), None), (local, Some(remote))];
        let known = known.iter().filter_map(|between| tables.contacts.get(between));
        known.flat_map(|contact| contact.attempts.iter()).collect()
    }

    /// Takes the outbound SA `id` for the shard `index`; false if another has it.
    pub(crate) fn claim(&self, id: SaId, index: u8) -> bool {
        *self.tables().outbound.entry(id).or_insert(index) == index
    }

    /// True if a shard has the outbound SA.
    pub(crate) fn is_claimed(&self, id: &SaId) -> bool {
        self.tables().outbound.contains_key(id)
    }

    /// Gives the outbound SA back.
    pub(crate) fn release(&self, id: &SaId) {
        self.tables().outbound.remove(id);
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}
