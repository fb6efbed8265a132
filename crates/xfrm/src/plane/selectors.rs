//! Traffic selectors, which are ranges, as the kernel's selectors, which are prefixes and masks.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipsec_types::dataplane::TrafficSelector;

use crate::selector::{Port, Prefix, Selector};

/// The most pairs of prefixes, and port masks, that one policy may come to.
pub(super) const MAX_PAIRS: usize = 4096;

/// A part of a pair of traffic selectors that one kernel policy covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub(super) local: Prefix,
    pub(super) remote: Prefix,
    pub(super) protocol: u8,
    ports: Ports,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ports {
    Sides {
        local: Port,
        remote: Port,
    },
    /// ICMP and mobility headers have a type and a code, whichever way they go.
    Kind {
        kind: Port,
        code: Port,
    },
}

impl Pair {
    /// For packets from this host's side to the peer's.
    pub(super) fn outward(&self, ifindex: u32) -> Selector {
        let (src_port, dst_port) = match self.ports {
            Ports::Sides { local, remote } => (local, remote),
            Ports::Kind { kind, code } => (kind, code),
        };
        let Self { local: src, remote: dst, protocol, .. } = *self;
        Selector { src, dst, protocol, src_port, dst_port, ifindex }
    }

    /// For packets from the peer's side.
    pub(super) fn inward(&self, ifindex: u32) -> Selector {
        let (src_port, dst_port) = match self.ports {
            Ports::Sides { local, remote } => (remote, local),
            Ports::Kind { kind, code } => (kind, code),
        };
        let Self { local: dst, remote: src, protocol, .. } = *self;
        Selector { src, dst, protocol, src_port, dst_port, ifindex }
    }
}

/// Why selectors cannot be given to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// No local selector has a remote one of its family and protocol.
    Nothing,
    /// More than [`MAX_PAIRS`].
    TooMany(usize),
    /// Ports that cannot be seen, as in fragments but the first, alone.
    Opaque,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("no two selectors of one address family and protocol"),
            Self::TooMany(n) => write!(
                f,
                "ranges of addresses and ports that need {n} pairs of prefixes and port masks, \
                 with {MAX_PAIRS} allowed: give subnets instead"
            ),
            Self::Opaque => f.write_str("the kernel has no selectors with opaque ports"),
        }
    }
}

