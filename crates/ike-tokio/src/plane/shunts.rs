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

use ike_proto::config::{
    Action, AddressSpec, ChildConfig, ConnectionConfig, EndpointConfig, FailureShunt, InterfaceId,
    ShuntConfig, TsSpec, UniqueNumbers,
};
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
    /// What an earlier run has blocked, and no child has yet.
    blocked: Vec<(TrafficSelector, TrafficSelector)>,
    /// The peers' addresses of each connection; none where its names are not looked up.
    peers: BTreeMap<String, Vec<AddressSpec>>,
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
        let peers = peers(config);
        Self { configured: configured(config), adopted, blocked, peers, ..Self::default() }
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
        self.claim(plane).await;
    }

    /// Gives what an earlier run has blocked to the children that it belongs to. What belongs to none may do so once the
    /// name of a peer has an address.
    async fn claim(&mut self, plane: &Control) {
        for (from, to) in std::mem::take(&mut self.blocked) {
            let claims = self.configured.iter().filter_map(|(name, shunt)| {
                let width = shunt.width(&from, &to, self.peers.get(&name.0)?)?;
                let (local, remote) = shunt.selectors(from.start, to.start);
                Some(((width, name.clone()), (local, remote)))
            });
            let mut by_width = BTreeMap::new();
            claims.for_each(|(key, selectors)| _ = by_width.insert(key, selectors));
            let mut claimed = false;
            // Of several the narrowest: traffic of another child was not blocked.
            while let Some(((_, name), (local, remote))) = by_width.pop_first() {
                claimed = match self.armed.get(&name) {
                    None => {
                        self.arm(name, local, remote, plane).await;
                        true
                    }
                    // Otherwise it has another peer's address.
                    Some(armed) => armed.remote_ts.iter().any(|ts| ts.contains(&to)),
                };
                if claimed {
                    break;
                }
            }
            if !claimed {
                self.blocked.push((from, to));
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
        self.peers = peers(config);
        self.claim(plane).await;
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
        // The traffic of a child that is taken down is not to be blocked later on.
        self.blocked.clear();
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
    fn of(connection: &ConnectionConfig, child: &ChildConfig) -> Option<Self> {
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
        let of_child = &child.processing;
        // Without policies of the child's own, others say what is protected.
        if !of_child.policies {
            return None;
        }
        let interface = |own, of_connection| match (own, of_connection) {
            (0, InterfaceId::Fixed(id)) => Some(id),
            (0, InterfaceId::Unique(_)) => None,
            (own, _) => Some(own),
        };
        let if_ids = interface(of_child.if_id_in, connection.if_id_in)
            .zip(interface(of_child.if_id_out, connection.if_id_out))
            .filter(|_| child.unique == UniqueNumbers::default());
        let Some((if_id_in, if_id_out)) = if_ids else {
            tracing::warn!(
                child = child.name,
                "failureshunt: a child with `%unique` numbers has no block, and its traffic may leave in clear while it is down: \
                 give it fixed numbers"
            );
            return None;
        };
        // It matches what the child's policies match, and no more: routes and packets of others go on.
        let processing = Processing {
            if_id_in,
            if_id_out,
            mark_in: of_child.mark_in,
            mark_out: of_child.mark_out,
            interface: of_child.interface.clone(),
            ..Processing::default()
        };
        let (local, remote) = (child.local_ts.clone(), child.remote_ts.clone());
        let action = PolicyAction::Shunt { silent };
        let (priority, processing) = (0, Arc::new(processing));
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

    /// How wide the selector is by which an earlier run may have blocked traffic from `from` to `to`, in addresses less
    /// one.
    ///
    /// None for all addresses while the peer has no address: its name would be looked up through the block.
    fn width(
        &self,
        from: &TrafficSelector,
        to: &TrafficSelector,
        peers: &[AddressSpec],
    ) -> Option<u128> {
        let waits = matches!(self.action, PolicyAction::Shunt { .. });
        let local =
            self.local.iter().any(|spec| spec.resolve(from.start).intersect(from).is_some());
        let has_peer = |address| peers.iter().any(|spec| spec.contains(address));
        let remote = self.remote.iter().filter_map(|spec| match spec {
            TsSpec::Fixed(ts) if peers.is_empty() && is_all(ts) => None,
            TsSpec::Fixed(ts) => ts.contains(to).then_some((ts.start, ts.end)),
            TsSpec::Dynamic { .. } => {
                let is_host = to.start == to.end;
                (is_host && (peers.is_empty() || has_peer(to.start))).then_some((to.start, to.end))
            }
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

/// The peers' addresses of each connection.
fn peers(config: &EndpointConfig) -> BTreeMap<String, Vec<AddressSpec>> {
    let connections = config.connections.iter();
    connections.map(|one| (one.name.clone(), one.remote_addrs.clone())).collect()
}

/// True for all addresses of a family.
fn is_all(ts: &TrafficSelector) -> bool {
    ts.start.is_unspecified()
        && match ts.end {
            IpAddr::V4(end) => end.is_broadcast(),
            IpAddr::V6(end) => u128::from(end) == u128::MAX,
        }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn configured(config: &EndpointConfig) -> BTreeMap<Name, Shunt> {
    let children = config
        .connections
        .iter()
        .flat_map(|connection| connection.children.iter().map(move |child| (connection, child)));
    let shunts = config
        .shunts
        .iter()
        .map(|shunt| ((shunt.connection.clone(), shunt.child.clone()), Shunt::configured(shunt)));
    children
        .filter_map(|(connection, child)| {
            let name = (connection.name.clone(), child.name.clone());
            Some((name, Shunt::of(connection, child)?))
        })
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ike_proto::config::Scope;
    use ike_proto::dataplane::{Capabilities, DataPlane, DataPlaneError, Event, Reply};

    use super::super::NoPlane;
    use super::super::control::Busy;
    use super::*;

    /// Remembers whose blocks were installed, and to where.
    #[derive(Debug, Clone, Default)]
    struct Installed(Arc<Mutex<Vec<(String, String, TrafficSelector)>>>);

    impl DataPlane for Installed {
        fn capabilities(&self) -> Capabilities {
            NoPlane.capabilities()
        }

        fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
            if let Command::InstallPolicy(spec) = command {
                let (owner, child, to) = (spec.owner, spec.child, spec.remote_ts[0]);
                self.0.lock().unwrap().push((owner, child, to));
            }
            Ok(Reply::Done)
        }

        fn poll_event(&mut self) -> Option<Event> {
            None
        }
    }

    fn ts(text: &str) -> TrafficSelector {
        text.parse().unwrap()
    }

    /// A connection to these addresses with one child that is always to be up.
    fn connection(name: &str, peers: &[&str], remote: TsSpec) -> ConnectionConfig {
        let mut connection = ConnectionConfig::new(name);
        connection.remote_addrs =
            peers.iter().map(|text| AddressSpec::single(text.parse().unwrap())).collect();
        let mut child = ChildConfig::new("net");
        child.start_action = Action::Start;
        child.local_ts = vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: u16::MAX }];
        child.remote_ts = vec![remote];
        connection.children = vec![Arc::new(child)];
        connection
    }

    fn dynamic() -> TsSpec {
        TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: u16::MAX }
    }

    /// The owners and destinations of what is blocked at a start, when an earlier run has left blocks to `left`.
    async fn blocked(
        connections: Vec<ConnectionConfig>,
        left: &[&str],
    ) -> Vec<(String, TrafficSelector)> {
        let connections = connections.into_iter().map(Arc::new).collect();
        let config = EndpointConfig { connections, ..EndpointConfig::default() };
        let installed = Installed::default();
        let plane =
            Control::start(Box::new(installed.clone()), false, true, Arc::new(Busy::default()));
        let from = ts("0.0.0.0/0");
        let left = left.iter().map(|to| (from, ts(to))).collect();
        Shunts::new(&config, Vec::new(), left).arm_first(&plane).await;
        let installed = installed.0.lock().unwrap();
        installed.iter().map(|(owner, _, to)| (owner.clone(), *to)).collect()
    }

    /// Fault: in `Shunt::width`, let a dynamic selector take each address.
    #[tokio::test]
    async fn a_block_between_two_hosts_is_that_of_the_connection_with_this_peer() {
        let peers = || {
            let near = connection("a", &["192.0.2.7"], dynamic());
            vec![near, connection("b", &["192.0.2.9"], dynamic())]
        };
        assert_eq!(blocked(peers(), &["192.0.2.9/32"]).await, [("b".into(), ts("192.0.2.9/32"))]);
        let both = blocked(peers(), &["192.0.2.9/32", "192.0.2.7/32"]).await;
        assert_eq!(both, [("b".into(), ts("192.0.2.9/32")), ("a".into(), ts("192.0.2.7/32"))]);
        assert_eq!(blocked(peers(), &["192.0.2.8/32"]).await, []);
    }

    /// A block of all addresses would hold the question for the peer's name.
    ///
    /// Fault: in `Shunt::width`, leave `is_all` out.
    #[tokio::test]
    async fn all_addresses_are_not_blocked_while_the_peer_has_none() {
        let all = TsSpec::Fixed(ts("0.0.0.0/0"));
        assert_eq!(blocked(vec![connection("a", &[], all)], &["0.0.0.0/0"]).await, []);
        let named = vec![connection("a", &["192.0.2.7"], all)];
        assert_eq!(blocked(named, &["0.0.0.0/0"]).await, [("a".into(), ts("0.0.0.0/0"))]);
        let part = vec![connection("a", &[], TsSpec::Fixed(ts("10.0.0.0/8")))];
        assert_eq!(blocked(part, &["10.0.0.0/8"]).await, [("a".into(), ts("10.0.0.0/8"))]);
    }

    /// The last addresses of names are read after the start.
    ///
    /// Faults: in `Shunts::reload`, do not claim; in `Shunts::lift`, keep what is blocked.
    #[tokio::test]
    async fn a_block_waits_for_the_address_of_a_name() {
        let config = |peers: &[&str]| {
            let all = TsSpec::Fixed(ts("0.0.0.0/0"));
            let connections = vec![Arc::new(connection("a", peers, all))];
            EndpointConfig { connections, ..EndpointConfig::default() }
        };
        let left = || vec![(ts("0.0.0.0/0"), ts("0.0.0.0/0"))];
        let plane =
            Control::start(Box::new(Installed::default()), false, true, Arc::new(Busy::default()));
        let mut shunts = Shunts::new(&config(&[]), Vec::new(), left());
        shunts.arm_first(&plane).await;
        assert_eq!(shunts.all().count(), 0);
        shunts.reload(&config(&["192.0.2.7"]), &plane).await;
        assert_eq!(shunts.all().count(), 1);
        let mut shunts = Shunts::new(&config(&[]), Vec::new(), left());
        shunts.arm_first(&plane).await;
        shunts.lift(&Target { ike: Some("a".into()), ..Target::default() }, &plane).await;
        shunts.reload(&config(&["192.0.2.7"]), &plane).await;
        assert_eq!(shunts.all().count(), 0);
    }

    /// Fault: in `Shunts::claim`, take the last one first.
    #[tokio::test]
    async fn a_block_is_that_of_the_narrowest_child_that_covers_it() {
        let children = || {
            let wide = TsSpec::Fixed(ts("10.0.0.0/8"));
            let narrow = TsSpec::Fixed(ts("10.2.0.0/16"));
            vec![connection("a", &["192.0.2.7"], wide), connection("b", &["192.0.2.7"], narrow)]
        };
        let one = blocked(children(), &["10.2.0.0/16"]).await;
        assert_eq!(one, [("b".into(), ts("10.2.0.0/16"))]);
        let other = blocked(children(), &["10.0.0.0/8"]).await;
        assert_eq!(other, [("a".into(), ts("10.0.0.0/8"))]);
    }

    /// Of a route-based tunnel: its interface takes what it protects, and all else goes on.
    ///
    /// Faults: in `Shunt::of`, take `Processing::default()`; leave `unique` out.
    #[test]
    fn a_shunt_matches_no_more_than_its_child() {
        let mut child = ChildConfig::new("net");
        child.start_action = Action::Start;
        child.processing =
            Arc::new(Processing { if_id_in: 42, if_id_out: 42, ..Processing::default() });
        let mut connection = ConnectionConfig::new("hub");
        let processing = |connection: &ConnectionConfig, child: &ChildConfig| {
            Shunt::of(connection, child)
                .map(|Shunt { processing, .. }| (processing.if_id_in, processing.if_id_out))
        };
        assert_eq!(processing(&connection, &child), Some((42, 42)));
        child.unique.if_id_out = Some(Scope::Pair);
        assert_eq!(processing(&connection, &child), None);
        child.unique = UniqueNumbers::default();
        child.processing = Arc::new(Processing { policies: false, ..Processing::default() });
        assert_eq!(processing(&connection, &child), None);
        child.processing = Arc::default();
        connection.if_id_out = InterfaceId::Fixed(7);
        assert_eq!(processing(&connection, &child), Some((0, 7)));
        connection.if_id_in = InterfaceId::Unique(Scope::Pair);
        assert_eq!(processing(&connection, &child), None);
    }
}
