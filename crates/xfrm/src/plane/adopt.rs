//! Adoption and removal of states and policies that an earlier run left in the kernel.
//!
//! A daemon that ends without removing its states and policies, on purpose or by a crash, leaves traffic
//! protected. The next daemon takes over those that are still wanted. They stay unchanged until a child replaces
//! them. The child's policies replace the old ones one for one and get the same reqid, so packets under way by the
//! old states pass the new policies. The old outbound state is then removed at once. The inbound one is removed
//! after [`LINGER`], because the peer may still use it. A trap that replaces them sends packets through the old
//! states as long as there are any. States and policies without replacement are removed when their time is up.
//!
//! States are removed before policies. Packets between the two removals are dropped and do not leave in clear.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipsec_types::dataplane::{
    DataPlaneError, Direction, Mode, Outer, PolicyAction, PolicyId, PolicySpec, Processing,
    TrafficSelector,
};

use super::policies::Policies;
use super::reqid::REQIDS;
use super::selectors::pairs;
use super::view::{POLICY_TAG, Remains, templates};
use super::{Source, XfrmNetlink, fail};
use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Policy, PolicyDirection, PolicyId as SlotId, PolicyInfo};
use crate::state::{StateId, StateInfo};

/// How long an inbound state that was replaced goes on decrypting.
pub const LINGER: Duration = Duration::from_secs(5);

/// Policies of an earlier run that only drop or pass packets.
const BARE: PolicyId = PolicyId(u64::MAX);

/// How long until a removal that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A child of an earlier run, as the kernel shows it: the policies and states of one reqid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Reqid.
    pub reqid: u32,
    /// Mode and ends. In transport mode the ends are those of a state, unspecified without one.
    pub outer: Outer,
    /// Policies in all directions.
    pub policies: Vec<PolicyInfo>,
    /// States in both directions; none if it was a trap, or has expired.
    pub states: Vec<StateInfo>,
}

impl Orphan {
    /// True if `state` is outbound.
    fn is_outbound(&self, state: &StateInfo) -> bool {
        match state.direction {
            Some(direction) => direction == Direction::Out,
            None => state.id.dst == self.outer.remote,
        }
    }

    /// Fills in the ends of transport mode, which policies do not say.
    fn find_ends(&mut self) {
        if !self.outer.remote.is_unspecified() {
            return;
        }
        let outward = self.policies.iter().find(|p| p.policy.id.direction == PolicyDirection::Out);
        let remote = outward.map(|info| info.policy.id.selector.dst.address);
        let found = self.states.iter().find_map(|state| match state.direction {
            Some(Direction::Out) => Some((state.src, state.id.dst)),
            Some(Direction::In) => Some((state.id.dst, state.src)),
            None if Some(state.id.dst) == remote => Some((state.src, state.id.dst)),
            None => None,
        });
        if let Some((local, remote)) = found {
            (self.outer.local, self.outer.remote) = (local, remote);
        }
    }
}

/// The adopted states and policies that are still there.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    /// Children by reqid.
    children: BTreeMap<u32, Child>,
    /// The reqid that each policy had.
    slots: HashMap<SlotId, u32>,
    /// States and policies to be removed, and when.
    leaving: Vec<(Instant, Leaving)>,
}

#[derive(Debug)]
struct Child {
    policy: PolicyId,
    slots: Vec<SlotId>,
    inbound: Vec<StateId>,
    outbound: Vec<StateId>,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    State(StateId),
    /// By the name it was adopted under.
    Policy(PolicyId),
}

