//! The probable meaning of the kernel's refusals, in the terms of the configuration.

use super::device::Device;
use super::ethtool::Feature;
use super::rules::Request;
use crate::netlink::Error;
use crate::state::{Direction, OffloadMode, Protection};

/// The likely reasons why the kernel refused, the likeliest first; empty if there is no guess.
pub(super) fn reasons(device: &Device, request: &Request<'_>, error: &Error) -> Vec<String> {
    // A device without any offload is refused in many words, all of them beside the point.
    let none = no_offload_at_all(device).filter(|_| device.esp.crypto == Feature::Missing);
    if let Some(reason) = none {
        return vec![reason];
    }
    let text = error.message.as_deref().unwrap_or_default();
    let known = TEXTS.iter().find(|(fragment, _)| text.contains(fragment));
    if let Some((_, reason)) = known {
        return vec![reason.replace("{bus}", device.bus.as_deref().unwrap_or("pci/…"))];
    }
    match error.errno {
        libc::EBUSY if device.is_mlx5() => return vec![MLX5_BUSY.into()],
        libc::ENOSPC => return vec!["the device's table of SAs is full".into()],
        libc::EPERM => return vec!["CAP_NET_ADMIN is missing".into()],
        _ => {}
    }
    suspects(request)
}

/// Why a device that took the SA without offload, or said nothing, cannot offload anything.
pub(super) fn no_offload_at_all(device: &Device) -> Option<String> {
    let Device { name, kind, below, .. } = device;
    if device.esp.crypto == Feature::On {
        return None;
    }
    if device.esp.crypto == Feature::Off {
        return Some(format!("esp-hw-offload is off (ethtool -K {name} esp-hw-offload on)"));
    }
    Some(match (kind.as_str(), below.join(", ")) {
        ("", _) if device.virtual_function => format!(
            "{name} is a virtual function, where IPsec is off by default \
             (devlink port function set … ipsec_crypto enable or ipsec_packet enable)"
        ),
        ("", _) => format!("neither the driver nor the hardware of {name} offloads ESP"),
        ("bond", members) => {
            format!("a bond offloads in mode active-backup, if all its members do ({members})")
        }
        ("loopback", _) => format!("the local address is on {name}, not on a device that sends"),
        (kind, below) if below.is_empty() => format!("a {kind} device has no hardware"),
        (kind, below) => format!(
            "Linux offloads nothing on a {kind} device: the local address would have to be on {below}"
        ),
    })
}

/// Properties of this SA that drivers often do not support.
fn suspects(request: &Request<'_>) -> Vec<String> {
    let Request { state, mode, .. } = request;
    let mut suspects = Vec::new();
    match &state.protection {
        Protection::Aead(algorithm) => {
            let (name, bits) = (&algorithm.name, algorithm.key.len() * 8);
            let icv = algorithm.icv_bits;
            suspects.push(format!(
                "the algorithm {name} with {bits} bits of key and salt, ICV {icv} bits"
            ));
        }
        Protection::Separate { .. } => suspects.push("an algorithm that is not AES-GCM".into()),
    }
    if state.replay.esn {
        suspects.push("extended sequence numbers (esn)".into());
    }
    if state.encapsulation.is_some() {
        suspects.push("UDP encapsulation, which kernels before 6.6 do not offload".into());
    }
    if state.selector.is_some_and(|selector| selector.protocol != 0) {
        suspects.push("the protocol of the traffic selectors".into());
    }
    if state.replay.window > 32 && state.direction == Some(Direction::In) {
        suspects.push(format!("a replay window of {} packets", state.replay.window));
    }
    if state.if_id != 0 && state.direction == Some(Direction::In) {
        suspects.push("if_id_in".into());
    }
    if *mode == OffloadMode::Packet {
        suspects.push("packet offload as such, which few drivers have (Linux 6.2)".into());
    }
    suspects
}

/// Texts of the kernel's extended ACK and their explanations.
const TEXTS: &[(&str, &str)] = &[
    ("Unsupported ipsec offload type", "the driver has crypto offload only"),
    ("Policy offload is not supported", "the driver has crypto offload only"),
    (
        "if_id is not supported",
        "this kernel offloads no inbound SA of an XFRM interface (if_id_in)",
    ),
    (
        "support offload with ESN",
        "the driver's crypto offload has no extended sequence numbers: propose noesn",
    ),
    ("Cannot offload ESN", "the device has no extended sequence numbers: propose noesn"),
    ("TFC padding", "padded packets are not offloaded (tfc_padding)"),
    (
        "disabled due to encap settings",
        "the eswitch may encapsulate (devlink dev eswitch set {bus} encap-mode none); on the uplink in \
         switchdev mode recent kernels offload transport mode only",
    ),
    (
        "Packet offload is not supported for tunnel mode",
        "the firmware offloads whole packets in transport mode only",
    ),
    (
        "Packet offload is not supported",
        "the firmware lacks it, or this is a function without it \
         (devlink port function set … ipsec_packet enable)",
    ),
    (
        "Crypto offload is not supported",
        "the firmware lacks it, or this is a function without it \
         (devlink port function set … ipsec_crypto enable)",
    ),
    (
        "Encapsulation is not supported",
        "the firmware offloads no ESP in UDP (there is a NAT, or encap = yes)",
    ),
    ("does not support policy priority", "the firmware offloads no policies with priorities"),
    ("Slave does not support", "the active member of the bond offloads no ESP"),
    ("No space for SA", "the device's table of SAs is full"),
    (
        "Type doesn't support offload",
        "the kernel module esp4_offload or esp6_offload is not loaded",
    ),
];

const MLX5_BUSY: &str = "IPsec is enabled on a virtual function of this device, which excludes it here \
                         (devlink port function show), or the eswitch is changing its mode";