/// The pairs that cover the traffic between `local` and `remote`, each once; with each the selectors it
/// is a part of, local first: of several the first.
pub(super) fn pairs(
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> Result<Vec<(Pair, TrafficSelector, TrafficSelector)>, Unfit> {
    let couples = || local.iter().flat_map(|l| remote.iter().map(move |r| (l, r)));
    let mut total = 0_usize;
    for (l, r) in couples() {
        total = total.saturating_add(count(l, r)?);
        if total > MAX_PAIRS {
            // The rest is not counted: ranges of both sides of a large policy take their time.
            return Err(Unfit::TooMany(total));
        }
    }
    let (mut all, mut seen) = (Vec::with_capacity(total), HashSet::with_capacity(total));
    for (l, r) in couples() {
        for pair in parts(l, r)? {
            if seen.insert(pair) {
                all.push((pair, *l, *r));
            }
        }
    }
    if all.is_empty() { Err(Unfit::Nothing) } else { Ok(all) }
}

fn count(local: &TrafficSelector, remote: &TrafficSelector) -> Result<usize, Unfit> {
    let Some(protocol) = common(local, remote) else { return Ok(0) };
    let ports = ports(protocol, local, remote)?.len();
    Ok(prefixes(local.start, local.end).len() * prefixes(remote.start, remote.end).len() * ports)
}

fn parts(local: &TrafficSelector, remote: &TrafficSelector) -> Result<Vec<Pair>, Unfit> {
    let mut parts = Vec::new();
    let Some(protocol) = common(local, remote) else { return Ok(parts) };
    let ports = ports(protocol, local, remote)?;
    let remotes = prefixes(remote.start, remote.end);
    for local in prefixes(local.start, local.end) {
        for &remote in &remotes {
            parts.extend(ports.iter().map(|&ports| Pair { local, remote, protocol, ports }));
        }
    }
    Ok(parts)
}

/// The protocol that both selectors cover, `None` if there is none.
fn common(local: &TrafficSelector, remote: &TrafficSelector) -> Option<u8> {
    let protocol = match (local.protocol, remote.protocol) {
        (0, p) | (p, 0) => p,
        (a, b) if a == b => a,
        _ => return None,
    };
    (local.start.is_ipv4() == remote.start.is_ipv4()).then_some(protocol)
}

fn ports(
    protocol: u8,
    local: &TrafficSelector,
    remote: &TrafficSelector,
) -> Result<Vec<Ports>, Unfit> {
    if local.is_opaque() || remote.is_opaque() {
        return Err(Unfit::Opaque);
    }
    let (a, b) = ((local.start_port, local.end_port), (remote.start_port, remote.end_port));
    if matches!(protocol, ICMP | ICMPV6 | MH) {
        // Type and code stand in both selectors (RFC 7296 §3.13.1).
        let (start, end) = (a.0.max(b.0), a.1.min(b.1));
        let kinds = masks(start, end).into_iter().map(|part| kind(part, protocol == MH));
        return Ok(kinds.collect());
    }
    let remotes = masks(b.0, b.1);
    let with = |local| remotes.iter().map(move |&remote| Ports::Sides { local, remote });
    Ok(masks(a.0, a.1).into_iter().flat_map(with).collect())
}

/// Type and code, which the selector has in one number and the kernel in two. A mobility header has a
/// type alone.
fn kind(part: Port, no_code: bool) -> Ports {
    let half = |value: u16, mask: u16| match mask {
        0 => Port::default(),
        // The kernel compares 16 bits of which the upper are always zero.
        _ => Port { value, mask: mask | 0xff00 },
    };
    let kind = half(part.value >> 8, part.mask >> 8);
    let code = half(part.value & 0xff, part.mask & 0xff);
    Ports::Kind { kind, code: if no_code { Port::default() } else { code } }
}

/// The prefixes that make up a range.
pub(super) fn prefixes(start: IpAddr, end: IpAddr) -> Vec<Prefix> {
    match (start, end) {
        (IpAddr::V4(start), IpAddr::V4(end)) => {
            let address = |bits: u128| Ipv4Addr::from(bits as u32).into();
            let range = (u128::from(u32::from(start)), u128::from(u32::from(end)));
            blocks(range, 32)
                .map(|(bits, length)| Prefix { address: address(bits), length })
                .collect()
        }
        (IpAddr::V6(start), IpAddr::V6(end)) => blocks((start.into(), end.into()), 128)
            .map(|(bits, length)| Prefix { address: Ipv6Addr::from(bits).into(), length })
            .collect(),
        _ => Vec::new(),
    }
}

/// The masked ports that make up a range.
fn masks(start: u16, end: u16) -> Vec<Port> {
    let mask = |length: u8| u16::MAX.checked_shl(16 - u32::from(length)).unwrap_or(0);
    blocks((start.into(), end.into()), 16)
        .map(|(value, length)| Port { value: value as u16, mask: mask(length) })
        .collect()
}

/// The aligned blocks that make up a range of numbers of `width` bits: first number and prefix length.
fn blocks((start, end): (u128, u128), width: u32) -> impl Iterator<Item = (u128, u8)> {
    let mut next = (start <= end).then_some(start);
    std::iter::from_fn(move || {
        let first = next?;
        // As large as the alignment of its start allows, but no larger than the rest.
        let aligned = first.trailing_zeros().min(width);
        let left = match (end - first).checked_add(1) {
            Some(left) => left.ilog2(),
            None => width,
        };
        let size = aligned.min(left);
        let last = first + (u128::MAX.checked_shr(128 - size).unwrap_or(0));
        next = last.checked_add(1).filter(|&after| last < end && after <= end);
        Some((first, (width - size) as u8))
    })
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const MH: u8 = 135;

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(text: &str) -> TrafficSelector {
        text.parse().unwrap()
    }

    fn split(start: &str, end: &str) -> Vec<String> {
        let list = prefixes(start.parse().unwrap(), end.parse().unwrap());
        list.into_iter().map(|p| format!("{}/{}", p.address, p.length)).collect()
    }

    fn count_of(local: &[&str], remote: &[&str]) -> Result<usize, Unfit> {
        let list = |texts: &[&str]| texts.iter().map(|text| ts(text)).collect::<Vec<_>>();
        pairs(&list(local), &list(remote)).map(|pairs| pairs.len())
    }

    #[test]
    fn ranges_become_prefixes() {
        assert_eq!(split("10.0.0.0", "10.255.255.255"), ["10.0.0.0/8"]);
        assert_eq!(split("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(split("192.0.2.1", "192.0.2.1"), ["192.0.2.1/32"]);
        assert_eq!(
            split("192.0.2.1", "192.0.2.6"),
            ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"]
        );
        assert_eq!(split("255.255.255.254", "255.255.255.255"), ["255.255.255.254/31"]);
        assert_eq!(split("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(split("2001:db8::", "2001:db8::2"), ["2001:db8::/127", "2001:db8::2/128"]);
        // The worst there is.
        assert_eq!(split("0.0.0.1", "255.255.255.254").len(), 62);
        assert_eq!(split("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(), 254);
        assert!(split("10.0.0.2", "10.0.0.1").is_empty());
        assert!(split("10.0.0.2", "::1").is_empty());
    }

    /// Every number of the range is in one block, and no other number is in any.
    #[test]
    fn blocks_cover_a_range_exactly() {
        for (start, end) in [(0, 65535), (1, 65534), (80, 80), (1024, 65535), (5, 4), (137, 139)] {
            let parts = masks(start, end);
            for port in 0..=u16::MAX {
                let hits = parts.iter().filter(|part| port & part.mask == part.value).count();
                let wanted = usize::from(start <= port && port <= end);
                assert_eq!(hits, wanted, "{port} in {start}-{end}");
            }
        }
    }

    #[test]
    fn only_what_can_be_one_packet_is_paired() {
        assert_eq!(count_of(&["10.1.0.0/16", "fd01::/64"], &["10.2.0.0/16", "fd02::/64"]), Ok(2));
        assert_eq!(count_of(&["10.1.0.0/16[tcp]"], &["10.2.0.0/16[udp]"]), Err(Unfit::Nothing));
        assert_eq!(count_of(&["10.1.0.0/16"], &["fd02::/64"]), Err(Unfit::Nothing));
        assert_eq!(count_of(&[], &["fd02::/64"]), Err(Unfit::Nothing));
        // Twice the same is once.
        assert_eq!(count_of(&["10.1.0.0/16", "10.1.0.0/16"], &["10.2.0.0/16"]), Ok(1));
        assert_eq!(count_of(&["10.1.0.0/16[udp/opaque]"], &["10.2.0.0/16"]), Err(Unfit::Opaque));
    }

    #[test]
    fn what_would_explode_is_refused() {
        let range = TrafficSelector::from_range(
            "0.0.0.1".parse().unwrap(),
            "255.255.255.254".parse().unwrap(),
        )
        .unwrap();
        let ports = TrafficSelector { protocol: 17, start_port: 1, end_port: 65534, ..range };
        assert_eq!(pairs(&[range], &[range]).map(|all| all.len()), Ok(62 * 62));
        assert!(matches!(pairs(&[ports], &[range]), Err(Unfit::TooMany(n)) if n > MAX_PAIRS));
        let many: Vec<_> = (0..255).map(|n| ts(&format!("10.{n}.0.0/16"))).collect();
        assert!(matches!(pairs(&many, &many), Err(Unfit::TooMany(_))));
    }

    #[test]
    fn ports_turn_round_and_icmp_kinds_do_not() {
        let all = pairs(&[ts("10.1.0.0/16[tcp/80]")], &[ts("10.2.0.0/16[tcp]")]).unwrap();
        let pair = all[0].0;
        let exact = |value| Port { value, mask: 0xffff };
        assert_eq!(pair.outward(3).src_port, exact(80));
        assert_eq!(pair.inward(3).dst_port, exact(80));
        assert_eq!((pair.inward(3).src_port, pair.inward(3).ifindex), (Port::default(), 3));

        let echo = pairs(&[ts("10.1.0.0/16[icmp/8(0)]")], &[ts("10.2.0.0/16[icmp/8(0)]")]).unwrap();
        for selector in [echo[0].0.outward(0), echo[0].0.inward(0)] {
            assert_eq!((selector.src_port, selector.dst_port), (exact(8), exact(0)));
        }
        let any_code = pairs(&[ts("10.1.0.0/16[icmp/8]")], &[ts("10.2.0.0/16[icmp]")]).unwrap();
        let selector = any_code[0].0.inward(0);
        assert_eq!((selector.src_port, selector.dst_port), (exact(8), Port::default()));
        let differing = count_of(&["10.1.0.0/16[icmp/8]"], &["10.2.0.0/16[icmp/0]"]);
        assert_eq!(differing, Err(Unfit::Nothing));
    }
}
