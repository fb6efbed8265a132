//! Inbound SAs that have not been used yet, if the engine needs to know.
//!
//! The kernel does not report an SA's first packet. The engine needs this report for one kind of SA: an inbound SA
//! from a rekey that the peer started. The outbound SA of such a rekey waits until the peer shows that it uses the
//! new SAs (RFC 7296 §2.8). These are the inbound SAs that were not followed by an outbound SA for the same
//! policy. Their counters are read after [`FIRST`], and then after twice as long each time, up to [`LONGEST`]. As
//! a rule the peer's Delete of the old SA comes before the second reading and ends it.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use ipsec_types::dataplane::{PolicyId, SaId};

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// SAs that wait for their first packet.
#[derive(Debug, Default)]
pub(super) struct Watch {
    waiting: HashMap<SaId, Waiting>,
    /// When to look, in order.
    due: BTreeSet<(Instant, u64)>,
    ids: HashMap<u64, SaId>,
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    policy: PolicyId,
    number: u64,
    at: Instant,
    wait: Duration,
}

impl Watch {
    /// The inbound SA `id` was installed.
    pub(super) fn begin(&mut self, id: SaId, policy: PolicyId, now: Instant) {
        self.end(id);
        self.count += 1;
        let (number, at) = (self.count, now + FIRST);
        self.waiting.insert(id, Waiting { policy, number, at, wait: FIRST });
        self.ids.insert(number, id);
        self.due.insert((at, number));
    }

    /// An outbound SA for `policy` was installed, so its inbound SAs need no more readings.
    pub(super) fn end_policy(&mut self, policy: PolicyId) {
        let ended: Vec<SaId> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.policy == policy)
            .map(|(&id, _)| id)
            .collect();
        for id in ended {
            self.end(id);
        }
    }

    /// The SA `id` was used, or is gone.
    pub(super) fn end(&mut self, id: SaId) {
        if let Some(Waiting { number, at, .. }) = self.waiting.remove(&id) {
            self.ids.remove(&number);
            self.due.remove(&(at, number));
        }
    }

    /// The SA `old` is called `new` from now on.
    pub(super) fn rename(&mut self, old: SaId, new: SaId) {
        if let Some(waiting) = self.waiting.remove(&old) {
            self.ids.insert(waiting.number, new);
            self.waiting.insert(new, waiting);
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When to look next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Those to look at now. Each is due again later, unless it is [ended](Self::end).
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<SaId> {
        let mut due = Vec::new();
        while let Some(&(at, number)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, number));
            let Some(&id) = self.ids.get(&number) else { continue };
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            waiting.wait = (waiting.wait * 2).min(LONGEST);
            waiting.at = now + waiting.wait;
            self.due.insert((waiting.at, number));
            due.push(id);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(spi: u32) -> SaId {
        SaId { spi, dst: [192, 0, 2, 1].into() }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some instant to begin with")]
    fn looks_become_rarer_and_end() {
        let start = Instant::now();
        let mut watch = Watch::default();
        watch.begin(id(1), PolicyId(1), start);
        watch.begin(id(2), PolicyId(2), start);
        assert_eq!(watch.take_due(start), []);
        let mut now = start;
        let mut looks = 0;
        while now < start + Duration::from_secs(60) {
            now = watch.next().unwrap();
            looks += watch.take_due(now).len();
        }
        assert!((60..100).contains(&looks), "{looks} looks in a minute at two SAs");
        watch.rename(id(1), id(3));
        watch.end(id(3));
        watch.end_policy(PolicyId(2));
        assert_eq!(watch.next(), None);
        assert!(watch.ids.is_empty() && watch.waiting.is_empty());
    }
}
