//! Narrowing of traffic selectors (RFC 7296 §2.9).

use std::net::IpAddr;

use crate::wire::payload::TrafficSelector;

/// Selectors in one TS payload.
const MAX_SELECTORS: usize = 255;

/// The intersection of `configured` and `offered`; empty if they have nothing in common.
///
/// The order is that of `configured`, then `offered`. Selectors within others are left out. The result has at most 255
/// selectors. If the first offered selector is acceptable in full (it may be the packet that made the initiator request
/// the child), the selector that covers it is kept and comes first.
pub fn narrow(configured: &[TrafficSelector], offered: &[TrafficSelector]) -> Vec<TrafficSelector> {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9
    //# If the responder's policy allows it to accept the first selector of TSi and TSr, then
    //# the responder MUST narrow the Traffic Selectors to a subset that includes the
    //# initiator's first choices.
    let first = offered.first().filter(|first| configured.iter().any(|ours| ours.contains(first)));
    let mut narrowed: Vec<TrafficSelector> = first.into_iter().copied().collect();
    for ours in configured.iter().take(MAX_SELECTORS) {
        for theirs in offered.iter().take(MAX_SELECTORS) {
            if let Some(common) = ours.intersect(theirs) {
                add(&mut narrowed, common);
            }
        }
    }
    let covers_first = |kept: &TrafficSelector| first.is_some_and(|ts| kept.contains(ts));
    if let Some(head) = narrowed.iter().position(covers_first).and_then(|i| narrowed.get_mut(..=i))
    {
        head.rotate_right(1);
    }
    narrowed
}

/// True if every selector of `inner` lies within one of `outer`.
pub(crate) fn within(inner: &[TrafficSelector], outer: &[TrafficSelector]) -> bool {
    !inner.is_empty() && inner.iter().all(|ts| outer.iter().any(|wide| wide.contains(ts)))
}

/// True if both lists cover the same. The selector of a packet may precede the one that contains it.
pub(crate) fn same(a: &[TrafficSelector], b: &[TrafficSelector]) -> bool {
    within(a, b) && within(b, a)
}

/// True if a child with the selectors `new`, local and remote, takes every packet that one with `old` takes: a rekey makes no
/// child for less (RFC 7296 §2.9.2). A selector whose family or protocol the other side of `old` lacks takes no packet.
pub fn is_whole(
    new: (&[TrafficSelector], &[TrafficSelector]),
    old: (&[TrafficSelector], &[TrafficSelector]),
) -> bool {
    let in_use = |list: &[TrafficSelector], beside: &[TrafficSelector]| -> Vec<_> {
        let meets = |ts: &TrafficSelector, other: &TrafficSelector| {
            ts.start.is_ipv4() == other.start.is_ipv4()
                && (ts.protocol == other.protocol || ts.protocol == 0 || other.protocol == 0)
        };
        list.iter().filter(|ts| beside.iter().any(|other| meets(ts, other))).copied().collect()
    };
    !new.0.is_empty()
        && !new.1.is_empty()
        && covers(new.0, &in_use(old.0, old.1))
        && covers(new.1, &in_use(old.1, old.0))
}

/// True if `new` has everything that `old` has. A selector of `old` may have become several adjacent ranges of addresses.
fn covers(new: &[TrafficSelector], old: &[TrafficSelector]) -> bool {
    old.iter().all(|old| {
        let mut parts: Vec<_> = new
            .iter()
            .filter_map(|new| new.intersect(old))
            .filter(|part| {
                let ports = (part.start_port, part.end_port) == (old.start_port, old.end_port);
                part.protocol == old.protocol && ports
            })
            .collect();
        parts.sort_unstable_by_key(|part| part.start);
        // The first address that no part has so far; none behind the last address of all.
        let mut missing = Some(old.start);
        for part in parts {
            missing = missing.and_then(|at| match part.start <= at {
                true if part.end >= at => next(part.end),
                _ => Some(at),
            });
        }
        missing.is_none_or(|at| at > old.end)
    })
}

