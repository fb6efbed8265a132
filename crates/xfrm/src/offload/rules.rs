//! Offload rules of the driver mlx5 (ConnectX-6 Dx and later, BlueField). They are checked before the kernel is
//! asked, so that a user reads a sentence where the kernel might only return EINVAL.
//!
//! Other drivers have rules as well, which appear only in their refusals: see [`super::explain`].

use crate::offload::Device;
use crate::state::{
    Algorithm, Direction, Encapsulation, Lifetime, Mode, OffloadMode, Protection, State,
};

/// The SA or policy to be offloaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) state: &'a State,
    pub(super) mode: OffloadMode,
    /// IP protocols of the selectors of its policies.
    pub(super) protocols: &'a [u8],
}

/// The first reason why `device` will not take it, if one is known.
pub(super) fn objection(device: &Device, request: &Request<'_>) -> Option<&'static str> {
    let rules = if device.is_mlx5() { MLX5 } else { &[] };
    rules.iter().find(|rule| (rule.broken)(request)).map(|rule| rule.reason)
}

struct Rule {
    broken: fn(&Request<'_>) -> bool,
    reason: &'static str,
}

const MLX5: &[Rule] = &[
    Rule {
        broken: |r| aead(r.state).is_none_or(|a| a.name != "rfc4106(gcm(aes))"),
        reason: "it offloads AES-GCM only (esp_proposals = aes256gcm16 or aes128gcm16)",
    },
    Rule {
        broken: |r| aead(r.state).is_some_and(|a| a.icv_bits != 128),
        reason: "it offloads AES-GCM with an ICV of 16 octets only (aes256gcm16 or aes128gcm16)",
    },
    Rule {
        // The last four octets are the salt.
        broken: |r| aead(r.state).is_some_and(|a| !matches!(a.key.len(), 20 | 36)),
        reason: "it offloads AES with keys of 128 and 256 bits only",
    },
    Rule {
        broken: |r| matches!(r.state.encapsulation, Some(Encapsulation::Tcp(_))),
        reason: "it offloads no ESP in TCP",
    },
    Rule {
        broken: |r| r.state.encapsulation.is_some() && r.mode != OffloadMode::Packet,
        reason: "it offloads ESP in UDP in packet mode only (there is a NAT, or encap = yes)",
    },
    Rule {
        broken: |r| r.state.encapsulation.is_some() && r.state.mode != Mode::Transport,
        reason: "it offloads ESP in UDP in transport mode only (there is a NAT, or encap = yes)",
    },
    Rule {
        broken: |r| r.state.tfc_padding != 0,
        reason: "it offloads no TFC padding (tfc_padding)",
    },
    Rule {
        broken: |r| !matches!(r.state.mode, Mode::Transport | Mode::Tunnel),
        reason: "it offloads tunnel and transport mode only",
    },
    Rule {
        broken: |r| {
            let own = r.state.selector.map(|selector| selector.protocol);
            own.iter().chain(r.protocols).any(|p| !matches!(*p, 0 | TCP | UDP))
        },
        reason: "it offloads traffic selectors for TCP, UDP or any protocol only",
    },
    Rule {
        broken: |r| r.mode == OffloadMode::Packet && r.state.reqid == 0,
        reason: "it offloads whole packets only if the SA has a reqid",
    },
    Rule {
        broken: |r| {
            let replay = &r.state.replay;
            let long_form = replay.esn || replay.window > 32;
            r.mode == OffloadMode::Packet
                && r.state.direction == Some(Direction::In)
                && long_form
                && !matches!(replay.window, 32 | 64 | 128 | 256)
        },
        reason: "it offloads whole packets with a replay window of 32, 64, 128 or 256 packets only \
                 (replay_window)",
    },
    Rule {
        broken: |r| r.mode == OffloadMode::Packet && !limits_fit(&r.state.lifetime),
        reason: "it offloads whole packets only if the rekeying limit is lower than the limit of life \
                 (rekey_bytes below life_bytes, rekey_packets below life_packets)",
    },
];

fn aead(state: &State) -> Option<&Algorithm> {
    match &state.protection {
        Protection::Aead(algorithm) => Some(algorithm),
        Protection::Separate { .. } => None,
    }
}

/// Zero is no limit.
fn limits_fit(lifetime: &Lifetime) -> bool {
    let fits = |soft: u64, hard: u64| hard == 0 || (soft != 0 && soft < hard);
    fits(lifetime.soft_bytes, lifetime.hard_bytes)
        && fits(lifetime.soft_packets, lifetime.hard_packets)
}

const TCP: u8 = 6;
const UDP: u8 = 17;
