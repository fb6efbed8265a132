//! Several children for the same traffic, one for each CPU that has some (RFC 9611; the exchange is in
//! `exchange/resource.rs`).

use super::Children;
use crate::child::Join;
use crate::child::selectors::same;
use crate::child::{ChildSa, Phase};
use crate::config::ChildConfig;
use crate::dataplane::{Flow, PolicyId, Processing, TrafficSelector};
use crate::wants::Sought;
use crate::wire::registry::NotifyType;

impl Children {
    /// The children that share `policy`.
    pub(crate) fn sharing(&self, policy: PolicyId) -> impl Iterator<Item = &ChildSa> {
        self.all.iter().filter(move |child| child.shares(policy))
    }

    /// The place of the child for all CPUs, if children of `config` that accept `packet` lack it.
    pub(crate) fn headless(&self, config: &ChildConfig, packet: Option<Flow>) -> Option<Join> {
        let takes = |child: &ChildSa| packet.is_none_or(|packet| child.takes(packet));
        let named = |child: &&ChildSa| {
            Sought::Present(config).is(&child.config) && child.shares(child.policy)
        };
        let mut children = self.all.iter().filter(named).filter(|child| takes(child));
        children.find_map(|child| {
            let missing = self.sharing(child.policy).all(|other| other.cpu.is_some());
            missing.then_some(Join { policy: child.policy, cpu: None })
        })
    }

    /// True if `child` is for all CPUs, or is the first of several without such a child. The children for one CPU
    /// are made again when that CPU has a packet.
    pub(crate) fn stands_for_all(&self, child: &ChildSa) -> bool {
        let carrying = || self.sharing(child.policy).filter(|other| other.carries());
        let first = carrying().next().is_some_and(|first| first.id == child.id);
        child.cpu.is_none() || first && carrying().all(|other| other.cpu.is_some())
    }

    /// A child beside which the peer's request for `config` and these selectors would be a further one.
    pub(crate) fn sibling(
        &self,
        config: &ChildConfig,
        local_ts: &[TrafficSelector],
        remote_ts: &[TrafficSelector],
    ) -> Option<&ChildSa> {
        let alike = |child: &&ChildSa| {
            child.config.name == config.name
                && matches!(child.phase, Phase::Installing | Phase::Installed)
                && same(&child.local_ts, local_ts)
                && same(&child.remote_ts, remote_ts)
        };
        // A child that can have others is preferred.
        self.all.iter().filter(alike).max_by_key(|child| child.processing.per_cpu)
    }

    /// The policy that several children of this name share which accept `packet`, which met a trap.
    pub(crate) fn shared_policy(
        &self,
        name: &str,
        packet: Flow,
        trap: &Processing,
    ) -> Option<PolicyId> {
        let mut children = self.all.iter();
        let found = children.find(|child| {
            child.config.name == name
                && child.shares(child.policy)
                && child.takes(packet)
                && child.is_marked_like(trap)
        });
        found.map(|child| child.policy)
    }

    /// One of several children, or the only one so far, for these selectors.
    pub(crate) fn same_traffic(
        &self,
        config: &ChildConfig,
        local_ts: &[TrafficSelector],
        remote_ts: &[TrafficSelector],
    ) -> Option<&ChildSa> {
        let sibling = self.sibling(config, local_ts, remote_ts);
        sibling.filter(|child| child.processing.per_cpu)
    }

    /// The error for a peer whose `child` is not possible. For a further child RFC 9611 §6 has an error of its
    /// own.
    pub(crate) fn no_room(&self, child: &ChildSa) -> NotifyType {
        let more = self.sharing(child.policy).any(|other| other.id != child.id);
        match more && child.replaces.is_none() {
            true => NotifyType::TS_MAX_QUEUE,
            false => NotifyType::NO_ADDITIONAL_SAS,
        }
    }

    /// True if `child` was to be for one CPU, and all children beside it have gone meanwhile.
    pub(crate) fn has_lost_its_place(&self, child: &ChildSa) -> bool {
        child.cpu.is_some() && self.sharing(child.policy).next().is_none()
    }

    /// True if the peer accepts no more children beside those of `policy`.
    pub(crate) fn is_full(&self, policy: PolicyId) -> bool {
        self.full.contains(&policy)
    }

    /// Records that the peer accepts no more children beside those of `policy`.
    pub(crate) fn note_full(&mut self, policy: PolicyId) {
        if !self.full.contains(&policy) {
            self.full.push(policy);
        }
    }

    /// Forgets that, because the peer has room for another child.
    pub(crate) fn note_room(&mut self, policy: PolicyId) {
        self.full.retain(|full| *full != policy);
    }
}
