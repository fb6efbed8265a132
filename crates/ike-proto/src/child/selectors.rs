//! Narrowing of traffic selectors (RFC 7296 §2.9).

use crate::wire::payload::TrafficSelector;

/// Selectors in one TS payload.
const MAX_SELECTORS: usize = 255;

/// What `configured` and `offered` have in common; empty if that is nothing.
///
/// In the order of `configured`, then `offered`, without selectors that lie within another, 255 at
/// most. If the first offered selector is acceptable in full (it may be the packet that made the
/// initiator ask), the one that covers it is kept and comes first.
pub fn narrow(configured: &[TrafficSelector], offered: &[TrafficSelector]) -> Vec<TrafficSelector> {
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

/// Adds `new` unless it is covered already, and takes out what it covers itself.
fn add(narrowed: &mut Vec<TrafficSelector>, new: TrafficSelector) {
    if narrowed.iter().any(|kept| kept.contains(&new)) {
        return;
    }
    narrowed.retain(|kept| !new.contains(kept));
    if narrowed.len() < MAX_SELECTORS {
        narrowed.push(new);
    }
}
