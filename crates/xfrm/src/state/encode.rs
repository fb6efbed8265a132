//! [`State`] as XFRM_MSG_NEWSA and XFRM_MSG_UPDSA have it.

use std::time::Duration;

use netlink_packet_xfrm::constants::{
    IPPROTO_ESP, TCP_ENCAP_ESPINTCP, UDP_ENCAP_ESPINUDP, XFRM_INF, XFRM_MODE_BEET,
    XFRM_MODE_TRANSPORT, XFRM_MODE_TUNNEL, XFRM_OFFLOAD_INBOUND, XFRM_OFFLOAD_IPV6,
    XFRM_SA_XFLAG_DONT_ENCAP_DSCP, XFRM_STATE_AF_UNSPEC, XFRM_STATE_DECAP_DSCP, XFRM_STATE_ESN,
    XFRM_STATE_ICMP, XFRM_STATE_NOECN, XFRM_STATE_NOPMTUDISC,
};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{
    Address, Alg, AlgAead, AlgAuth, EncapTmpl, Id, LifetimeConfig, UserOffloadDev, UserSaInfo,
    XFRM_ALG_NAME_LEN, XfrmAttrs,
};

use super::{
    Algorithm, Direction, Encapsulation, Form, Iptfs, Lifetime, Mark, Mode, Offload, OffloadMode,
    Protection, State,
};
use crate::address;
use crate::netlink::gaps;

/// `state` as a message. `directions` says whether the kernel knows XFRMA_SA_DIR.
pub(crate) fn encode(state: &State, directions: bool) -> Result<ModifyMessage, String> {
    check(state)?;
    let direction = state.direction.filter(|_| directions);
    let replay = state.replay.encode(direction, Form::New)?;
    let user_sa_info = UserSaInfo {
        selector: state.selector.map(|s| s.encode()).unwrap_or_default(),
        id: Id { daddr: Address::from_ip(&state.id.dst), spi: state.id.spi, proto: IPPROTO_ESP },
        saddr: Address::from_ip(&state.src),
        lifetime_cfg: lifetime(&state.lifetime),
        reqid: state.reqid,
        family: address::family(&state.id.dst),
        mode: mode_number(state.mode),
        replay_window: replay.short_window,
        flags: flags(state),
        ..UserSaInfo::default()
    };
    let mut nlas = Vec::with_capacity(12);
    protection(&state.protection, &mut nlas)?;
    nlas.extend(state.encapsulation.as_ref().map(encapsulation));
    nlas.extend(mark_attribute(state.id.mark));
    nlas.extend(replay.attribute);
    options(state, direction, &mut nlas);
    iptfs(&state.iptfs, state.mode, &mut nlas);
    // Last, so that a reader of the message knows where it is.
    nlas.extend(state.offload.map(|offload| state_offload(state, offload)));
    Ok(ModifyMessage { user_sa_info, nlas })
}

/// Checks for values that the kernel would misread.
fn check(state: &State) -> Result<(), String> {
    if state.src.is_ipv4() != state.id.dst.is_ipv4() {
        return Err("source and destination are of two address families".into());
    }
    if state.selector.is_some_and(|selector| !selector.is_consistent()) {
        return Err("the selector is of two address families".into());
    }
    if state.mode == Mode::Beet && state.selector.is_none() {
        return Err("BEET takes the inner addresses from the selector, and there is none".into());
    }
    if state.id.spi < 256 {
        return Err(format!("SPI {:#x} is reserved (RFC 4303 §2.1)", state.id.spi));
    }
    Ok(())
}

