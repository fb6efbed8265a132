//! The connections that a peer may mean while only addresses are known.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{AddressSpec, ConnectionConfig};

/// The connections that a peer may mean, the best first.
pub(crate) type Candidates = Arc<[Arc<ConnectionConfig>]>;

/// The candidate lists of the latest peers. Peers at any address share one list, which has 80 KB for ten thousand
/// connections.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// The newest last.
    recent: Vec<Candidates>,
}

/// Number of lists that are kept.
const LISTS: usize = 4;

impl Lists {
    /// An existing list if it equals this one, otherwise a new one.
    pub(crate) fn share<'a>(
        &mut self,
        list: impl Iterator<Item = &'a Arc<ConnectionConfig>> + Clone,
    ) -> Candidates {
        let same = |known: &Candidates| {
            let mut list = list.clone();
            known.iter().all(|one| list.next().is_some_and(|other| Arc::ptr_eq(one, other)))
                && list.next().is_none()
        };
        if let Some(known) = self.recent.iter().rev().find(|known| same(known)) {
            return Arc::clone(known);
        }
        let list: Candidates = list.cloned().collect();
        if self.recent.len() >= LISTS {
            self.recent.remove(0);
        }
        self.recent.push(Arc::clone(&list));
        list
    }
}

/// The places of connections in the configuration, by the addresses of their peers.
#[derive(Debug, Default)]
pub(crate) struct ByAddress {
    /// Connections with peers at exactly this address.
    hosts: BTreeMap<IpAddr, Vec<usize>>,
    /// Connections with peers in a range.
    ranges: Vec<usize>,
}

impl ByAddress {
    pub(super) fn new(connections: &[Arc<ConnectionConfig>]) -> Self {
        let mut table = Self::default();
        for (index, connection) in connections.iter().enumerate() {
            for spec in &connection.remote_addrs {
                let places = match spec.host() {
                    Some(host) => table.hosts.entry(host).or_default(),
                    None => &mut table.ranges,
                };
                if places.last() != Some(&index) {
                    places.push(index);
                }
            }
        }
        table
    }

    /// The connections whose addresses fit: exact addresses before ranges and `%any`, the peer's address before
    /// this end's. The table was made from `connections`.
    pub(crate) fn fitting<'c>(
        &self,
        connections: &'c [Arc<ConnectionConfig>],
        local: IpAddr,
        remote: IpAddr,
    ) -> Vec<(Vague, &'c Arc<ConnectionConfig>)> {
        let at_host = self.hosts.get(&remote).map_or(&[][..], Vec::as_slice);
        let places = match (at_host, &*self.ranges) {
            (places, []) | ([], places) => Cow::Borrowed(places),
            (at_host, ranges) => {
                let mut both = [at_host, ranges].concat();
                both.sort_unstable();
                both.dedup();
                Cow::Owned(both)
            }
        };
        let fit = |index: &usize| {
            let connection = connections.get(*index)?;
            let vague = (
                vagueness(&connection.remote_addrs, remote)?,
                vagueness(&connection.local_addrs, local)?,
            );
            Some((vague, connection))
        };
        let mut found: Vec<_> = places.iter().filter_map(fit).collect();
        found.sort_by_key(|(vague, _)| *vague);
        found
    }
}

/// Whether the peer's address and this end's are only in a range, and not named.
type Vague = (bool, bool);

/// False if `address` is named in `specs`, true if it is in a range of them.
fn vagueness(specs: &[AddressSpec], address: IpAddr) -> Option<bool> {
    specs.iter().filter(|spec| spec.contains(address)).map(|spec| spec.host().is_none()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn connection(
        name: &str,
        local: &[AddressSpec],
        remote: &[AddressSpec],
    ) -> Arc<ConnectionConfig> {
        Arc::new(ConnectionConfig {
            local_addrs: local.to_vec(),
            remote_addrs: remote.to_vec(),
            ..ConnectionConfig::new(name)
        })
    }

    #[test]
    fn exact_addresses_come_first_and_each_connection_once() {
        let any = AddressSpec::Any(None);
        let host = |text| AddressSpec::single(ip(text));
        let net = AddressSpec::Range(ip("192.0.2.0"), ip("192.0.2.255"));
        let connections = [
            connection("anybody", &[any], &[any]),
            connection("net", &[any], &[net, AddressSpec::Any(Some(true))]),
            connection("host", &[any], &[net, host("192.0.2.7"), host("192.0.2.7")]),
            connection("other", &[any], &[host("192.0.2.8")]),
            connection("here", &[host("198.51.100.1")], &[any]),
            connection("elsewhere", &[host("198.51.100.2")], &[host("192.0.2.7")]),
            connection("both", &[host("198.51.100.1")], &[host("192.0.2.7")]),
        ];
        let table = ByAddress::new(&connections);
        let names = |remote| -> Vec<_> {
            let found = table.fitting(&connections, ip("198.51.100.1"), ip(remote));
            found.iter().map(|(_, connection)| &*connection.name).collect()
        };
        assert_eq!(names("192.0.2.7"), ["both", "host", "here", "anybody", "net"]);
        assert_eq!(names("192.0.2.9"), ["here", "anybody", "net", "host"]);
        assert_eq!(names("203.0.113.1"), ["here", "anybody"]);
        assert_eq!(names("2001:db8::1"), ["here", "anybody", "net"]);
    }
}
