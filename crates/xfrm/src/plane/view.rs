//! States and policies of this project in the kernel, from any of its processes.

use std::net::IpAddr;

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Action, PolicyInfo, Template};
use crate::selector::Prefix;
use crate::state::StateInfo;

use super::reqid::REQIDS;

/// The top octet of the numbers of this plane's policies ([`PolicyInfo::index`]).
pub const POLICY_TAG: u8 = 0x69;

/// States and policies that some run of this plane installed: policies by the tag of their number, states by
/// a reqid from [`REQIDS`] or of such a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// States, without those that the kernel made for an acquire.
    pub states: Vec<StateInfo>,
    /// Policies.
    pub policies: Vec<PolicyInfo>,
}

impl Remains {
    /// Those of the kernel's network namespace.
    pub fn find<T: Transport>(kernel: &mut Kernel<T>) -> Result<Self, Error> {
        let mut policies = kernel.policies()?;
        policies.retain(is_ours);
        // A reqid that was configured is not from our range.
        let of_policy = |state: &StateInfo| {
            policies
                .iter()
                .any(|info| templates(info).iter().any(|template| is_for(template, info, state)))
        };
        let mut states = kernel.states()?;
        states.retain(|state| {
            state.id.spi != 0
                && state.reqid != 0
                && (REQIDS.contains(&state.reqid) || of_policy(state))
        });
        Ok(Self { states, policies })
    }

    /// The highest number of a policy.
    pub(super) fn last_index(&self) -> u32 {
        self.policies.iter().map(|info| info.index).max().unwrap_or(0)
    }
}

/// True if some run of this plane installed the policy.
pub(super) fn is_ours(info: &PolicyInfo) -> bool {
    info.index >> 24 == u32::from(POLICY_TAG)
}

/// True if `state` meets `template`, or is its counterpart in the other direction. If a template leaves the outer
/// addresses open, as in transport mode, they are those of the packets.
fn is_for(template: &Template, info: &PolicyInfo, state: &StateInfo) -> bool {
    let selector = info.policy.id.selector;
    let is = |end: IpAddr, prefix: Prefix, address: IpAddr| match end.is_unspecified() {
        true => Prefix::new(address, prefix.length) == prefix,
        false => end == address,
    };
    let between =
        |src, dst| is(template.src, selector.src, src) && is(template.dst, selector.dst, dst);
    template.reqid == state.reqid
        && state.mode.is_none_or(|mode| mode == template.mode)
        && (between(state.src, state.id.dst) || between(state.id.dst, state.src))
}

/// The templates of `policy`, which its packets must match.
pub(super) fn templates(policy: &PolicyInfo) -> &[Template] {
    match &policy.policy.action {
        Action::Allow(templates) => templates,
        Action::Block => &[],
    }
}
