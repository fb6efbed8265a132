//! What the names of a command mean: connections, children and SAs.

use std::collections::BTreeSet;
use std::sync::Arc;

use ike_config::{HostSpec, Hosts};
use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig};
use ike_proto::{ChildSaId, ChildState, IkeSaId, IkeState};
use ike_tokio::{ChildView, IkeView, Target};

use crate::error::OperatorError;
use crate::program::Configuration;

/// The SAs a command is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) ikes: Vec<IkeSaId>,
    pub(super) children: Vec<ChildSaId>,
}

/// Connection and child that `up` means.
pub(super) fn to_initiate(
    config: &Configuration,
    target: &Target,
) -> Result<(String, Option<String>), OperatorError> {
    let connections = &config.endpoint.connections;
    let with_child = |name: &str| -> Vec<&str> {
        let holding = connections.iter().filter(|c| c.child(name).is_some());
        let wanted = |c: &&str| target.ike.as_deref().is_none_or(|ike| ike == *c);
        holding.map(|c| c.name.as_str()).filter(wanted).collect()
    };
    if let Some(ike) = &target.ike
        && !connections.iter().any(|c| c.name == *ike)
    {
        return Err(OperatorError::Unknown(ike.clone()));
    }
    let child = target.child.as_ref().or(target.name.as_ref());
    let Some(child) = child else {
        return match &target.ike {
            Some(ike) => Ok((ike.clone(), None)),
            None => Err(OperatorError::NoName),
        };
    };
    match with_child(child).as_slice() {
        [connection] => Ok(((*connection).to_owned(), Some(child.clone()))),
        [] if target.child.is_none() && connections.iter().any(|c| c.name == *child) => {
            Ok((child.clone(), None))
        }
        [] => Err(OperatorError::Unknown(child.clone())),
        several => Err(OperatorError::Ambiguous {
            child: child.clone(),
            connections: several.iter().map(|&name| name.to_owned()).collect(),
        }),
    }
}

/// What `up --all` means: connection and child.
pub(super) fn not_up(config: &Configuration, views: &[IkeView]) -> Vec<(String, Option<String>)> {
    let up: BTreeSet<(String, String)> = views.iter().flat_map(names_of).collect();
    let alive: BTreeSet<&str> = views.iter().map(|v| v.status.connection.as_str()).collect();
    let mut wanted = Vec::new();
    for connection in &config.endpoint.connections {
        if !config.hosts.get(&connection.name).is_some_and(has_peer) {
            continue;
        }
        let name = &connection.name;
        if connection.children.is_empty() && !alive.contains(name.as_str()) {
            wanted.push((name.clone(), None));
        }
        let down = |child: &&str| !up.contains(&(name.clone(), (*child).to_owned()));
        let children = connection.children.iter().map(|child| child.name.as_str()).filter(down);
        wanted.extend(children.map(|child| (name.clone(), Some(child.to_owned()))));
    }
    wanted
}

/// True if there is an address, or a name of one, to initiate to.
fn has_peer(hosts: &Hosts) -> bool {
    hosts.remote.iter().any(|host| match host {
        HostSpec::Address(spec) => spec.host().is_some(),
        HostSpec::Name(_) => true,
    })
}

/// The SAs that `target` means.
pub(super) fn choose(views: &[IkeView], target: &Target) -> Result<Chosen, OperatorError> {
    // What is replaced or on its way out is nobody's to command any more.
    let live =
        views.iter().filter(|v| !matches!(v.status.state, IkeState::Rekeyed | IkeState::Deleting));
    let live = live.filter(|v| target.ike_id.is_none_or(|id| v.status.id.0 == id));
    let ikes = |name: Option<&str>| -> Vec<IkeSaId> {
        let named = live.clone().filter(|v| name.is_none_or(|name| v.status.connection == name));
        named.map(|v| v.status.id).collect()
    };
    let children = |name: Option<&str>| -> Vec<ChildSaId> {
        let wanted =
            |v: &&IkeView| target.ike.as_ref().is_none_or(|ike| *ike == v.status.connection);
        let children = live.clone().filter(wanted).flat_map(|v| &v.children);
        let named = children.filter(|c| {
            name.is_none_or(|name| c.status.name == name)
                && target.child_id.is_none_or(|id| c.status.id.0 == id)
                && !matches!(c.status.state, ChildState::Rekeyed | ChildState::Deleting)
        });
        named.map(|c| c.status.id).collect()
    };
    let by_child = |name| Chosen { ikes: Vec::new(), children: children(name) };
    let chosen = match (&target.name, &target.ike, &target.child) {
        (None, _, None) if target.child_id.is_some() => by_child(None),
        (None, None, None) if target.ike_id.is_some() => {
            Chosen { ikes: ikes(None), children: Vec::new() }
        }
        (None, Some(ike), None) => Chosen { ikes: ikes(Some(ike)), children: Vec::new() },
        (None, _, Some(child)) | (Some(child), Some(_), None) => by_child(Some(child)),
        (Some(name), None, None) => {
            let both = Chosen { ikes: ikes(Some(name)), children: children(Some(name)) };
            if !both.ikes.is_empty() && !both.children.is_empty() {
                return Err(OperatorError::ConnectionAndChild(name.clone()));
            }
            both
        }
        _ => return Err(OperatorError::NoName),
    };
    if chosen == Chosen::default() {
        let name = target.child.as_ref().or(target.name.as_ref()).or(target.ike.as_ref());
        let number = target.child_id.or(target.ike_id).map(|number| format!("number {number}"));
        let named = name.cloned().or(number).unwrap_or_default();
        return Err(OperatorError::NoSa(named));
    }
    Ok(chosen)
}

