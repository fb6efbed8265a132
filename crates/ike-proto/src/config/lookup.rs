//! Look-ups of configuration by name and identity, so that many connections and secrets cost a handshake no more
//! than a few.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::candidates::ByAddress;
use super::{ConnectionConfig, EndpointConfig, PreSharedKey};
use crate::crypto::{Prf, Secret};
use crate::keys::signed_octets::padded;
use crate::wire::payload::IdData;
use crate::wire::registry::{IdType, PrfId};

/// A key that matching identities share ([`IdData::matches`]). Other identities may share it, too.
type Key<'a> = (IdType, Cow<'a, [u8]>);

/// Places of secrets, in order.
type ByKey = BTreeMap<IdType, BTreeMap<Vec<u8>, Vec<usize>>>;

/// A pre-shared key, and the key of AUTH derived from it.
#[derive(Debug)]
pub(crate) struct Psk {
    config: Arc<PreSharedKey>,
    padded: Padded,
}

impl Psk {
    fn new(config: &Arc<PreSharedKey>) -> Arc<Self> {
        Arc::new(Self { config: Arc::clone(config), padded: Padded::default() })
    }

    /// Identities; empty means any pair.
    pub(crate) fn ids(&self) -> &[IdData] {
        &self.config.ids
    }

    /// The key itself.
    pub(crate) fn secret(&self) -> &Secret {
        &self.config.secret
    }

    /// See [`padded`]; the caller gets a copy.
    pub(crate) fn padded(&self, prf: &dyn Prf) -> Secret {
        self.padded.of(prf, &self.config.secret)
    }
}

/// A secret after [`padded`], kept for the first PRF that needs it, which is that of nearly all handshakes. RFC
/// 7296 §2.15 provides for keeping it.
#[derive(Debug, Default)]
struct Padded(OnceLock<(PrfId, Secret)>);

impl Padded {
    fn of(&self, prf: &dyn Prf, secret: &Secret) -> Secret {
        let (id, kept) = self.0.get_or_init(|| (prf.id(), padded(prf, secret)));
        if *id == prf.id() { kept.duplicate() } else { padded(prf, secret) }
    }
}

/// Made again with every configuration.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    connections: BTreeMap<String, Arc<ConnectionConfig>>,
    by_address: ByAddress,
    /// Whether any connection has a DSCP.
    has_dscp: bool,
    schedule: Duration,
    secrets: Vec<Arc<Psk>>,
    decoy: Padded,
    /// Secrets by each identity that they name.
    naming: ByKey,
    /// Secrets that name a single identity.
    alone: ByKey,
    /// Secrets that name none.
    of_anybody: Vec<usize>,
}

impl Lookup {
    pub(crate) fn new(config: &EndpointConfig) -> Self {
        let mut lookup = Self {
            by_address: ByAddress::new(&config.connections),
            has_dscp: config.connections.iter().any(|connection| connection.dscp != 0),
            schedule: config.retransmission.longest(),
            secrets: config.secrets.iter().map(Psk::new).collect(),
            ..Self::default()
        };
        // The first connection of a name counts.
        for connection in config.connections.iter().rev() {
            lookup.connections.insert(connection.name.clone(), Arc::clone(connection));
        }
        for (index, psk) in config.secrets.iter().enumerate() {
            let keys: BTreeSet<Key<'_>> = psk.ids.iter().map(key).collect();
            let add = |table: &mut ByKey, (kind, data): &Key<'_>| {
                let of_kind = table.entry(*kind).or_default();
                of_kind.entry(data.to_vec()).or_default().push(index);
            };
            match (keys.len(), keys.first()) {
                (1, Some(key)) => add(&mut lookup.alone, key),
                (0, _) => lookup.of_anybody.push(index),
                _ => {}
            }
            for key in &keys {
                add(&mut lookup.naming, key);
            }
        }
        lookup
    }

    /// The connection of this name.
    pub(crate) fn connection(&self, name: &str) -> Option<&Arc<ConnectionConfig>> {
        self.connections.get(name)
    }

    /// True if any connection has a DSCP.
    pub(crate) fn has_dscp(&self) -> bool {
        self.has_dscp
    }

    /// The length of a whole retransmission schedule ([`Retransmission::longest`]).
    ///
    /// [`Retransmission::longest`]: super::Retransmission::longest
    pub(crate) fn schedule(&self) -> Duration {
        self.schedule
    }

    /// Connections by the addresses of their peers.
    pub(crate) fn by_address(&self) -> &ByAddress {
        &self.by_address
    }

    /// All secrets, in order.
    pub(crate) fn all_secrets(&self) -> &[Arc<Psk>] {
        &self.secrets
    }

    /// A key for an identity without one. It takes the same time to compute.
    pub(crate) fn decoy(&self, prf: &dyn Prf) -> Secret {
        self.decoy.of(prf, &Secret::copy_from(&[0x5a; 32]))
    }

    /// The secrets, in order, that name `remote`, or no identity, or `local` alone; and maybe others.
    pub(crate) fn secrets(
        &self,
        local: &IdData,
        remote: &IdData,
    ) -> impl DoubleEndedIterator<Item = &Arc<Psk>> {
        let (naming, alone) = (places(&self.naming, remote), places(&self.alone, local));
        let mut all = [naming, alone, &self.of_anybody].concat();
        all.sort_unstable();
        all.dedup();
        all.into_iter().filter_map(|index| self.secrets.get(index))
    }
}

fn places<'a>(table: &'a ByKey, id: &IdData) -> &'a [usize] {
    let (kind, data) = key(id);
    let of_kind = table.get(&kind);
    of_kind.and_then(|of_kind| of_kind.get(&*data)).map_or(&[], Vec::as_slice)
}

fn key(id: &IdData) -> Key<'_> {
    let data = match id.kind {
        IdType::FQDN | IdType::RFC822_ADDR if id.data.iter().any(u8::is_ascii_uppercase) => {
            Cow::Owned(id.data.to_ascii_lowercase())
        }
        // These compare by their values, whatever their octets are.
        IdType::DER_ASN1_DN => Cow::Borrowed(&[][..]),
        _ => Cow::Borrowed(&*id.data),
    };
    (id.kind, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psk(ids: &[&str]) -> Arc<PreSharedKey> {
        let ids = ids.iter().map(|id| IdData::fqdn(*id)).collect();
        Arc::new(PreSharedKey { ids, secret: Secret::new(vec![1; 8]) })
    }

    #[test]
    fn what_may_fit_is_found_in_order() {
        let secrets = vec![
            psk(&["hub", "one"]),
            psk(&[]),
            psk(&["HUB"]),
            psk(&["hub", "two"]),
            psk(&["hub", "One", "three"]),
            psk(&["two"]),
        ];
        let lookup = Lookup::new(&EndpointConfig { secrets, ..EndpointConfig::default() });
        let found = |local: &str, remote: &str| -> Vec<usize> {
            let (local, remote) = (IdData::fqdn(local), IdData::fqdn(remote));
            let place = |psk: &Arc<Psk>| {
                lookup.secrets.iter().position(|other| Arc::ptr_eq(other, psk)).unwrap_or(99)
            };
            lookup.secrets(&local, &remote).map(place).collect()
        };
        assert_eq!(found("Hub", "ONE"), [0, 1, 2, 4]);
        assert_eq!(found("hub", "two"), [1, 2, 3, 5]);
        assert_eq!(found("other", "four"), [1]);
    }
}
