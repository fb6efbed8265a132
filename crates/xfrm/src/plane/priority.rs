//! The order in which policies apply, as the kernel's priorities.

use std::net::IpAddr;

use ipsec_types::dataplane::precedence::address_bits;
use ipsec_types::dataplane::{PolicyAction, PolicySpec, TrafficSelector};

use crate::policy::{Action, Policy, PriorityClass, priority as computed};
use crate::selector::{Port, Prefix, Selector};

/// Configured priorities stay in front of automatic ones, which begin behind this.
const LAST_CONFIGURED: u32 = 268_000;

/// The last priority of a policy that protects.
const LAST_PROTECTING: u32 = 400_000;

/// Which of the policies with one selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The one that counts.
    Main,
    /// One that yields to any other.
    Beneath,
}

/// The kernel's priority of `spec` for a pair of its selectors. Parts of a range have that of the whole
/// range.
pub(super) fn priority(
    spec: &PolicySpec,
    local: &TrafficSelector,
    remote: &TrafficSelector,
    ifindex: u32,
    level: Level,
) -> u32 {
    let beneath = level == Level::Beneath || spec.action == PolicyAction::Trap;
    match spec.action {
        PolicyAction::Shunt { .. } => {
            computed(&stand_in(local, remote, ifindex), PriorityClass::Fallback)
        }
        PolicyAction::Hold { .. } => {
            computed(&stand_in(local, remote, ifindex), PriorityClass::Fallback) + 1
        }
        _ if spec.priority != 0 => spec.priority.min(LAST_CONFIGURED) + u32::from(beneath),
        _ => {
            let class = if beneath { PriorityClass::Trap } else { PriorityClass::Protect };
            computed(&stand_in(local, remote, ifindex), class)
        }
    }
}

/// True if this plane made `policy` for [`PolicyAction::Hold`].
pub fn is_hold(policy: &Policy) -> bool {
    policy.action == Action::Block && is_priority_of_hold(policy.priority)
}

/// True for the priority of a policy of this plane that blocks, if it is one for [`PolicyAction::Hold`]. The priorities of
/// shunts are odd. A hold has the priority after that of a shunt with the same selector.
pub fn is_priority_of_hold(priority: u32) -> bool {
    priority > LAST_PROTECTING && priority.is_multiple_of(2)
}

/// A selector as specific as the pair: ranges count as the smallest prefix of their size.
fn stand_in(local: &TrafficSelector, remote: &TrafficSelector, ifindex: u32) -> Selector {
    let prefix = |ts: &TrafficSelector| {
        let width = if ts.start.is_ipv4() { 32 } else { 128 };
        let address: IpAddr = ts.start;
        Prefix::new(address, width - (address_bits(ts).min(u32::from(width)) as u8))
    };
    let port = |ts: &TrafficSelector| {
        let open = u16::BITS - ts.end_port.saturating_sub(ts.start_port).leading_zeros();
        Port { value: 0, mask: u16::MAX.checked_shl(open).unwrap_or(0) }
    };
    Selector {
        src: prefix(local),
        dst: prefix(remote),
        protocol: local.protocol.max(remote.protocol),
        src_port: port(local),
        dst_port: port(remote),
        ifindex,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ipsec_types::dataplane::PolicyId;

    use super::*;

    fn of(action: PolicyAction, priority_: u32, local: &str, remote: &str) -> u32 {
        let (local, remote): (TrafficSelector, TrafficSelector) =
            (local.parse().unwrap(), remote.parse().unwrap());
        let spec = PolicySpec {
            id: PolicyId(1),
            child: String::new(),
            owner: String::new(),
            local_ts: vec![local],
            remote_ts: vec![remote],
            action,
            priority: priority_,
            processing: Arc::default(),
            outer: None,
            standby: false,
        };
        priority(&spec, &local, &remote, 0, Level::Main)
    }

    #[test]
    fn ranges_are_as_specific_as_the_smallest_prefix_around_them() {
        let net = of(PolicyAction::Drop, 0, "10.1.0.0/29", "10.2.0.0/16");
        assert_eq!(of(PolicyAction::Drop, 0, "10.1.0.1-10.1.0.7", "10.2.0.0/16"), net);
        assert!(of(PolicyAction::Drop, 0, "10.1.0.1-10.1.0.9", "10.2.0.0/16") > net);
        assert_eq!(of(PolicyAction::Trap, 0, "10.1.0.0/29", "10.2.0.0/16"), net + 1);
    }

    #[test]
    fn configured_then_automatic_then_shunts() {
        let host = "2001:db8::1[tcp/80]";
        let configured = of(PolicyAction::Drop, u32::MAX, "::/0", "::/0");
        let automatic = of(PolicyAction::Pass, 0, host, host);
        let trap = of(PolicyAction::Trap, 0, "::/0", "::/0");
        let shunt = of(PolicyAction::Shunt { silent: true }, 7, host, host);
        assert!(configured < automatic && automatic < trap && trap < shunt);
        assert!(of(PolicyAction::Drop, 5, "::/0", "::/0") < configured);
        assert_eq!(of(PolicyAction::Trap, 5, "::/0", "::/0"), 6);
    }

    /// Fault: in `priority`, give a hold the priority of a shunt.
    #[test]
    fn a_hold_is_known_by_its_priority() {
        for (local, remote) in
            [("::/0", "::/0"), ("10.1.0.0/29[tcp/80]", "10.2.0.0/16[tcp]"), ("::1", "::1")]
        {
            let hold = of(PolicyAction::Hold { anywhere: true }, 7, local, remote);
            let shunt = of(PolicyAction::Shunt { silent: true }, 0, local, remote);
            let trap = of(PolicyAction::Trap, 0, local, remote);
            assert!(hold == shunt + 1 && shunt > LAST_PROTECTING && trap <= LAST_PROTECTING);
            assert!(hold.is_multiple_of(2) && !shunt.is_multiple_of(2));
        }
    }
}
