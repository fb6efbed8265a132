//! What of this project is in the kernel, whoever installed it.

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Action, PolicyInfo, Template};
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
        policies.retain(|info| info.index >> 24 == u32::from(POLICY_TAG));
        // A reqid that was configured is not from our range.
        let of_policy = |state: &StateInfo| {
            let mut templates = policies.iter().flat_map(templates);
            templates.any(|t| {
                t.reqid == state.reqid
                    && [t.src, t.dst].iter().all(|end| {
                        end.is_unspecified() || *end == state.src || *end == state.id.dst
                    })
            })
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

/// What `policy` asks packets to go through.
pub(super) fn templates(policy: &PolicyInfo) -> &[Template] {
    match &policy.policy.action {
        Action::Allow(templates) => templates,
        Action::Block => &[],
    }
}