fn flags(state: &State) -> u8 {
    let may = |direction| state.direction.is_none_or(|d| d == direction);
    let inbound = may(Direction::In);
    let outbound = may(Direction::Out);
    [
        (state.no_ecn, XFRM_STATE_NOECN),
        (state.decapsulate_dscp && inbound, XFRM_STATE_DECAP_DSCP),
        (state.no_pmtu_discovery && outbound, XFRM_STATE_NOPMTUDISC),
        (state.icmp && inbound, XFRM_STATE_ICMP),
        (state.any_family, XFRM_STATE_AF_UNSPEC),
        (state.replay.esn, XFRM_STATE_ESN),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .fold(0, |flags, flag| flags | flag)
}

fn lifetime(lifetime: &Lifetime) -> LifetimeConfig {
    let limit = |value| if value == 0 { XFRM_INF } else { value };
    LifetimeConfig {
        soft_byte_limit: limit(lifetime.soft_bytes),
        hard_byte_limit: limit(lifetime.hard_bytes),
        soft_packet_limit: limit(lifetime.soft_packets),
        hard_packet_limit: limit(lifetime.hard_packets),
        // Of times zero is none.
        soft_add_expires_seconds: lifetime.soft_seconds,
        hard_add_expires_seconds: lifetime.hard_seconds,
        soft_use_expires_seconds: 0,
        hard_use_expires_seconds: 0,
    }
}

/// The kernel's number of `mode`.
pub(crate) fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Tunnel => XFRM_MODE_TUNNEL,
        Mode::Transport => XFRM_MODE_TRANSPORT,
        Mode::Beet => XFRM_MODE_BEET,
        Mode::Iptfs => gaps::XFRM_MODE_IPTFS,
    }
}

fn protection(protection: &Protection, nlas: &mut Vec<XfrmAttrs>) -> Result<(), String> {
    match protection {
        Protection::Aead(aead) => nlas.push(XfrmAttrs::EncryptionAlgAead(AlgAead {
            alg_name: name(aead)?,
            alg_key_len: bits(aead),
            alg_icv_len: aead.icv_bits,
            alg_key: aead.key.expose().to_vec(),
        })),
        Protection::Separate { encryption, integrity } => {
            nlas.push(XfrmAttrs::AuthenticationAlgTrunc(AlgAuth {
                alg_name: name(integrity)?,
                alg_key_len: bits(integrity),
                alg_trunc_len: integrity.icv_bits,
                alg_key: integrity.key.expose().to_vec(),
            }));
            nlas.push(XfrmAttrs::EncryptionAlg(Alg {
                alg_name: name(encryption)?,
                alg_key_len: bits(encryption),
                alg_key: encryption.key.expose().to_vec(),
            }));
        }
    }
    Ok(())
}

fn name(algorithm: &Algorithm) -> Result<[u8; XFRM_ALG_NAME_LEN], String> {
    let mut name = [0; XFRM_ALG_NAME_LEN];
    let octets = algorithm.name.as_bytes();
    // The last octet is the end of the kernel's string.
    match name.get_mut(..octets.len()) {
        Some(front) if octets.len() < XFRM_ALG_NAME_LEN => front.copy_from_slice(octets),
        _ => return Err(format!("{}: too long for the name of an algorithm", algorithm.name)),
    }
    Ok(name)
}

fn bits(algorithm: &Algorithm) -> u32 {
    u32::try_from(algorithm.key.len() * 8).unwrap_or(u32::MAX)
}

/// XFRMA_ENCAP.
pub(crate) fn encapsulation(encapsulation: &Encapsulation) -> XfrmAttrs {
    let ports = encapsulation.ports();
    XfrmAttrs::EncapsulationTemplate(EncapTmpl {
        encap_type: match encapsulation {
            Encapsulation::Udp(_) => UDP_ENCAP_ESPINUDP,
            Encapsulation::Tcp(_) => TCP_ENCAP_ESPINTCP,
        },
        encap_sport: ports.src_port,
        encap_dport: ports.dst_port,
        encap_oa: Address::default(),
    })
}

/// XFRMA_MARK, if there is one.
pub(crate) fn mark_attribute(mark: Mark) -> Option<XfrmAttrs> {
    let Mark { value, mask } = mark;
    (mask != 0 || value != 0).then_some(XfrmAttrs::Mark(netlink_packet_xfrm::Mark { value, mask }))
}

