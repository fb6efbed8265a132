//! Decodes the kernel's states.

use std::ffi::CStr;
use std::time::Duration;

use netlink_packet_xfrm::constants::{
    TCP_ENCAP_ESPINTCP, UDP_ENCAP_ESPINUDP, XFRM_INF, XFRM_MODE_BEET, XFRM_MODE_TRANSPORT,
    XFRM_MODE_TUNNEL, XFRM_STATE_ESN,
};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{EncapTmpl, LifetimeConfig, UserOffloadDev, XfrmAttrs};

use super::{
    Direction, EncapPorts, Encapsulation, Iptfs, Lifetime, Mark, Mode, Offload, OffloadMode,
    Replay, StateErrors, StateId, StateInfo,
};
use crate::address;
use crate::netlink::gaps;
use crate::selector::Selector;

/// Decodes `message`; `None` if its addresses are not IP's. Keys are left out.
pub(crate) fn decode(message: &ModifyMessage) -> Option<StateInfo> {
    let ModifyMessage { user_sa_info: sa, nlas } = message;
    let mut info = StateInfo {
        id: StateId {
            spi: sa.id.spi,
            dst: address::decode(&sa.id.daddr, sa.family)?,
            mark: Mark::default(),
        },
        src: address::decode(&sa.saddr, sa.family)?,
        protocol: sa.id.proto,
        mode: mode(sa.mode),
        reqid: sa.reqid,
        algorithms: Vec::new(),
        replay: Replay::decode(nlas, sa.replay_window, sa.flags & XFRM_STATE_ESN != 0),
        encapsulation: None,
        selector: Selector::decode(&sa.selector),
        direction: None,
        if_id: 0,
        set_mark: Mark::default(),
        cpu: gaps::value_u32(nlas, gaps::XFRMA_SA_PCPU),
        lifetime: lifetime(&sa.lifetime_cfg),
        bytes: sa.lifetime_cur.bytes,
        packets: sa.lifetime_cur.packets,
        added: sa.lifetime_cur.add_time,
        last_used: None,
        errors: StateErrors {
            replay_window: sa.stats.replay_window,
            replay: sa.stats.replay,
            integrity_failed: sa.stats.integrity_failed,
        },
        offload: None,
        iptfs: iptfs(nlas),
        nat_keepalive: gaps::value_u32(nlas, gaps::XFRMA_NAT_KEEPALIVE_INTERVAL)
            .map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.into())),
        flags: sa.flags,
        extra_flags: 0,
        sequence: sa.seq,
    };
    info.direction = match gaps::value(nlas, gaps::XFRMA_SA_DIR).as_deref() {
        Some([gaps::XFRM_SA_DIR_IN]) => Some(Direction::In),
        Some([gaps::XFRM_SA_DIR_OUT]) => Some(Direction::Out),
        _ => None,
    };
    for attribute in nlas {
        take(attribute, &mut info);
    }
    Some(info)
}

fn take(attribute: &XfrmAttrs, info: &mut StateInfo) {
    match attribute {
        XfrmAttrs::EncryptionAlgAead(alg) => info.algorithms.push(name(&alg.alg_name)),
        XfrmAttrs::EncryptionAlg(alg) => info.algorithms.push(name(&alg.alg_name)),
        // The kernel says both; this one has the length of the ICV.
        XfrmAttrs::AuthenticationAlgTrunc(alg) => info.algorithms.push(name(&alg.alg_name)),
        XfrmAttrs::EncapsulationTemplate(template) => {
            info.encapsulation = encapsulation(template);
        }
        XfrmAttrs::Mark(mark) => info.id.mark = Mark { value: mark.value, mask: mark.mask },
        XfrmAttrs::MarkVal(value) => info.set_mark.value = *value,
        XfrmAttrs::MarkMask(mask) => info.set_mark.mask = *mask,
        XfrmAttrs::IfId(id) => info.if_id = *id,
        XfrmAttrs::LastUsed(time) => info.last_used = Some(*time).filter(|&time| time != 0),
        XfrmAttrs::ExtraFlags(flags) => info.extra_flags = *flags,
        XfrmAttrs::OffloadDevice(device) => info.offload = Some(offload(device)),
        _ => {}
    }
}

fn iptfs(nlas: &[XfrmAttrs]) -> Iptfs {
    let time = |kind| gaps::value_u32(nlas, kind).map(|us| Duration::from_micros(us.into()));
    Iptfs {
        dont_fragment: gaps::value(nlas, gaps::XFRMA_IPTFS_DONT_FRAG).is_some(),
        packet_size: gaps::value_u32(nlas, gaps::XFRMA_IPTFS_PKT_SIZE),
        max_queue_size: gaps::value_u32(nlas, gaps::XFRMA_IPTFS_MAX_QSIZE),
        reorder_window: gaps::value_u16(nlas, gaps::XFRMA_IPTFS_REORDER_WINDOW),
        drop_time: time(gaps::XFRMA_IPTFS_DROP_TIME),
        init_delay: time(gaps::XFRMA_IPTFS_INIT_DELAY),
    }
}

fn name(octets: &[u8]) -> String {
    CStr::from_bytes_until_nul(octets)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The mode with this number.
pub(crate) fn mode(number: u8) -> Option<Mode> {
    Some(match number {
        XFRM_MODE_TUNNEL => Mode::Tunnel,
        XFRM_MODE_TRANSPORT => Mode::Transport,
        XFRM_MODE_BEET => Mode::Beet,
        gaps::XFRM_MODE_IPTFS => Mode::Iptfs,
        _ => return None,
    })
}

fn encapsulation(template: &EncapTmpl) -> Option<Encapsulation> {
    let ports = EncapPorts { src_port: template.encap_sport, dst_port: template.encap_dport };
    match template.encap_type {
        UDP_ENCAP_ESPINUDP => Some(Encapsulation::Udp(ports)),
        TCP_ENCAP_ESPINTCP => Some(Encapsulation::Tcp(ports)),
        _ => None,
    }
}

fn lifetime(kernel: &LifetimeConfig) -> Lifetime {
    let limit = |value| if value == XFRM_INF { 0 } else { value };
    Lifetime {
        soft_bytes: limit(kernel.soft_byte_limit),
        hard_bytes: limit(kernel.hard_byte_limit),
        soft_packets: limit(kernel.soft_packet_limit),
        hard_packets: limit(kernel.hard_packet_limit),
        soft_seconds: limit(kernel.soft_add_expires_seconds),
        hard_seconds: limit(kernel.hard_add_expires_seconds),
    }
}

/// From XFRMA_OFFLOAD_DEV.
pub(crate) fn offload(device: &UserOffloadDev) -> Offload {
    let packet = device.flags & gaps::XFRM_OFFLOAD_PACKET != 0;
    Offload {
        ifindex: device.ifindex.cast_unsigned(),
        mode: if packet { OffloadMode::Packet } else { OffloadMode::Crypto },
    }
}
