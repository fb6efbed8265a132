//! A set of IKE SAs that has one member nearly always: an address or a pair of identities with hundreds of
//! them is a flood or a test.

use std::collections::BTreeSet;

use crate::event::IkeSaId;

/// The set. One member takes no allocation.
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
    pub(super) fn insert(&mut self, id: IkeSaId) {
        match self {
            Self::Empty => *self = Self::One(id),
            Self::One(one) if *one == id => {}
            Self::One(one) => *self = Self::Many(Box::new(BTreeSet::from([*one, id]))),
            Self::Many(many) => {
                many.insert(id);
            }
        }
    }

    pub(super) fn remove(&mut self, id: IkeSaId) {
        match self {
            Self::One(one) if *one == id => *self = Self::Empty,
            Self::Many(many) => {
                many.remove(&id);
                match (many.len(), many.first()) {
                    (0 | 1, Some(last)) => *self = Self::One(*last),
                    (0, None) => *self = Self::Empty,
                    _ => {}
                }
            }
            Self::Empty | Self::One(_) => {}
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
            set.insert(IkeSaId(id));
        }
        assert_eq!(members(&set), ids(&[3, 5, 9]));
        set.remove(IkeSaId(4));
        set.remove(IkeSaId(3));
        assert_eq!(members(&set), ids(&[5, 9]));
        set.remove(IkeSaId(9));
        assert!(matches!(set, IdSet::One(IkeSaId(5))));
        set.remove(IkeSaId(9));
        assert_eq!(members(&set), ids(&[5]));
        set.remove(IkeSaId(5));
        assert!(set.is_empty());
    }
}
