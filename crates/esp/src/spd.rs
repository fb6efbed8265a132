//! The security policy database (RFC 4301 §4.4.1).
//!
//! Policies may overlap, and peers may claim what others have. Which one a packet meets is decided by:
//!
//! 1. what protects, passes or drops before what stands in for a child that is not up (`Shunt`);
//! 2. a configured priority before an automatic one, the lower number first, as strongSwan has it;
//! 3. the more specific pair of selectors;
//! 4. exemptions, then drops, then protection, then the trap it was triggered by;
//! 5. the owner who was there first: a later peer does not get the traffic of an earlier one by asking
//!    for the same selectors. Of one owner's policies the newest counts, for that is the one its other
//!    end knows of.
//!
//! Overlaps between owners are logged, and refused if [`Spd::refuse_overlaps`] says so.

use std::cmp::Reverse;
use std::sync::Arc;

use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use tracing::{info, warn};

use crate::selector::{Side, breadth, matches, overlap};

/// The most entries one policy may expand to.
const MAX_ENTRIES: usize = 16 * 1024;

/// One policy expanded to one pair of selectors.
#[derive(Debug)]
struct Entry {
    rank: Rank,
    local: TrafficSelector,
    remote: TrafficSelector,
    policy: Arc<PolicySpec>,
}

/// Earlier entries win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    order: Order,
    /// When the owner first had these selectors.
    claim: u64,
    /// When the policy came.
    since: Reverse<u64>,
}

/// What the policy and its selectors say by themselves: rules 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    stands_in: bool,
    automatic: bool,
    priority: u32,
    breadth: u32,
    class: u8,
}

/// All policies of a plane, in the order in which they apply.
#[derive(Debug, Default)]
pub struct Spd {
    entries: Vec<Entry>,
    refuses_overlaps: bool,
    /// Policies installed so far.
    count: u64,
}

impl Spd {
    /// Whether a policy that protects is refused if another owner's protects some of the same traffic.
    pub fn refuse_overlaps(&mut self, refuse: bool) {
        self.refuses_overlaps = refuse;
    }

    /// Adds a policy, in the place of an earlier one with its id.
    pub fn install(&mut self, spec: PolicySpec) -> Result<(), DataPlaneError> {
        let pairs = spec.local_ts.len().saturating_mul(spec.remote_ts.len());
        if pairs == 0 || pairs > MAX_ENTRIES {
            return Err(DataPlaneError(format!("policy with {pairs} pairs of selectors")));
        }
        let earlier = self.entries.iter().find(|entry| entry.policy.id == spec.id);
        let since = match earlier {
            Some(entry) => entry.rank.since,
            None => {
                self.judge_overlaps(&spec)?;
                self.count += 1;
                Reverse(self.count)
            }
        };
        let policy = Arc::new(spec);
        let mut added = Vec::with_capacity(pairs);
        for &local in &policy.local_ts {
            for &remote in &policy.remote_ts {
                let order = order(&policy, &local, &remote);
                let claim = self.claim(&policy.owner, &local, &remote).unwrap_or(since.0);
                let rank = Rank { order, claim, since };
                added.push(Entry { rank, local, remote, policy: Arc::clone(&policy) });
            }
        }
        self.remove(policy.id);
        self.entries.extend(added);
        self.entries.sort_by_key(|entry| entry.rank);
        Ok(())
    }

    /// Removes a policy, if it is there.
    pub fn remove(&mut self, id: PolicyId) {
        self.entries.retain(|entry| entry.policy.id != id);
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The policy for a packet between `local` and `remote`.
    pub fn find(&self, local: &Side, remote: &Side) -> Option<&Arc<PolicySpec>> {
        self.entries
            .iter()
            .find(|entry| matches(&entry.local, local) && matches(&entry.remote, remote))
            .map(|entry| &entry.policy)
    }

    /// Every pair of selectors, local first, with what is done with its traffic, in the order in which
    /// they apply.
    pub fn pairs(
        &self,
    ) -> impl Iterator<Item = (&TrafficSelector, &TrafficSelector, &PolicyAction)> {
        self.entries.iter().map(|entry| (&entry.local, &entry.remote, &entry.policy.action))
    }

    /// Since when `owner` has had this pair of selectors.
    fn claim(&self, owner: &str, local: &TrafficSelector, remote: &TrafficSelector) -> Option<u64> {
        let same = self.entries.iter().filter(|entry| {
            entry.policy.owner == owner && entry.local == *local && entry.remote == *remote
        });
        same.map(|entry| entry.rank.claim).min()
    }

    /// Names the policies of others that protect what `spec` is to protect.
    fn judge_overlaps(&self, spec: &PolicySpec) -> Result<(), DataPlaneError> {
        if !protects(spec) {
            return Ok(());
        }
        let any = |a: &[TrafficSelector], b: &TrafficSelector| a.iter().any(|a| overlap(a, b));
        let mut told = Vec::new();
        for Entry { local, remote, policy, .. } in &self.entries {
            let theirs = protects(policy)
                && policy.owner != spec.owner
                && any(&spec.local_ts, local)
                && any(&spec.remote_ts, remote);
            if !theirs || told.contains(&policy.id) {
                continue;
            }
            told.push(policy.id);
            let (owner, other) = (&spec.owner, &policy.owner);
            if self.refuses_overlaps {
                return Err(DataPlaneError(format!(
                    "{owner}, child {}: {local} === {remote} overlaps child {} of {other}",
                    spec.child, policy.child
                )));
            }
            let alike = spec.local_ts.contains(local) && spec.remote_ts.contains(remote);
            let (child, others) = (&spec.child, &policy.child);
            if alike {
                warn!(%owner, %child, %other, %others, %local, %remote,
                    "two peers claim the same traffic: it goes to the one who was first");
            } else {
                info!(%owner, %child, %other, %others, %local, %remote,
                    "traffic selectors overlap: the narrower ones win");
            }
        }
        Ok(())
    }
}

fn protects(policy: &PolicySpec) -> bool {
    matches!(policy.action, PolicyAction::Protect { .. })
}

fn order(policy: &PolicySpec, local: &TrafficSelector, remote: &TrafficSelector) -> Order {
    let class = match policy.action {
        PolicyAction::Pass => 0,
        PolicyAction::Drop => 1,
        PolicyAction::Protect { .. } => 2,
        PolicyAction::Trap => 3,
        PolicyAction::Shunt { .. } => 4,
    };
    Order {
        stands_in: matches!(policy.action, PolicyAction::Shunt { .. }),
        automatic: policy.priority == 0,
        priority: policy.priority,
        breadth: breadth(local) + breadth(remote),
        class,
    }
}
