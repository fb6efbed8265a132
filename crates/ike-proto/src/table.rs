//! Hash tables for entries that come and go all the time.

#![expect(
    clippy::disallowed_types,
    reason = "those of this module have a seed, or hash in a fixed way"
)]

use std::borrow::Borrow;
use std::collections::hash_map::{DefaultHasher, Entry, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;

use crate::crypto::{Secret, SecureRandom};

/// A table with room for no more than this does not shrink.
const SMALL: usize = 256;

/// A [`HashMap`] that does not double because entries come and go, and is halved when most entries have gone.
///
/// A removed entry leaves a mark that occupies its place. When no place is left, the standard library's table
/// doubles, unless half of it are such marks. This table is rebuilt in its size when a sixteenth of it are marks,
/// so that an insertion moves sixteen entries on average at most.
pub(crate) struct Table<K, V, S = HashSeed> {
    map: HashMap<K, V, S>,
    /// Number of entries before the table grows.
    full: usize,
}

/// A table whose keys this end has chosen or hashed with a key, so that no peer can cause collisions.
pub(crate) type OwnTable<K, V> = Table<K, V, BuildHasherDefault<OwnHasher>>;

impl<K, V, S: Default> Default for Table<K, V, S> {
    fn default() -> Self {
        Self { map: HashMap::default(), full: 0 }
    }
}

impl<K, V, S> Deref for Table<K, V, S> {
    type Target = HashMap<K, V, S>;

    fn deref(&self) -> &HashMap<K, V, S> {
        &self.map
    }
}

impl<K, V> Table<K, V> {
    /// An empty table whose keys a peer may choose.
    pub(crate) fn new(seed: HashSeed) -> Self {
        Self { map: HashMap::with_hasher(seed), full: 0 }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + Clone> Table<K, V, S> {
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.make_room();
        self.map.insert(key, value)
    }

    pub(crate) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        self.make_room();
        self.map.entry(key)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let removed = self.map.remove(key);
        // Half of it would have spare room: a sixteenth more entries fit before it grows again.
        if self.full >= SMALL && self.map.len() <= self.full / 32 * 15 {
            self.map.shrink_to(self.full / 2);
            self.full = self.map.capacity();
        }
        removed
    }

    pub(crate) fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.map.get_mut(key)
    }

    fn make_room(&mut self) {
        let (len, room) = (self.map.len(), self.map.capacity());
        self.full = self.full.max(room);
        if len < room || self.full - len <= self.full / 16 {
            return;
        }
        let anew = HashMap::with_capacity_and_hasher(self.full, self.map.hasher().clone());
        let old = std::mem::replace(&mut self.map, anew);
        self.map.extend(old);
    }
}

/// The key of the hashes of what peers choose. It comes from the engine's randomness, so that the same randomness
/// gives the same hashes. No peer can predict them.
#[derive(Clone, Copy)]
pub(crate) struct HashSeed([u8; Self::LEN]);

impl HashSeed {
    /// Octets of a seed.
    const LEN: usize = 16;

    /// For tests of what has a table.
    #[cfg(test)]
    pub(crate) const TEST: Self = Self([1; Self::LEN]);

    /// From the first octets of a secret that has nothing else to hide. Missing ones are zero.
    pub(crate) fn new(secret: &Secret) -> Self {
        let mut octets = [0; Self::LEN];
        octets.iter_mut().zip(secret.expose()).for_each(|(octet, from)| *octet = *from);
        Self(octets)
    }

    /// A number for `secret`, for this run and this host only.
    pub(crate) fn print(self, secret: &Secret) -> u64 {
        self.hash_one(secret.expose())
    }

    /// From the engine's randomness.
    pub(crate) fn draw(rng: &mut dyn SecureRandom) -> Self {
        let mut octets = vec![0; Self::LEN];
        rng.fill(&mut octets);
        Self::new(&Secret::new(octets))
    }
}

impl BuildHasher for HashSeed {
    type Hasher = DefaultHasher;

    /// SipHash, whose own key cannot be set: the seed is what it hashes first.
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        hasher
    }
}

