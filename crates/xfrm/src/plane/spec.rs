//! An SA of the engine as a state of the kernel.

use std::collections::BTreeSet;

use ipsec_types::dataplane::{
    CopyDscp, DataPlaneError, Direction, Limits, Mark, Mode, SaSpec, TfcPadding, TrafficSelector,
};

use super::sas::seconds;
use super::selectors::prefixes;
use crate::selector::{Prefix, Selector};
use crate::state::{Iptfs, Lifetime, Protection, Replay, State, StateId};

/// The state for `spec`, tied to policies by `reqid`.
pub(super) fn state(spec: &SaSpec, reqid: u32) -> Result<State, DataPlaneError> {
    let processing = &*spec.processing;
    let inbound = spec.direction == Direction::In;
    let mark = match spec.direction {
        Direction::In if processing.mark_in_sa => processing.mark_in,
        Direction::In => Mark::default(),
        Direction::Out => processing.mark_out,
    };
    let (src, dst) = (spec.src.to_canonical(), spec.id.dst.to_canonical());
    let protection = Protection::of_suite(spec.suite, &spec.encr_key, &spec.integ_key)
        .map_err(|unsupported| DataPlaneError(unsupported.to_string()))?;
    let id = StateId { spi: spec.id.spi, dst, mark };
    let selected = matches!(spec.mode, Mode::Transport | Mode::Beet);
    let decapsulates = matches!(processing.copy_dscp, CopyDscp::In | CopyDscp::Yes);
    let encapsulates = matches!(processing.copy_dscp, CopyDscp::Out | CopyDscp::Yes);
    let replay = Replay {
        esn: spec.esn,
        window: if inbound { spec.replay_window } else { 0 },
        ..Replay::default()
    };
    Ok(State {
        reqid,
        encapsulation: spec.encap,
        selector: if selected { Some(selector(spec)?) } else { None },
        direction: Some(spec.direction),
        if_id: if inbound { processing.if_id_in } else { processing.if_id_out },
        set_mark: if inbound { processing.set_mark_in } else { processing.set_mark_out },
        lifetime: Lifetime {
            hard_seconds: if spec.lifetime.is_zero() { 0 } else { seconds(spec.lifetime) },
            ..lifetime(&spec.limits, (0, 0), &replay)
        },
        replay,
        no_pmtu_discovery: !processing.copy_df,
        no_ecn: !processing.copy_ecn,
        decapsulate_dscp: decapsulates,
        dont_encapsulate_dscp: !encapsulates,
        icmp: processing.icmp,
        any_family: !selected,
        cpu: spec.cpu,
        iptfs: iptfs(spec),
        tfc_padding: tfc_padding(spec),
        ..State::new(id, src, spec.mode, protection)
    })
}

/// The addresses of the first pair of selectors. Not its ports: another SA between these ends may have
/// others, and the policies see to them.
fn selector(spec: &SaSpec) -> Result<Selector, DataPlaneError> {
    let matching =
        |l: &&TrafficSelector, r: &&TrafficSelector| l.start.is_ipv4() == r.start.is_ipv4();
    let mut pairs = spec.local_ts.iter().flat_map(|l| spec.remote_ts.iter().map(move |r| (l, r)));
    let (local, remote) = pairs
        .find(|(l, r)| matching(l, r))
        .ok_or_else(|| DataPlaneError("no two selectors of one address family".into()))?;
    let (local, remote) = (widest(local), widest(remote));
    let (Some(local), Some(remote)) = (local, remote) else {
        return Err(DataPlaneError("a selector without addresses".into()));
    };
    Ok(match spec.direction {
        Direction::In => Selector::between(remote, local),
        Direction::Out => Selector::between(local, remote),
    })
}

/// The prefix of a range that is one, or the largest within it.
fn widest(ts: &TrafficSelector) -> Option<Prefix> {
    prefixes(ts.start, ts.end).into_iter().min_by_key(|prefix| prefix.length)
}

/// The limits of a state that goes on where `replay` says, for an SA that has had `used` bytes and packets
/// before.
///
/// The kernel does not send after the last sequence number, and raises no event then. So every SA without
/// ESN has limits by which it is replaced before.
pub(super) fn lifetime(limits: &Limits, used: (u64, u64), replay: &Replay) -> Lifetime {
    let left = |limit: u64, used: u64| match limit {
        // Never.
        0 => 0,
        limit => limit.saturating_sub(used).max(1),
    };
    let (soft, hard) = (left(limits.soft_packets, used.1), left(limits.hard_packets, used.1));
    let (soft_packets, hard_packets) = match numbers(replay) {
        None => (soft, hard),
        Some((soft_numbers, hard_numbers)) => {
            let first =
                |limit: u64, numbers: u64| if limit == 0 { numbers } else { limit.min(numbers) };
            let hard_packets = first(hard, hard_numbers);
            // A soft limit of the numbers alone is of no use behind a hard one, and some devices refuse it.
            let soft_packets =
                if soft_numbers < hard_packets { first(soft, soft_numbers) } else { soft };
            (soft_packets, hard_packets)
        }
    };
    Lifetime {
        soft_bytes: left(limits.soft_bytes, used.0),
        hard_bytes: left(limits.hard_bytes, used.0),
        soft_packets,
        hard_packets,
        ..Lifetime::default()
    }
}

/// Packets until 7/8 of the sequence numbers are used up, and until all are (RFC 4303 §3.3.3); at least one.
/// `None` with ESN, whose numbers do not end.
fn numbers(replay: &Replay) -> Option<(u64, u64)> {
    let last = u64::from(u32::MAX);
    // One of them is zero: a state has one direction.
    let used = replay.sent.max(replay.received);
    let left = |limit: u64| limit.saturating_sub(used).max(1);
    (!replay.esn).then(|| (left((last + 1) / 8 * 7), left(last)))
}

/// True if no sequence number is left to send by.
pub(super) fn is_exhausted(replay: &Replay) -> bool {
    !replay.esn && replay.sent >= u64::from(u32::MAX)
}

/// The octets that the kernel pads inner packets to; it takes as many as fit into the path MTU.
fn tfc_padding(spec: &SaSpec) -> u32 {
    match spec.processing.tfc_padding {
        TfcPadding::To(octets) if sends_packets(spec) => octets,
        TfcPadding::Mtu if sends_packets(spec) => u32::MAX,
        _ => 0,
    }
}

fn sends_packets(spec: &SaSpec) -> bool {
    spec.mode == Mode::Tunnel && spec.direction == Direction::Out
}

/// The options of RFC 9347, each for the direction that has it: the kernel refuses the others.
fn iptfs(spec: &SaSpec) -> Iptfs {
    if spec.mode != Mode::Iptfs {
        return Iptfs::default();
    }
    let options = &spec.processing.iptfs;
    match spec.direction {
        Direction::In => Iptfs {
            reorder_window: Some(options.reorder_window),
            drop_time: Some(options.drop_time),
            ..Iptfs::default()
        },
        Direction::Out => Iptfs {
            dont_fragment: options.dont_frag,
            packet_size: Some(options.packet_size).filter(|&size| size != 0),
            max_queue_size: Some(options.max_queue_size),
            init_delay: Some(options.init_delay),
            ..Iptfs::default()
        },
    }
}

/// Protocols of the SA's traffic; 0 is any.
pub(super) fn protocols(spec: &SaSpec) -> BTreeSet<u8> {
    let pairs = spec.local_ts.iter().flat_map(|l| spec.remote_ts.iter().map(move |r| (l, r)));
    pairs.map(|(l, r)| l.protocol.max(r.protocol)).collect()
}
