//! Policies of several owners for the same traffic.
//!
//! [`overlaps`](ipsec_types::dataplane::overlaps) decides about them. This module stores the owners, in a form that
//! is fast to search among ten thousand policies for each new one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipsec_types::dataplane::overlaps::{Held, claim, judge};
use ipsec_types::dataplane::precedence::{Order, Rank};
use ipsec_types::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};

/// The pairs of selectors of all policies that protect.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// The remote addresses of each pair, by themselves: most pairs are told apart by them.
    remotes: Vec<(u128, u128)>,
    pairs: Vec<Pair>,
    /// Where in these each policy's are.
    places: HashMap<PolicyId, Vec<usize>>,
    pub(super) refused: bool,
}

#[derive(Debug)]
struct Pair {
    spec: Arc<PolicySpec>,
    local: TrafficSelector,
    remote: TrafficSelector,
    rank: Rank,
}

impl Overlaps {
    /// Judges a policy that is to be installed.
    pub(super) fn judge(&self, spec: &PolicySpec, since: u64) -> Result<(), DataPlaneError> {
        let near: Vec<Held<'_>> =
            spec.remote_ts.iter().flat_map(|remote| self.near(remote)).collect();
        judge(spec, since, near.iter().copied(), self.refused)
    }

    /// Takes note of a policy that was installed, in the place of an earlier one with its id.
    pub(super) fn add(&mut self, spec: &Arc<PolicySpec>, since: u64) {
        let mut added = Vec::new();
        if matches!(spec.action, PolicyAction::Protect { .. }) {
            for local in &spec.local_ts {
                for remote in &spec.remote_ts {
                    let order = Order::of(spec, local, remote);
                    let earlier = claim(&spec.owner, local, remote, self.near(remote));
                    let rank = Rank {
                        order,
                        claim: earlier.unwrap_or(since),
                        standby: spec.standby,
                        since: Reverse(since),
                    };
                    added.push(Pair {
                        spec: Arc::clone(spec),
                        local: *local,
                        remote: *remote,
                        rank,
                    });
                }
            }
        }
        self.remove(spec.id);
        for pair in added {
            self.places.entry(spec.id).or_default().push(self.pairs.len());
            self.remotes.push(span(&pair.remote));
            self.pairs.push(pair);
        }
    }

    /// Forgets a policy.
    pub(super) fn remove(&mut self, id: PolicyId) {
        while let Some(at) = self.places.get_mut(&id).and_then(Vec::pop) {
            // The last pair takes its place.
            self.remotes.swap_remove(at);
            self.pairs.swap_remove(at);
            let Some(moved) = self.pairs.get(at).map(|pair| pair.spec.id) else { continue };
            let last = self.pairs.len();
            let places = self.places.get_mut(&moved).into_iter().flatten();
            places.filter(|place| **place == last).for_each(|place| *place = at);
        }
        self.places.remove(&id);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.remotes.clear();
        self.pairs.clear();
        self.places.clear();
    }

    /// Pairs that have remote addresses in common with `remote`.
    fn near(&self, remote: &TrafficSelector) -> impl Iterator<Item = Held<'_>> {
        let (first, last) = span(remote);
        let near = self.remotes.iter().enumerate();
        near.filter(move |(_, span)| span.0 <= last && first <= span.1)
            .filter_map(|(at, _)| self.pairs.get(at))
            .map(|Pair { spec, local, remote, rank }| Held {
                policy: spec,
                local,
                remote,
                rank: *rank,
            })
    }
}

/// First and last address; IPv4 below the mapped prefix, where no IPv6 selector of use is.
fn span(ts: &TrafficSelector) -> (u128, u128) {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    };
    (number(ts.start), number(ts.end))
}
