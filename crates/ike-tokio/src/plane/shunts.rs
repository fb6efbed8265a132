//! Shunts: traffic of children that are not up (`failureshunt`), and traffic that is not to be protected at all
//! (`mode = pass` or `drop`).
//!
//! A failure shunt is a policy of the daemon's own that applies where no other policy does. A configured failure
//! shunt is installed from the start, and so is that of a child with `hold`: what is not known of its addresses by then
//! is taken for any. Another that follows from the child's actions is installed once the child was up. `down` removes it
//! until the child is up again. It is also removed when a reload removes it or its child, and when the daemon stops. A
//! restart is not a stop: what the run before has blocked stays blocked until the child is up
//! ([`Plane::blocked`](super::Plane::blocked)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ike_proto::config::{AddressSpec, EndpointConfig, Since};
use ike_proto::dataplane::{Command, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use ike_proto::{ChildSaId, IkeStatus, Path};

use self::shunt::{Ends, Says, Shunt};
use super::Adopted;
use super::control::Control;
use crate::target::Target;

pub use alone::ShuntsAlone;

mod alone;
mod shunt;
#[cfg(test)]
mod tests;

/// The policies of shunts have numbers that the engine never reaches.
const FIRST: u64 = 1 << 63;

/// The most children that one log line names.
const NAMED: usize = 5;

/// Connection and child.
type Name = (String, String);

/// The shunts of all children.
#[derive(Debug, Default)]
pub(crate) struct Shunts {
    configured: BTreeMap<Name, Shunt>,
    armed: BTreeMap<Name, Armed>,
    /// Policies that the data plane has refused, and that are not armed. It may know them all the same.
    refused: BTreeMap<Name, Armed>,
    /// Those that `down` has removed, until the child is up.
    lifted: BTreeSet<Name>,
    /// Children that an earlier run had up.
    adopted: Vec<Adopted>,
    /// What an earlier run has blocked, and no child has yet.
    blocked: Vec<(TrafficSelector, TrafficSelector)>,
    /// The ends of each connection.
    ends: BTreeMap<String, Ends>,
    count: u64,
    /// What is to be there from the start has been put in force: each shard asks for it.
    begun: bool,
}

/// A shunt in force.
#[derive(Debug)]
struct Armed {
    spec: PolicySpec,
    stage: Stage,
}

/// How far the child has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Neither a trap nor an SA was there.
    Early,
    /// A trap is there between these ends.
    Trapped(IpAddr, IpAddr),
    /// The child was up between these ends.
    Up(IpAddr, IpAddr),
}

impl Shunts {
    /// Those of `config`, none of them in force. An earlier run had the children up that are `adopted`, and has left
    /// `blocked`.
    pub(crate) fn new(
        config: &EndpointConfig,
        adopted: Vec<Adopted>,
        blocked: Vec<(TrafficSelector, TrafficSelector)>,
    ) -> Self {
        let ends = ends(config);
        Self { configured: configured(config), adopted, blocked, ends, ..Self::default() }
    }

