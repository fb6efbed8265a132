//! The numbers of FrodoKEM, which IANA has given none.

use super::KeMethodId;

/// Sets of parameters of one scheme.
const SETS: u16 = 6;

/// Transform IDs of `frodoa1` and of `efrodoa1`. The other five parameter sets of each scheme follow, in the order of
/// [`KeMethodId`]. Both peers must use the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrodoNumbers {
    /// `frodokem_type`: the transform ID of `frodoa1`, of the salted scheme.
    pub salted: u16,
    /// `efrodokem_type`: the transform ID of `efrodoa1`, of the unsalted scheme.
    pub unsalted: u16,
}

impl Default for FrodoNumbers {
    fn default() -> Self {
        let (salted, unsalted) = (KeMethodId::FRODOKEM_640_AES.0, KeMethodId::EFRODOKEM_640_AES.0);
        Self { salted, unsalted }
    }
}

impl FrodoNumbers {
    /// The least and the greatest value of either: the private range of transform type 4.
    pub const RANGE: (u16, u16) = (1024, u16::MAX - SETS + 1);

    /// True if the two schemes share no number.
    pub fn are_apart(self) -> bool {
        self.salted.abs_diff(self.unsalted) >= SETS
    }

    /// The number of the method `id`.
    pub fn of(self, id: KeMethodId) -> KeMethodId {
        let moved = |from: u16, to: u16| {
            let set = id.0.checked_sub(from).filter(|set| *set < SETS)?;
            to.checked_add(set).map(KeMethodId)
        };
        let usual = Self::default();
        let salted = moved(usual.salted, self.salted);
        salted.or_else(|| moved(usual.unsalted, self.unsalted)).unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_move_together_and_others_stay() {
        let numbers = FrodoNumbers { salted: 2000, unsalted: 1083 };
        assert!(numbers.are_apart() && FrodoNumbers::default().are_apart());
        assert!(!FrodoNumbers { salted: 2000, unsalted: 2005 }.are_apart());
        assert_eq!(numbers.of(KeMethodId::FRODOKEM_640_AES), KeMethodId(2000));
        assert_eq!(numbers.of(KeMethodId::FRODOKEM_1344_SHAKE), KeMethodId(2005));
        assert_eq!(numbers.of(KeMethodId::EFRODOKEM_976_AES), KeMethodId(1084));
        for id in [KeMethodId::NONE, KeMethodId::ML_KEM_768, KeMethodId(1082), KeMethodId(1189)] {
            assert_eq!(numbers.of(id), id);
        }
        let all = (0..=u16::MAX).map(KeMethodId);
        assert!(all.into_iter().all(|id| FrodoNumbers::default().of(id) == id));
    }
}
