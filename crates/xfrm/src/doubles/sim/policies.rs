//! Policies of the simulated kernel.

use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage};

use super::Inner;
use crate::policy::{self, PolicyId, PolicyInfo};

/// A policy, as it was asked for.
pub(super) struct SimPolicy {
    pub(super) info: PolicyInfo,
    message: ModifyMessage,
}

impl SimPolicy {
    pub(super) fn answer(&self) -> XfrmMessage {
        XfrmMessage::AddPolicy(self.message.clone())
    }
}

impl Inner {
    pub(super) fn set_policy(&mut self, message: &ModifyMessage, new: bool) -> Result<(), i32> {
        let mut message = message.clone();
        let mut info = policy::decode(&message).ok_or(libc::EINVAL)?;
        let old = self.policies.iter().position(|other| other.info.policy.id == info.policy.id);
        message.user_policy_info.index = match old.and_then(|at| self.policies.get(at)) {
            Some(_) if new => return Err(libc::EEXIST),
            Some(old) => old.info.index,
            // As asked for, unless another has it.
            None => match message.user_policy_info.index {
                0 => self.number() << 3,
                taken if self.policies.iter().any(|p| p.info.index == taken) => self.number() << 3,
                index => index,
            },
        };
        info.index = message.user_policy_info.index;
        if let Some(at) = old {
            self.policies.remove(at);
        }
        // Behind those of the same priority.
        let priority = info.policy.priority;
        let at = self.policies.partition_point(|other| other.info.policy.priority <= priority);
        self.policies.insert(at, SimPolicy { info, message });
        Ok(())
    }

    pub(super) fn delete_policy(&mut self, id: &DelGetMessage) -> Result<(), i32> {
        let at = self.find_policy(id).ok_or(libc::ENOENT)?;
        self.policies.remove(at);
        Ok(())
    }

    pub(super) fn get_policy(&self, id: &DelGetMessage) -> Result<XfrmMessage, i32> {
        let at = self.find_policy(id).ok_or(libc::ENOENT)?;
        self.policies.get(at).map(SimPolicy::answer).ok_or(libc::ENOENT)
    }

    fn find_policy(&self, id: &DelGetMessage) -> Option<usize> {
        let mut probe = ModifyMessage::default();
        probe.user_policy_info.selector = id.user_policy_id.selector;
        probe.user_policy_info.direction = id.user_policy_id.direction;
        probe.nlas.clone_from(&id.nlas);
        let wanted: PolicyId = policy::decode(&probe)?.policy.id;
        self.policies.iter().position(|policy| policy.info.policy.id == wanted)
    }
}
