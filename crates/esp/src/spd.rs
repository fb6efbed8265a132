//! The security policy database (RFC 4301 §4.4.1).
//!
//! [`precedence`](ipsec_types::dataplane::precedence) says which policy a packet meets.
//!
//! Overlaps between owners are logged, and refused if [`Spd::refuse_overlaps`] says so.

use std::cmp::Reverse;
use std::sync::Arc;

use ipsec_types::dataplane::overlaps::{self, Held};
use ipsec_types::dataplane::precedence::{Order, Rank, is_trap_of};
use ipsec_types::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};

use crate::selector::{Side, admits_some, is_opaque, looks_at_ports, matches};

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
    /// Sets whether a protecting policy is refused if another owner's policy protects some of the same traffic.
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
                overlaps::judge(&spec, self.count + 1, self.held(), self.refuses_overlaps)?;
                self.count += 1;
                Reverse(self.count)
            }
        };
        let policy = Arc::new(spec);
        let mut added = Vec::with_capacity(pairs);
        for &local in &policy.local_ts {
            for &remote in &policy.remote_ts {
                let order = Order::of(&policy, &local, &remote);
                let claim =
                    overlaps::claim(&policy.owner, &local, &remote, self.held()).unwrap_or(since.0);
                let rank = Rank { order, claim, standby: policy.standby, since };
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
        let takes = |entry: &&Entry| matches(&entry.local, local) && matches(&entry.remote, remote);
        let mut taking = self.entries.iter().filter(takes).map(|entry| &entry.policy);
        let first = taking.next()?;
        if first.action != PolicyAction::Trap {
            return Some(first);
        }
        Some(taking.find(|policy| is_trap_of(first, policy)).unwrap_or(first))
    }

    /// True if a fragment between `local` and `remote` does not show which policy its packet meets, because a selector
    /// looks at ports, or at a protocol that is hidden. Where a selector takes fragments without ports by themselves
    /// (OPAQUE), each meets its own policy (RFC 4301 §7.2), unless a later one would pass in clear whose packet another
    /// policy does not pass.
    pub fn needs_whole(&self, local: &Side, remote: &Side) -> bool {
        // All fragments of a packet are treated alike, the first one too.
        let later = |side: &Side| Side { port: None, ..*side };
        let (local, remote) = (&later(local), &later(remote));
        let of_both = |entry: &Entry, test: fn(&TrafficSelector, &Side) -> bool| {
            test(&entry.local, local) || test(&entry.remote, remote)
        };
        let looks_beyond = |entry: &Entry| {
            of_both(entry, |ts, side| {
                looks_at_ports(ts) || ts.protocol != 0 && side.protocol.is_none()
            })
        };
        let mut possible = self
            .entries
            .iter()
            .filter(|entry| admits_some(&entry.local, local) && admits_some(&entry.remote, remote));
        if !possible.clone().any(|entry| of_both(entry, |ts, _| is_opaque(ts))) {
            // The first that looks at neither takes the packet, whatever it hides.
            return possible.next().is_some_and(looks_beyond);
        }
        let own = |entry: &&Entry| matches(&entry.local, local) && matches(&entry.remote, remote);
        let Some(policy) = possible.clone().find(own) else {
            // No policy takes the fragment, but one may take its packet.
            return possible.any(looks_beyond);
        };
        // Packets with ports do not meet an OPAQUE policy, so others may take them whatever their place.
        let protects =
            |entry: &Entry| entry.policy.action != PolicyAction::Pass && looks_beyond(entry);
        policy.policy.action == PolicyAction::Pass && possible.any(protects)
    }

    /// The policies, some of them more than once.
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Arc<PolicySpec>> {
        self.entries.iter().map(|entry| &entry.policy)
    }

    /// Every pair of selectors, local first, with the action for its traffic, in the order in which they apply.
    pub fn pairs(
        &self,
    ) -> impl Iterator<Item = (&TrafficSelector, &TrafficSelector, &PolicyAction)> {
        self.entries.iter().map(|entry| (&entry.local, &entry.remote, &entry.policy.action))
    }

    /// All entries, in the order in which they apply.
    fn held(&self) -> impl Iterator<Item = Held<'_>> + Clone {
        self.entries.iter().map(|Entry { rank, local, remote, policy }| Held {
            policy,
            local,
            remote,
            rank: *rank,
        })
    }
}

#[cfg(test)]
mod tests {
    use ipsec_types::dataplane::Mode;

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
            standby: false,
        }
    }

    /// Who gets the traffic by what is logged when `new` comes, and by what is done then.
    fn winner(spd: &mut Spd, new: PolicySpec) -> (String, String) {
        let first = spd.held().next().unwrap();
        let said = overlaps::decide(&new, spd.count + 1, spd.held(), first).0.owner.clone();
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
}