/// A key of an [`OwnTable`] that a peer may choose, with its hash. The hash is secret, and is computed once however
/// often the key is looked up.
#[derive(Debug)]
pub(crate) struct Hashed<T> {
    hash: u64,
    value: T,
}

impl<T: Hash> Hashed<T> {
    /// All keys of one table need the same `seed`.
    pub(crate) fn new(value: T, seed: HashSeed) -> Self {
        Self { hash: seed.hash_one(&value), value }
    }
}

impl<T> Deref for Hashed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Hashed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.value == other.value
    }
}

impl<T: Eq> Eq for Hashed<T> {}

impl<T> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Spreads numbers. The result is predictable.
#[derive(Default)]
pub(crate) struct OwnHasher(u64);

/// 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for OwnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_u64((*octet).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(SPREAD);
        // Both halves, because a table uses the low bits and the highest ones.
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.0 = low ^ high;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The hashes of one seed are equal in each run, and those of another seed are not.
    ///
    /// Fault: in `build_hasher`, leave out the second half of the seed.
    #[test]
    fn a_seed_decides_the_hashes() {
        let hash = |seed: HashSeed| seed.hash_one(("a peer", 7));
        let [mut first, mut last] = [[1; 16]; 2];
        (first[0], last[15]) = (2, 2);
        assert_eq!(hash(HashSeed::TEST), hash(HashSeed([1; 16])));
        assert_ne!(hash(HashSeed::TEST), hash(HashSeed(first)));
        assert_ne!(hash(HashSeed::TEST), hash(HashSeed(last)));
    }

    /// As many entries as fit, nearly, one replaced after the other: the table keeps its size, and
    /// loses nothing.
    #[test]
    fn comings_and_goings_do_not_make_it_grow() {
        let mut table = OwnTable::default();
        let count = 100_000_u64;
        for n in 0..count {
            table.insert(n, n);
        }
        let full = table.capacity();
        assert!(full - table.len() > full / 16, "the test wants room for marks");
        for n in 0..3 * count {
            assert_eq!(table.remove(&n), Some(n));
            table.insert(n + count, n + count);
            assert!(table.capacity() <= full, "{n}");
        }
        assert_eq!(table.len(), 100_000);
        assert!((3 * count..4 * count).all(|n| table.get(&n) == Some(&n)));
    }

    #[test]
    fn a_table_that_is_empty_nearly_is_small() {
        let mut table = OwnTable::default();
        for n in 0..100_000_u64 {
            table.insert(n, n);
        }
        let full = table.capacity();
        for n in 0..100_000 {
            assert_eq!(table.remove(&n), Some(n));
            assert_eq!(table.get(&(n + 1)).is_some(), n < 99_999);
        }
        assert!(table.capacity() < full / 100, "{} of {full}", table.capacity());
        table.insert(1, 1);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_table_that_is_full_grows() {
        let mut table = Table::<u64, u64>::new(HashSeed::TEST);
        for n in 0..10_000 {
            table.entry(n).or_insert(n);
            // A few marks are no reason to be made anew again and again.
            table.insert(u64::MAX, 0);
            table.remove(&u64::MAX);
        }
        assert_eq!(table.len(), 10_000);
        assert!((0..10_000).all(|n| table.get(&n) == Some(&n)));
    }

    #[test]
    fn numbers_in_a_row_and_shards_apart_are_spread() {
        let hash = |n: u64| {
            let mut hasher = OwnHasher::default();
            n.hash(&mut hasher);
            hasher.finish()
        };
        for step in [1, 2, 3, 256, 1 << 32, 1 << 56] {
            let numbers = (0..256).map(|n: u64| n.wrapping_mul(step));
            let low: HashSet<_> = numbers.clone().map(|n| hash(n) & 0xfff).collect();
            let high: HashSet<_> = numbers.map(|n| hash(n) >> 57).collect();
            assert!(low.len() > 200 && high.len() > 64, "{step}: {} {}", low.len(), high.len());
        }
    }
}
