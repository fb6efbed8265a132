//! `overlapip = no` where the data plane does not see to it: who was there first keeps the traffic.

use std::collections::HashMap;

use esp::selector::overlap;
use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};

/// What is protected, and for whom.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    protected: HashMap<PolicyId, Protected>,
}

#[derive(Debug)]
struct Protected {
    owner: String,
    child: String,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

impl Overlaps {
    /// Refuses `spec` if it is new and protects traffic of another owner's.
    pub(super) fn judge(&self, spec: &PolicySpec) -> Result<(), DataPlaneError> {
        if !protects(spec) || self.protected.contains_key(&spec.id) {
            return Ok(());
        }
        let any = |a: &[TrafficSelector], b: &[TrafficSelector]| {
            a.iter().any(|a| b.iter().any(|b| overlap(a, b)))
        };
        let theirs = self.protected.values().find(|other| {
            other.owner != spec.owner
                && any(&other.local, &spec.local_ts)
                && any(&other.remote, &spec.remote_ts)
        });
        let Some(Protected { owner, child, .. }) = theirs else { return Ok(()) };
        let (own, new) = (&spec.owner, &spec.child);
        Err(DataPlaneError(format!("{own}, child {new}: overlaps child {child} of {owner}")))
    }

    /// `spec` is installed.
    pub(super) fn installed(&mut self, spec: &PolicySpec) {
        if !protects(spec) {
            self.removed(spec.id);
            return;
        }
        let protected = Protected {
            owner: spec.owner.clone(),
            child: spec.child.clone(),
            local: spec.local_ts.clone(),
            remote: spec.remote_ts.clone(),
        };
        self.protected.insert(spec.id, protected);
    }

    /// The policy `id` is gone.
    pub(super) fn removed(&mut self, id: PolicyId) {
        self.protected.remove(&id);
    }

    /// All are gone.
    pub(super) fn clear(&mut self) {
        self.protected.clear();
    }
}

fn protects(spec: &PolicySpec) -> bool {
    matches!(spec.action, PolicyAction::Protect { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn spec(id: u64, owner: &str, remote: &str) -> PolicySpec {
        PolicySpec {
            id: PolicyId(id),
            child: "net".into(),
            owner: owner.into(),
            local_ts: vec!["10.1.0.0/16".parse().unwrap()],
            remote_ts: vec![remote.parse().unwrap()],
            action: PolicyAction::Protect {
                mode: Default::default(),
                local: [192, 0, 2, 1].into(),
                remote: [192, 0, 2, 2].into(),
                outbound: None,
            },
            priority: 0,
            processing: Arc::default(),
            outer: None,
        }
    }

    #[test]
    fn the_first_keeps_what_a_second_owner_claims() {
        let mut overlaps = Overlaps::default();
        overlaps.installed(&spec(1, "site [a]", "10.2.0.0/16"));
        assert_eq!(overlaps.judge(&spec(1, "site [a]", "10.2.0.0/16")), Ok(()), "a rekey");
        assert_eq!(overlaps.judge(&spec(2, "site [a]", "10.2.7.0/24")), Ok(()), "its own");
        assert_eq!(overlaps.judge(&spec(2, "site [b]", "10.3.0.0/16")), Ok(()));
        let error = overlaps.judge(&spec(2, "site [b]", "10.2.7.0/24")).unwrap_err();
        assert!(error.0.contains("site [a]"), "{error}");
        let pass = PolicySpec { action: PolicyAction::Pass, ..spec(3, "x", "10.2.0.0/16") };
        assert_eq!(overlaps.judge(&pass), Ok(()));
        overlaps.removed(PolicyId(1));
        assert_eq!(overlaps.judge(&spec(2, "site [b]", "10.2.7.0/24")), Ok(()));
    }
}
