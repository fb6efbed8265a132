//! Which tunnels cover the server of a fetch, and so which fetches leave outside the tunnels.
//!
//! The daemon fetches revocation information about a peer before the peer's tunnel is up. The block of that tunnel would
//! stop the fetch, and the tunnel would never come up. So such a fetch leaves outside the tunnel, in clear. A tunnel that
//! is up carries the fetch, unless a narrower block covers the server. A tunnel that is down stops the fetches about other
//! peers. A child with `mode = drop` stops every fetch. A child that goes on from an earlier run counts as up for a while.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ike_proto::config::EndpointConfig;
use ike_proto::dataplane::TrafficSelector;
use ike_proto::dataplane::precedence::address_bits;
use ike_proto::{ChildSaId, Endpoint, Event, IkeSaId};
use ike_tokio::Adopted;

/// How long SAs of an earlier run count as a tunnel that is up. This run has no IKE SA that would show that they end
/// nowhere, and their tunnel would then wait for a fetch through itself.
const KEPT: Duration = Duration::from_secs(30);

/// What the configured children protect, and what the children that are up protect.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    configured: Vec<Configured>,
    /// What children with `mode = drop` drop.
    dropped: Vec<TrafficSelector>,
    up: HashMap<ChildSaId, Up>,
    /// Children that go on from an earlier run, and are not up in this one.
    kept: Vec<Kept>,
}

/// A child of an earlier run.
#[derive(Debug)]
struct Kept {
    connection: String,
    child: String,
    remote: Vec<TrafficSelector>,
    until: Instant,
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

impl Coverage {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a new configuration.
    pub(crate) fn configure(&self, config: &EndpointConfig) {
        let children = config.connections.iter().flat_map(|connection| {
            let peers = || connection.remote_addrs.iter().filter_map(|peer| peer.host());
            connection.children.iter().map(move |child| Configured {
                connection: connection.name.clone(),
                remote: child.remote_ts.iter().flat_map(|spec| spec.resolved(peers())).collect(),
                // Packets that match a trap wait.
                blocks: child.blocks_from().is_some() || child.wants_trap(),
            })
        });
        let configured = children.collect();
        let drops = config.shunts.iter().filter(|shunt| shunt.drop);
        let dropped = drops.flat_map(|shunt| shunt.remote_ts.iter().copied()).collect();
        let mut known = self.known();
        (known.configured, known.dropped) = (configured, dropped);
    }

    /// Takes note of children of `config` that go on from an earlier run.
    pub(crate) fn keep(&self, adopted: &[Adopted], config: &EndpointConfig, now: Instant) {
        let kept = adopted.iter().filter_map(|one| {
            let Adopted { connection, child, remote, .. } = one;
            let of = config.connections.iter().find(|of| of.name == *connection)?;
            let of = of.children.iter().find(|of| of.name == *child)?;
            let remote = of.remote_ts.iter().map(|spec| spec.resolve(*remote)).collect();
            let (connection, child) = (connection.clone(), child.clone());
            Some(Kept { connection, child, remote, until: now + KEPT })
        });
        self.known().kept = kept.collect();
    }

