//! Policies.

use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::{DelGetMessage, FlushMessage, ModifyMessage};

use super::Kernel;
use crate::netlink::{Error, Kind, Transport};
use crate::policy::{self, Policy, PolicyDirection, PolicyId, PolicyInfo};

/// Policies with one tag that have a number of their own.
const NUMBERS: u32 = 1 << 21;

impl<T: Transport> Kernel<T> {
    /// Marks policies made from now on: `tag` becomes the top octet of their number ([`PolicyInfo::index`]), which
    /// tells them from policies of other programs. `after` is the highest such number in use, or 0. A policy that
    /// replaces another keeps the other's number. After two million policies the numbers begin again; a policy
    /// whose number is still in use gets one without the tag.
    pub fn tag_policies(&mut self, tag: u8, after: u32) {
        let next = if after >> 24 == u32::from(tag) { (after >> 3) + 1 } else { 0 };
        self.next_index = (u32::from(tag) << 24) | ((next % NUMBERS) << 3);
    }

    /// The number for a new policy.
    fn take_index(&mut self, direction: PolicyDirection) -> u32 {
        let index = self.next_index;
        if index == 0 {
            return 0;
        }
        self.next_index = (index & 0xff00_0000) | ((((index >> 3) + 1) % NUMBERS) << 3);
        index | u32::from(policy::direction_number(direction))
    }

    pub(super) fn policy_message(
        &mut self,
        request: &'static str,
        policy: &Policy,
    ) -> Result<ModifyMessage, Error> {
        let mut message = policy::encode(policy).map_err(|text| Error::invalid(request, text))?;
        message.user_policy_info.index = self.take_index(policy.id.direction);
        Ok(message)
    }

    /// Adds a policy, or takes the place of one with this id (XFRM_MSG_UPDPOLICY).
    pub fn set_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        let message = self.policy_message("set policy", policy)?;
        self.tell(XfrmMessage::UpdatePolicy(message), Kind::Replace)
    }

    /// Adds a policy (XFRM_MSG_NEWPOLICY). One with this id must not exist.
    pub fn add_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        let message = self.policy_message("add policy", policy)?;
        self.tell(XfrmMessage::AddPolicy(message), Kind::Create)
    }

    /// Deletes a policy; false if there is none.
    pub fn delete_policy(&mut self, id: &PolicyId) -> Result<bool, Error> {
        self.tell_if_there(XfrmMessage::DeletePolicy(policy::encode_id(id)))
    }

    /// A policy, if there is one.
    pub fn policy(&mut self, id: &PolicyId) -> Result<Option<PolicyInfo>, Error> {
        self.read_if_there(XfrmMessage::GetPolicy(policy::encode_id(id)), take)
    }

    /// All main policies; those of sockets are left out, and those with another protocol than ESP.
    pub fn policies(&mut self) -> Result<Vec<PolicyInfo>, Error> {
        self.list(&XfrmMessage::GetPolicy(DelGetMessage::default()), take)
    }

    /// Deletes all main policies but those of sockets, including those of other programs.
    pub fn flush_policies(&mut self) -> Result<(), Error> {
        self.tell_if_there(XfrmMessage::FlushPolicy(FlushMessage::default())).map(drop)
    }
}

fn take(answer: &XfrmMessage) -> Option<PolicyInfo> {
    match answer {
        XfrmMessage::AddPolicy(message) => policy::decode(message),
        _ => None,
    }
}
