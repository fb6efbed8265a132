//! [`Policy`] as XFRM_MSG_UPDPOLICY has it, and the other way round.

use netlink_packet_xfrm::constants::{
    IPPROTO_ESP, XFRM_POLICY_ALLOW, XFRM_POLICY_BLOCK, XFRM_POLICY_FWD, XFRM_POLICY_ICMP,
    XFRM_POLICY_IN, XFRM_POLICY_OUT,
};
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{
    Address, Id, UserPolicyId, UserPolicyInfo, UserTemplate, XFRM_POLICY_TYPE_MAIN, XfrmAttrs,
};

use super::{Action, Policy, PolicyDirection, PolicyId, PolicyInfo, Template};
use crate::address;
use crate::netlink::gaps;
use crate::selector::Selector;
use crate::state::{self, Mark, OffloadMode};

/// `policy` as a message, or why the kernel would not take it.
pub(crate) fn encode(policy: &Policy) -> Result<ModifyMessage, String> {
    if !policy.id.selector.is_consistent() {
        return Err("the selector is of two address families".into());
    }
    let (action, templates) = match &policy.action {
        Action::Allow(templates) => (XFRM_POLICY_ALLOW, templates.as_slice()),
        Action::Block => (XFRM_POLICY_BLOCK, &[][..]),
    };
    if templates.len() > MAX_TEMPLATES {
        return Err(format!("{} templates are over {MAX_TEMPLATES}", templates.len()));
    }
    let mut flags = 0;
    if policy.icmp {
        flags |= XFRM_POLICY_ICMP;
    }
    if policy.cpu_acquire {
        flags |= gaps::XFRM_POLICY_CPU_ACQUIRE;
    }
    let user_policy_info = UserPolicyInfo {
        selector: policy.id.selector.encode(),
        priority: policy.priority,
        direction: direction_number(policy.id.direction),
        action,
        flags,
        ..UserPolicyInfo::default()
    };
    let mut nlas = Vec::new();
    if !templates.is_empty() {
        let templates = templates.iter().map(template).collect::<Result<_, _>>()?;
        nlas.push(XfrmAttrs::Template(templates));
    }
    names(&policy.id, &mut nlas);
    if let Some(offload) = policy.offload {
        if policy.id.direction == PolicyDirection::Forward {
            return Err("no device takes forward policies".into());
        }
        let offload = state::Offload { mode: OffloadMode::Packet, ..offload };
        nlas.push(state::offload_attribute(offload, 0));
    }
    Ok(ModifyMessage { user_policy_info, nlas })
}

/// `id` as a message.
pub(crate) fn encode_id(id: &PolicyId) -> DelGetMessage {
    let mut nlas = Vec::new();
    names(id, &mut nlas);
    DelGetMessage {
        user_policy_id: UserPolicyId {
            selector: id.selector.encode(),
            index: 0,
            direction: direction_number(id.direction),
        },
        nlas,
    }
}

/// The attributes that are part of `id`.
fn names(id: &PolicyId, nlas: &mut Vec<XfrmAttrs>) {
    nlas.extend(state::mark_attribute(id.mark));
    if id.if_id != 0 {
        nlas.push(XfrmAttrs::IfId(id.if_id));
    }
}

/// The kernel's number of `direction`: the low bits of its policies' numbers, too.
pub(crate) fn direction_number(direction: PolicyDirection) -> u8 {
    match direction {
        PolicyDirection::In => XFRM_POLICY_IN,
        PolicyDirection::Out => XFRM_POLICY_OUT,
        PolicyDirection::Forward => XFRM_POLICY_FWD,
    }
}

fn template(template: &Template) -> Result<UserTemplate, String> {
    if template.src.is_ipv4() != template.dst.is_ipv4() {
        return Err("a template is of two address families".into());
    }
    Ok(UserTemplate {
        id: Id { daddr: Address::from_ip(&template.dst), spi: template.spi, proto: IPPROTO_ESP },
        family: address::family(&template.dst),
        saddr: Address::from_ip(&template.src),
        reqid: template.reqid,
        mode: state::mode_number(template.mode),
        optional: template.optional.into(),
        // The default has any algorithm.
        ..UserTemplate::default()
    })
}

/// Decodes `message`. `None` for a policy of a socket, for one that is not of type main, and for one with a
/// protocol that this crate does not support (AH, IPComp).
pub(crate) fn decode(message: &ModifyMessage) -> Option<PolicyInfo> {
    let ModifyMessage { user_policy_info: info, nlas } = message;
    let mut policy = Policy {
        id: PolicyId {
            selector: Selector::decode(&info.selector)?,
            direction: direction(info.direction)?,
            mark: Mark::default(),
            if_id: 0,
        },
        priority: info.priority,
        action: Action::Block,
        icmp: info.flags & XFRM_POLICY_ICMP != 0,
        cpu_acquire: info.flags & gaps::XFRM_POLICY_CPU_ACQUIRE != 0,
        offload: None,
    };
    let mut templates = Vec::new();
    for attribute in nlas {
        match attribute {
            XfrmAttrs::Template(list) => {
                templates = list.iter().map(decode_template).collect::<Option<_>>()?;
            }
            XfrmAttrs::Mark(mark) => {
                policy.id.mark = Mark { value: mark.value, mask: mark.mask };
            }
            XfrmAttrs::IfId(id) => policy.id.if_id = *id,
            XfrmAttrs::OffloadDevice(device) => policy.offload = Some(state::offload(device)),
            XfrmAttrs::PolicyType(kind) if kind.ptype != XFRM_POLICY_TYPE_MAIN => return None,
            _ => {}
        }
    }
    if info.action == XFRM_POLICY_ALLOW {
        policy.action = Action::Allow(templates);
    }
    Some(PolicyInfo {
        policy,
        index: info.index,
        added: info.lifetime_cur.add_time,
        last_used: info.lifetime_cur.use_time,
    })
}

/// The direction with this number; those of sockets have others.
pub(crate) fn direction(number: u8) -> Option<PolicyDirection> {
    Some(match number {
        XFRM_POLICY_IN => PolicyDirection::In,
        XFRM_POLICY_OUT => PolicyDirection::Out,
        XFRM_POLICY_FWD => PolicyDirection::Forward,
        _ => return None,
    })
}

/// A template of ESP; `None` for another protocol.
fn decode_template(template: &UserTemplate) -> Option<Template> {
    if template.id.proto != IPPROTO_ESP {
        return None;
    }
    Some(Template {
        src: address::decode(&template.saddr, template.family)?,
        dst: address::decode(&template.id.daddr, template.family)?,
        spi: template.id.spi,
        reqid: template.reqid,
        mode: state::mode(template.mode)?,
        optional: template.optional != 0,
    })
}

/// XFRM_MAX_DEPTH.
const MAX_TEMPLATES: usize = 6;
