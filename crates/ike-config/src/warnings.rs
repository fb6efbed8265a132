//! Warnings about settings that are valid, but probably a mistake.

use std::collections::HashSet;

use ike_proto::config::{
    Action, AuthConfig, ChildConfig, ConnectionConfig, IdMatch, PostQuantumKey, TsSpec,
};
use ike_proto::dataplane::{Mode, TrafficSelector};
use ike_proto::wire::payload::IdData;

use crate::settings::{BY_RADIUS, Connection, Settings};

/// Octets that a post-quantum preshared key should have at least (RFC 8784 §6).
const SHORT_PPK: usize = 32;

impl Settings {
    /// A sentence for each combination of options that is allowed, but is hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = warnings(self);
        all.extend(missing_pools(self));
        all
    }
}

/// Pools that are named and not there.
fn missing_pools(settings: &Settings) -> Vec<String> {
    let radius = settings.eap.radius.is_some();
    let configured = |name: &str| settings.pools.iter().any(|pool| pool.name == name);
    let mut missing = Vec::new();
    for Connection { config, .. } in &settings.connections {
        for name in &config.pools {
            if !(name == BY_RADIUS && radius || configured(name)) {
                let connection = &config.name;
                missing.push(format!(
                    "connection {connection}: there is no [pools.{name}], so no peer gets an address: add that section"
                ));
            }
        }
    }
    missing
}

/// True if a connection offers this PPK, or a peer may ask for it. A connection that this end starts offers what `ppk_id`
/// names and nothing else.
fn is_ppk_used(settings: &Settings, key: &PostQuantumKey) -> bool {
    let starts = |connection: &ConnectionConfig| {
        connection.children.iter().any(|child| child.start_action == Action::Start)
    };
    let uses = |connection: &ConnectionConfig| {
        let named = || key.ids.iter().any(|id| connection.ppk.covers(id));
        named() || !starts(connection) && key.ids.iter().any(|id| connection.takes_ppk(id))
    };
    settings.connections.iter().any(|connection| uses(&connection.config))
}

fn warnings(settings: &Settings) -> Vec<String> {
    let endpoint = &settings.endpoint;
    let mut warnings = Vec::new();
    for key in endpoint.ppks.iter().filter(|key| key.secret.len() < SHORT_PPK) {
        let id = key.ids.first().map(ToString::to_string).unwrap_or_default();
        warnings.push(format!(
            "the secret of PPK '{id}' has less than {SHORT_PPK} octets: make a longer one"
        ));
    }
    for key in endpoint.ppks.iter().filter(|key| !is_ppk_used(settings, key)) {
        let id = key.ids.first().map(ToString::to_string).unwrap_or_default();
        warnings.push(format!("PPK '{id}' is used by no connection: name it in a ppk_id"));
    }
    if settings.connections.is_empty() && endpoint.shunts.is_empty() {
        warnings.push("there is no [connections.<name>]".to_owned());
    }
    let named: HashSet<&IdData> = endpoint.secrets.iter().flat_map(|key| &key.ids).collect();
    let for_anybody = endpoint.secrets.iter().any(|key| key.ids.is_empty());
    for Connection { config: connection, .. } in &settings.connections {
        let name = &connection.name;
        let by_psk = |auth: &AuthConfig| *auth == AuthConfig::Psk;
        let mut needed: Vec<&IdMatch> = Vec::new();
        // A secret is looked up by the peer's identity, whoever uses it.
        if connection.local.iter().any(|round| by_psk(&round.auth)) {
            needed.push(connection.remote_id());
        }
        let remote = connection.remote.iter().filter(|round| by_psk(&round.auth));
        needed.extend(remote.map(|round| &round.id));
        let has_key = |id: &IdMatch| {
            for_anybody
                || match id {
                    IdMatch::Exact(exact) => named.contains(exact),
                    // Any of them may be asserted.
                    _ => !named.is_empty(),
                }
        };
        if !needed.into_iter().all(has_key) {
            warnings.push(format!(
                "connection {name}: no [secrets.ike-<suffix>] has the id of the remote: add that id to a secret"
            ));
        }
        let ppk = &connection.ppk;
        let found = endpoint.ppks.iter().flat_map(|key| &key.ids).any(|id| ppk.covers(id));
        if !ppk.ids.is_empty() && !found {
            warnings.push(format!(
                "connection {name}: no [secrets.ppk<suffix>] has an id that matches ppk_id: add such a secret"
            ));
        }
        warnings.extend(connection.children.iter().filter_map(|child| {
            let same = both_sides(child)?;
            Some(format!(
                "connection {name}: local_ts and remote_ts of child {} both have {same}, so that this host \
                 sends traffic for its own network to the peer: write the peer's network into remote_ts",
                child.name
            ))
        }));
        let shunts = || endpoint.shunts.iter().any(|shunt| shunt.connection == *name);
        if connection.children.is_empty() && !shunts() {
            warnings.push(format!("connection {name}: no [connections.{name}.children.<name>]"));
        }
    }
    warnings
}

/// A network that `child` has on both sides of its tunnel: as a rule one of them was copied from the peer's file and
/// not exchanged.
fn both_sides(child: &ChildConfig) -> Option<TrafficSelector> {
    let fixed = |list: &[TsSpec]| -> Vec<TrafficSelector> {
        let fixed = list.iter().filter_map(|ts| match ts {
            TsSpec::Fixed(ts) => Some(*ts),
            TsSpec::Dynamic { .. } => None,
        });
        fixed.collect()
    };
    // All addresses on both sides are for those whose routes or interfaces decide.
    let network = |ts: &TrafficSelector| ts.start != ts.end && ts.prefix_len() != Some(0);
    let tunnel = matches!(child.mode, Mode::Tunnel | Mode::Iptfs);
    let remote = fixed(&child.remote_ts);
    let mut local = fixed(&child.local_ts).into_iter().filter(|ts| tunnel && network(ts));
    local.find(|ts| remote.contains(ts))
}
