//! Which of several policies applies to a packet. Every data plane goes by this.
//!
//! Policies may overlap, and peers may claim what others have. Which one a packet meets is decided by:
//!
//! 1. what protects, passes or drops before what stands in for a child that is not up (`Shunt`);
//! 2. a configured priority before an automatic one, the lower number first, as strongSwan has it;
//! 3. the more specific pair of selectors;
//! 4. exemptions, then drops, then protection, then the trap it was triggered by;
//! 5. the owner who was there first: a later peer does not get the traffic of an earlier one by asking
//!    for the same selectors. Of one owner's policies the newest counts, for that is the one its other
//!    end knows of;
//! 6. of one owner's policies, those on standby come last: their other end may not have the SAs yet.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::{PolicyAction, PolicySpec, TrafficSelector};

/// Where one pair of selectors of a policy stands. Lesser ranks apply first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Rules 1 to 4.
    pub order: Order,
    /// When the owner first had these selectors.
    pub claim: u64,
    /// The policy is on standby.
    pub standby: bool,
    /// When the policy came.
    pub since: Reverse<u64>,
}

/// What a policy and its selectors say by themselves: rules 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// It stands in for what is not up.
    pub stands_in: bool,
    /// It has no configured priority.
    pub automatic: bool,
    /// Configured priority.
    pub priority: u32,
    /// Of both selectors together; see [`breadth`].
    pub breadth: u32,
    /// Rule 4: 0 for what passes, then what drops, protects, traps, stands in.
    pub class: u8,
}

impl Order {
    /// That of `policy` for one pair of its selectors.
    pub fn of(policy: &PolicySpec, local: &TrafficSelector, remote: &TrafficSelector) -> Self {
        let class = match policy.action {
            PolicyAction::Pass => 0,
            PolicyAction::Drop => 1,
            PolicyAction::Protect { .. } => 2,
            PolicyAction::Trap => 3,
            PolicyAction::Shunt { .. } => 4,
        };
        Self {
            stands_in: matches!(policy.action, PolicyAction::Shunt { .. }),
            automatic: policy.priority == 0,
            priority: policy.priority,
            breadth: breadth(local) + breadth(remote),
            class,
        }
    }
}

/// How much `selector` takes in: the smaller, the more specific. Addresses weigh more than ports, and
/// ports more than the protocol.
pub fn breadth(selector: &TrafficSelector) -> u32 {
    let ports = bits(u128::from(selector.end_port.saturating_sub(selector.start_port)));
    address_bits(selector) << 6 | ports << 1 | u32::from(selector.protocol == 0)
}

/// How many low bits of an address a selector leaves open: counted of the range, so that both families
/// compare. A /24 and a /120 are alike.
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
