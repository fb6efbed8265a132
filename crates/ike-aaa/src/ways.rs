//! Which fetches go round tunnels.
//!
//! Revocation information about a peer is asked for before its tunnel is up. What blocks the traffic of that tunnel would
//! block the question too, and the tunnel would never come up. So such a fetch goes round the tunnel, in clear. A tunnel
//! that is up has the fetch, unless what blocks it is narrower. One that is down keeps the fetches for other peers. What the
//! operator has dropped goes nowhere.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ike_proto::config::{
    Action, ChildConfig, ConnectionConfig, EndpointConfig, FailureShunt, TsSpec,
};
use ike_proto::dataplane::TrafficSelector;
use ike_proto::dataplane::precedence::address_bits;
use ike_proto::{ChildSaId, Endpoint, Event, IkeSaId};

/// What children protect by configuration, and what those that are up do.
#[derive(Debug, Default)]
pub(crate) struct Ways(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    configured: Vec<Configured>,
    /// Where nothing is to go.
    dropped: Vec<TrafficSelector>,
    up: HashMap<ChildSaId, Up>,
}

/// A child of the configuration.
#[derive(Debug)]
struct Configured {
    connection: String,
    remote: Vec<TrafficSelector>,
    /// Its traffic may be blocked while it is down.
    blocks: bool,
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
                blocks: blocks(child),
            })
        });
        let configured = children.collect();
        let drops = config.shunts.iter().filter(|shunt| shunt.drop);
        let dropped = drops.flat_map(|shunt| shunt.remote_ts.iter().copied()).collect();
        let mut known = self.known();
        (known.configured, known.dropped) = (configured, dropped);
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

    /// True if what is asked about a peer of `connection` goes to `server` round tunnels: none that is up has it, and the
    /// narrowest that would is of that connection.
    pub(crate) fn goes_round(&self, connection: &str, server: SocketAddr) -> bool {
        let (known, address) = (self.known(), server.ip());
        if known.dropped.iter().any(|ts| is_for(ts, server)) {
            return false;
        }
        let blocks = known.configured.iter().filter(|child| child.blocks);
        let blocked = blocks.filter_map(|child| width(&child.remote, address)).min();
        let up = known.up.values().filter_map(|up| width(&up.remote, address)).min();
        // A block that is narrower than all tunnels comes before them.
        if up.is_some_and(|up| blocked.is_none_or(|blocked| up <= blocked)) {
            return false;
        }
        let widths = known.configured.iter().filter_map(|child| {
            let is_own = child.connection == connection;
            // The own one comes before others that are as narrow.
            let width = width(&child.remote, address).filter(|_| is_own || child.blocks)?;
            Some((width, !is_own))
        });
        widths.min().is_some_and(|(_, is_other)| !is_other)
    }
}

/// True if traffic of `child` may be blocked, or wait, while it is down.
fn blocks(child: &ChildConfig) -> bool {
    let actions = [child.start_action, child.close_action, child.dpd_action];
    match child.failure_shunt {
        FailureShunt::Passthrough => actions.contains(&Action::Trap),
        FailureShunt::Auto => actions.iter().any(|action| *action != Action::None),
        FailureShunt::Reject | FailureShunt::Drop => true,
    }
}

