//! Shunts: traffic of children that are not up (`failureshunt`), and traffic that is not to be protected at all
//! (`mode = pass` or `drop`).
//!
//! A failure shunt is a policy of the daemon's own that applies where no other policy does. A configured failure
//! shunt is installed from the start. One that follows from the child's actions is installed once the child was
//! up, because before that the peer's name may have to be looked up through it. `down` removes it until the child
//! is up again. It is also removed when a reload removes it or its child, and when the daemon stops. A restart is not a
//! stop: what the run before has blocked stays blocked until the child is up ([`Plane::blocked`](super::Plane::blocked)).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::config::{Action, ChildConfig, EndpointConfig, FailureShunt, ShuntConfig, TsSpec};
use ike_proto::dataplane::{
    Command, PolicyAction, PolicyId, PolicySpec, Processing, TrafficSelector,
};
use ike_proto::{ChildSaId, IkeStatus, Path};

use super::Adopted;
use super::control::Control;
use crate::target::Target;

/// The policies of shunts have numbers that the engine never reaches.
const FIRST: u64 = 1 << 63;

/// Connection and child.
type Name = (String, String);

/// The shunts of all children.
#[derive(Debug, Default)]
pub(crate) struct Shunts {
    configured: BTreeMap<Name, Shunt>,
    armed: BTreeMap<Name, PolicySpec>,
    /// Children that an earlier run had up.
    adopted: Vec<Adopted>,
    /// What an earlier run has blocked.
    blocked: Vec<(TrafficSelector, TrafficSelector)>,
    count: u64,
}

/// The shunt that a child's configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shunt {
    action: PolicyAction,
    /// From the start on.
    at_once: bool,
    local: Vec<TsSpec>,
    remote: Vec<TsSpec>,
    priority: u32,
    processing: Arc<Processing>,
}

impl Shunts {
    /// Those of `config`, none of them in force. An earlier run had the children up that are `adopted`, and has left
    /// `blocked`.
    pub(crate) fn new(
        config: &EndpointConfig,
        adopted: Vec<Adopted>,
        blocked: Vec<(TrafficSelector, TrafficSelector)>,
    ) -> Self {
        Self { configured: configured(config), adopted, blocked, ..Self::default() }
    }

    /// Puts in force what is to be there from the start, and of the children that go on from an earlier
    /// run, or whose traffic it has blocked: they count as having been up.
    pub(crate) async fn arm_first(&mut self, plane: &Control) {
        for Adopted { connection, child, local, remote } in std::mem::take(&mut self.adopted) {
            let name = (connection, child);
            let Some(shunt) = self.configured.get(&name) else { continue };
            let (local, remote) = shunt.selectors(local, remote);
            self.arm(name, local, remote, plane).await;
        }
        for name in self.configured.keys().cloned().collect::<Vec<_>>() {
            self.arm_at_once(name, plane).await;
        }
        for block in std::mem::take(&mut self.blocked) {
            let waiting = self
                .configured
                .iter()
                .filter_map(|(name, shunt)| shunt.width(&block).map(|width| (width, name, shunt)));
            // Of several the narrowest: traffic of another child was not blocked.
            let Some((_, name, shunt)) = waiting.min_by_key(|(width, ..)| *width) else { continue };
            if !self.armed.contains_key(name) {
                let (local, remote) = shunt.selectors(block.0.start, block.1.start);
                self.arm(name.clone(), local, remote, plane).await;
            }
        }
    }

    /// Takes another configuration. What is in force and has not changed stays; so does what was lifted.
    pub(crate) async fn reload(&mut self, config: &EndpointConfig, plane: &Control) {
        let old = std::mem::replace(&mut self.configured, configured(config));
        let now = &self.configured;
        let changed = |name: &&Name| now.get(*name) != old.get(*name);
        let gone: Vec<_> = self.armed.keys().filter(changed).cloned().collect();
        let new: Vec<_> = now.keys().filter(changed).cloned().collect();
        for name in gone {
            self.disarm(&name, plane).await;
        }
        for name in new {
            self.arm_at_once(name, plane).await;
        }
    }

    /// The policies in force.
    pub(crate) fn all(&self) -> impl Iterator<Item = PolicySpec> {
        self.armed.values().cloned()
    }

    /// False if no child has one, so that nothing need be known of any.
    pub(crate) fn any(&self) -> bool {
        !self.configured.is_empty()
    }

    /// A child is up: from now on its traffic is protected, or does not leave.
    pub(crate) async fn child_up(&mut self, status: IkeStatus, child: ChildSaId, plane: &Control) {
        let Some(child) = status.children.iter().find(|other| other.id == child) else { return };
        let name = (status.connection.clone(), child.name.clone());
        let Some(shunt) = self.configured.get(&name) else { return };
        let Path { local, remote, .. } = status.path;
        let (local, remote) = shunt.selectors(local.ip(), remote.ip());
        self.arm(name, local, remote, plane).await;
    }