fn options(state: &State, direction: Option<Direction>, nlas: &mut Vec<XfrmAttrs>) {
    let Mark { value, mask } = state.set_mark;
    if mask != 0 || value != 0 {
        nlas.push(XfrmAttrs::MarkVal(value));
        nlas.push(XfrmAttrs::MarkMask(mask));
    }
    if state.if_id != 0 {
        nlas.push(XfrmAttrs::IfId(state.if_id));
    }
    if state.dont_encapsulate_dscp && state.direction != Some(Direction::In) {
        nlas.push(XfrmAttrs::ExtraFlags(XFRM_SA_XFLAG_DONT_ENCAP_DSCP));
    }
    if state.tfc_padding != 0 && state.direction != Some(Direction::In) {
        nlas.push(XfrmAttrs::TfcPadding(state.tfc_padding));
    }
    // The kernel refuses it where it means nothing.
    let mapped = state.encapsulation.is_some() && state.direction != Some(Direction::Out);
    if mapped && !state.mapping_interval.is_zero() {
        nlas.push(XfrmAttrs::MappingTimeThreshold(seconds(state.mapping_interval)));
    }
    let udp = matches!(state.encapsulation, Some(Encapsulation::Udp(_)));
    let sends = udp && state.direction == Some(Direction::Out);
    if sends && !state.nat_keepalive.is_zero() {
        let seconds = seconds(state.nat_keepalive);
        nlas.push(gaps::attribute(gaps::XFRMA_NAT_KEEPALIVE_INTERVAL, &seconds.to_ne_bytes()));
    }
    if let Some(direction) = direction {
        let value = match direction {
            Direction::In => gaps::XFRM_SA_DIR_IN,
            Direction::Out => gaps::XFRM_SA_DIR_OUT,
        };
        nlas.push(gaps::attribute(gaps::XFRMA_SA_DIR, &[value]));
    }
    if let Some(cpu) = state.cpu {
        nlas.push(gaps::attribute(gaps::XFRMA_SA_PCPU, &cpu.to_ne_bytes()));
    }
}

/// RFC 9347 options, each for the direction that has it.
fn iptfs(options: &Iptfs, mode: Mode, nlas: &mut Vec<XfrmAttrs>) {
    if mode != Mode::Iptfs {
        return;
    }
    let mut push = |kind, value: &[u8]| nlas.push(gaps::attribute(kind, value));
    if options.dont_fragment {
        push(gaps::XFRMA_IPTFS_DONT_FRAG, &[]);
    }
    if let Some(size) = options.packet_size {
        push(gaps::XFRMA_IPTFS_PKT_SIZE, &size.to_ne_bytes());
    }
    if let Some(size) = options.max_queue_size {
        push(gaps::XFRMA_IPTFS_MAX_QSIZE, &size.to_ne_bytes());
    }
    if let Some(time) = options.init_delay {
        push(gaps::XFRMA_IPTFS_INIT_DELAY, &microseconds(time).to_ne_bytes());
    }
    if let Some(window) = options.reorder_window {
        push(gaps::XFRMA_IPTFS_REORDER_WINDOW, &window.to_ne_bytes());
    }
    if let Some(time) = options.drop_time {
        push(gaps::XFRMA_IPTFS_DROP_TIME, &microseconds(time).to_ne_bytes());
    }
}

/// At least one, for zero is none.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
}

fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn state_offload(state: &State, offload: Offload) -> XfrmAttrs {
    let mut flags = 0;
    if state.id.dst.is_ipv6() {
        flags |= XFRM_OFFLOAD_IPV6;
    }
    if state.direction == Some(Direction::In) {
        flags |= XFRM_OFFLOAD_INBOUND;
    }
    offload_attribute(offload, flags)
}

/// XFRMA_OFFLOAD_DEV with the mode's flag and `flags`.
pub(crate) fn offload_attribute(offload: Offload, flags: u8) -> XfrmAttrs {
    let packet = match offload.mode {
        OffloadMode::Crypto => 0,
        OffloadMode::Packet => gaps::XFRM_OFFLOAD_PACKET,
    };
    XfrmAttrs::OffloadDevice(UserOffloadDev {
        ifindex: offload.ifindex.cast_signed(),
        flags: flags | packet,
    })
}
