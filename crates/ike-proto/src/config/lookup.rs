//! Configuration by name and identity, so that many connections and secrets cost a handshake no more than
//! few do.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{ConnectionConfig, EndpointConfig, PreSharedKey};
use crate::wire::payload::IdData;
use crate::wire::registry::IdType;

/// What identities that match have in common ([`IdData::matches`]); others may have it, too.
type Key = (IdType, Vec<u8>);

/// Made anew with every configuration.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    connections: HashMap<String, Arc<ConnectionConfig>>,
    secrets: Vec<Arc<PreSharedKey>>,
    /// Secrets by each identity they name.
    naming: HashMap<Key, Vec<usize>>,
    /// Those that name one identity alone.
    alone: HashMap<Key, Vec<usize>>,
    /// Those that name none.
    of_anybody: Vec<usize>,
}

impl Lookup {
    pub(crate) fn new(config: &EndpointConfig) -> Self {
        let mut lookup = Self { secrets: config.secrets.clone(), ..Self::default() };
        // The first of a name is the one that counts.
        for connection in config.connections.iter().rev() {
            lookup.connections.insert(connection.name.clone(), Arc::clone(connection));
        }
        for (index, psk) in config.secrets.iter().enumerate() {
            let keys: BTreeSet<Key> = psk.ids.iter().map(key).collect();
            match (keys.len(), keys.first()) {
                (1, Some(key)) => lookup.alone.entry(key.clone()).or_default().push(index),
                (0, _) => lookup.of_anybody.push(index),
                _ => {}
            }
            for key in keys {
                lookup.naming.entry(key).or_default().push(index);
            }
        }
        lookup
    }

    /// The connection of this name.
    pub(crate) fn connection(&self, name: &str) -> Option<&Arc<ConnectionConfig>> {
        self.connections.get(name)
    }

    /// The secrets, in order, that name `remote`, or nobody, or `local` alone; and maybe others.
    pub(crate) fn secrets(
        &self,
        local: &IdData,
        remote: &IdData,
    ) -> impl DoubleEndedIterator<Item = &Arc<PreSharedKey>> {
        let naming = self.naming.get(&key(remote)).into_iter().flatten();
        let alone = self.alone.get(&key(local)).into_iter().flatten();
        let all: BTreeSet<usize> = naming.chain(alone).chain(&self.of_anybody).copied().collect();
        all.into_iter().filter_map(|index| self.secrets.get(index))
    }
}

fn key(id: &IdData) -> Key {
    let data = match id.kind {
        IdType::FQDN | IdType::RFC822_ADDR => id.data.to_ascii_lowercase(),
        // These compare by their values, whatever their octets.
        IdType::DER_ASN1_DN => Vec::new(),
        _ => id.data.clone(),
    };
    (id.kind, data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Secret;

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
            let place = |psk: &Arc<PreSharedKey>| {
                lookup.secrets.iter().position(|other| Arc::ptr_eq(other, psk)).unwrap_or(99)
            };
            lookup.secrets(&local, &remote).map(place).collect()
        };
        assert_eq!(found("Hub", "ONE"), [0, 1, 2, 4]);
        assert_eq!(found("hub", "two"), [1, 2, 3, 5]);
        assert_eq!(found("other", "four"), [1]);
    }
}
