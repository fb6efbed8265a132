use proptest::prelude::*;

use super::super::memory::Payer;
use super::*;
use crate::event::IkeSaId;
use crate::shares::Origin;
use crate::table::HashSeed;

const FIRST: PayloadType = PayloadType::ID_I;
const AUTH: ExchangeType = ExchangeType::IKE_AUTH;
const MAX: usize = 65_535;

fn fragment(message_id: u32, number: u16, total: u16, content: &[u8]) -> Fragment {
    let first = if number == 1 { FIRST } else { PayloadType::NONE };
    Fragment {
        message_id,
        exchange: AUTH,
        number,
        total,
        first,
        content: content.to_vec(),
        front: Vec::new(),
    }
}

fn whole(octets: &[u8]) -> Progress {
    Progress::Complete(Opened { first: FIRST, octets: octets.to_vec(), front: Vec::new() })
}

/// IKE SA `n` of a peer of its own.
fn peer(pool: Pool, n: u64) -> Payer {
    Payer { pool, ike: IkeSaId(n), origin: Origin::of([10, 0, (n >> 8) as u8, n as u8].into()) }
}

/// One of whoever is alone.
const STRANGERS: Pool = Pool::Strangers;

/// Octets in all of which strangers have `octets`.
fn of_which(octets: usize) -> MemoryBudget {
    MemoryBudget::new(octets / 3 * 8, HashSeed::TEST)
}

/// A fragment of IKE SA 1.
fn insert(r: &mut Reassembly, fragment: Fragment, budget: &mut MemoryBudget) -> Progress {
    r.insert(fragment, peer(STRANGERS, 1), budget)
}

fn setup() -> (Reassembly, MemoryBudget) {
    (Reassembly::new(MAX), of_which(1 << 20))
}

#[test]
fn fragments_in_any_order_make_the_message_once() {
    let (mut r, mut budget) = setup();
    assert!(r.wants(1, 2, 3));
    assert_eq!(insert(&mut r, fragment(1, 3, 3, b"c"), &mut budget), Progress::Incomplete);
    assert_eq!(r.message_id(), Some(1));
    assert!(!r.wants(1, 3, 3) && r.wants(1, 1, 3));
    assert_eq!(insert(&mut r, fragment(1, 3, 3, b"x"), &mut budget), Progress::Duplicate);
    assert_eq!(insert(&mut r, fragment(1, 1, 3, b"a"), &mut budget), Progress::Incomplete);
    assert_eq!(budget.used(), 2 * (1 + FRAGMENT_OVERHEAD));
    assert_eq!(insert(&mut r, fragment(1, 2, 3, b"b"), &mut budget), whole(b"abc"));
    assert_eq!((budget.used(), r.message_id()), (0, None));
}

#[test]
fn one_fragment_may_be_the_whole_message_even_an_empty_one() {
    let (mut r, mut budget) = setup();
    assert_eq!(insert(&mut r, fragment(1, 1, 1, b"abc"), &mut budget), whole(b"abc"));
    assert_eq!(insert(&mut r, fragment(2, 1, 1, b""), &mut budget), whole(b""));
    assert_eq!(budget.used(), 0);
}

/// Bug class 15: payloads may stand in front of the Encrypted Fragment payload, and are kept as well.
#[test]
fn bug_class_15_what_stands_in_front_is_counted() {
    let (mut r, mut budget) = setup();
    let long = Fragment { front: vec![0; 60_000], ..fragment(1, 1, 2, b"a") };
    assert_eq!(insert(&mut r, long.clone(), &mut budget), Progress::Incomplete);
    assert_eq!(budget.used(), 60_001 + FRAGMENT_OVERHEAD);
    r.release(&mut budget);
    assert_eq!(budget.used(), 0);
    let mut small = of_which(100_000);
    assert_eq!(insert(&mut r, long, &mut small), Progress::Rejected);
    assert_eq!(small.used(), 0);
}