    /// Puts in force what is to be there from the start, and of the children that go on from an earlier
    /// run, or whose traffic it has blocked: they count as having been up.
    pub(crate) async fn arm_first(&mut self, plane: &Control) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        for Adopted { connection, child, local, remote } in std::mem::take(&mut self.adopted) {
            self.arm((connection, child), Stage::Up(local, remote), plane).await;
        }
        for name in self.configured.keys().cloned().collect::<Vec<_>>() {
            if !self.armed.contains_key(&name) {
                self.arm(name, Stage::Early, plane).await;
            }
        }
        self.claim(plane).await;
        self.tell_held(&BTreeSet::new());
    }

    /// The children that are held.
    fn held(&self) -> impl Iterator<Item = (&Name, &PolicySpec)> {
        let all = self.armed.iter().map(|(name, armed)| (name, &armed.spec));
        all.filter(|(_, spec)| matches!(spec.action, PolicyAction::Hold { .. }))
    }

    /// Logs what is held, and was not `before`, although no child has been up. A user who does not expect that looks in the log
    /// for the reason.
    fn tell_held(&self, before: &BTreeSet<Name>) {
        let new = self.held().filter(|(name, _)| !before.contains(*name));
        let held: Vec<_> = new.map(|(_, spec)| spec).collect();
        let text = |spec: &&PolicySpec| {
            let to: Vec<_> = spec.remote_ts.iter().map(ToString::to_string).collect();
            format!("{} of {} to {}", spec.child, spec.owner, to.join(" "))
        };
        let named: Vec<_> = held.iter().take(NAMED).map(text).collect();
        let more = if held.len() > NAMED { ", …" } else { "" };
        if !held.is_empty() {
            tracing::info!(
                children = held.len(),
                "traffic is held until a trap or an SA protects it: {}{more}; set `hold = no` in a child to let its traffic pass \
                 in clear until then",
                named.join(", ")
            );
        }
    }

    /// Gives what an earlier run has blocked to the children that it belongs to. What belongs to none may do so once the
    /// name of a peer has an address.
    async fn claim(&mut self, plane: &Control) {
        for (from, to) in std::mem::take(&mut self.blocked) {
            let claims = self.configured.iter().filter_map(|(name, shunt)| {
                let ends = self.ends.get(&name.0)?;
                let width = shunt.width(&from, &to, &ends.peers)?;
                Some(((width, name.clone()), shunt.left(from.start, to.start, ends)))
            });
            let mut by_width = BTreeMap::new();
            claims.for_each(|(key, says)| _ = by_width.insert(key, says));
            let mut claimed = false;
            let mut down = None;
            // Of several the narrowest: traffic of another child was not blocked.
            while let Some(((width, name), says)) = by_width.pop_first() {
                if down.is_some_and(|least| width > least) {
                    break;
                }
                claimed = match self.armed.get(&name) {
                    // The traffic of a child that was taken down is not to be blocked, but the block may be that of a child
                    // with the same selectors.
                    None if self.lifted.contains(&name) => {
                        down = Some(width);
                        false
                    }
                    None => {
                        self.install(name, says, Stage::Early, plane).await;
                        true
                    }
                    // Otherwise it has another peer's address.
                    Some(armed) => armed.spec.remote_ts.iter().any(|ts| ts.contains(&to)),
                };
                if claimed {
                    break;
                }
            }
            if !claimed && (down.is_none() || self.is_claimed_later(&from, &to)) {
                self.blocked.push((from, to));
            }
        }
    }

    /// True if a child may claim this block once the name of its peer has an address.
    fn is_claimed_later(&self, from: &TrafficSelector, to: &TrafficSelector) -> bool {
        let some = [AddressSpec::single(to.start)];
        self.configured.iter().any(|(name, shunt)| {
            let waits = self.ends.get(&name.0).is_some_and(|ends| ends.peers.is_empty());
            let is_free = !self.lifted.contains(name) && !self.armed.contains_key(name);
            waits && is_free && shunt.width(from, to, &some).is_some()
        })
    }

    /// Takes another configuration. What is in force and has not changed stays; so does what was lifted.
    pub(crate) async fn reload(&mut self, config: &EndpointConfig, plane: &Control) {
        let held = self.held().map(|(name, _)| name.clone()).collect();
        let old = std::mem::replace(&mut self.configured, configured(config));
        let before = std::mem::replace(&mut self.ends, ends(config));
        let now = &self.configured;
        let gone = self.armed.keys().chain(self.refused.keys());
        let gone = gone.filter(|name| !now.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.disarm(&name, plane).await;
        }
        let (mut changed, mut moved) = (Vec::new(), Vec::new());
        for (name, shunt) in &self.configured {
            if old.get(name) != Some(shunt) {
                changed.push(name.clone());
            } else if before.get(&name.0) != self.ends.get(&name.0) && shunt.since == Since::Held {
                moved.push(name.clone());
            }
        }
        self.lifted.retain(|name| self.configured.contains_key(name) && !changed.contains(name));
        for name in changed {
            // In the place of the policy that is there, so that nothing leaves meanwhile.
            let stage = self.armed.get(&name).map_or(Stage::Early, |armed| armed.stage);
            if !self.arm(name.clone(), stage, plane).await {
                self.disarm(&name, plane).await;
            }
        }
        // The name of a peer has got an address.
        for name in moved {
            if self.armed.get(&name).is_none_or(|armed| armed.stage == Stage::Early) {
                self.arm(name, Stage::Early, plane).await;
            }
        }
        self.claim(plane).await;
        self.tell_held(&held);
    }

    /// The policies in force.
    pub(crate) fn all(&self) -> impl Iterator<Item = PolicySpec> {
        self.armed.values().map(|armed| armed.spec.clone())
    }

    /// False if no child has one, so that nothing need be known of any.
    pub(crate) fn any(&self) -> bool {
        !self.configured.is_empty()
    }

    /// A child is up: from now on its traffic is protected, or does not leave.
    pub(crate) async fn child_up(&mut self, status: IkeStatus, child: ChildSaId, plane: &Control) {
        let Some(child) = status.children.iter().find(|other| other.id == child) else { return };
        let name = (status.connection.clone(), child.name.clone());
        self.lifted.remove(&name);
        let Path { local, remote, .. } = status.path;
        self.arm(name, Stage::Up(local.ip(), remote.ip()), plane).await;
    }

    /// The data plane has refused a child of this IKE SA. What the child was to protect does not leave until it is up: the block
    /// of a child that was up comes at once, also if the data plane refuses that as well and can only bar it.
    pub(crate) async fn not_protected(&mut self, status: IkeStatus, child: &str, plane: &Control) {
        let Path { local, remote, .. } = status.path;
        let name = (status.connection, child.to_owned());
        self.block(name, (local.ip(), remote.ip()), plane).await;
    }

    async fn block(&mut self, name: Name, ends: (IpAddr, IpAddr), plane: &Control) {
        let waits = |shunt: &Shunt| matches!(shunt.action, PolicyAction::Shunt { .. });
        if !self.configured.get(&name).is_some_and(waits) || self.armed.contains_key(&name) {
            return;
        }
        let (connection, child) = &name;
        if !self.lifted.contains(&name) && !self.refused.contains_key(&name) {
            tracing::warn!(
                %connection, %child,
                "the data plane has refused the child: its traffic is blocked until the child is up, or taken down"
            );
        }
        self.arm(name, Stage::Up(ends.0, ends.1), plane).await;
    }

    /// A child is about to get a trap between these ends. What is held of it is no more than the trap takes.
    pub(crate) async fn trap(&mut self, name: Name, ends: (IpAddr, IpAddr), plane: &Control) {
        let held = |shunt: &Shunt| shunt.since == Since::Held;
        let was_up = |armed: &Armed| matches!(armed.stage, Stage::Up(..));
        if self.configured.get(&name).is_some_and(held)
            && !self.armed.get(&name).is_some_and(was_up)
        {
            self.arm(name, Stage::Trapped(ends.0, ends.1), plane).await;
        }
    }

    /// The trap of a child is removed by command: its traffic is free until the child is up.
    pub(crate) async fn untrap(&mut self, name: Name, plane: &Control) {
        let was_up = |armed: &Armed| matches!(armed.stage, Stage::Up(..));
        let known = self.armed.get(&name).or_else(|| self.refused.get(&name));
        if known.is_some_and(|armed| !was_up(armed))
            && self.configured.get(&name).is_some_and(|shunt| shunt.since == Since::Held)
        {
            self.disarm(&name, plane).await;
            self.lifted.insert(name);
        }
    }

    /// Lifts those that `target` means; the number of them.
    pub(crate) async fn lift(&mut self, target: &Target, plane: &Control) -> usize {
        let Target { name, ike, child, ike_id, child_id } = target;
        // A number is that of an SA.
        if ike_id.is_some() || child_id.is_some() {
            return 0;
        }
        let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|w| w == name);
        let meant = |(connection, of): &Name| {
            let any = name.as_ref().is_none_or(|name| name == connection || name == of);
            any && is(ike, connection) && is(child, of)
        };
        // What is to pass or to be dropped waits for no child.
        let waits = |shunt: &Shunt| matches!(shunt.action, PolicyAction::Shunt { .. });
        let all = self.configured.iter().filter(|(name, shunt)| meant(name) && waits(shunt));
        let all: Vec<_> = all.map(|(name, _)| name.clone()).collect();
        let mut lifted = 0;
        for name in all {
            lifted += usize::from(self.armed.contains_key(&name));
            self.disarm(&name, plane).await;
            self.lifted.insert(name);
        }
        lifted
    }

    /// Puts in force what the shunt of a child says at this stage. False if it says nothing.
    async fn arm(&mut self, name: Name, stage: Stage, plane: &Control) -> bool {
        let Some(shunt) = self.configured.get(&name) else { return false };
        if self.lifted.contains(&name) {
            return false;
        }
        let says = match stage {
            // Whether a trap is still wanted is another matter after a reload.
            Stage::Trapped(here, there) if shunt.since == Since::Held && shunt.traps => {
                Some(shunt.trapped(here, there))
            }
            Stage::Early | Stage::Trapped(..) => self
                .ends
                .get(&name.0)
                .map_or_else(|| shunt.at_once(&Ends::default()), |ends| shunt.at_once(ends)),
            Stage::Up(here, there) => Some(shunt.was_up(here, there)),
        };
        let Some(says) = says else { return false };
        self.install(name, says, stage, plane).await;
        true
    }

    async fn install(&mut self, name: Name, says: Says, stage: Stage, plane: &Control) {
        let Some(Shunt { priority, processing, .. }) = self.configured.get(&name).cloned() else {
            return;
        };
        let known = self.armed.get(&name).map(|armed| &armed.spec);
        let Says { action, local_ts, remote_ts, outer } = says;
        let spec = PolicySpec {
            id: match (known, self.refused.get(&name)) {
                (Some(known), _) => known.id,
                // Under another number the data plane would have both.
                (None, Some(refused)) => refused.spec.id,
                (None, None) => {
                    self.count += 1;
                    PolicyId(FIRST + self.count - 1)
                }
            },
            child: name.1.clone(),
            owner: name.0.clone(),
            local_ts,
            remote_ts,
            action,
            priority,
            processing,
            outer,
            standby: false,
        };
        let (is_new, is_known) = (known != Some(&spec), known.is_some());
        if is_new {
            let command = Command::InstallPolicy(Box::new(spec.clone()));
            if let Err(error) = plane.apply(vec![command]).await {
                let (connection, child) = &name;
                tracing::warn!(%connection, %child, %error, "policy of failureshunt not installed");
                if !is_known {
                    self.refused.insert(name, Armed { spec, stage });
                }
                return;
            }
        }
        self.refused.remove(&name);
        self.armed.insert(name, Armed { spec, stage });
    }

    async fn disarm(&mut self, name: &Name, plane: &Control) {
        for all in [&mut self.armed, &mut self.refused] {
            let Some(armed) = all.remove(name) else { continue };
            if let Err(error) = plane.apply(vec![Command::RemovePolicy(armed.spec.id)]).await {
                let (connection, child) = name;
                tracing::warn!(%connection, %child, %error, "policy of failureshunt not removed");
                all.insert(name.clone(), armed);
            }
        }
    }
}

/// The ends of each connection.
fn ends(config: &EndpointConfig) -> BTreeMap<String, Ends> {
    let connections = config.connections.iter();
    connections.map(|one| (one.name.clone(), Ends::of(one))).collect()
}

/// What each child asks for.
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
