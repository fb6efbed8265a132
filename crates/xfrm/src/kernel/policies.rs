//! Policies.

use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::{DelGetMessage, FlushMessage};

use super::Kernel;
use crate::netlink::{Error, Kind, Transport};
use crate::policy::{self, Policy, PolicyId, PolicyInfo};

impl<T: Transport> Kernel<T> {
    /// Adds a policy, or takes the place of one with this id (XFRM_MSG_UPDPOLICY).
    pub fn set_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        let message = policy::encode(policy).map_err(|text| Error::invalid("set policy", text))?;
        self.tell(XfrmMessage::UpdatePolicy(message), Kind::Replace)
    }

    /// Adds a policy (XFRM_MSG_NEWPOLICY). One with this id must not exist.
    pub fn add_policy(&mut self, policy: &Policy) -> Result<(), Error> {
        let message = policy::encode(policy).map_err(|text| Error::invalid("add policy", text))?;
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

    /// Deletes all main policies but those of sockets, whoever made them.
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
