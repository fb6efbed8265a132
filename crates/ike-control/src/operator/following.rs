//! What follows from a change of a connection, as in charon: what `start_action` had begun for the old children ends, and
//! what it says of the new ones is begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ike_config::Difference;
use ike_proto::IkeState;
use ike_proto::config::{Action, ChildConfig, ConnectionConfig};
use ike_tokio::{IkeView, Target};

use super::Operator;
use crate::program::Configuration;

/// What follows from the change of one connection.
#[derive(Debug, Clone)]
pub(super) struct Follow {
    connection: String,
    /// Children that a changed or removed configuration had started.
    end: BTreeSet<String>,
    /// Whether an IKE SA ends that has no other children. It stays for a child that is started anew, if nothing but children
    /// has changed.
    end_ike: bool,
    /// Children that are begun after that, as the configuration then in force says.
    begin: BTreeSet<String>,
}

impl Follow {
    /// Of the connection `name`, if `difference` is between what it was and what it is.
    pub(super) fn of(
        name: &str,
        difference: Difference,
        (old, new): (&Configuration, &Configuration),
    ) -> Self {
        let of = |config: &Configuration| -> Option<Arc<ConnectionConfig>> {
            config.endpoint.connections.iter().find(|connection| connection.name == name).cloned()
        };
        let changed = |child: &&Arc<ChildConfig>| match &difference {
            Difference::None => false,
            Difference::All => true,
            Difference::Children(names) => names.contains(&child.name),
        };
        let children = |connection: &Option<Arc<ConnectionConfig>>| -> Vec<Arc<ChildConfig>> {
            let all = connection.iter().flat_map(|connection| &connection.children);
            all.filter(changed).cloned().collect()
        };
        let (old, new) = (children(&of(old)), children(&of(new)));
        let started = old.iter().filter(|child| child.start_action == Action::Start);
        let starts = new.iter().any(|child| child.start_action == Action::Start);
        Self {
            connection: name.to_owned(),
            end: started.map(|child| child.name.clone()).collect(),
            end_ike: difference == Difference::All || !starts,
            begin: new.iter().map(|child| child.name.clone()).collect(),
        }
    }

    /// From a reload of a whole file: for the connections that it changes or removes.
    pub(super) fn of_reload(before: &Configuration, after: &Configuration) -> Vec<Self> {
        let new: BTreeMap<&str, _> =
            after.endpoint.connections.iter().map(|it| (&*it.name, &**it)).collect();
        let of_one = |old: &Arc<ConnectionConfig>| {
            let same_hosts = before.hosts.get(&old.name) == after.hosts.get(&old.name);
            let new = new.get(&*old.name).filter(|_| same_hosts);
            match new.map_or(Difference::All, |new| difference(old, new)) {
                Difference::None => None,
                difference => Some(Self::of(&old.name, difference, (before, after))),
            }
        };
        before.endpoint.connections.iter().filter_map(of_one).collect()
    }

    /// The name of the connection.
    pub(super) fn connection(&self) -> &str {
        &self.connection
    }

    /// The same without anything to begin.
    pub(super) fn without_begin(self) -> Self {
        Self { begin: BTreeSet::new(), ..self }
    }

    /// True if a child of `connection` is begun only after what was there before has ended. A trap never waits: its traffic
    /// would leave in clear meanwhile.
    pub(super) fn begins_later(&self, connection: &str, child: &ChildConfig) -> bool {
        child.start_action == Action::Start
            && self.connection == connection
            && self.begin.contains(&child.name)
    }

    /// What ends of `views`.
    pub(super) fn ends(&self, views: &[IkeView]) -> Vec<Target> {
        let mut targets = Vec::new();
        if self.end.is_empty() {
            return targets;
        }
        for view in views.iter().filter(|view| view.status.connection == self.connection) {
            if self.ends_ike(view) {
                targets.push(Target { ike_id: Some(view.status.id.0), ..Target::default() });
                continue;
            }
            let ours = view.children.iter().filter(|child| self.end.contains(&child.status.name));
            targets.extend(ours.map(|child| {
                let child_id = Some(child.status.id.0);
                Target { child_id, ..Target::default() }
            }));
        }
        targets
    }

    /// Takes out of `views` what ends.
    pub(super) fn leave_out(&self, views: &mut Vec<IkeView>) {
        if self.end.is_empty() {
            return;
        }
        let own = |view: &IkeView| view.status.connection == self.connection;
        views.retain(|view| !(own(view) && self.ends_ike(view)));
        for view in views.iter_mut().filter(|view| own(view)) {
            view.children.retain(|child| !self.end.contains(&child.status.name));
        }
    }

    fn ends_ike(&self, view: &IkeView) -> bool {
        let mut children = view.children.iter();
        let connecting = view.status.state == IkeState::Connecting;
        self.end_ike
            && (connecting || !view.children.is_empty())
            && children.all(|child| self.end.contains(&child.status.name))
    }
}

/// The difference between two connections of one name, of which both have the same hosts.
fn difference(old: &Arc<ConnectionConfig>, new: &ConnectionConfig) -> Difference {
    // CAs, keys and certificates stand elsewhere.
    let alone = |connection: &ConnectionConfig| {
        let mut alone = ConnectionConfig { children: Vec::new(), ..connection.clone() };
        alone.credentials = 0;
        alone.remote.iter_mut().for_each(|round| round.certreqs.clear());
        alone
    };
    if alone(old) != alone(new) {
        return Difference::All;
    }
    let differs = |name: &&str| old.child(name) != new.child(name);
    let names = old.children.iter().chain(&new.children).map(|child| &*child.name);
    let names: BTreeSet<&str> = names.collect();
    let changed: Vec<_> = names.into_iter().filter(differs).map(str::to_owned).collect();
    if changed.is_empty() { Difference::None } else { Difference::Children(changed) }
}

impl Operator {
    /// Ends and begins what `follow` says.
    pub(super) async fn follow_up(&self, follow: Follow) {
        if let Ok(views) = self.handle.list().await {
            for target in follow.ends(&views) {
                if let Err(error) = self.down(&target).await {
                    let connection = follow.connection();
                    tracing::debug!(%connection, %error, "what start_action had begun");
                }
            }
        }
        let config = self.config();
        let mut all = config.endpoint.connections.iter();
        // Another change may have come meanwhile.
        let Some(now) = all.find(|it| it.name == follow.connection) else { return };
        let children = now.children.iter().filter(|child| follow.begin.contains(&child.name));
        let children = children.map(|it| (now.name.clone(), it.name.clone(), it.start_action));
        self.begin(children.collect()).await;
    }
}
