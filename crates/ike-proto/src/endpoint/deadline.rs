//! What an endpoint does when a time has come.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::event::IkeSaId;

/// What is due. Of what is due at one time, the first in this order goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    /// Removals and traps to be repeated, SAs that may be redundant, closed SAs to be forgotten.
    Housekeeping,
    /// A timer of this IKE SA or attempt.
    Sa(IkeSaId),
    /// IKE SAs that wait for the children of another one.
    Handovers,
    /// Children to be started again.
    Starts,
}

/// The deadlines of an endpoint.
///
/// Each IKE SA has one here, so that a [`Deadline`] is kept in eight octets, and not in sixteen. Numbers of SAs are
/// counted from 1, so that none of them is one of the others.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, u64)>);

impl Deadlines {
    pub fn insert(&mut self, (at, due): (Instant, Deadline)) {
        self.0.insert((at, packed(due)));
    }

    pub fn extend(&mut self, due: Option<(Instant, Deadline)>) {
        self.0.extend(due.map(|(at, due)| (at, packed(due))));
    }

    pub fn remove(&mut self, (at, due): &(Instant, Deadline)) {
        self.0.remove(&(*at, packed(*due)));
    }

    pub fn first(&self) -> Option<(Instant, Deadline)> {
        self.0.first().map(|(at, due)| (*at, unpacked(*due)))
    }

    pub fn pop_first(&mut self) {
        self.0.pop_first();
    }
}

fn packed(due: Deadline) -> u64 {
    match due {
        Deadline::Housekeeping => HOUSEKEEPING,
        Deadline::Sa(id) => id.0,
        Deadline::Handovers => HANDOVERS,
        Deadline::Starts => STARTS,
    }
}

fn unpacked(due: u64) -> Deadline {
    match due {
        HOUSEKEEPING => Deadline::Housekeeping,
        HANDOVERS => Deadline::Handovers,
        STARTS => Deadline::Starts,
        id => Deadline::Sa(IkeSaId(id)),
    }
}

// In the order of `Deadline`.
const HOUSEKEEPING: u64 = 0;
const HANDOVERS: u64 = u64::MAX - 1;
const STARTS: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `packed`, exchange two of the numbers.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
    fn deadlines_are_kept_in_their_order_and_come_back() {
        let ids = [1, 2, 1 << 48, HANDOVERS - 1].map(|id| Deadline::Sa(IkeSaId(id)));
        let mut all = vec![Deadline::Starts, Deadline::Housekeeping, Deadline::Handovers];
        all.extend(ids);
        let now = Instant::now();
        let mut deadlines = Deadlines::default();
        all.iter().for_each(|due| deadlines.insert((now, *due)));
        all.sort();
        for due in all {
            assert_eq!(deadlines.first(), Some((now, due)));
            deadlines.pop_first();
        }
        assert_eq!(deadlines.first(), None);
    }
}
