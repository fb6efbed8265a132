//! Tickets that are not taken any more (RFC 5723 §9.8), by the IKE SAs that they are of: resumed already,
//! rekeyed, or deleted. What other gateways with the same keys have done is not known here.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::table::Table;

/// IKE SAs remembered; of more, the oldest are forgotten.
const MOST: usize = 1 << 16;

/// A list of IKE SAs, by their SPIs.
#[derive(Default)]
pub(super) struct Spent {
    until: Table<(u64, u64), SystemTime>,
    /// In the order in which they came.
    order: VecDeque<(u64, u64)>,
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
            *known = until.max(*known);
            return false;
        }
        self.until.insert(spis, until);
        self.order.push_back(spis);
        true
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
    }
}
