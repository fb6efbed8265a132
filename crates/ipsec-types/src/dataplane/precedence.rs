//! Which of several policies applies to a packet. Every data plane uses this order.
//!
//! Policies may overlap, and peers may claim the selectors of others. The policy for a packet is chosen in this
//! order:
//!
//! 1. policies that protect, pass or drop come before those for a child that is not up (`Shunt`);
//! 2. a configured priority comes before an automatic one, and the lower number first, as in strongSwan;
//! 3. the more specific pair of selectors comes first;
//! 4. exemptions come first, then drops, then protection, then the trap that caused it;
//! 5. the owner that was there first comes first, so that a later peer does not get the traffic of an earlier one
//!    by requesting the same selectors. Of one owner's policies the newest comes first, because the other end
//!    knows that one;
//! 6. of one owner's policies, those on standby come last, because the other end may not have the SAs yet.
//!
//! One rule is above these: a trap does not take packets for which its own child has an SA ([`ahead_of`]). After a change
//! of the configuration the trap may be narrower than the SA, or have a priority that the SA lacks. The SA continues
//! unchanged (RFC 4301 §4.4.1), and an acquire for its packets would bring up nothing.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::{PolicyAction, PolicySpec, TrafficSelector};

/// The rank of one pair of selectors of a policy. Lower ranks apply first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Rules 1 to 4.
    pub order: Order,
    /// When the owner first had these selectors.
    pub claim: u64,
    /// True if the policy is on standby.
    pub standby: bool,
    /// When the policy was installed.
    pub since: Reverse<u64>,
}

/// The part of the rank that follows from a policy and its selectors alone: rules 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// True if it is for a child that is not up.
    pub stands_in: bool,
    /// True if it has no configured priority.
    pub automatic: bool,
    /// Configured priority.
    pub priority: u32,
    /// Of both selectors together; see [`breadth`].
    pub breadth: u32,
    /// Rule 4: 0 for pass, then drop, protect, trap, shunt.
    pub class: u8,
}

impl Order {
    /// The order of `policy` for one pair of its selectors.
    pub fn of(policy: &PolicySpec, local: &TrafficSelector, remote: &TrafficSelector) -> Self {
        let class = match policy.action {
            PolicyAction::Pass => 0,
            PolicyAction::Drop => 1,
            PolicyAction::Protect { .. } => 2,
            PolicyAction::Trap => 3,
            PolicyAction::Shunt { .. } | PolicyAction::Hold { .. } => 4,
        };
        Self {
            stands_in: class == 4,
            automatic: policy.priority == 0,
            priority: policy.priority,
            breadth: breadth(local) + breadth(remote),
            class,
        }
    }
}

/// True if `trap` is a trap of the child whose SA `protect` names.
pub fn is_trap_of(trap: &PolicySpec, protect: &PolicySpec) -> bool {
    // The owner of an SA's policy is the connection, and in brackets the peer.
    let is_owner = |rest: &str| rest.is_empty() || rest.starts_with(" [");
    trap.action == PolicyAction::Trap
        && matches!(protect.action, PolicyAction::Protect { .. })
        && trap.child == protect.child
        && protect.owner.strip_prefix(&trap.owner).is_some_and(is_owner)
}

/// The policy for packets of `protect` that the trap of its child would take by the rules above. It comes before the trap.
/// `None` if the trap takes no such packet.
pub fn ahead_of(trap: &PolicySpec, protect: &PolicySpec) -> Option<PolicySpec> {
    if !is_trap_of(trap, protect) {
        return None;
    }
    let (mut local_ts, mut remote_ts) = (Vec::new(), Vec::new());
    for (local, remote) in pairs(trap) {
        for (wide_local, wide_remote) in pairs(protect) {
            let common = (local.intersect(wide_local), remote.intersect(wide_remote));
            let (Some(common_local), Some(common_remote)) = common else { continue };
            if Order::of(trap, local, remote) < Order::of(protect, wide_local, wide_remote) {
                local_ts.push(common_local);
                remote_ts.push(common_remote);
            }
        }
    }
    let takes_some = !local_ts.is_empty();
    takes_some.then(|| PolicySpec {
        local_ts,
        remote_ts,
        priority: trap.priority,
        ..protect.clone()
    })
}

fn pairs(policy: &PolicySpec) -> impl Iterator<Item = (&TrafficSelector, &TrafficSelector)> {
    let remotes = |local| policy.remote_ts.iter().map(move |remote| (local, remote));
    policy.local_ts.iter().flat_map(remotes)
}

/// The breadth of `selector`: the smaller, the more specific. Addresses weigh more than ports, and ports more than
/// the protocol.
pub fn breadth(selector: &TrafficSelector) -> u32 {
    let ports = bits(u128::from(selector.end_port.saturating_sub(selector.start_port)));
    address_bits(selector) << 6 | ports << 1 | u32::from(selector.protocol == 0)
}

/// The number of low address bits that a selector leaves open, computed from the range, so that both families
/// compare. A /24 and a /120 are equal.
pub fn address_bits(selector: &TrafficSelector) -> u32 {
    match (selector.start, selector.end) {
        (IpAddr::V4(start), IpAddr::V4(end)) => {
            bits(u128::from(u32::from(end).saturating_sub(u32::from(start))))
        }
        (IpAddr::V6(start), IpAddr::V6(end)) => {
            bits(u128::from(end).saturating_sub(u128::from(start)))
        }
        _ => 129,
    }
}

fn bits(range: u128) -> u32 {
    u128::BITS - range.leading_zeros()
}
