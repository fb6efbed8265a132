//! Policies of several owners for the same traffic: they are named in the log, or refused.

use std::cmp::Reverse;

use tracing::{info, warn};

use super::precedence::{Order, Rank};
use super::{DataPlaneError, PolicyAction, PolicySpec, TrafficSelector};

/// One pair of selectors of an installed policy.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The policy.
    pub policy: &'a PolicySpec,
    /// This host's side.
    pub local: &'a TrafficSelector,
    /// The peer's side.
    pub remote: &'a TrafficSelector,
    /// Its rank.
    pub rank: Rank,
}

/// Names the policies of other owners among `held` that protect the same traffic as `spec`. `since` will be its
/// rank. An error if overlaps are refused and there is one.
pub fn judge<'a>(
    spec: &PolicySpec,
    since: u64,
    held: impl Iterator<Item = Held<'a>> + Clone,
    refuse: bool,
) -> Result<(), DataPlaneError> {
    if !protects(spec) {
        return Ok(());
    }
    let mut told = Vec::new();
    for there in held.clone() {
        let Held { policy, local, remote, .. } = there;
        let theirs = policy.owner != spec.owner
            && protects(policy)
            && any(&spec.remote_ts, remote)
            && any(&spec.local_ts, local);
        if !theirs || told.contains(&policy.id) {
            continue;
        }
        told.push(policy.id);
        let (owner, other) = (&spec.owner, &policy.owner);
        if refuse {
            return Err(DataPlaneError(format!(
                "{owner}, child {}: {local} === {remote} overlaps child {} of {other}",
                spec.child, policy.child
            )));
        }
        if spec.local_ts.contains(local) && spec.remote_ts.contains(remote) {
            let (winner, loser) = decide(spec, since, held.clone(), there);
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

/// Decides which policy applies to traffic that both `there` and `new` claim; `new` is not installed yet. The
/// winner comes first.
pub fn decide<'a, 'b>(
    new: &'a PolicySpec,
    since: u64,
    held: impl Iterator<Item = Held<'b>>,
    there: Held<'a>,
) -> (&'a PolicySpec, &'a PolicySpec) {
    let Held { local, remote, policy, rank } = there;
    let claim = claim(&new.owner, local, remote, held).unwrap_or(since);
    let order = Order::of(new, local, remote);
    let wins = Rank { order, claim, standby: new.standby, since: Reverse(since) } < rank;
    if wins { (new, policy) } else { (policy, new) }
}

/// Since when `owner` has had this pair of selectors.
pub fn claim<'a>(
    owner: &str,
    local: &TrafficSelector,
    remote: &TrafficSelector,
    held: impl Iterator<Item = Held<'a>>,
) -> Option<u64> {
    let same = held
        .filter(|held| held.remote == remote && held.local == local && held.policy.owner == owner);
    same.map(|held| held.rank.claim).min()
}

fn any(list: &[TrafficSelector], other: &TrafficSelector) -> bool {
    list.iter().any(|ts| ts.intersect(other).is_some())
}

/// The claimants of the same traffic. An owner is a connection and, in brackets, the peer's identity.
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
    use super::*;

    #[test]
    fn one_peer_is_not_called_two() {
        assert!(claimants("a [x]", "b [x]").starts_with("two connections with one peer"));
        assert!(claimants("a [x]", "b [y]").starts_with("two peers"));
        assert!(claimants("a", "b [y]").starts_with("two connections claim"));
    }
}
