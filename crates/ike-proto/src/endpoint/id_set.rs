//! A set of IKE SAs that nearly always has one member. An address or a pair of identities with hundreds of SAs is
//! a flood or a test.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use crate::event::IkeSaId;
use crate::table::Table;

/// The set. One member needs no allocation.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a set in place would make every IdSet half as large again"
)]
pub(super) enum IdSet {
    #[default]
    Empty,
    One(IkeSaId),
    Many(Box<BTreeSet<IkeSaId>>),
}

impl IdSet {
    /// Adds a member. False if it was there.
    pub(super) fn insert(&mut self, id: IkeSaId) -> bool {
        match self {
            Self::One(one) if *one == id => return false,
            Self::Many(many) => return many.insert(id),
            Self::Empty => *self = Self::One(id),
            Self::One(one) => *self = Self::Many(Box::new(BTreeSet::from([*one, id]))),
        }
        true
    }

    /// Removes a member. False if it was not there.
    pub(super) fn remove(&mut self, id: IkeSaId) -> bool {
        match self {
            Self::One(one) if *one == id => *self = Self::Empty,
            Self::Many(many) => {
                let there = many.remove(&id);
                match (many.len(), many.first()) {
                    (0 | 1, Some(last)) => *self = Self::One(*last),
                    (0, None) => *self = Self::Empty,
                    _ => {}
                }
                return there;
            }
            Self::Empty | Self::One(_) => return false,
        }
        true
    }

    /// Removes `id` from the set that `sets` has for `key`, and the set as well if that was its last member.
    pub(super) fn leave<K, Q, S>(sets: &mut Table<K, Self, S>, key: &Q, id: IkeSaId)
    where
        K: Hash + Eq + Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        S: BuildHasher + Clone,
    {
        if let Some(those) = sets.get_mut(key) {
            those.remove(id);
            if those.is_empty() {
                sets.remove(key);
            }
        }
    }

    /// The number of members.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Many(many) => many.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The members, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(one) => (Some(*one), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|many| many.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go_in_order() {
        let ids = |numbers: &[u64]| numbers.iter().copied().map(IkeSaId).collect::<Vec<_>>();
        let mut set = IdSet::default();
        let members = |set: &IdSet| set.iter().collect::<Vec<_>>();
        assert!(set.is_empty() && members(&set).is_empty());
        for id in [5, 5, 3, 9, 3] {
            let new = !members(&set).contains(&IkeSaId(id));
            assert_eq!(set.insert(IkeSaId(id)), new);
        }
        assert_eq!(members(&set), ids(&[3, 5, 9]));
        assert!(!set.remove(IkeSaId(4)) && set.remove(IkeSaId(3)));
        assert_eq!(members(&set), ids(&[5, 9]));
        assert!(set.remove(IkeSaId(9)));
        assert!(matches!(set, IdSet::One(IkeSaId(5))));
        assert!(!set.remove(IkeSaId(9)));
        assert_eq!(members(&set), ids(&[5]));
        set.remove(IkeSaId(5));
        assert!(set.is_empty());
    }
}