    /// Lifts those that `target` means; the number of them.
    pub(crate) async fn lift(&mut self, target: &Target, plane: &Control) -> usize {
        let Target { name, ike, child, ike_id, child_id } = target;
        // A number is that of an SA.
        if ike_id.is_some() || child_id.is_some() {
            return 0;
        }
        let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|w| w == name);
        // What is to pass or to be dropped waits for no child.
        let waits = |name: &&Name| {
            let action = self.armed.get(*name).map(|spec| &spec.action);
            matches!(action, Some(PolicyAction::Shunt { .. }))
        };
        let meant = |(connection, of): &&Name| {
            let any = name.as_ref().is_none_or(|name| name == connection || name == of);
            any && is(ike, connection) && is(child, of)
        };
        let lifted: Vec<_> = self.armed.keys().filter(waits).filter(meant).cloned().collect();
        for name in &lifted {
            self.disarm(name, plane).await;
        }
        lifted.len()
    }

    async fn arm_at_once(&mut self, name: Name, plane: &Control) {
        let Some(shunt) = self.configured.get(&name).filter(|shunt| shunt.at_once) else { return };
        if let (Some(local), Some(remote)) = (fixed(&shunt.local), fixed(&shunt.remote)) {
            self.arm(name, local, remote, plane).await;
        }
    }

    async fn arm(
        &mut self,
        name: Name,
        local_ts: Vec<TrafficSelector>,
        remote_ts: Vec<TrafficSelector>,
        plane: &Control,
    ) {
        let Some(Shunt { action, priority, processing, .. }) = self.configured.get(&name).cloned()
        else {
            return;
        };
        let known = self.armed.get(&name);
        if known.is_some_and(|old| old.local_ts == local_ts && old.remote_ts == remote_ts) {
            return;
        }
        let id = known.map_or(PolicyId(FIRST + self.count), |old| old.id);
        self.count += 1;
        let spec = PolicySpec {
            id,
            child: name.1.clone(),
            owner: name.0.clone(),
            local_ts,
            remote_ts,
            action,
            priority,
            processing,
            outer: None,
            standby: false,
        };
        let command = Command::InstallPolicy(Box::new(spec.clone()));
        match plane.apply(vec![command]).await {
            Ok(_) => _ = self.armed.insert(name, spec),
            Err(error) => {
                let (connection, child) = name;
                tracing::warn!(%connection, %child, %error, "policy of failureshunt not installed");
            }
        }
    }

    async fn disarm(&mut self, name: &Name, plane: &Control) {
        let Some(spec) = self.armed.remove(name) else { return };
        if let Err(error) = plane.apply(vec![Command::RemovePolicy(spec.id)]).await {
            let (connection, child) = name;
            tracing::warn!(%connection, %child, %error, "policy of failureshunt not removed");
            self.armed.insert(name.clone(), spec);
        }
    }
}

impl Shunt {
    fn of(child: &ChildConfig) -> Option<Self> {
        let returns = [child.start_action, child.close_action, child.dpd_action]
            .iter()
            .any(|action| *action != Action::None);
        let (silent, at_once) = match child.failure_shunt {
            FailureShunt::Passthrough => return None,
            FailureShunt::Auto if !returns => return None,
            FailureShunt::Auto => (false, false),
            FailureShunt::Reject => (false, true),
            FailureShunt::Drop => (true, true),
        };
        let (local, remote) = (child.local_ts.clone(), child.remote_ts.clone());
        let action = PolicyAction::Shunt { silent };
        let (priority, processing) = (0, Arc::default());
        Some(Self { action, at_once, local, remote, priority, processing })
    }

    /// `mode = pass` or `drop`.
    fn configured(shunt: &ShuntConfig) -> Self {
        let fixed = |list: &[TrafficSelector]| list.iter().copied().map(TsSpec::Fixed).collect();
        Self {
            action: if shunt.drop { PolicyAction::Drop } else { PolicyAction::Pass },
            at_once: true,
            local: fixed(&shunt.local_ts),
            remote: fixed(&shunt.remote_ts),
            priority: shunt.priority,
            processing: Arc::clone(&shunt.processing),
        }
    }

    /// How wide the selector is by which an earlier run may have blocked traffic to `to`, in addresses less one.
    fn width(&self, (from, to): &(TrafficSelector, TrafficSelector)) -> Option<u128> {
        let waits = matches!(self.action, PolicyAction::Shunt { .. });
        let local =
            self.local.iter().any(|spec| spec.resolve(from.start).intersect(from).is_some());
        let remote = self.remote.iter().filter_map(|spec| match spec {
            TsSpec::Fixed(ts) => ts.contains(to).then_some((ts.start, ts.end)),
            TsSpec::Dynamic { .. } => (to.start == to.end).then_some((to.start, to.end)),
        });
        let remote = remote.filter(|_| waits && local);
        remote.map(|(start, end)| number(end) - number(start)).min()
    }

    /// The selectors between these ends.
    fn selectors(
        &self,
        here: IpAddr,
        there: IpAddr,
    ) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
        (
            self.local.iter().map(|ts| ts.resolve(here)).collect(),
            self.remote.iter().map(|ts| ts.resolve(there)).collect(),
        )
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn configured(config: &EndpointConfig) -> BTreeMap<Name, Shunt> {
    let children = config.connections.iter().flat_map(|connection| {
        connection.children.iter().map(|child| (connection.name.clone(), child))
    });
    let shunts = config
        .shunts
        .iter()
        .map(|shunt| ((shunt.connection.clone(), shunt.child.clone()), Shunt::configured(shunt)));
    children
        .filter_map(|(name, child)| Some(((name, child.name.clone()), Shunt::of(child)?)))
        .chain(shunts)
        .collect()
}

/// Selectors that do not depend on the path.
fn fixed(specs: &[TsSpec]) -> Option<Vec<TrafficSelector>> {
    let fixed = |spec: &TsSpec| match spec {
        TsSpec::Fixed(ts) => Some(*ts),
        TsSpec::Dynamic { .. } => None,
    };
    specs.iter().map(fixed).collect()
}
