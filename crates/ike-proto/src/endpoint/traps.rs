//! Trap policies. A trap of `start_action`, `close_action` or `dpd_action` stays wanted in the data plane: a
//! failed installation is repeated until it succeeds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::unattended::{Removal, Unattended};
use super::wants::Name;
use super::{Endpoint, Entry, Slot};
use crate::child::processing::NoneLeft;
use crate::config::lookup::Lookup;
use crate::config::{ChildConfig, FailureShunt, TsSpec};
use crate::dataplane::{
    Command as Plane, DataPlaneError, Outer, PolicyAction, PolicyId, PolicySpec, Processing,
    TrafficSelector,
};
use crate::event::{Failure, Now, Path, RequestId};
use crate::exchange::config::resolve;
use crate::ike_sa::IkeSa;

/// The wait after the first failed installation. It doubles with each failure, `MAX_DOUBLINGS` times at most.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 6;

/// A trap policy in the data plane.
pub(super) struct Trap {
    pub(super) policy: PolicyId,
    pub(super) connection: String,
    pub(super) child: Arc<ChildConfig>,
    /// This end's address when the trap was installed.
    local: IpAddr,
    /// The peer of the child, and its address without any move.
    pub(super) remote: IpAddr,
    home: IpAddr,
    /// How packets that meet the trap are treated.
    pub(super) processing: Arc<Processing>,
    /// Traffic of this end, and of the peer.
    pub(super) selectors: (Arc<[TrafficSelector]>, Arc<[TrafficSelector]>),
    /// Policies that drop its traffic until the trap is installed.
    held: Vec<PolicyId>,
    /// Failed installations in a row.
    failures: u32,
    /// When the installation is repeated.
    again: Option<Instant>,
    /// Its packets are dropped, because a command has taken its child down.
    blocks: bool,
    /// The data plane has its policy, as it is now or as it was before a failure.
    there: bool,
}

impl Trap {
    /// What takes it away, along with the policies that drop its traffic until it is installed.
    pub(super) fn into_removals(self) -> impl Iterator<Item = Removal> {
        self.held.into_iter().chain([self.policy]).map(Removal::Policy)
    }

    /// The connection and its child.
    pub(super) fn name(&self) -> Name {
        (self.connection.clone(), Some(self.child.name.clone()))
    }

    /// Handles that an end of its peer's IKE SA has moved: the trap is due for new addresses. `from` is the peer's former
    /// address.
    fn follow(&mut self, now: Now, from: IpAddr, (local, remote): (IpAddr, IpAddr)) {
        let is_its_peer = self.remote.to_canonical() == from.to_canonical();
        if is_its_peer && (self.local, self.remote) != (local, remote) {
            (self.local, self.remote, self.again) = (local, remote, Some(now.mono));
        }
    }

    /// True if its policy names an address of this host that may change.
    pub(super) fn names_this_host(&self) -> bool {
        self.child.local_ts.iter().any(|spec| matches!(spec, TsSpec::Dynamic { .. }))
    }

    /// Handles that the kernel sends to its peer from `source` now.
    pub(super) fn leave_by(&mut self, now: Now, source: IpAddr) {
        self.follow(now, self.remote, (source, self.remote));
    }

    /// True if this IKE SA is of its connection, and with its peer at the trap's address.
    fn is_of(&self, sa: &IkeSa) -> bool {
        let remote = sa.channel.route().path().remote.ip().to_canonical();
        sa.channel.connection().name == self.connection && remote == self.remote.to_canonical()
    }

    /// True if the configuration wants the trap, not only a command.
    fn is_configured(&self) -> bool {
        self.child.wants_trap()
    }

    /// Compares the trap with its child in a new configuration.
    fn reloaded(&self, child: Option<&ChildConfig>) -> Reloaded {
        let Some(new) = child else { return Reloaded::Gone };
        match (self.child.wants_trap(), new.wants_trap()) {
            (true, false) => Reloaded::Gone,
            // With another `start_action` the child is not down by command any more, and its trap no block.
            _ if self.child.start_action == new.start_action && self.child.asks_same_as(new) => {
                Reloaded::Same
            }
            _ => Reloaded::Changed,
        }
    }
}

/// The use of a trap for a new configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reloaded {
    Same,
    /// Its policy is another one.
    Changed,
    /// Nothing wants it any more.
    Gone,
}

