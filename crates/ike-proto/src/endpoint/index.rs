//! Finds IKE SAs and attempts by their peer, identities or successor, so that no input looks at all of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::id_set::IdSet;
use super::registry::Between;
use super::{Entry, Shards, Slot};
use crate::config::{ConnectionConfig, IdMatch};
use crate::event::{IkeSaId, Path, StreamCommand};
use crate::exchange::auth::local_id_at;
use crate::ike_sa::established::ComingSpis;
use crate::ike_sa::state::State;
use crate::table::{OwnTable, Table};
use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// What the driver is to do with the former TCP connection of an entry, and with the present one.
pub(super) type StreamChange = [Option<(Path, StreamCommand)>; 2];

/// Entries by connection and peer, and by the SA that they replace; and the identities in use.
pub(super) struct Index {
    /// Attempts and established SAs.
    by_peer: Table<(Arc<str>, IpAddr), IdSet>,
    /// The same by connection alone. Its name has one copy here.
    names: Table<Arc<str>, IdSet>,
    /// The same by address, for all connections.
    by_address: Table<IpAddr, IdSet>,
    /// Reauthentications in progress, by the SA that they replace.
    replacing: OwnTable<IkeSaId, IdSet>,
    /// Which identities are in use.
    registry: Shards,
    /// Who uses a TCP connection: one, or several that were rekeyed one into the other.
    streams: BTreeMap<Path, IdSet>,
}

/// An identity in a form that is equal for equal identities: its type and its data. The registry keeps two of them for
/// each IKE SA, in boxes without spare capacity.
pub(super) type IdKey = (u8, Box<[u8]>);

/// The keys by which an entry is found.
#[derive(Default)]
pub(super) struct Keys {
    peer: Option<Box<Peer>>,
    replaces: Option<IkeSaId>,
    /// The TCP connection, and whether an established SA uses it.
    stream: Option<Box<(Path, bool)>>,
    /// SPIs of the IKE SAs that a rekey of this one is making.
    pub(super) coming: Option<Box<ComingSpis>>,
}

struct Peer {
    connection: Arc<ConnectionConfig>,
    address: IpAddr,
    established: bool,
    /// Its key in the index.
    name: Arc<str>,
    contact: Arc<Between>,
    /// There was, or may have been, another SA between the same identities already.
    company: bool,
}

impl Keys {
    /// True if it is counted between these identities.
    pub(super) fn is_between(&self, between: &Between) -> bool {
        self.peer.as_ref().is_some_and(|peer| *peer.contact == *between)
    }

    /// True if it was not the first between its identities, as far as these are known.
    pub(super) fn has_company(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.company)
    }
}

impl Index {
    /// An empty index, which records contacts in `registry`.
    pub(super) fn new(registry: Shards) -> Self {
        let seed = registry.seed();
        Self {
            by_peer: Table::new(seed),
            names: Table::new(seed),
            by_address: Table::new(seed),
            replacing: OwnTable::default(),
            registry,
            streams: BTreeMap::new(),
        }
    }

