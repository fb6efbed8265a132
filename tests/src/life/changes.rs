//! Changes in a life: either end takes another configuration at any moment, as its operator would. The program around
//! the engine then installs traps, as `start_actions` does.

use std::sync::Arc;

use ike_proto::Command;
use ike_proto::config::{
    Action, ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey, TsSpec,
};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{PolicyAction, TrafficSelector};

use crate::host::Host;
use crate::pair::{A, B, Pair};
use crate::random::Seeded;
use crate::setup::{Setup, address};

/// The configurations of both ends, and what draws the changes.
pub(super) struct Changes {
    rng: Seeded,
    first: [EndpointConfig; 2],
    now: [EndpointConfig; 2],
}

/// A trap: the child, and what it protects at the peer.
type Trapped = (String, Vec<TrafficSelector>);

impl Changes {
    /// Those of one pair in five.
    pub(super) fn draw(setup: &Setup) -> Option<Self> {
        let rng = Seeded::new(setup.seed ^ 0x6368_616e);
        let both = || [setup.a.config(), setup.b.config()];
        (setup.seed % 5 == 3).then(|| Self { rng, first: both(), now: both() })
    }

    /// One end takes another configuration, or the same once more. The commands for its engine.
    pub(super) fn change(&mut self) -> Option<(usize, Vec<Command>)> {
        if !self.rng.chance(400) {
            return None;
        }
        let host = if self.rng.chance(500) { A } else { B };
        let what = self.rng.below(6);
        let child = self.rng.below(3);
        let first = Arc::clone(&self.first[host].connections[0]);
        let config = &mut self.now[host];
        match what {
            // The same again.
            0 => {}
            // It changes at one end first, and perhaps at that one alone.
            1 => {
                let other = PreSharedKey { ids: Vec::new(), secret: Secret::copy_from(b"another") };
                let changed = config.secrets.iter().any(|key| key.ids.is_empty());
                config.secrets = match changed {
                    true => self.first[host].secrets.clone(),
                    false => vec![Arc::new(other)],
                };
            }
            // A child goes, or comes back. The first one stays.
            2 => {
                let name = first.children[1 + usize::from(child == 2)].name.clone();
                let connection = Arc::make_mut(&mut config.connections[0]);
                match connection.child(&name).is_some() {
                    true => connection.children.retain(|child| child.name != name),
                    false => connection.children.extend(first.child(&name).cloned()),
                }
            }
            _ => {
                let name = first.children[usize::try_from(child).unwrap_or_default()].name.clone();
                let connection = Arc::make_mut(&mut config.connections[0]);
                let found = connection.children.iter_mut().find(|child| child.name == name);
                let was = first.child(&name);
                if let (Some(child), Some(was)) = (found, was) {
                    vary(Arc::make_mut(child), was, what);
                }
            }
        }
        Some((host, self.commands(host)))
    }

    /// Both ends go back to what they had first.
    pub(super) fn undo(&mut self) -> [(usize, Vec<Command>); 2] {
        self.now = self.first.clone();
        [A, B].map(|host| (host, self.commands(host)))
    }

    fn commands(&self, host: usize) -> Vec<Command> {
        let (local, remote) = if host == A { (1, 2) } else { (2, 1) };
        let config = self.now[host].clone();
        let install = |child: &Arc<ChildConfig>| Command::InstallTrap {
            connection: "ab".to_owned(),
            child: child.name.clone(),
            local: address(local),
            remote: address(remote),
        };
        let traps: Vec<_> = trapping(&config.connections[0]).map(install).collect();
        std::iter::once(Command::Reload(Box::new(config))).chain(traps).collect()
    }

    /// What is wrong with the traps of `host`: they are those of a fresh start with its configuration, whatever is up.
    ///
    /// Fault: in `traps::reload` of the engine, keep traps that are `Gone`: a trap stays that was removed from the file.
    pub(super) fn wrong(&self, pair: &Pair, host: usize) -> Option<String> {
        let (mut wanted, mut found) = (self.wanted(host), traps(&pair.hosts[host]));
        wanted.sort_by(|one, other| one.0.cmp(&other.0));
        found.sort_by(|one, other| one.0.cmp(&other.0));
        (wanted != found)
            .then(|| format!("host {host} has traps {found:?}, and is configured with {wanted:?}"))
    }

    /// A trap of `host` that is not as in the configuration that the engine has. The engine changes traps at once; only the
    /// program may have to wait for the address of a peer.
    ///
    /// Fault: in `traps::reload` of the engine, take no trap for `Changed`.
    pub(super) fn stale(&self, pair: &Pair, host: usize) -> Option<String> {
        let wanted = self.wanted(host);
        let stale = traps(&pair.hosts[host]).into_iter().find(|trap| !wanted.contains(trap));
        stale.map(|stale| format!("host {host} has the trap {stale:?} of before, not {wanted:?}"))
    }

    fn wanted(&self, host: usize) -> Vec<Trapped> {
        let specs = |specs: &[TsSpec]| -> Vec<TrafficSelector> {
            specs.iter().map(|spec| spec.resolve(address(1))).collect()
        };
        let all = trapping(&self.now[host].connections[0]);
        all.map(|child| (child.name.clone(), specs(&child.remote_ts))).collect()
    }
}

/// Changes `child`, which was `was` at first.
fn vary(child: &mut ChildConfig, was: &ChildConfig, what: u64) {
    match what {
        // It becomes wider, for the peer to narrow, or as it was.
        3 => {
            let wide = TsSpec::Fixed("10.0.0.0/9".parse().expect("a selector"));
            child.remote_ts = match child.remote_ts == was.remote_ts {
                true => vec![wide],
                false => was.remote_ts.clone(),
            };
        }
        4 => child.priority ^= 7,
        _ => {
            child.start_action = match child.start_action {
                Action::Trap => Action::None,
                _ => Action::Trap,
            };
        }
    }
}

fn trapping(connection: &ConnectionConfig) -> impl Iterator<Item = &Arc<ChildConfig>> {
    connection.children.iter().filter(|child| child.start_action == Action::Trap)
}

fn traps(host: &Host) -> Vec<Trapped> {
    let policies = host.plane.table().policies();
    let traps = policies.filter(|policy| policy.action == PolicyAction::Trap);
    traps.map(|policy| (policy.child.clone(), policy.remote_ts.clone())).collect()
}