/// Compares the traps with a new configuration, whether their children are up or not: without the new policy, traffic that
/// only the new configuration protects would leave in clear beside the SA of before. Traps with another policy are due.
/// Returns those that nothing wants any more.
pub(super) fn reload(traps: &mut Vec<Trap>, now: Now, lookup: &Lookup) -> Vec<Trap> {
    let compare = |trap: &Trap| {
        let connection = lookup.connection(&trap.connection);
        trap.reloaded(connection.and_then(|it| it.child(&trap.child.name)).map(|child| &**child))
    };
    let is_gone = |trap: &mut Trap| compare(trap) == Reloaded::Gone;
    let gone = traps.extract_if(.., is_gone).collect();
    for trap in traps {
        if compare(trap) == Reloaded::Changed {
            (trap.again, trap.blocks) = (Some(now.mono), false);
        }
    }
    gone
}

/// Handles that the peer of `connection` has moved, away from its address `from`, or this end.
pub(super) fn follow(traps: &mut [Trap], now: Now, connection: &str, (from, to): (IpAddr, Path)) {
    for trap in traps.iter_mut().filter(|trap| trap.connection == connection) {
        trap.follow(now, from, (to.local.ip(), to.remote.ip()));
    }
}

/// Handles that a child or an IKE SA of `connection` has ended. A peer that had moved, and has no IKE SA any more where it
/// was last, starts at its own address again.
pub(super) fn send_home<'a>(
    traps: &mut [Trap],
    slots: impl Iterator<Item = &'a Slot> + Clone,
    now: Now,
    connection: &str,
) {
    let sas = slots.filter_map(|slot| match &slot.entry {
        Entry::Sa(sa) => Some(sa),
        _ => None,
    });
    let moved = |trap: &&mut Trap| trap.connection == connection && trap.remote != trap.home;
    for trap in traps.iter_mut().filter(moved) {
        if !sas.clone().any(|sa| trap.is_of(sa)) {
            trap.follow(now, trap.remote, (trap.local, trap.home));
        }
    }
}

impl Endpoint {
    /// Makes the trap of `child` block its packets.
    pub(super) fn block_trap(
        &mut self,
        now: Now,
        connection: &str,
        child: &str,
    ) -> Result<(), Failure> {
        let is = |trap: &&mut Trap| trap.connection == connection && trap.child.name == child;
        let trap = self.traps.iter_mut().find(is).ok_or(Failure::NotFound)?;
        // A block that the data plane has refused waits for its next try.
        if !trap.blocks || trap.again.is_none() {
            (trap.again, trap.blocks) = (Some(now.mono), true);
        }
        self.run_traps(now);
        Ok(())
    }