    /// Takes note of an event of `endpoint`.
    pub(crate) fn note(&self, event: &Event, endpoint: &Endpoint) {
        match event {
            Event::ChildUp { ike, child } => {
                if let Some(status) = endpoint.ike_sa(*ike)
                    && let Some(found) = status.children.into_iter().find(|it| it.id == *child)
                {
                    let mut known = self.known();
                    let is = |kept: &Kept| {
                        kept.connection == status.connection && kept.child == found.name
                    };
                    known.kept.retain(|kept| !is(kept));
                    known.up.insert(*child, Up { ike: *ike, remote: found.remote_ts });
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

    /// True if a fetch about a peer of `connection` goes to `server` outside the tunnels: no tunnel that is up covers the
    /// server, and of the children that are down and cover it, the narrowest is of this connection.
    pub(crate) fn goes_outside(&self, connection: &str, server: SocketAddr) -> bool {
        let (known, address) = (self.known(), server.ip());
        if known.dropped.iter().any(|ts| is_for(ts, server)) {
            return false;
        }
        let (blocked, up) = known.widths(address);
        // A block that is narrower than every tunnel that is up has precedence.
        if up.is_some_and(|up| blocked.is_none_or(|blocked| up <= blocked)) {
            return false;
        }
        let widths = known.configured.iter().filter_map(|child| {
            let is_own = child.connection == connection;
            // Of equally narrow children the peer's own one has precedence.
            let width = width(&child.remote, address).filter(|_| is_own || child.blocks)?;
            Some((width, !is_own))
        });
        widths.min().is_some_and(|(_, is_other)| !is_other)
    }

    /// True if a child that is down may hold what goes to `server` by the routes of the system.
    #[cfg_attr(not(any(test, feature = "radius")), expect(dead_code, reason = "RADIUS alone asks"))]
    pub(crate) fn holds(&self, server: IpAddr) -> bool {
        let (blocked, up) = self.known().widths(server);
        blocked.is_some_and(|blocked| up.is_none_or(|up| blocked < up))
    }
}

impl Known {
    /// The widths of the narrowest block and of the narrowest tunnel that is up that cover `address`.
    fn widths(&self, address: IpAddr) -> (Option<u32>, Option<u32>) {
        let blocks = self.configured.iter().filter(|child| child.blocks);
        let blocked = blocks.filter_map(|child| width(&child.remote, address)).min();
        let now = Instant::now();
        let kept = self.kept.iter().filter(|kept| now < kept.until).map(|kept| &kept.remote);
        let up = self.up.values().map(|up| &up.remote).chain(kept);
        (blocked, up.filter_map(|remote| width(remote, address)).min())
    }
}

/// True if packets of TCP or UDP to `server` are among those of `ts`.
fn is_for(ts: &TrafficSelector, server: SocketAddr) -> bool {
    width(std::slice::from_ref(ts), server.ip()).is_some()
        && matches!(ts.protocol, 0 | TCP | UDP)
        && (ts.start_port..=ts.end_port).contains(&server.port())
}

/// The width of the narrowest of `selectors` that covers `address`. Ports do not matter.
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

    use ike_proto::config::{
        Action, AddressSpec, ChildConfig, ConnectionConfig, FailureShunt, ShuntConfig, TsSpec,
    };

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

    fn coverage(connections: Vec<Arc<ConnectionConfig>>) -> Coverage {
        let coverage = Coverage::default();
        coverage.configure(&EndpointConfig { connections, ..EndpointConfig::default() });
        coverage
    }

    fn server(address: &str, port: u16) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), port)
    }

    /// Faults: in `goes_outside`, do not ask what is up, or take it however wide it is; leave out `is_other`; take the widest.
    #[test]
    fn a_fetch_leaves_outside_the_tunnel_of_its_own_peer_alone() {
        let all = connection("all", "0.0.0.0/0", Action::Start);
        let net = connection("net", "10.2.0.0/16", Action::Trap);
        let manual = connection("manual", "10.2.3.0/24", Action::None);
        let host = connection("host", "dynamic", Action::Trap);
        let coverage = coverage(vec![all, net, manual, host]);
        let outside = |name, address: &str| coverage.goes_outside(name, server(address, 80));
        assert!(outside("all", "198.51.100.1") && outside("net", "10.2.3.4"));
        assert!(outside("host", "192.0.2.7") && outside("manual", "10.2.3.4"));
        assert!(!outside("net", "198.51.100.1"), "its own tunnel does not cover the server");
        assert!(!outside("all", "10.2.3.4"), "another tunnel protects it, and is down");
        assert!(!outside("all", "2001:db8::1"), "nothing covers it");
        let remote = vec!["0.0.0.0/0".parse().unwrap()];
        coverage.known().up.insert(ChildSaId(1), Up { ike: IkeSaId(1), remote });
        assert!(!outside("all", "198.51.100.1"), "a tunnel has it");
        assert!(outside("net", "10.2.3.4"), "the block is narrower than the tunnel");
        assert!(!outside("all", "10.2.3.4"), "the narrower one is another's");
        let remote = vec!["10.2.0.0/16".parse().unwrap()];
        coverage.known().up.insert(ChildSaId(2), Up { ike: IkeSaId(2), remote });
        assert!(!outside("net", "10.2.3.4") && !outside("manual", "10.2.3.4"), "a tunnel has it");
    }

