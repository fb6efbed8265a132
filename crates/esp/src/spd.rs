//! The security policy database (RFC 4301 §4.4.1).

use std::sync::Arc;

use ike_proto::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec, TrafficSelector};

use crate::selector::{Side, breadth, matches};

/// The most entries one policy may expand to.
const MAX_ENTRIES: usize = 16 * 1024;

/// One policy expanded to one pair of selectors.
#[derive(Debug)]
struct Entry {
    order: Order,
    local: TrafficSelector,
    remote: TrafficSelector,
    policy: Arc<PolicySpec>,
}

/// Earlier entries win. A configured priority beats an automatic one, as strongSwan has it; the
/// automatic one puts the more specific pair first; between equals an exemption comes before
/// protection and protection before the trap it was triggered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    automatic: bool,
    priority: u32,
    breadth: u32,
    class: u8,
    id: PolicyId,
}

/// All policies of a plane, in the order in which they apply.
#[derive(Debug, Default)]
pub struct Spd {
    entries: Vec<Entry>,
}

impl Spd {
    /// Adds a policy, in the place of an earlier one with its id.
    pub fn install(&mut self, spec: PolicySpec) -> Result<(), DataPlaneError> {
        let pairs = spec.local_ts.len().saturating_mul(spec.remote_ts.len());
        if pairs == 0 || pairs > MAX_ENTRIES {
            return Err(DataPlaneError(format!("policy with {pairs} pairs of selectors")));
        }
        self.remove(spec.id);
        let policy = Arc::new(spec);
        for &local in &policy.local_ts {
            for &remote in &policy.remote_ts {
                let order = order(&policy, &local, &remote);
                self.entries.push(Entry { order, local, remote, policy: Arc::clone(&policy) });
            }
        }
        self.entries.sort_by_key(|entry| entry.order);
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
}

fn order(policy: &PolicySpec, local: &TrafficSelector, remote: &TrafficSelector) -> Order {
    let class = match policy.action {
        PolicyAction::Pass => 0,
        PolicyAction::Drop => 1,
        PolicyAction::Protect { .. } => 2,
        PolicyAction::Trap => 3,
    };
    Order {
        automatic: policy.priority == 0,
        priority: policy.priority,
        breadth: breadth(local) + breadth(remote),
        class,
        id: policy.id,
    }
}
