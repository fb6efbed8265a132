//! A worker's cache of the tables.
//!
//! It is a direct-mapped table: a new entry replaces the entry in its slot. So it is bounded, and a scan over many
//! keys costs at most one look into the tables per packet.

const SLOTS: usize = 1024;

/// The memory of one worker.
pub(crate) struct Slots<K, V> {
    slots: Vec<Option<(K, V)>>,
    /// The generation of the tables that the slots were filled from.
    generation: u64,
}

impl<K: Clone + PartialEq, V: Clone> Slots<K, V> {
    pub(crate) fn new() -> Self {
        Self { slots: vec![None; SLOTS], generation: 0 }
    }

    /// Forgets everything unless the tables are still of `generation`.
    #[inline(always)]
    pub(crate) fn renew(&mut self, generation: u64) {
        if self.generation != generation {
            self.slots.fill(None);
            self.generation = generation;
        }
    }

    /// The value for `key`, which hashes to `hash`, in the tables of `generation`. If it is not cached, `find`
    /// makes it. A key that `find` does not find is not cached.
    #[inline(always)]
    pub(crate) fn get_or_try_insert<E>(
        &mut self,
        generation: u64,
        hash: u64,
        key: &K,
        find: impl FnOnce() -> Result<V, E>,
    ) -> Result<&V, E> {
        self.renew(generation);
        let slot = &mut self.slots[hash as usize % SLOTS];
        if !matches!(slot, Some((known, _)) if known == key) {
            *slot = None;
        }
        match slot {
            Some((_, value)) => Ok(value),
            None => Ok(&slot.insert((key.clone(), find()?)).1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_one_key_one_generation() {
        let mut slots = Slots::new();
        let mut get = |generation, hash, key, value: Result<u32, ()>| {
            slots.get_or_try_insert(generation, hash, &key, || value).copied()
        };
        assert_eq!(get(1, 7, 'a', Ok(1)), Ok(1));
        assert_eq!(get(1, 7, 'a', Ok(2)), Ok(1), "it is known");
        assert_eq!(get(1, 8, 'b', Err(())), Err(()));
        assert_eq!(get(1, 8, 'b', Ok(3)), Ok(3), "what was not found is looked for again");
        assert_eq!(get(1, 7 + SLOTS as u64, 'c', Ok(4)), Ok(4));
        assert_eq!(get(1, 7, 'a', Ok(5)), Ok(5), "its slot was taken");
        assert_eq!(get(2, 8, 'b', Err(())), Err(()), "another generation");
    }
}