    /// After a restart with `--keep-sas`.
    ///
    /// Faults: in `widths`, do not ask what is kept, or take it for ever.
    #[test]
    fn a_child_of_an_earlier_run_has_the_fetch_for_a_while() {
        let all = connection("all", "0.0.0.0/0", Action::Start);
        let config = EndpointConfig { connections: vec![all], ..EndpointConfig::default() };
        let outside = |kept: &[Adopted], since| {
            let coverage = Coverage::default();
            coverage.configure(&config);
            coverage.keep(kept, &config, since);
            coverage.goes_outside("all", server("198.51.100.1", 80))
        };
        let kept = |child: &str| {
            let (local, remote) = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
            Adopted { connection: "all".into(), child: child.into(), local, remote }
        };
        let now = Instant::now();
        assert!(!outside(&[kept("net")], now));
        assert!(outside(&[kept("other")], now) && outside(&[], now));
        let before = now.checked_sub(KEPT).expect("the host is up for a minute");
        assert!(outside(&[kept("net")], before));
    }

    /// Faults: in `holds`, do not ask what is up, or take it however wide it is.
    #[test]
    fn a_server_is_held_while_no_tunnel_that_is_as_narrow_is_up() {
        let net = connection("net", "10.2.0.0/16", Action::Start);
        let manual = connection("manual", "10.3.0.0/16", Action::None);
        let coverage = coverage(vec![net, manual]);
        let holds = |address: &str| coverage.holds(address.parse().unwrap());
        assert!(holds("10.2.3.4") && !holds("10.3.3.4") && !holds("198.51.100.1"));
        let up = |id, remote: &str| {
            let up = Up { ike: IkeSaId(id), remote: vec![remote.parse().unwrap()] };
            coverage.known().up.insert(ChildSaId(id), up);
        };
        up(1, "10.0.0.0/8");
        assert!(holds("10.2.3.4"));
        up(2, "10.2.0.0/16");
        assert!(!holds("10.2.3.4"));
    }

    /// Faults: in `goes_outside`, do not ask what is dropped; in `is_for`, leave the ports out.
    #[test]
    fn what_is_dropped_is_not_fetched_outside() {
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
        let coverage = Coverage::default();
        let connections = vec![connection("all", "0.0.0.0/0", Action::Start)];
        let shunts = vec![drop, pass];
        coverage.configure(&EndpointConfig { connections, shunts, ..EndpointConfig::default() });
        assert!(!coverage.goes_outside("all", server("198.51.100.1", 53)));
        assert!(coverage.goes_outside("all", server("198.51.100.1", 80)));
        assert!(coverage.goes_outside("all", server("203.0.113.1", 53)));
    }

    /// Faults: in `Coverage::configure`, let each child block; leave the trap out.
    #[test]
    fn a_child_that_never_blocks_keeps_no_fetch() {
        let mut net = connection("net", "10.2.0.0/16", Action::Start);
        let outside = |net: &Arc<ConnectionConfig>| {
            let all = connection("all", "0.0.0.0/0", Action::Start);
            coverage(vec![all, Arc::clone(net)]).goes_outside("all", server("10.2.3.4", 80))
        };
        assert!(!outside(&net));
        let change = |net: &mut Arc<ConnectionConfig>, change: fn(&mut ChildConfig)| {
            change(Arc::make_mut(&mut Arc::make_mut(net).children[0]));
        };
        change(&mut net, |child| child.failure_shunt = FailureShunt::Passthrough);
        assert!(outside(&net));
        change(&mut net, |child| child.start_action = Action::Trap);
        assert!(!outside(&net), "what a trap takes waits for its own tunnel");
    }

    /// Two full tunnels to two gateways, of which one is a backup.
    ///
    /// Fault: in `goes_outside`, let others come before the own one.
    #[test]
    fn two_full_tunnels_do_not_keep_each_other_down() {
        let one = |name| connection(name, "0.0.0.0/0", Action::Start);
        let coverage = coverage(vec![one("a"), one("b")]);
        let address = server("198.51.100.1", 80);
        assert!(coverage.goes_outside("a", address) && coverage.goes_outside("b", address));
    }
}