/// Bug class 13: fragment numbers and totals that lie.
#[test]
fn bug_class_13_impossible_fragment_fields_are_refused() {
    let (mut r, mut budget) = setup();
    for (number, total) in [(0, 0), (0, 1), (1, 0), (2, 1), (65_535, 65_534)] {
        assert!(!r.wants(1, number, total));
        let lie = fragment(1, number, total, b"x");
        assert_eq!(insert(&mut r, lie, &mut budget), Progress::Rejected, "{number}/{total}");
    }
    assert_eq!(insert(&mut r, fragment(1, 2, 2, b""), &mut budget), Progress::Rejected);
    assert_eq!((budget.used(), r.message_id()), (0, None));
    // The genuine message still completes.
    assert_eq!(insert(&mut r, fragment(1, 2, 2, b"b"), &mut budget), Progress::Incomplete);
    assert_eq!(insert(&mut r, fragment(1, 2, 2, b""), &mut budget), Progress::Rejected);
    assert_eq!(insert(&mut r, fragment(1, 1, 2, b"a"), &mut budget), whole(b"ab"));
}

/// Bug class 13: totals that change between fragments (RFC 7383 §2.6).
#[test]
fn bug_class_13_a_larger_total_starts_over_and_a_smaller_one_is_ignored() {
    let (mut r, mut budget) = setup();
    assert_eq!(insert(&mut r, fragment(1, 1, 2, b"old"), &mut budget), Progress::Incomplete);
    assert!(r.wants(1, 1, 3), "smaller fragments of the same message");
    assert_eq!(insert(&mut r, fragment(1, 1, 3, b"a"), &mut budget), Progress::Incomplete);
    assert_eq!(budget.used(), 1 + FRAGMENT_OVERHEAD);
    assert!(!r.wants(1, 2, 2));
    assert_eq!(insert(&mut r, fragment(1, 2, 2, b"old"), &mut budget), Progress::Duplicate);
    assert_eq!(insert(&mut r, fragment(1, 2, 3, b"b"), &mut budget), Progress::Incomplete);
    assert_eq!(insert(&mut r, fragment(1, 3, 3, b"c"), &mut budget), whole(b"abc"));
}

#[test]
fn another_message_supersedes_the_one_in_progress() {
    let (mut r, mut budget) = setup();
    assert_eq!(insert(&mut r, fragment(1, 1, 2, b"old"), &mut budget), Progress::Incomplete);
    assert!(r.wants(2, 1, 2));
    assert_eq!(insert(&mut r, fragment(2, 1, 2, b"a"), &mut budget), Progress::Incomplete);
    assert_eq!(r.message_id(), Some(2));
    assert_eq!(budget.used(), 1 + FRAGMENT_OVERHEAD);
    assert_eq!(insert(&mut r, fragment(2, 2, 2, b"b"), &mut budget), whole(b"ab"));
}

#[test]
fn fragments_of_two_exchange_types_do_not_mix() {
    let (mut r, mut budget) = setup();
    assert_eq!(insert(&mut r, fragment(1, 1, 2, b"a"), &mut budget), Progress::Incomplete);
    let other = Fragment { exchange: ExchangeType::INFORMATIONAL, ..fragment(1, 2, 2, b"x") };
    assert_eq!(insert(&mut r, other, &mut budget), Progress::Rejected);
    assert_eq!(insert(&mut r, fragment(1, 2, 2, b"b"), &mut budget), whole(b"ab"));
}

/// Bug class 15: what one SA can hold is bounded, however the message is cut.
#[test]
fn bug_class_15_one_sa_holds_no_more_than_twice_the_largest_message() {
    let mut budget = MemoryBudget::new(usize::MAX, HashSeed::TEST);
    for size in [1, 2, 64, 1000, MAX - 1] {
        let mut r = Reassembly::new(MAX);
        let content = vec![0; size];
        for number in 1..u16::MAX {
            // Never the last: the worst case is a message that does not complete.
            insert(&mut r, fragment(1, number, u16::MAX, &content), &mut budget);
        }
        assert!(budget.used() <= 2 * MAX, "{size}: {}", budget.used());
        r.release(&mut budget);
        assert_eq!(budget.used(), 0);
    }
    let mut r = Reassembly::new(MAX);
    let progress = insert(&mut r, fragment(1, 1, 2, &vec![0; MAX + 1]), &mut budget);
    assert_eq!(progress, Progress::Rejected);
    assert_eq!((r.message_id(), budget.used()), (None, 0));
}