impl<T: Transport, S: Source> XfrmNetlink<T, S> {
    /// Takes over the states and policies that earlier runs left, of any process.
    ///
    /// If `wanted` gives a time for a child, its states and policies stay until another child replaces them, but
    /// no longer than that time. The states of all other children are removed now. Their policies then drop
    /// packets, and are removed after `settle`, as are policies that only drop or pass packets. By then,
    /// configured ones should be installed again. Returns the children that stay.
    ///
    /// Must come before the first command.
    pub fn take_over(
        &mut self,
        settle: Duration,
        mut wanted: impl FnMut(&Orphan) -> Option<Duration>,
    ) -> Result<Vec<Orphan>, Error> {
        let remains = Remains::find(&mut self.kernel)?;
        self.kernel.tag_policies(POLICY_TAG, remains.last_index());
        let now = self.clock.now();
        let (orphans, bare) = sort(remains);
        let ours = orphans.keys().copied().filter(|reqid| REQIDS.contains(reqid));
        if let Some(last) = ours.max() {
            self.reqids.start_after(last);
        }
        let mut kept = Vec::new();
        for orphan in orphans.into_values() {
            match wanted(&orphan).and_then(|time| now.checked_add(time)) {
                Some(until) => {
                    self.adopted.keep(&orphan, until, &mut self.policies);
                    kept.push(orphan);
                }
                None => {
                    let child = Child::of(&orphan, now, &mut self.policies);
                    child.leave_states(now, now, now + settle, &mut self.adopted.leaving);
                }
            }
        }
        if !bare.is_empty() {
            self.policies.adopt(spec(BARE, PolicyAction::Drop), bare, true);
            self.adopted.leaving.push((now + settle, Leaving::Policy(BARE)));
        }
        self.adopted.remove_due(&mut self.kernel, &mut self.policies, now);
        Ok(kept)
    }

    /// True if something of an earlier run is still there.
    pub fn has_orphans(&self) -> bool {
        !self.adopted.is_empty()
    }

    /// The policy `id` is installed now: the states and policies that it replaced are removed.
    pub(super) fn replaced(&mut self, id: PolicyId) {
        if self.adopted.is_empty() {
            return;
        }
        let now = self.clock.now();
        for slot in self.policies.slots_of(id) {
            if let Some(&reqid) = self.adopted.slots.get(slot) {
                self.adopted.supersede(reqid, now);
            }
        }
        self.adopted.remove_due(&mut self.kernel, &mut self.policies, now);
    }
}

impl Adopted {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty() && self.leaving.is_empty()
    }

    /// The reqid of the adopted child that a child with these selectors will replace.
    pub(super) fn reqid_for(
        &self,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        processing: &Processing,
        ifindex: u32,
    ) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let pairs = pairs(local, remote).ok()?;
        pairs.iter().find_map(|(pair, _, _)| {
            let id = SlotId {
                selector: pair.outward(ifindex),
                direction: PolicyDirection::Out,
                mark: processing.mark_out,
                if_id: processing.if_id_out,
            };
            self.slots.get(&id).copied()
        })
    }

    /// When [`Self::remove_due`] has something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        let children = self.children.values().map(|child| child.until);
        children.chain(self.leaving.iter().map(|(at, _)| *at)).min()
    }

    /// Removes states and policies that are due. Failed removals are tried again later.
    pub(super) fn remove_due<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        policies: &mut Policies,
        now: Instant,
    ) {
        let expired = self.children.iter().filter(|(_, child)| child.until <= now);
        for reqid in expired.map(|(reqid, _)| *reqid).collect::<Vec<_>>() {
            if let Some(child) = self.take(reqid) {
                tracing::info!(reqid, "what an earlier run left has had its time");
                child.leave(now, now, &mut self.leaving);
            }
        }
        let mut rest = Vec::new();
        for (at, what) in std::mem::take(&mut self.leaving) {
            if at > now {
                rest.push((at, what));
            } else if let Err(error) = what.remove(kernel, policies) {
                tracing::warn!(%error, "what an earlier run left is not removed, and will be later");
                rest.push((now + AGAIN, what));
            }
        }
        self.leaving = rest;
    }

    /// Removes all, due or not.
    pub(super) fn clear<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        policies: &mut Policies,
        now: Instant,
    ) {
        for child in std::mem::take(&mut self.children).into_values() {
            child.leave(now, now, &mut self.leaving);
        }
        self.slots.clear();
        self.leaving.iter_mut().for_each(|(at, _)| *at = now);
        self.remove_due(kernel, policies, now);
    }

    fn keep(&mut self, orphan: &Orphan, until: Instant, policies: &mut Policies) {
        let child = Child::of(orphan, until, policies);
        self.slots.extend(child.slots.iter().map(|slot| (*slot, orphan.reqid)));
        self.children.insert(orphan.reqid, child);
    }

    fn supersede(&mut self, reqid: u32, now: Instant) {
        if let Some(child) = self.take(reqid) {
            child.leave(now, now + LINGER, &mut self.leaving);
        }
    }

    fn take(&mut self, reqid: u32) -> Option<Child> {
        let child = self.children.remove(&reqid)?;
        for slot in &child.slots {
            self.slots.remove(slot);
        }
        Some(child)
    }
}