/// True if packets of TCP or UDP to `server` are among those of `ts`.
fn is_for(ts: &TrafficSelector, server: SocketAddr) -> bool {
    width(std::slice::from_ref(ts), server.ip()).is_some()
        && matches!(ts.protocol, 0 | TCP | UDP)
        && (ts.start_port..=ts.end_port).contains(&server.port())
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

const TCP: u8 = 6;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ike_proto::config::{AddressSpec, ShuntConfig};

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

    fn server(address: &str, port: u16) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), port)
    }

    /// Faults: in `goes_round`, do not ask what is up, or take it however wide it is; leave out `is_other`; take the widest.
    #[test]
    fn a_fetch_goes_round_the_tunnel_of_its_own_peer_alone() {
        let all = connection("all", "0.0.0.0/0", Action::Start);
        let net = connection("net", "10.2.0.0/16", Action::Trap);
        let manual = connection("manual", "10.2.3.0/24", Action::None);
        let host = connection("host", "dynamic", Action::Trap);
        let ways = ways(vec![all, net, manual, host]);
        let round = |name, address: &str| ways.goes_round(name, server(address, 80));
        assert!(round("all", "198.51.100.1") && round("net", "10.2.3.4"));
        assert!(round("host", "192.0.2.7") && round("manual", "10.2.3.4"));
        assert!(!round("net", "198.51.100.1"), "it is none of its business");
        assert!(!round("all", "10.2.3.4"), "another tunnel protects it, and is down");
        assert!(!round("all", "2001:db8::1"), "nothing covers it");
        let remote = vec!["0.0.0.0/0".parse().unwrap()];
        ways.known().up.insert(ChildSaId(1), Up { ike: IkeSaId(1), remote });
        assert!(!round("all", "198.51.100.1"), "a tunnel has it");
        assert!(round("net", "10.2.3.4"), "the block is narrower than the tunnel");
        assert!(!round("all", "10.2.3.4"), "the narrower one is another's");
        let remote = vec!["10.2.0.0/16".parse().unwrap()];
        ways.known().up.insert(ChildSaId(2), Up { ike: IkeSaId(2), remote });
        assert!(!round("net", "10.2.3.4") && !round("manual", "10.2.3.4"), "a tunnel has it");
    }

    /// Faults: in `goes_round`, do not ask what is dropped; in `is_for`, leave the ports out.
    #[test]
    fn what_is_dropped_goes_round_nothing() {
        let drop = ShuntConfig {
            connection: "none".into(),
            child: "drop".into(),
            drop: true,
            local_ts: vec!["0.0.0.0/0".parse().unwrap()],
            remote_ts: vec!["198.51.100.0/24[udp/53]".parse().unwrap()],
            priority: 0,
            processing: Arc::default(),
        };
        let pass = ShuntConfig { drop: false, remote_ts: drop.local_ts.clone(), ..drop.clone() };
        let ways = Ways::default();
        let connections = vec![connection("all", "0.0.0.0/0", Action::Start)];
        let shunts = vec![drop, pass];
        ways.configure(&EndpointConfig { connections, shunts, ..EndpointConfig::default() });
        assert!(!ways.goes_round("all", server("198.51.100.1", 53)));
        assert!(ways.goes_round("all", server("198.51.100.1", 80)));
        assert!(ways.goes_round("all", server("203.0.113.1", 53)));
    }

    /// Faults: in `blocks`, do not look at `failure_shunt`; leave the trap out.
    #[test]
    fn a_child_that_never_blocks_keeps_no_fetch() {
        let mut net = connection("net", "10.2.0.0/16", Action::Start);
        let round = |net: &Arc<ConnectionConfig>| {
            let all = connection("all", "0.0.0.0/0", Action::Start);
            ways(vec![all, Arc::clone(net)]).goes_round("all", server("10.2.3.4", 80))
        };
        assert!(!round(&net));
        let change = |net: &mut Arc<ConnectionConfig>, change: fn(&mut ChildConfig)| {
            change(Arc::make_mut(&mut Arc::make_mut(net).children[0]));
        };
        change(&mut net, |child| child.failure_shunt = FailureShunt::Passthrough);
        assert!(round(&net));
        change(&mut net, |child| child.start_action = Action::Trap);
        assert!(!round(&net), "what a trap takes waits for its own tunnel");
    }

    /// Two gateways that stand in for each other.
    ///
    /// Fault: in `goes_round`, let others come before the own one.
    #[test]
    fn two_full_tunnels_do_not_keep_each_other_down() {
        let one = |name| connection(name, "0.0.0.0/0", Action::Start);
        let ways = ways(vec![one("a"), one("b")]);
        let address = server("198.51.100.1", 80);
        assert!(ways.goes_round("a", address) && ways.goes_round("b", address));
    }
}
