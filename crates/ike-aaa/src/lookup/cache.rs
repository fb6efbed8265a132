//! Fetched certificates by hash, and failed fetches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::FORGIVEN_AFTER;

/// SHA-1 of what a CERT payload refers to.
pub(super) type Hash = [u8; 20];

/// What is fetched: its hash, its URL, and how many octets it may have. That depends on the encoding, which a
/// stranger can name wrongly.
pub(super) type Thing = (Hash, String, usize);

/// Octets by their hash, the last used last; no more than `limit` octets in all.
#[derive(Debug)]
pub(super) struct Cache {
    entries: VecDeque<(Hash, Arc<[u8]>)>,
    octets: usize,
    limit: usize,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), octets: 0, limit }
    }

    pub(super) fn get(&mut self, hash: &Hash) -> Option<Arc<[u8]>> {
        let found = self.remove(hash)?;
        self.insert(*hash, Arc::clone(&found));
        Some(found)
    }

    pub(super) fn insert(&mut self, hash: Hash, octets: Arc<[u8]>) {
        self.remove(&hash);
        self.octets += octets.len();
        self.entries.push_back((hash, octets));
        while self.octets > self.limit
            && let Some((_, oldest)) = self.entries.pop_front()
        {
            self.octets -= oldest.len();
        }
    }

    pub(super) fn remove(&mut self, hash: &Hash) -> Option<Arc<[u8]>> {
        let at = self.entries.iter().rposition(|(known, _)| known == hash)?;
        let (_, octets) = self.entries.remove(at)?;
        self.octets -= octets.len();
        Some(octets)
    }
}

/// What could not be fetched a short while ago.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Thing, (Instant, String)>);

impl Failures {
    /// Why, if it was lately.
    pub(super) fn why(&self, thing: &Thing, now: Instant) -> Option<&str> {
        let (at, why) = self.0.get(thing)?;
        (now.saturating_duration_since(*at) < FORGIVEN_AFTER).then_some(why)
    }

    pub(super) fn remember(&mut self, thing: Thing, why: String, now: Instant) {
        self.0.retain(|_, (at, _)| now.saturating_duration_since(*at) < FORGIVEN_AFTER);
        if self.0.len() < MOST_FAILURES {
            self.0.insert(thing, (now, why));
        }
    }
}

/// Failures that are remembered. There are not many more in the time that they are, for what is fetched is
/// limited.
const MOST_FAILURES: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cache_keeps_what_was_used_last() {
        let mut cache = Cache::new(100);
        let octets = |n: usize| Arc::from(vec![0; n]);
        for n in 0..10 {
            cache.insert([n; 20], octets(10));
        }
        assert!((0..10).all(|n| cache.get(&[n; 20]).is_some()));
        assert!(cache.get(&[0; 20]).is_some());
        cache.insert([10; 20], octets(15));
        assert!(cache.get(&[1; 20]).is_none() && cache.get(&[2; 20]).is_none());
        assert!(cache.get(&[0; 20]).is_some() && cache.get(&[10; 20]).is_some());
        // Again is not twice, and what does not fit leaves nothing.
        cache.insert([10; 20], octets(15));
        assert_eq!(cache.octets, 95);
        cache.insert([11; 20], octets(101));
        assert_eq!((cache.octets, cache.entries.len()), (0, 0));
    }

    #[test]
    fn failures_are_forgiven_and_do_not_grow() {
        let mut failures = Failures::default();
        let begin = Instant::now();
        let thing = |n, url: &str, limit| ([n; 20], url.to_owned(), limit);
        for n in 0..2 * MOST_FAILURES {
            failures.remember(thing(1, &format!("http://a/{n}"), 9), "gone".to_owned(), begin);
        }
        assert_eq!(failures.0.len(), MOST_FAILURES);
        assert_eq!(failures.why(&thing(1, "http://a/0", 9), begin), Some("gone"));
        assert_eq!(failures.why(&thing(2, "http://a/0", 9), begin), None);
        assert_eq!(failures.why(&thing(1, "http://b/0", 9), begin), None);
        assert_eq!(failures.why(&thing(1, "http://a/0", 10), begin), None);
        let later = begin + FORGIVEN_AFTER + Duration::from_secs(1);
        assert_eq!(failures.why(&thing(1, "http://a/0", 9), later), None);
        failures.remember(thing(1, "http://a/new", 9), "gone".to_owned(), later);
        assert_eq!(failures.0.len(), 1);
    }
}
