//! The security policy database (RFC 4301 §4.4.1).
//!
//! [`precedence`](ike_proto::dataplane::precedence) says which policy a packet meets.
//!
//! Overlaps between owners are logged, and refused if [`Spd::refuse_overlaps`] says so.

use std::cmp::Reverse;
use std::sync::Arc;

use ike_proto::dataplane::precedence::{Order, Rank};
use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};
use tracing::{info, warn};

use crate::selector::{Side, matches, overlap};

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
                let order = Order::of(&policy, &local, &remote);
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

    /// Who gets the traffic of `there` that `new`, not installed yet, claims too; the winner first.
    fn decide<'a>(
        &self,
        new: &'a PolicySpec,
        there: &'a Entry,
    ) -> (&'a PolicySpec, &'a PolicySpec) {
        let Entry { local, remote, policy, rank } = there;
        let since = self.count + 1;
        let claim = self.claim(&new.owner, local, remote).unwrap_or(since);
        let order = Order::of(new, local, remote);
        let wins = Rank { order, claim, since: Reverse(since) } < *rank;
        if wins { (new, policy) } else { (policy, new) }
    }

    /// Names the policies of others that protect what `spec` is to protect.
    fn judge_overlaps(&self, spec: &PolicySpec) -> Result<(), DataPlaneError> {
        if !protects(spec) {
            return Ok(());
        }
        let any = |a: &[TrafficSelector], b: &TrafficSelector| a.iter().any(|a| overlap(a, b));
        let mut told = Vec::new();
        for entry in &self.entries {
            let Entry { local, remote, policy, .. } = entry;
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
            if alike {
                let (winner, loser) = self.decide(spec, entry);
                let (owner, child) = (&winner.owner, &winner.child);
                let (not_to, not_child) = (&loser.owner, &loser.child);
                warn!(%owner, %child, %not_to, %not_child, %local, %remote, "{}: it goes to {owner}",
                    claimants(owner, not_to));
            } else {
                let (child, others) = (&spec.child, &policy.child);
                info!(%owner, %child, %other, %others, %local, %remote,
                    "traffic selectors overlap: a priority wins, else the narrower ones");
            }
        }
        Ok(())
    }
}

/// Who claims the same traffic. An owner is a connection and, in brackets, the peer's identity.
fn claimants(a: &str, b: &str) -> &'static str {
    let peer = |owner: &str| owner.split_once(" [").map(|(_, peer)| peer.to_owned());
    match (peer(a), peer(b)) {
        (Some(a), Some(b)) if a == b => "two connections with one peer claim the same traffic",
        (Some(_), Some(_)) => "two peers claim the same traffic",
        _ => "two connections claim the same traffic",
    }
}

fn protects(policy: &PolicySpec) -> bool {
    matches!(policy.action, PolicyAction::Protect { .. })
}

#[cfg(test)]
mod tests {
    use ike_proto::dataplane::Mode;

    use super::*;

    fn spec(id: u64, owner: &str, priority: u32) -> PolicySpec {
        let (local, remote) = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
        PolicySpec {
            id: PolicyId(id),
            child: format!("child{id}"),
            owner: owner.to_owned(),
            local_ts: vec!["10.1.0.0/16".parse().unwrap()],
            remote_ts: vec!["10.2.0.0/16".parse().unwrap()],
            action: PolicyAction::Protect { mode: Mode::Tunnel, local, remote, outbound: None },
            priority,
            processing: Arc::default(),
            outer: None,
        }
    }

    /// Who gets the traffic by what is logged when `new` comes, and by what is done then.
    fn winner(spd: &mut Spd, new: PolicySpec) -> (String, String) {
        let said = spd.decide(&new, &spd.entries[0]).0.owner.clone();
        spd.install(new).unwrap();
        (said, spd.entries[0].policy.owner.clone())
    }

    #[test]
    fn what_is_logged_is_what_happens() {
        let owner = |name: &str| (name.to_owned(), name.to_owned());
        let mut spd = Spd::default();
        spd.install(spec(1, "a [x]", 0)).unwrap();
        assert_eq!(winner(&mut spd, spec(2, "b [y]", 0)), owner("a [x]"), "who was first");
        assert_eq!(winner(&mut spd, spec(3, "c [z]", 7)), owner("c [z]"), "a priority");
        spd.remove(PolicyId(3));
        spd.remove(PolicyId(1));
        assert_eq!(winner(&mut spd, spec(4, "a [x]", 0)), owner("b [y]"), "the first is gone");
    }

    #[test]
    fn one_peer_is_not_called_two() {
        assert!(claimants("a [x]", "b [x]").starts_with("two connections with one peer"));
        assert!(claimants("a [x]", "b [y]").starts_with("two peers"));
        assert!(claimants("a", "b [y]").starts_with("two connections claim"));
    }
}
