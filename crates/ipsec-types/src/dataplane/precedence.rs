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
