//! Counters of ESP by connection: sums that outlive the SAs they come from.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ike_proto::dataplane::{HwOffload, SaId, Usage};
use prometheus::{IntCounter, IntCounterVec};

/// Sampling may take this part of the data plane's time at most.
const SHARE: u32 = 20;

/// No sooner than this after the last time.
const SOONEST: Duration = Duration::from_secs(2);

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    In,
    Out,
}

impl Way {
    fn label(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// The ESP SAs there are, and what was seen of them last.
#[derive(Debug)]
pub(crate) struct Esp {
    bytes: IntCounterVec,
    packets: IntCounterVec,
    known: Mutex<HashMap<SaId, Known>>,
    /// From when on SAs may be looked at again.
    next: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    way: Way,
    bytes: IntCounter,
    packets: IntCounter,
    seen: Usage,
}

impl Known {
    /// Adds what came since. Less than before is no news: an SA that is just being moved has no counters.
    fn add(&mut self, now: Usage) {
        self.bytes.inc_by(now.bytes.saturating_sub(self.seen.bytes));
        self.packets.inc_by(now.packets.saturating_sub(self.seen.packets));
        self.seen.bytes = self.seen.bytes.max(now.bytes);
        self.seen.packets = self.seen.packets.max(now.packets);
        self.seen.offload = now.offload;
    }
}

impl Esp {
    pub(super) fn new(bytes: IntCounterVec, packets: IntCounterVec) -> Self {
        Self { bytes, packets, known: Mutex::default(), next: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SaId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An SA is there; told again it changes nothing.
    pub(super) fn begin(&self, id: SaId, connection: &str, way: Way) {
        self.known().entry(id).or_insert_with(|| {
            let labels = [connection, way.label()];
            Known {
                way,
                bytes: self.bytes.with_label_values(&labels),
                packets: self.packets.with_label_values(&labels),
                seen: Usage::default(),
            }
        });
    }

    /// True if the SA is counted.
    pub(super) fn has(&self, id: SaId) -> bool {
        self.known().contains_key(&id)
    }

    /// The counters of an SA.
    pub(crate) fn sample(&self, id: SaId, usage: Usage) {
        if let Some(known) = self.known().get_mut(&id) {
            known.add(usage);
        }
    }

    /// An SA is gone.
    pub(super) fn end(&self, id: SaId) {
        self.known().remove(&id);
    }

    /// An SA goes by another name.
    pub(super) fn rename(&self, old: SaId, new: SaId) {
        let mut known = self.known();
        if let Some(entry) = known.remove(&old) {
            known.insert(new, entry);
        }
    }

    /// The SAs to look at now, if that is not too soon; then [`Self::sampled`] is to be told.
    pub(crate) fn due(&self, now: Instant) -> Option<Vec<SaId>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| now < next) {
            return None;
        }
        *next = Some(now + SOONEST);
        Some(self.known().keys().copied().collect())
    }

    /// How long that took.
    pub(crate) fn sampled(&self, now: Instant, took: Duration) {
        let pause = SOONEST.max(took.saturating_mul(SHARE));
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + pause);
    }

    /// How many SAs a device handles: crypto in, crypto out, packet in, packet out.
    pub(crate) fn offloaded(&self) -> [(&'static str, &'static str, i64); 4] {
        let mut all =
            [("crypto", "in", 0), ("crypto", "out", 0), ("packet", "in", 0), ("packet", "out", 0)];
        for known in self.known().values() {
            let kind = match known.seen.offload {
                HwOffload::Crypto => "crypto",
                HwOffload::Packet => "packet",
                _ => continue,
            };
            let row = all.iter_mut().find(|row| row.0 == kind && row.1 == known.way.label());
            if let Some((.., count)) = row {
                *count += 1;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    #[test]
    fn a_sum_never_goes_back() {
        let made = |name: &str| {
            IntCounterVec::new(Opts::new(name, "test"), &["connection", "direction"]).unwrap()
        };
        let esp = Esp::new(made("bytes"), made("packets"));
        let total = |esp: &Esp| esp.bytes.with_label_values(&["site", "in"]).get();
        let id = |last: u8| SaId { spi: 7, dst: [192, 0, 2, last].into() };
        let usage = |bytes| Usage { bytes, packets: bytes / 100, ..Usage::default() };
        esp.begin(id(1), "site", Way::In);
        esp.sample(id(1), usage(1000));
        esp.begin(id(1), "site", Way::In);
        assert_eq!(total(&esp), 1000);
        // Not there for a moment, then at another address.
        esp.sample(id(1), Usage::default());
        esp.rename(id(1), id(2));
        esp.sample(id(2), usage(1500));
        assert_eq!(total(&esp), 1500);
        // A rekey: the new one begins at zero, the old one has its last word.
        let new = SaId { spi: 8, dst: [192, 0, 2, 2].into() };
        esp.begin(new, "site", Way::In);
        esp.sample(id(2), usage(1600));
        esp.end(id(2));
        esp.sample(id(2), usage(9999));
        esp.sample(new, usage(50));
        assert_eq!(total(&esp), 1650);
    }

    #[test]
    fn sampling_is_a_small_part_of_the_time() {
        let made = |name: &str| {
            IntCounterVec::new(Opts::new(name, "test"), &["connection", "direction"]).unwrap()
        };
        let esp = Esp::new(made("bytes"), made("packets"));
        let start = ike_tokio::now().mono;
        assert!(esp.due(start).is_some());
        assert!(esp.due(start).is_none(), "one at a time");
        esp.sampled(start, Duration::from_secs(1));
        assert!(esp.due(start + Duration::from_secs(19)).is_none());
        assert!(esp.due(start + Duration::from_secs(20)).is_some());
    }
}
