use super::*;
use crate::shares::Origin;

fn payer(pool: Pool, ike: u64, origin: u8) -> Payer {
    Payer { pool, ike: IkeSaId(ike), origin: Origin::of([192, 0, origin, 1].into()) }
}

/// What one kind of peers takes is nothing to the others.
///
/// Fault: in `MemoryBudget::pool`, answer `&mut self.pools[0]`.
#[test]
fn no_pool_takes_of_another() {
    let mut budget = MemoryBudget::new(80_000, HashSeed::TEST);
    for (taker, pool) in POOLS.into_iter().enumerate() {
        while budget.take(payer(pool, 1, 1), 1000) {}
        let full = budget.used();
        for other in POOLS.into_iter().skip(taker + 1) {
            assert!(budget.take(payer(other, 2, 2), 5000), "{other:?} beside {pool:?}");
            budget.give_back(other, IkeSaId(2), 5000);
        }
        assert_eq!(budget.used(), full);
        assert_eq!(budget.next_given_way(), None);
    }
    assert_eq!(budget.used(), 80_000);
}

#[test]
fn short_messages_have_their_own() {
    let stranger = payer(Pool::Strangers, 1, 1);
    assert_eq!(stranger.of_message(SHORT).pool, Pool::Short);
    assert_eq!(stranger.of_message(SHORT + 1).pool, Pool::Strangers);
    assert_eq!(payer(Pool::Own, 1, 1).of_message(10).pool, Pool::Own);
    assert_eq!(payer(Pool::Peers, 1, 1).of_message(10).pool, Pool::Peers);
}

#[test]
fn what_is_kept_goes_back_where_it_came_from() {
    let mut budget = MemoryBudget::new(80_000, HashSeed::TEST);
    let mut kept = Kept::default();
    for (pool, octets) in [(Pool::Short, 700), (Pool::Strangers, 5000)] {
        assert!(budget.take(payer(pool, 1, 1), octets));
        kept.add(pool, octets);
    }
    let before = kept;
    assert!(budget.take(payer(Pool::Short, 1, 1), 300));
    kept.add(Pool::Short, 300);
    let part = kept.since(before);
    assert_eq!((part.of(Pool::Short), part.of(Pool::Strangers)), (300, 0));
    kept.give_back(part, IkeSaId(1), &mut budget);
    assert_eq!((kept, budget.used()), (before, 5700));
    kept.give_back(before, IkeSaId(1), &mut budget);
    assert_eq!((kept, budget.used()), (Kept::default(), 0));
}

/// Who had to give way is named once, and what it gives back afterwards is nobody's.
#[test]
fn whoever_gives_way_is_named() {
    let mut budget = MemoryBudget::new(80_000, HashSeed::TEST);
    assert!(budget.take(payer(Pool::Strangers, 1, 1), 20_000));
    assert!(budget.take(payer(Pool::Strangers, 2, 2), 15_000));
    assert_eq!(budget.next_given_way(), Some((Pool::Strangers, IkeSaId(1))));
    assert_eq!(budget.next_given_way(), None);
    budget.give_back(Pool::Strangers, IkeSaId(1), 20_000);
    assert_eq!(budget.used(), 15_000);
}