/// Bug class 15: where memory is short, one SA does not get all of it.
#[test]
fn bug_class_15_one_sa_holds_no_more_than_its_share() {
    for (pool, part) in [(Pool::Peers, 20_000), (STRANGERS, 30_000), (Pool::Own, 20_000)] {
        let mut budget = MemoryBudget::new(80_000, HashSeed::TEST);
        let mut greedy = Reassembly::new(1 << 20);
        for number in 1..1000 {
            greedy.insert(fragment(1, number, 1000, &[0; 1000]), peer(pool, 1), &mut budget);
        }
        assert!((part / 8..=part / 4).contains(&budget.used()), "{}", budget.used());
        // There is room for another.
        let (mut modest, payer) = (Reassembly::new(1 << 20), peer(pool, 2));
        let first = modest.insert(fragment(1, 1, 2, b"a"), payer, &mut budget);
        assert_eq!(first, Progress::Incomplete);
        assert_eq!(modest.insert(fragment(1, 2, 2, b"b"), payer, &mut budget), whole(b"ab"));
    }
}

/// Bug class 15: many SAs with sets that never complete share one limit. Each of them gets what it asks for, and
/// the oldest loses what it has.
///
/// Fault: in `MemoryBudget::take`, do not note who is gone.
#[test]
fn bug_class_15_all_sas_together_stay_within_the_budget() {
    let mut budget = of_which(99_999);
    let mut sas: Vec<_> = (0..1000).map(|_| Reassembly::new(MAX)).collect();
    let mut lost = 0;
    for n in 0..sas.len() {
        for number in 1..=3 {
            let part = fragment(1, number, 4, &[0; 500]);
            let progress = sas[n].insert(part, peer(STRANGERS, n as u64), &mut budget);
            assert_eq!(progress, Progress::Incomplete);
            while let Some((pool, IkeSaId(loser))) = budget.next_given_way() {
                assert!(loser + 10 < n as u64, "{loser} lost to {n}");
                sas[loser as usize].give_way(pool, &mut budget);
                lost += 1;
            }
            let held: usize = sas.iter().filter_map(|r| Some(r.set.as_ref()?.charged)).sum();
            assert_eq!(held, budget.used());
            assert!(budget.used() <= 99_999);
        }
    }
    assert!(lost > 900);
    // The newest has kept all, and its message completes when there is room: it has the most now.
    let [rest @ .., newest] = &mut sas[..] else { unreachable!() };
    let last = || fragment(1, 4, 4, &[0; 500]);
    let refused = newest.insert(last(), peer(STRANGERS, 999), &mut budget);
    assert_eq!(refused, Progress::Rejected);
    for r in rest {
        r.release(&mut budget);
    }
    assert_eq!(newest.insert(last(), peer(STRANGERS, 999), &mut budget), whole(&[0; 2000]));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_message_of_the_largest_size_completes() {
    let (mut r, mut budget) = setup();
    let message: Vec<u8> = (0..MAX).map(|n| n as u8).collect();
    let chunks: Vec<_> = message.chunks(500).collect();
    let total = u16::try_from(chunks.len()).unwrap();
    for (n, chunk) in chunks.iter().enumerate().rev() {
        let number = u16::try_from(n + 1).unwrap();
        let progress = insert(&mut r, fragment(1, number, total, chunk), &mut budget);
        let expected = if n == 0 { whole(&message) } else { Progress::Incomplete };
        assert_eq!(progress, expected);
    }
}

proptest! {
    /// Any cut, any order, any repetition: the message comes out once, and the budget is whole again.
    #[test]
    fn shuffled_and_repeated_fragments_reassemble(
        message in proptest::collection::vec(any::<u8>(), 1..3000),
        size in 1..400usize,
        order in proptest::collection::vec(any::<u32>(), 0..6000),
    ) {
        let (mut r, mut budget) = setup();
        let chunks: Vec<_> = message.chunks(size).collect();
        let total = u16::try_from(chunks.len()).unwrap();
        let fits = message.len() + chunks.len() * FRAGMENT_OVERHEAD <= 2 * MAX;
        prop_assume!(fits);
        // Random picks first, then everything, so that the message completes in the end.
        let picks = order.iter().map(|n| *n as usize % chunks.len()).chain(0..chunks.len());
        let mut seen = std::collections::BTreeSet::new();
        let mut complete = 0;
        for n in picks {
            if complete == 1 {
                break;
            }
            let number = u16::try_from(n + 1).unwrap();
            prop_assert_eq!(r.wants(9, number, total), !seen.contains(&n));
            match insert(&mut r, fragment(9, number, total, chunks[n]), &mut budget) {
                Progress::Incomplete => prop_assert!(seen.insert(n)),
                Progress::Duplicate => prop_assert!(seen.contains(&n)),
                Progress::Complete(opened) => {
                    prop_assert_eq!(&opened.octets, &message);
                    prop_assert_eq!(opened.first, FIRST);
                    complete += 1;
                }
                Progress::Rejected => prop_assert!(false, "room for all"),
            }
        }
        prop_assert_eq!(complete, 1);
        prop_assert_eq!(budget.used(), 0);
    }

    /// No sequence of operations panics, leaks budget or exceeds it.
    #[test]
    fn any_sequence_keeps_the_books(
        ops in proptest::collection::vec(
            (0..3u32, 0..5u16, 0..5u16, 0..200usize, any::<bool>()), 0..200,
        ),
    ) {
        let mut budget = of_which(702);
        let mut sas = [Reassembly::new(300), Reassembly::new(300)];
        for (message_id, number, total, len, which) in ops {
            let r = &mut sas[usize::from(which)];
            if number == 4 && total == 4 {
                r.release(&mut budget);
            }
            let payer = peer(STRANGERS, u64::from(which));
            r.insert(fragment(message_id, number, total, &vec![1; len]), payer, &mut budget);
            while let Some((pool, IkeSaId(loser))) = budget.next_given_way() {
                sas[loser as usize].give_way(pool, &mut budget);
            }
            let held: usize = sas.iter().filter_map(|r| Some(r.set.as_ref()?.charged)).sum();
            prop_assert_eq!(budget.used(), held);
            prop_assert!(held <= 702);
        }
        for r in &mut sas {
            r.release(&mut budget);
        }
        prop_assert_eq!(budget.used(), 0);
    }
}

#[test]
fn missing_fragments_are_named_by_ranges() {
    let ranges = |set: &Reassembly, last| -> Vec<_> {
        set.missing(1, last).map(|range| (range.first, range.last)).collect()
    };
    let mut budget = MemoryBudget::new(1 << 20, HashSeed::TEST);
    let mut set = Reassembly::new(10_000);
    assert_eq!(ranges(&set, u16::MAX), []);
    for number in [2, 3, 7, 9] {
        assert_eq!(
            insert(&mut set, fragment(5, number, 10, b"x"), &mut budget),
            Progress::Incomplete
        );
    }
    assert_eq!(ranges(&set, u16::MAX), [(1, 1), (4, 6), (8, 8), (10, 10)]);
    assert_eq!(ranges(&set, 8), [(1, 1), (4, 6), (8, 8)]);
    assert_eq!(ranges(&set, 5), [(1, 1), (4, 5)]);
    assert_eq!(ranges(&set, 0), []);
    let from = |first, last| -> Vec<_> {
        set.missing(first, last).map(|range| (range.first, range.last)).collect()
    };
    assert_eq!(from(5, 9), [(5, 6), (8, 8)]);
    assert_eq!(from(7, 10), [(8, 8), (10, 10)]);
    assert_eq!((from(9, 9), from(10, 10), from(11, 20)), (vec![], vec![(10, 10)], vec![]));
    assert_eq!((set.above(0), set.above(3), set.above(9), set.above(u16::MAX)), (4, 2, 0, 0));
    assert_eq!((set.has(5, (7, 10)), set.has(5, (8, 10))), (true, false));
    assert_eq!((set.has(5, (7, 11)), set.has(6, (7, 10))), (false, false));
    for number in [1, u16::MAX] {
        insert(&mut set, fragment(6, number, u16::MAX, b"x"), &mut budget);
    }
    assert_eq!(ranges(&set, u16::MAX), [(2, u16::MAX - 1)]);
    assert_eq!(ranges(&set, u16::MAX - 1), [(2, u16::MAX - 1)]);
    set.release(&mut budget);
    assert_eq!(ranges(&set, u16::MAX), []);
}
