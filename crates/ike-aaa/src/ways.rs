//! Which fetches go round tunnels.
//!
//! Revocation information about a peer is asked for before its tunnel is up. What blocks the traffic of that tunnel would
//! block the question too, and the tunnel would never come up. So such a fetch goes round the tunnel, in clear. A tunnel
//! that is up and covers the server has the fetch, and one that is down keeps the fetches for other peers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ike_proto::config::{Action, ConnectionConfig, EndpointConfig, TsSpec};
use ike_proto::dataplane::TrafficSelector;
use ike_proto::dataplane::precedence::address_bits;
use ike_proto::{ChildSaId, Endpoint, Event, IkeSaId};

/// What children protect by configuration, and what those that are up do.
#[derive(Debug, Default)]
pub(crate) struct Ways(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    configured: Vec<Configured>,
    up: HashMap<ChildSaId, Up>,
}

/// A child of the configuration.
#[derive(Debug)]
struct Configured {
    connection: String,
    remote: Vec<TrafficSelector>,
    /// Its traffic may be blocked while it is down.
    returns: bool,
}

/// A child that is up.
#[derive(Debug)]
struct Up {
    ike: IkeSaId,
    remote: Vec<TrafficSelector>,
}

impl Ways {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another configuration is in force.
    pub(crate) fn configure(&self, config: &EndpointConfig) {
        let children = config.connections.iter().flat_map(|connection| {
            connection.children.iter().map(|child| Configured {
                connection: connection.name.clone(),
                remote: child
                    .remote_ts
                    .iter()
                    .flat_map(|spec| resolved(spec, connection))
                    .collect(),
                returns: [child.start_action, child.close_action, child.dpd_action]
                    .iter()
                    .any(|action| *action != Action::None),
            })
        });
        let configured = children.collect();
        self.known().configured = configured;
    }

    /// Takes note of an event of `endpoint`.
    pub(crate) fn note(&self, event: &Event, endpoint: &Endpoint) {
        match event {
            Event::ChildUp { ike, child } => {
                let status = endpoint.ike_sa(*ike);
                let children = status.into_iter().flat_map(|status| status.children);
                if let Some(found) = children.into_iter().find(|other| other.id == *child) {
                    self.known().up.insert(*child, Up { ike: *ike, remote: found.remote_ts });
                }
            }
            Event::ChildRekeyed { old, new, .. } => {
                let mut known = self.known();
                if let Some(up) = known.up.remove(old) {
                    known.up.insert(*new, up);
                }
            }
            Event::ChildDown { child, .. } => _ = self.known().up.remove(child),
            Event::IkeRekeyed { old, new } => {
                let mut known = self.known();
                known.up.values_mut().filter(|up| up.ike == *old).for_each(|up| up.ike = *new);
            }
            Event::IkeDown { ike, .. } => self.known().up.retain(|_, up| up.ike != *ike),
            _ => {}
        }
    }

    /// True if what is asked about a peer of `connection` goes to `address` round tunnels: none that is up covers the
    /// address, and the narrowest that would is of that connection.
    pub(crate) fn goes_round(&self, connection: &str, address: IpAddr) -> bool {
        let known = self.known();
        if known.up.values().any(|up| width(&up.remote, address).is_some()) {
            return false;
        }
        let widths = known.configured.iter().filter_map(|child| {
            let is_own = child.connection == connection;
            // The own one comes before others that are as narrow.
            let width = width(&child.remote, address).filter(|_| is_own || child.returns)?;
            Some((width, !is_own))
        });
        widths.min().is_some_and(|(_, is_other)| !is_other)
    }
}

/// The selectors of `spec`: the peer's addresses instead of `dynamic`, as far as they are known.
fn resolved<'a>(
    spec: &'a TsSpec,
    connection: &'a ConnectionConfig,
) -> impl Iterator<Item = TrafficSelector> + 'a {
    let fixed = match spec {
        TsSpec::Fixed(ts) => Some(*ts),
        TsSpec::Dynamic { .. } => None,
    };
    let hosts = connection.remote_addrs.iter().filter_map(|peer| peer.host());
    let hosts = hosts.filter(move |_| fixed.is_none());
    fixed.into_iter().chain(hosts.map(|host| spec.resolve(host)))
}

/// How wide the narrowest of `selectors` is that covers `address`, whatever ports it is for.
fn width(selectors: &[TrafficSelector], address: IpAddr) -> Option<u32> {
    let covers = |ts: &&TrafficSelector| {
        ts.start.is_ipv4() == address.is_ipv4() && (ts.start..=ts.end).contains(&address)
    };
    selectors.iter().filter(covers).map(address_bits).min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ike_proto::config::{AddressSpec, ChildConfig};

    use super::*;

    fn connection(name: &str, remote: &str, action: Action) -> Arc<ConnectionConfig> {
        let mut connection = ConnectionConfig::new(name);
        connection.remote_addrs = vec![AddressSpec::single("192.0.2.7".parse().unwrap())];
        let mut child = ChildConfig::new("net");
        child.start_action = action;
        child.remote_ts = match remote {
            "dynamic" => vec![TsSpec::DYNAMIC],
            fixed => vec![TsSpec::Fixed(fixed.parse().unwrap())],
        };
        connection.children = vec![Arc::new(child)];
        Arc::new(connection)
    }

    fn ways(connections: Vec<Arc<ConnectionConfig>>) -> Ways {
        let ways = Ways::default();
        ways.configure(&EndpointConfig { connections, ..EndpointConfig::default() });
        ways
    }

    /// Faults: in `goes_round`, do not ask what is up; leave out `is_other`; take the widest.
    #[test]
    fn a_fetch_goes_round_the_tunnel_of_its_own_peer_alone() {
        let all = connection("all", "0.0.0.0/0", Action::Start);
        let net = connection("net", "10.2.0.0/16", Action::Trap);
        let manual = connection("manual", "10.2.3.0/24", Action::None);
        let host = connection("host", "dynamic", Action::Trap);
        let ways = ways(vec![all, net, manual, host]);
        let round = |name, address: &str| ways.goes_round(name, address.parse().unwrap());
        assert!(round("all", "198.51.100.1") && round("net", "10.2.3.4"));
        assert!(round("host", "192.0.2.7") && round("manual", "10.2.3.4"));
        assert!(!round("net", "198.51.100.1"), "it is none of its business");
        assert!(!round("all", "10.2.3.4"), "another tunnel protects it, and is down");
        assert!(!round("all", "2001:db8::1"), "nothing covers it");
        let remote = vec!["0.0.0.0/0".parse().unwrap()];
        ways.known().up.insert(ChildSaId(1), Up { ike: IkeSaId(1), remote });
        assert!(!round("all", "198.51.100.1") && !round("net", "10.2.3.4"), "a tunnel has it");
    }

    /// Two gateways that stand in for each other.
    ///
    /// Fault: in `goes_round`, let others come before the own one.
    #[test]
    fn two_full_tunnels_do_not_keep_each_other_down() {
        let one = |name| connection(name, "0.0.0.0/0", Action::Start);
        let ways = ways(vec![one("a"), one("b")]);
        let address = "198.51.100.1".parse().unwrap();
        assert!(ways.goes_round("a", address) && ways.goes_round("b", address));
    }
}