/// Connection and name of each child that is up on an SA that is not in `chosen`.
pub(super) fn kept(views: &[IkeView], chosen: &Chosen) -> BTreeSet<(String, String)> {
    let others = views.iter().filter(|view| !chosen.ikes.contains(&view.status.id));
    let children = others.flat_map(|view| view.children.iter().map(move |child| (view, child)));
    let up = children.filter(|(_, child)| {
        child.status.state != ChildState::Deleting && !chosen.children.contains(&child.status.id)
    });
    up.map(|(view, child)| (view.status.connection.clone(), child.status.name.clone())).collect()
}

/// The children that `target` selects by name, without those in `kept`.
pub(super) fn all_but(
    target: &Target,
    kept: &BTreeSet<(String, String)>,
    config: &EndpointConfig,
) -> Vec<Target> {
    let names = meant(target, config);
    let names = names.map(|(connection, child)| (connection.name.clone(), child.name.clone()));
    let one = |(connection, child)| Target {
        ike: Some(connection),
        child: Some(child),
        ..Target::default()
    };
    names.filter(|name| !kept.contains(name)).map(one).collect()
}

/// The configured children that `target` means by name, each with its connection. A number is that of an SA.
pub(super) fn meant<'c>(
    target: &Target,
    config: &'c EndpointConfig,
) -> impl Iterator<Item = (&'c Arc<ConnectionConfig>, &'c Arc<ChildConfig>)> {
    let Target { name, ike, child, ike_id, child_id } = target.clone();
    let by_name = ike_id.is_none() && child_id.is_none();
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
    let all =
        config.connections.iter().filter(move |_| by_name).flat_map(|connection| {
            connection.children.iter().map(move |child| (connection, child))
        });
    all.filter(move |(connection, of)| {
        let any = name.as_ref().is_none_or(|name| *name == connection.name || *name == of.name);
        any && is(&ike, &connection.name) && is(&child, &of.name)
    })
}

/// The children that are up and are as they are configured now, by connection and name. `find` finds connections.
pub(super) fn up_as_configured<'a>(
    views: &'a [IkeView],
    find: impl Fn(&str) -> Option<&'a ConnectionConfig>,
) -> BTreeSet<(&'a str, &'a str)> {
    let of_one = |view: &'a IkeView| {
        let connection = &*view.status.connection;
        let configured = find(connection);
        let is_present = move |child: &&'a ChildView| {
            let present = configured.and_then(|found| found.child(&child.status.name));
            present.is_some_and(|present| child.status.config.asks_same_as(present))
        };
        let present = view.children.iter().filter(is_present);
        present.map(move |child| (connection, &*child.status.name))
    };
    views.iter().flat_map(of_one).collect()
}

/// The names of the connection and of each child of an IKE SA.
pub(super) fn names_of(view: &IkeView) -> Vec<(String, String)> {
    let connection = &view.status.connection;
    view.children.iter().map(|child| (connection.clone(), child.status.name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults: in `all_but`, leave `kept` out; do not look at `ike`.
    #[test]
    fn what_is_up_again_is_left_out() {
        let connection = |name: &str| {
            let mut connection = ConnectionConfig::new(name);
            let children = ["a", "b"].map(|name| Arc::new(ChildConfig::new(name)));
            connection.children = children.into();
            Arc::new(connection)
        };
        let connections = vec![connection("one"), connection("two")];
        let config = EndpointConfig { connections, ..EndpointConfig::default() };
        let text = |text: &str| Some(text.to_owned());
        let kept = BTreeSet::from([("one".to_owned(), "a".to_owned())]);
        let of = |target: Target| -> Vec<String> {
            let all = all_but(&target, &kept, &config).into_iter();
            all.map(|one| [one.ike.unwrap(), one.child.unwrap()].join(" ")).collect()
        };
        assert_eq!(of(Target { ike: text("one"), ..Target::default() }), ["one b"]);
        assert_eq!(of(Target { name: text("a"), ..Target::default() }), ["two a"]);
        assert_eq!(of(Target { child: text("b"), ..Target::default() }), ["one b", "two b"]);
        assert_eq!(of(Target { ike_id: Some(1), ..Target::default() }), [""; 0]);
    }
}