    /// Installs a trap. `request` is answered when the data plane has it.
    pub(super) fn install_trap(
        &mut self,
        now: Now,
        request: Option<RequestId>,
        connection: &str,
        child: &str,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(), Failure> {
        let connection = self.find_connection(connection)?;
        let config = connection
            .child(child)
            .cloned()
            .ok_or_else(|| Failure::Config(format!("no child {child:?}")))?;
        let processing = self.ids.of_trap(&connection, &config).map_err(|NoneLeft| {
            Failure::Config(format!("child {child:?}: every number that fits its marks is in use"))
        })?;
        let path = self.path_to(&connection, local, remote);
        let known = self
            .traps
            .iter()
            .find(|trap| trap.connection == connection.name && trap.child.name == config.name);
        // A command installs it anew, and whatever else the engine does leaves it as it is.
        let blocks = request.is_none() && known.is_some_and(|trap| trap.blocks);
        let policy = known.map_or_else(|| self.ids.policy(), |trap| trap.policy);
        let [local_ts, remote_ts] = [true, false].map(|ours| resolve(&config, path, ours, &[]));
        let selectors = (Arc::from(local_ts.as_slice()), Arc::from(remote_ts.as_slice()));
        let spec = PolicySpec {
            id: policy,
            child: config.name.clone(),
            owner: connection.name.clone(),
            local_ts,
            remote_ts,
            action: match (blocks, config.failure_shunt) {
                (false, _) => PolicyAction::Trap,
                (true, shunt) => PolicyAction::Shunt { silent: shunt == FailureShunt::Drop },
            },
            priority: config.priority,
            processing: Arc::clone(&processing),
            outer: Some(Outer { mode: config.mode, local, remote }),
            standby: false,
        };
        let mut ctx = self.context(now, None);
        let ticket = ctx.data_plane(vec![Plane::InstallPolicy(Box::new(spec))]);
        ctx.ids.unattended.insert(ticket, Unattended::Trap(policy, request));
        match self.traps.iter_mut().find(|trap| trap.policy == policy) {
            Some(trap) => {
                (trap.child, trap.remote, trap.processing) = (config, remote, processing);
                (trap.selectors, trap.local, trap.again) = (selectors, local, None);
                trap.blocks = blocks;
                trap.home = if request.is_some() { remote } else { trap.home };
            }
            None => self.traps.push(Trap {
                policy,
                connection: connection.name.clone(),
                child: config,
                local,
                remote,
                home: remote,
                processing,
                selectors,
                held: Vec::new(),
                failures: 0,
                again: None,
                blocks,
                there: false,
            }),
        }
        Ok(())
    }

    /// Removes a trap.
    pub(super) fn uninstall_trap(&mut self, connection: &str, child: &str) -> Result<(), Failure> {
        let is = |trap: &Trap| trap.connection == connection && trap.child.name == child;
        let Some(at) = self.traps.iter().position(is) else { return Err(Failure::NotFound) };
        let trap = self.traps.remove(at);
        self.ids.numbers.forget_trap(&trap.connection, &trap.child.name);
        self.tell_given_up(&trap.name());
        self.remove_each(trap.into_removals());
        Ok(())
    }

    /// Keeps the policies in `held` until the trap of `child` is installed. Returns them if there is no such trap.
    pub(super) fn hold_until_trapped(
        &mut self,
        connection: &str,
        child: &str,
        held: Vec<PolicyId>,
    ) -> Vec<PolicyId> {
        let is = |trap: &&mut Trap| trap.connection == connection && trap.child.name == child;
        let Some(trap) = self.traps.iter_mut().find(is) else { return held };
        trap.held.extend(held);
        Vec::new()
    }

    /// Handles the data plane's answer to the installation of a trap.
    pub(super) fn on_trap_answered(
        &mut self,
        now: Now,
        policy: PolicyId,
        request: Option<RequestId>,
        result: Result<(), DataPlaneError>,
    ) {
        let trap = self.traps.iter_mut().find(|trap| trap.policy == policy);
        let outcome = match (result, trap) {
            (Ok(()), trap) => {
                if let Some(trap) = trap {
                    (trap.failures, trap.again, trap.there) = (0, None, true);
                    let (held, name) = (std::mem::take(&mut trap.held), trap.name());
                    self.tell_trapped(&name);
                    self.remove_each(held.into_iter().map(Removal::Policy));
                }
                Ok(())
            }
            // The policy of before is still there, and holds the traffic.
            (Err(error), Some(trap)) if trap.is_configured() || trap.there => {
                let wait = FIRST_WAIT * 2_u32.pow(trap.failures.min(MAX_DOUBLINGS));
                let at = now.mono + wait;
                (trap.failures, trap.again) = (trap.failures.saturating_add(1), Some(at));
                self.deadlines.insert((at, Deadline::Housekeeping));
                let (connection, child) = (&trap.connection, &trap.child.name);
                tracing::warn!(%connection, %child, ?wait, error = %error.0, "trap: the data plane refused its policy; the daemon tries again");
                Err(Failure::DataPlane(error.0))
            }
            (Err(error), _) => {
                let gone = self.traps.extract_if(.., |trap| trap.policy == policy);
                let gone: Vec<_> = gone.collect();
                for trap in &gone {
                    self.ids.numbers.forget_trap(&trap.connection, &trap.child.name);
                    self.tell_given_up(&trap.name());
                }
                match gone.is_empty() {
                    true => self.remove_each(std::iter::once(Removal::Policy(policy))),
                    false => self.remove_each(gone.into_iter().flat_map(Trap::into_removals)),
                }
                Err(Failure::DataPlane(error.0))
            }
        };
        if let Some(request) = request {
            self.done(request, outcome);
        }
    }

    /// Installs the traps that are due.
    pub(super) fn run_traps(&mut self, now: Now) {
        let due = |trap: &&mut Trap| trap.again.is_some_and(|at| at <= now.mono);
        let due: Vec<_> = self
            .traps
            .iter_mut()
            .filter(due)
            .map(|trap| {
                trap.again = None;
                (trap.connection.clone(), trap.child.name.clone(), trap.local, trap.remote)
            })
            .collect();
        for (connection, child, local, remote) in due {
            // A reload removes the traps of the connections or children that it removes.
            if let Err(why) = self.install_trap(now, None, &connection, &child, local, remote) {
                tracing::warn!(%connection, %child, ?why, "trap not installed");
            }
        }
    }
}
