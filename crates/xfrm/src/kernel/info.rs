//! Counts, and the default policy for packets without a policy.

use netlink_packet_xfrm::constants::{XFRM_USERPOLICY_ACCEPT, XFRM_USERPOLICY_BLOCK};
use netlink_packet_xfrm::policy::{DefaultMessage, GetSpdInfoMessage, SpdInfoAttrs};
use netlink_packet_xfrm::state::{GetSadInfoMessage, SadInfoAttrs};
use netlink_packet_xfrm::{UserPolicyDefault, XfrmMessage};

use super::Kernel;
use crate::netlink::{Error, Kind, Transport};

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// States, reserved SPIs and those of other protocols included.
    pub states: u32,
    /// Policies of direction in.
    pub policies_in: u32,
    /// Policies of direction out.
    pub policies_out: u32,
    /// Policies of direction forward.
    pub policies_forward: u32,
    /// Policies of sockets, of both directions.
    pub policies_sockets: u32,
}

/// The default policy for packets that no policy matches: true blocks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefaultPolicy {
    /// Packets for this host.
    pub block_in: bool,
    /// Packets that are passed on.
    pub block_forward: bool,
    /// Packets that leave.
    pub block_out: bool,
}

impl<T: Transport> Kernel<T> {
    /// Counts states and policies without reading them.
    pub fn counts(&mut self) -> Result<Counts, Error> {
        let states = XfrmMessage::GetSadInfo(GetSadInfoMessage { flags: u32::MAX });
        let mut counts = Counts {
            states: self.read(states, |answer| match answer {
                XfrmMessage::NewSadInfo(info) => info.nlas.iter().find_map(|nla| match nla {
                    SadInfoAttrs::SadCount(count) => Some(*count),
                    _ => None,
                }),
                _ => None,
            })?,
            ..Counts::default()
        };
        let policies = XfrmMessage::GetSpdInfo(GetSpdInfoMessage { flags: u32::MAX });
        let spd = self.read(policies, |answer| match answer {
            XfrmMessage::NewSpdInfo(info) => info.nlas.iter().find_map(|nla| match nla {
                SpdInfoAttrs::SpdInfo(spd) => Some(*spd),
                _ => None,
            }),
            _ => None,
        })?;
        counts.policies_in = spd.incnt;
        counts.policies_out = spd.outcnt;
        counts.policies_forward = spd.fwdcnt;
        counts.policies_sockets = spd.inscnt.saturating_add(spd.outscnt);
        Ok(counts)
    }

    /// Reads the default policy for packets that no policy matches (XFRM_MSG_GETDEFAULT, 5.14).
    pub fn default_policy(&mut self) -> Result<DefaultPolicy, Error> {
        let message = XfrmMessage::GetPolicyDefault(DefaultMessage::default());
        let found = self.read(message, |answer| match answer {
            XfrmMessage::GetPolicyDefault(found) | XfrmMessage::SetPolicyDefault(found) => {
                Some(found.user_policy)
            }
            _ => None,
        })?;
        Ok(DefaultPolicy {
            block_in: found.input == XFRM_USERPOLICY_BLOCK,
            block_forward: found.forward == XFRM_USERPOLICY_BLOCK,
            block_out: found.output == XFRM_USERPOLICY_BLOCK,
        })
    }

    /// Sets the default policy for packets that no policy matches (XFRM_MSG_SETDEFAULT, 5.14).
    pub fn set_default_policy(&mut self, policy: DefaultPolicy) -> Result<(), Error> {
        let action = |block| if block { XFRM_USERPOLICY_BLOCK } else { XFRM_USERPOLICY_ACCEPT };
        let user_policy = UserPolicyDefault {
            input: action(policy.block_in),
            forward: action(policy.block_forward),
            output: action(policy.block_out),
        };
        self.tell(XfrmMessage::SetPolicyDefault(DefaultMessage { user_policy }), Kind::Ack)
    }
}
