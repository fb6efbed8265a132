//! What of this project is in the kernel, whoever installed it.

use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Action, PolicyInfo};
use crate::state::StateInfo;

use super::reqid::REQIDS;

/// States and policies that some run of this plane installed: by their reqids, which are from [`REQIDS`].
///
/// Policies without templates (exemptions and drops) have no reqid and are not among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// States, with those that the kernel made for an acquire.
    pub states: Vec<StateInfo>,
    /// Policies with a template.
    pub policies: Vec<PolicyInfo>,
}

impl Remains {
    /// Those of the kernel's network namespace.
    pub fn find<T: Transport>(kernel: &mut Kernel<T>) -> Result<Self, Error> {
        let mut states = kernel.states()?;
        states.retain(|state| REQIDS.contains(&state.reqid));
        let mut policies = kernel.policies()?;
        policies.retain(|info| match &info.policy.action {
            Action::Allow(templates) => templates.iter().any(|t| REQIDS.contains(&t.reqid)),
            Action::Block => false,
        });
        Ok(Self { states, policies })
    }
}