impl Child {
    /// `orphan`, whose policies are in `policies` from now on.
    fn of(orphan: &Orphan, until: Instant, policies: &mut Policies) -> Self {
        let (outbound, inbound): (Vec<_>, Vec<_>) =
            orphan.states.iter().partition(|state| orphan.is_outbound(state));
        let ids = |states: Vec<&StateInfo>| states.iter().map(|state| state.id).collect();
        let mut there: Vec<_> = orphan.policies.iter().map(|info| info.policy.clone()).collect();
        // Outbound policies are removed last.
        there.sort_by_key(|policy| policy.id.direction == PolicyDirection::Out);
        let slots = there.iter().map(|policy| policy.id).collect();
        // The shunts of this run have numbers from the middle on.
        let policy = PolicyId(BARE.0 - u64::from(orphan.reqid));
        let Outer { mode, local, remote } = orphan.outer;
        let action = PolicyAction::Protect { mode, local, remote, outbound: None };
        policies.adopt(spec(policy, action), there, false);
        Self { policy, slots, inbound: ids(inbound), outbound: ids(outbound), until }
    }

    /// Leaves at `now`, its inbound states at `inbound`.
    fn leave(self, now: Instant, inbound: Instant, list: &mut Vec<(Instant, Leaving)>) {
        self.leave_states(now, inbound, now, list);
    }

    /// The same, but its policies at `policy`: without states they drop what they were to protect.
    fn leave_states(
        self,
        now: Instant,
        inbound: Instant,
        policy: Instant,
        list: &mut Vec<(Instant, Leaving)>,
    ) {
        list.extend(self.outbound.into_iter().map(|state| (now, Leaving::State(state))));
        list.extend(self.inbound.into_iter().map(|state| (inbound, Leaving::State(state))));
        list.push((policy, Leaving::Policy(self.policy)));
    }
}

impl Leaving {
    fn remove<T: Transport>(
        self,
        kernel: &mut Kernel<T>,
        policies: &mut Policies,
    ) -> Result<(), DataPlaneError> {
        match self {
            Self::State(id) => kernel.delete_state(&id).map(drop).map_err(fail),
            Self::Policy(id) => policies.remove(kernel, id).map(drop),
        }
    }
}

/// The name of policies of an earlier run.
fn spec(id: PolicyId, action: PolicyAction) -> PolicySpec {
    PolicySpec {
        id,
        child: "of an earlier run".into(),
        owner: String::new(),
        local_ts: Vec::new(),
        remote_ts: Vec::new(),
        action,
        priority: 0,
        processing: Arc::default(),
        outer: None,
        standby: false,
    }
}

/// Children by reqid, and policies that are of none.
fn sort(remains: Remains) -> (BTreeMap<u32, Orphan>, Vec<Policy>) {
    let Remains { states, policies } = remains;
    let mut orphans: BTreeMap<u32, Orphan> = BTreeMap::new();
    let mut bare = Vec::new();
    for policy in policies {
        match templates(&policy).first() {
            Some(template) if template.reqid != 0 => {
                let outward = policy.policy.id.direction == PolicyDirection::Out;
                let (local, remote) = match outward {
                    true => (template.src, template.dst),
                    false => (template.dst, template.src),
                };
                let outer = Outer { mode: template.mode, local, remote };
                let orphan = of(&mut orphans, template.reqid, outer);
                orphan.policies.push(policy);
            }
            // A policy on a device that does all of ESP is removed by its installer.
            _ if policy.policy.offload.is_some() => {}
            _ => bare.push(policy.policy),
        }
    }
    for state in states {
        let any = IpAddr::from([0, 0, 0, 0]);
        let outer = Outer { mode: state.mode.unwrap_or(Mode::Tunnel), local: any, remote: any };
        of(&mut orphans, state.reqid, outer).states.push(state);
    }
    orphans.values_mut().for_each(Orphan::find_ends);
    (orphans, bare)
}

fn of(orphans: &mut BTreeMap<u32, Orphan>, reqid: u32, outer: Outer) -> &mut Orphan {
    let (policies, states) = (Vec::new(), Vec::new());
    orphans.entry(reqid).or_insert(Orphan { reqid, outer, policies, states })
}