    /// Attempts and established SAs of a connection with the peer at `address`, the oldest first.
    pub(super) fn towards(
        &self,
        connection: &str,
        address: IpAddr,
    ) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let name = self.names.get_key_value(connection).map(|(name, _)| Arc::clone(name));
        let key = name.map(|name| (name, address.to_canonical()));
        key.and_then(|key| self.by_peer.get(&key)).into_iter().flat_map(IdSet::iter)
    }

    /// Attempts and established SAs of a connection, with any peer.
    pub(super) fn of(&self, connection: &str) -> impl Iterator<Item = IkeSaId> + use<'_> {
        self.names.get(connection).into_iter().flat_map(IdSet::iter)
    }

    /// Attempts and established SAs with all peers at `address`.
    pub(super) fn at(&self, address: IpAddr) -> Vec<IkeSaId> {
        self.by_address.get(&address.to_canonical()).into_iter().flat_map(IdSet::iter).collect()
    }

    /// The attempts to replace `ike`.
    pub(super) fn replacing(&self, ike: IkeSaId) -> Vec<IkeSaId> {
        self.replacing.get(&ike).into_iter().flat_map(IdSet::iter).collect()
    }

    /// Attempts of all shards that may lead to an SA between these identities. Each is returned once.
    pub(super) fn take_attempts(&self, local: &IdData, remote: &IdData) -> Vec<IkeSaId> {
        if !self.registry.has_attempts() {
            return Vec::new();
        }
        self.registry.take_attempts(own_key(local), key_of(remote))
    }

    /// Updates the index for an entry.
    pub(super) fn update(&mut self, id: IkeSaId, slot: &mut Slot) {
        let Slot { entry, keys, .. } = slot;
        let (connection, path, replaces, established) = match entry {
            // Its peer is not authenticated, as below.
            Entry::Parked(parked) => (None, parked.path(), None, None),
            Entry::Attempt(attempt) => {
                (Some(&attempt.connection), attempt.path, attempt.replaces, None)
            }
            Entry::Sa(sa) => match &sa.state {
                State::Established(established) => (
                    Some(sa.channel.connection()),
                    sa.channel.route().path(),
                    sa.peer.reauthenticates(),
                    Some(established),
                ),
                // Its peer is not authenticated yet.
                _ => (None, sa.channel.route().path(), None, None),
            },
        };
        if keys.replaces != replaces {
            self.set_replaces(id, keys, replaces);
        }
        let address = path.remote.ip().to_canonical();
        let same = |peer: &Peer| {
            connection.is_some_and(|connection| Arc::ptr_eq(connection, &peer.connection))
                && (peer.address, peer.established) == (address, established.is_some())
        };
        if keys.peer.as_deref().map_or(connection.is_none(), same) {
            return;
        }
        let contact = |connection: &ConnectionConfig| match (established, connection.remote_id()) {
            (Some(sa), _) => {
                (own_key(sa.identity.local_id()), Some(key_of(sa.identity.owner_id())))
            }
            (None, IdMatch::Exact(id)) => {
                (own_key(&local_id_at(connection, path)), Some(key_of(id)))
            }
            (None, _) => (own_key(&local_id_at(connection, path)), None),
        };
        let peer = connection.map(|connection| Peer {
            connection: Arc::clone(connection),
            address,
            established: established.is_some(),
            name: self.named(&connection.name),
            contact: self.registry.shared(contact(connection)),
            company: false,
        });
        self.set_peer(id, keys, peer.map(Box::new));
    }

    /// Removes an entry. Returns what that means for its TCP connection.
    pub(super) fn remove(&mut self, id: IkeSaId, mut keys: Keys) -> Option<StreamChange> {
        self.set_replaces(id, &mut keys, None);
        self.set_peer(id, &mut keys, None);
        self.set_stream(id, &mut keys, None)
    }

    /// The users of a TCP connection.
    pub(super) fn users_of(&self, path: &Path) -> Vec<IkeSaId> {
        self.streams.get(path).into_iter().flat_map(IdSet::iter).collect()
    }

    /// Removes a connection that is closed already.
    pub(super) fn forget_stream(&mut self, path: &Path) {
        self.streams.remove(path);
    }

    /// Records which TCP connection an entry uses.
    pub(super) fn update_stream(&mut self, id: IkeSaId, slot: &mut Slot) -> Option<StreamChange> {
        let stream = match &slot.entry {
            Entry::Attempt(attempt) => attempt.stream_path().map(|path| (path, false)),
            Entry::Sa(sa) => sa.channel.route().stream_path().map(|path| {
                let ours = sa.channel.route().opens_stream();
                (path, !ours && matches!(sa.state, State::Established(_)))
            }),
            Entry::Parked(parked) => parked.stream_path().map(|path| (path, false)),
        };
        self.set_stream(id, &mut slot.keys, stream)
    }

    /// `stream` is the TCP connection that the entry uses, and whether this end is to keep it: the peer has opened it, and
    /// the IKE SA is established.
    #[inline]
    fn set_stream(
        &mut self,
        id: IkeSaId,
        keys: &mut Keys,
        stream: Option<(Path, bool)>,
    ) -> Option<StreamChange> {
        let changes = keys.stream.as_deref() != stream.as_ref();
        changes.then(|| self.change_stream(id, keys, stream))
    }

    fn change_stream(
        &mut self,
        id: IkeSaId,
        keys: &mut Keys,
        stream: Option<(Path, bool)>,
    ) -> StreamChange {
        let old = std::mem::replace(&mut keys.stream, stream.map(Box::new)).map(|old| *old);
        if let Some((path, _)) = stream {
            self.streams.entry(path).or_default().insert(id);
        }
        let left =
            old.map(|(path, _)| path).filter(|left| stream.is_none_or(|(new, _)| new != *left));
        let closed = left.filter(|path| {
            let Some(users) = self.streams.get_mut(path) else { return false };
            users.remove(id);
            let unused = users.is_empty();
            if unused {
                self.streams.remove(path);
            }
            unused
        });
        let kept = stream.and_then(|(path, established)| established.then_some(path));
        [closed.map(|p| (p, StreamCommand::Close)), kept.map(|p| (p, StreamCommand::Keep))]
    }

    fn set_replaces(&mut self, id: IkeSaId, keys: &mut Keys, replaces: Option<IkeSaId>) {
        if let Some(old) = std::mem::replace(&mut keys.replaces, replaces) {
            IdSet::leave(&mut self.replacing, &old, id);
        }
        if let Some(new) = replaces {
            self.replacing.entry(new).or_default().insert(id);
        }
    }

    fn set_peer(&mut self, id: IkeSaId, keys: &mut Keys, mut peer: Option<Box<Peer>>) {
        let same = |a: &Peer, b: &Peer| (&a.name, a.address) == (&b.name, b.address);
        // An attempt that becomes an SA keeps its place.
        let kept = peer.as_ref().zip(keys.peer.as_ref()).is_some_and(|(new, old)| same(new, old));
        if let Some(peer) = peer.as_ref().filter(|_| !kept) {
            let key = (Arc::clone(&peer.name), peer.address);
            self.names.entry(Arc::clone(&peer.name)).or_default().insert(id);
            self.by_peer.entry(key).or_default().insert(id);
            self.by_address.entry(peer.address).or_default().insert(id);
        }
        let old = keys.peer.as_ref().map(|old| &*old.contact);
        let new = peer.as_ref().map(|new| (&new.contact, new.established));
        let company = self.registry.swap_contact(id, old, new);
        if let Some(new) = &mut peer {
            new.company = company;
        }
        let old = std::mem::replace(&mut keys.peer, peer);
        if let Some(old) = old.filter(|_| !kept) {
            let new = keys.peer.as_ref();
            if new.is_none_or(|new| new.address != old.address) {
                IdSet::leave(&mut self.by_address, &old.address, id);
            }
            IdSet::leave(&mut self.by_peer, &(Arc::clone(&old.name), old.address), id);
            if new.is_none_or(|new| new.name != old.name) {
                IdSet::leave(&mut self.names, &old.name, id);
            }
        }
    }

    /// The one copy of a connection's name.
    fn named(&self, name: &str) -> Arc<str> {
        let known = self.names.get_key_value(name).map(|(name, _)| Arc::clone(name));
        known.unwrap_or_else(|| name.into())
    }
}

/// A key that differs only if the identities differ. All distinguished names have the same key.
pub(super) fn key_of(id: &IdData) -> IdKey {
    if id.kind == IdType::DER_ASN1_DN { (id.kind.0, Box::default()) } else { own_key(id) }
}

/// The key of an identity of this host: distinguished names that differ have different keys.
pub(super) fn own_key(id: &IdData) -> IdKey {
    (id.kind.0, id.folded().data.into_boxed_slice())
}