/// The address after `ip`.
fn next(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

/// Adds `new` unless it is covered already, and removes the selectors that it covers.
fn add(narrowed: &mut Vec<TrafficSelector>, new: TrafficSelector) {
    if narrowed.iter().any(|kept| kept.contains(&new)) {
        return;
    }
    narrowed.retain(|kept| !new.contains(kept));
    if narrowed.len() < MAX_SELECTORS {
        narrowed.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<TrafficSelector> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[track_caller]
    fn assert_narrowed(configured: &[&str], offered: &[&str], expected: &[&str]) {
        assert_eq!(narrow(&list(configured), &list(offered)), list(expected));
    }

    #[test]
    fn equal_and_contained() {
        assert_narrowed(&["10.1.0.0/16"], &["10.1.0.0/16"], &["10.1.0.0/16"]);
        assert_narrowed(&["10.1.0.0/16"], &["0.0.0.0/0"], &["10.1.0.0/16"]);
        assert_narrowed(&["0.0.0.0/0"], &["10.1.0.0/16"], &["10.1.0.0/16"]);
        assert_narrowed(&["10.1.0.0/16"], &["10.2.0.0/16"], &[]);
        assert_narrowed(&["0.0.0.0/0"], &["::/0"], &[]);
        assert_narrowed(&[], &["::/0"], &[]);
        assert_narrowed(&["::/0"], &[], &[]);
    }

    #[track_caller]
    fn assert_covers(new: &[&str], old: &[&str], expected: bool) {
        assert_eq!(covers(&list(new), &list(old)), expected, "{new:?} {old:?}");
    }

    #[test]
    fn a_rekey_may_split_ranges_and_leave_none_out() {
        assert_covers(&["10.1.0.0/16"], &["10.1.0.0/16"], true);
        assert_covers(&["0.0.0.0/0"], &["10.1.0.0/16", "10.2.0.0/16"], true);
        assert_covers(&["10.1.128.0/17", "10.1.0.0/17"], &["10.1.0.0/16"], true);
        assert_covers(&["10.1.0.0/17", "10.1.0.0/16", "10.1.7.0/24"], &["10.1.0.0/16"], true);
        assert_covers(&["0.0.0.0/1", "128.0.0.0/1"], &["0.0.0.0/0"], true);
        assert_covers(&["::/1", "8000::/1"], &["::/0"], true);
        assert_covers(&["10.1.0.0/17"], &["10.1.0.0/16"], false);
        assert_covers(&["10.1.128.0/17"], &["10.1.0.0/16"], false);
        assert_covers(&["10.1.0.0/18", "10.1.128.0/17"], &["10.1.0.0/16"], false);
        assert_covers(&["10.1.0.0/16"], &["10.1.0.0/16", "10.2.0.0/16"], false);
        assert_covers(&["10.1.0.0/16[tcp]"], &["10.1.0.0/16"], false);
        assert_covers(&["10.1.0.0/16"], &["10.1.0.0/16[tcp/80]"], true);
        assert_covers(&["10.1.0.0/16[tcp/80]"], &["10.1.0.0/16[tcp]"], false);
        assert_covers(&["::/0"], &["0.0.0.0/0"], false);
        assert_covers(&[], &["0.0.0.0/0"], false);
        assert_covers(&[], &[], true);
    }

    #[test]
    fn a_rekey_may_leave_out_what_takes_no_packet() {
        let old = (list(&["0.0.0.0/0", "::/0"]), list(&["10.9.0.1/32"]));
        let v4 = list(&["0.0.0.0/0"]);
        assert!(is_whole((&v4, &old.1), (&old.0, &old.1)));
        assert!(!is_whole((&list(&["::/0"]), &old.1), (&old.0, &old.1)));
        let both = list(&["0.0.0.0/0", "::/0"]);
        assert!(!is_whole((&v4, &v4), (&both, &both)));
        assert!(!is_whole((&[], &old.1), (&old.0, &old.1)));
        let (tcp, two) =
            (list(&["10.1.0.0/16[tcp]"]), list(&["10.2.0.0/16[tcp]", "10.2.0.0/16[udp]"]));
        assert!(is_whole((&tcp, &list(&["10.2.0.0/16[tcp]"])), (&tcp, &two)));
    }

    #[test]
    fn order_is_configured_then_offered() {
        assert_narrowed(
            &["10.1.0.0/16", "10.2.0.0/16", "2001:db8::/32"],
            &["0.0.0.0/0", "::/0"],
            &["10.1.0.0/16", "10.2.0.0/16", "2001:db8::/32"],
        );
        assert_narrowed(
            &["10.0.0.0/8"],
            &["10.2.0.0/16", "10.1.0.0/16"],
            &["10.2.0.0/16", "10.1.0.0/16"],
        );
    }

    #[test]
    fn contained_selectors_are_merged_away() {
        assert_narrowed(
            &["10.1.0.0/16", "10.0.0.0/8"],
            &["10.1.2.0/24", "10.0.0.0/8"],
            &["10.0.0.0/8"],
        );
    }

    #[test]
    fn first_selector_of_the_initiator_is_covered_first() {
        // The packet's own selector, then what the initiator's policy allows (RFC 7296 §2.9).
        assert_narrowed(
            &["10.1.0.0/16", "10.2.0.0/16"],
            &["10.2.0.43[tcp/80]", "10.0.0.0/8"],
            &["10.2.0.0/16", "10.1.0.0/16"],
        );
        // One that is not acceptable in full is narrowed like any other.
        assert_narrowed(
            &["10.1.0.0/16[tcp]", "10.2.0.0/16[tcp]"],
            &["10.2.0.43", "10.1.0.0/16"],
            &["10.1.0.0/16[tcp]", "10.2.0.43[tcp]"],
        );
    }

    #[test]
    fn protocols_and_ports() {
        assert_narrowed(&["10.1.0.0/16[tcp]"], &["0.0.0.0/0[/80]"], &["10.1.0.0/16[tcp/80]"]);
        assert_narrowed(&["10.1.0.0/16[tcp]"], &["0.0.0.0/0[udp]"], &[]);
        assert_narrowed(
            &["10.1.0.0/16[tcp/80-90]"],
            &["10.1.0.0/16[tcp/85-100]"],
            &["10.1.0.0/16[tcp/85-90]"],
        );
        assert_narrowed(&["0.0.0.0/0[icmp]"], &["0.0.0.0/0[icmp/8]"], &["0.0.0.0/0[icmp/8]"]);
        assert_narrowed(&["0.0.0.0/0[icmp/8]"], &["0.0.0.0/0[icmp/0]"], &[]);
        assert_narrowed(
            &["0.0.0.0/0[tcp]"],
            &["0.0.0.0/0[tcp/opaque]"],
            &["0.0.0.0/0[tcp/opaque]"],
        );
        assert_narrowed(&["0.0.0.0/0[tcp/80]"], &["0.0.0.0/0[tcp/opaque]"], &[]);
    }

    #[test]
    fn output_is_bounded_and_keeps_the_packet() {
        let host = |i: u32| TrafficSelector::host(std::net::Ipv4Addr::from(2 * i).into());
        let configured: Vec<_> = (0..300).map(host).collect();
        let mut offered = vec![host(299)];
        offered.extend((0..300).map(host));
        let narrowed = narrow(&configured, &offered);
        assert_eq!(narrowed.len(), MAX_SELECTORS);
        assert_eq!(narrowed.first(), Some(&host(299)));
    }
}
