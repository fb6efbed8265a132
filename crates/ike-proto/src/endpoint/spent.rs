//! Tickets that are not taken any more (RFC 5723 §9.8), by the IKE SAs that they are of: resumed already,
//! rekeyed, or deleted. What other gateways with the same keys have done is not known here.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::table::Table;

/// IKE SAs remembered; of more, the oldest are forgotten.
const MOST: usize = 1 << 16;

/// An IKE SA by its SPIs, the initiator's first, and until when tickets of it could be good.
pub type Void = ((u64, u64), SystemTime);

/// A list of IKE SAs, by their SPIs.
#[derive(Default)]
pub(super) struct Spent {
    until: Table<(u64, u64), SystemTime>,
    /// In the order in which they came; once more if it is longer now.
    order: VecDeque<(u64, u64)>,
    /// How many have come so far.
    added: u64,
}

impl Spent {
    /// Adds one; false if it was there.
    pub(super) fn add(&mut self, spis: (u64, u64), now: SystemTime, until: SystemTime) -> bool {
        while let Some(first) = self.order.front() {
            let over = self.until.get(first).is_none_or(|until| *until < now);
            if !over && self.order.len() < MOST {
                break;
            }
            self.until.remove(first);
            self.order.pop_front();
        }
        if let Some(known) = self.until.get_mut(&spis) {
            if until > *known {
                *known = until;
                // Whoever writes them down has to hear of it.
                self.order.push_back(spis);
                self.added += 1;
            }
            return false;
        }
        self.until.insert(spis, until);
        self.order.push_back(spis);
        self.added += 1;
        true
    }

    /// Those that have come after the first `seen`, as far as they are not forgotten, and how many have come so far.
    pub(super) fn since(&self, seen: u64) -> (u64, Vec<Void>) {
        let count = usize::try_from(self.added.saturating_sub(seen)).unwrap_or(usize::MAX);
        let known = self.order.len();
        let new = self.order.iter().skip(known.saturating_sub(count));
        let found = new.filter_map(|spis| Some((*spis, *self.until.get(spis)?))).collect();
        (self.added, found)
    }

    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    pub(super) fn holds(&self, spis: (u64, u64)) -> bool {
        self.until.contains_key(&spis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn what_is_over_is_forgotten_and_there_is_an_end_to_it() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let mut spent = Spent::default();
        assert!(spent.add((1, 1), at(0), at(10)));
        assert!(!spent.add((1, 1), at(1), at(10)) && spent.holds((1, 1)));
        assert!(spent.add((2, 2), at(11), at(20)));
        assert!(!spent.holds((1, 1)) && spent.holds((2, 2)));
        for n in 0..2 * MOST as u64 {
            spent.add((n, 7), at(12), at(30));
        }
        assert_eq!((spent.until.len(), spent.order.len()), (MOST, MOST));
        assert!(spent.holds((2 * MOST as u64 - 1, 7)));
        let (added, all) = spent.since(0);
        assert_eq!((added, all.len()), (2 + 2 * MOST as u64, MOST));
        assert!(spent.add((5, 5), at(13), at(40)));
        assert_eq!(spent.since(added), (added + 1, vec![((5, 5), at(40))]));
        assert_eq!(spent.since(added + 1), (added + 1, Vec::new()));
        assert!(!spent.add((5, 5), at(14), at(40)));
        assert_eq!(spent.since(added + 1), (added + 1, Vec::new()));
        let len = spent.len();
        assert!(!spent.add((5, 5), at(14), at(50)));
        assert_eq!(
            spent.since(added + 1),
            (added + 2, vec![((5, 5), at(50))]),
            "it is void for longer"
        );
        assert_eq!(spent.len(), len);
        assert!(spent.add((6, 6), at(51), at(60)));
        assert_eq!((spent.until.len(), spent.order.len()), (1, 1));
    }
}
