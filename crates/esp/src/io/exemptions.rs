//! The exemptions that may have routes past the device.
//!
//! A route matches the destination alone. A route past the device for an exemption would also carry packets of
//! other sources to the same destination, in clear, although a policy protects them. So an exemption has a route
//! only while it covers all ports and protocols, and all local addresses of every policy with some of its
//! destinations. Otherwise its packets come to the device, which lets them pass.

use std::collections::BTreeMap;

use ipsec_types::dataplane::{PolicyAction, PolicyId, PolicySpec, TrafficSelector};

/// The policies, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Exemptions {
    passing: BTreeMap<PolicyId, Passing>,
    others: BTreeMap<PolicyId, Selectors>,
}

#[derive(Debug)]
struct Passing {
    selectors: Selectors,
    /// For all ports and protocols.
    whole: bool,
    /// As it was last told.
    routed: bool,
}

#[derive(Debug, Clone)]
struct Selectors {
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

/// An exemption that is to have a route from now on, or none.
#[derive(Debug)]
pub(super) struct Exemption {
    pub(super) id: PolicyId,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) routed: bool,
}

impl Exemptions {
    /// Adds a policy, perhaps in place of one with its id. Returns the exemptions that change.
    pub(super) fn add(&mut self, policy: &PolicySpec) -> Vec<Exemption> {
        let id = policy.id;
        let selectors =
            Selectors { local: policy.local_ts.clone(), remote: policy.remote_ts.clone() };
        self.forget(id);
        if policy.action == PolicyAction::Pass {
            let whole = |ts: &TrafficSelector| ts.protocol == 0 && ts.any_port();
            let whole = policy.local_ts.iter().chain(&policy.remote_ts).all(whole);
            self.passing.insert(id, Passing { selectors, whole, routed: false });
        } else {
            self.others.insert(id, selectors);
        }
        self.changed()
    }

    /// Removes a policy. Returns the exemptions that change, besides its own routes.
    pub(super) fn remove(&mut self, id: PolicyId) -> Vec<Exemption> {
        self.forget(id);
        self.changed()
    }

    fn forget(&mut self, id: PolicyId) {
        self.passing.remove(&id);
        self.others.remove(&id);
    }

    fn changed(&mut self) -> Vec<Exemption> {
        let harmless = |passing: &Passing| {
            passing.whole && passing.selectors.remote.iter().all(|remote| self.may_pass(remote))
        };
        let now: Vec<bool> = self.passing.values().map(harmless).collect();
        let mut changed = Vec::new();
        for ((&id, passing), routed) in self.passing.iter_mut().zip(now) {
            if std::mem::replace(&mut passing.routed, routed) != routed {
                let Selectors { local, remote } = passing.selectors.clone();
                changed.push(Exemption { id, local, remote, routed });
            }
        }
        changed
    }

    /// True if each source whose packets to some of `remote` a policy covers is exempt for all of `remote`.
    fn may_pass(&self, remote: &TrafficSelector) -> bool {
        let exempt: Vec<&TrafficSelector> = self
            .passing
            .values()
            .filter(|p| p.whole && p.selectors.remote.iter().any(|r| r.contains(remote)))
            .flat_map(|p| &p.selectors.local)
            .collect();
        let covered = |local: &TrafficSelector| {
            exempt.iter().any(|l| l.start <= local.start && local.end <= l.end)
        };
        self.others
            .values()
            .filter(|other| other.remote.iter().any(|r| touch(r, remote)))
            .all(|other| other.local.iter().all(covered))
    }
}

/// True if they have an address in common.
fn touch(a: &TrafficSelector, b: &TrafficSelector) -> bool {
    a.start.is_ipv4() == b.start.is_ipv4() && a.start <= b.end && b.start <= a.end
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn policy(id: u64, local: &str, remote: &str, action: PolicyAction) -> PolicySpec {
        PolicySpec {
            id: PolicyId(id),
            child: "net".into(),
            owner: "site".into(),
            local_ts: vec![local.parse().unwrap()],
            remote_ts: vec![remote.parse().unwrap()],
            action,
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        }
    }

    fn told(changed: Vec<Exemption>) -> Vec<(u64, bool)> {
        changed.into_iter().map(|e| (e.id.0, e.routed)).collect()
    }

    /// Fault: in `Exemptions::may_pass`, answer true. What 10.1.0.0/16 sends to 10.2.9.0/24 then leaves in clear.
    #[test]
    fn an_exemption_of_some_sources_has_no_route_past_what_others_have_protected() {
        let mut all = Exemptions::default();
        assert_eq!(told(all.add(&policy(1, "10.1.0.0/16", "10.2.0.0/16", PolicyAction::Trap))), []);
        let host = policy(2, "10.1.0.7/32", "10.2.9.0/24", PolicyAction::Pass);
        assert_eq!(told(all.add(&host)), []);
        let net = policy(3, "10.0.0.0/8", "10.2.9.0/24", PolicyAction::Pass);
        assert_eq!(told(all.add(&net)), [(2, true), (3, true)]);
        let port = policy(4, "10.0.0.0/8", "10.2.9.0/24[tcp/22]", PolicyAction::Pass);
        assert_eq!(told(all.add(&port)), []);
        // One that comes later objects as well, and no longer than it is there.
        let wide = policy(5, "0.0.0.0/0", "0.0.0.0/0", PolicyAction::Drop);
        assert_eq!(told(all.add(&wide)), [(2, false), (3, false)]);
        assert_eq!(told(all.remove(PolicyId(5))), [(2, true), (3, true)]);
        // Without the wide one the narrow one could not be told from the rest of its network.
        assert_eq!(told(all.remove(PolicyId(3))), [(2, false)]);
        assert_eq!(told(all.remove(PolicyId(1))), [(2, true)]);
    }
}
