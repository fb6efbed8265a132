use super::*;

const MS: Duration = Duration::from_millis(1);

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
    Instant::now()
}

/// A flight of `count` datagrams, each of which says which it is, from 1.
fn flight(count: u8, gap: Duration) -> Flight {
    Flight::new((1..=count).map(|n| Arc::from([n].as_slice())).collect(), gap)
}

/// What leaves at `at`.
fn leave(flight: &mut Flight, at: Instant) -> Vec<u8> {
    std::iter::from_fn(|| flight.take_due(at)).map(|departure| departure.octets[0]).collect()
}

/// What leaves from `at` on, however long it takes.
fn leave_all(flight: &mut Flight, at: Instant) -> Vec<u8> {
    let mut left = Vec::new();
    while let Some(next) = flight.next_at(at) {
        left.extend(leave(flight, next.max(at)));
    }
    left
}

#[test]
fn a_burst_and_then_one_by_one() {
    let (t, mut f) = (now(), flight(14, 3 * MS));
    assert_eq!(f.next_at(t), Some(t));
    assert_eq!(f.drain_time(), 12 * MS);
    assert_eq!(leave(&mut f, t), (1..=10).collect::<Vec<_>>());
    assert_eq!(leave(&mut f, t), []);
    for n in 1..=4 {
        let due = t + 3 * MS * n;
        assert_eq!(f.next_at(t), Some(due));
        assert_eq!(leave(&mut f, due - MS), []);
        assert_eq!(leave(&mut f, due), [10 + u8::try_from(n).unwrap()]);
    }
    assert_eq!((f.next_at(t), f.is_idle(), f.resent()), (None, true, None));
}

/// Whoever is woken late catches up, but never by more than a burst.
#[test]
fn credit_grows_up_to_a_burst() {
    let (t, mut f) = (now(), flight(40, MS));
    assert_eq!(leave(&mut f, t).len(), 10);
    assert_eq!(leave(&mut f, t + 3 * MS).len(), 3);
    assert_eq!(leave(&mut f, t + 1000 * MS).len(), 10);
    assert_eq!(leave(&mut f, t + 1001 * MS).len(), 1);
    let (t, mut f) = (now(), flight(200, Duration::ZERO));
    assert_eq!(leave(&mut f, t).len(), 200, "no gap, no pacing");
}

#[test]
fn what_left_before_is_known_as_such() {
    let (t, mut f) = (now(), flight(3, MS));
    assert!(f.take_due(t).is_some_and(|departure| !departure.again));
    leave(&mut f, t);
    f.again(true);
    assert_eq!(f.resent(), None);
    assert!(f.take_due(t + MS).is_some_and(|departure| departure.again));
    assert_eq!(f.resent(), Some(t + MS));
}

/// No fragment is always among the first, nor always among the last, and none is left out.
#[test]
fn each_time_in_another_order() {
    let (t, mut f) = (now(), flight(9, Duration::ZERO));
    leave_all(&mut f, t);
    let mut firsts = Vec::new();
    let mut lasts = Vec::new();
    for _ in 0..4 {
        f.again(false);
        let mut order = leave_all(&mut f, t);
        firsts.push(order[0]);
        lasts.push(order[8]);
        order.sort_unstable();
        assert_eq!(order, (1..=9).collect::<Vec<_>>());
    }
    firsts.dedup();
    lasts.dedup();
    assert!(firsts.len() > 2 && lasts.len() > 2, "{firsts:?} {lasts:?}");
    f.again(true);
    assert_eq!(leave_all(&mut f, t)[0], 1);
    for count in 0..4 {
        let mut f = flight(count, MS);
        f.again(false);
        assert_eq!(leave_all(&mut f, t).len(), usize::from(count));
    }
}

#[test]
fn only_what_is_missing_goes_again_the_lowest_first() {
    let (t, mut f) = (now(), flight(12, Duration::ZERO));
    leave_all(&mut f, t);
    let later = t + 20 * MS;
    assert_eq!(f.missing(later, &[(7, 9), (2, 2)], 10 * MS), 4);
    assert_eq!(leave_all(&mut f, later), [2, 7, 8, 9]);
    // The same again is old news; those that have been under way long enough are not.
    assert_eq!(f.missing(later + 5 * MS, &[(2, 2), (7, 9)], 10 * MS), 0);
    assert_eq!(f.missing(later + 10 * MS, &[(8, 8)], 10 * MS), 1);
    assert_eq!(leave_all(&mut f, later + 10 * MS), [8]);
}

#[test]
fn odd_ranges_send_nothing_that_is_not_there() {
    let (t, mut f) = (now(), flight(3, Duration::ZERO));
    leave_all(&mut f, t);
    let ranges = [(0, 0), (4, u16::MAX), (3, 1), (2, 2), (2, 3), (1, 0)];
    assert_eq!(f.missing(t + MS, &ranges, Duration::ZERO), 2);
    assert_eq!(leave_all(&mut f, t + MS), [2, 3]);
    assert_eq!(f.missing(t + MS, &[], Duration::ZERO), 0);
    let mut none = flight(0, MS);
    assert_eq!(none.missing(t, &[(1, u16::MAX)], Duration::ZERO), 0);
    none.probe();
    assert_eq!(leave_all(&mut none, t), []);
}

/// What is still to leave for the first time keeps its turn, whatever the peer lacks meanwhile; what
/// waits to go again and is there does not.
#[test]
fn an_acknowledgement_stops_what_is_there() {
    let (t, mut f) = (now(), flight(14, 5 * MS));
    assert_eq!(leave(&mut f, t).len(), 10);
    assert_eq!(f.missing(t + MS, &[(3, 3), (11, 14)], MS), 1);
    assert_eq!(leave_all(&mut f, t + MS), [3, 11, 12, 13, 14]);
    f.again(true);
    assert_eq!(f.missing(t + 1000 * MS, &[(5, 6)], MS), 2);
    assert_eq!(leave_all(&mut f, t + 1000 * MS), [5, 6]);
    f.again(true);
    f.hold();
    assert_eq!(leave_all(&mut f, t + 2000 * MS), []);
    f.again(true);
    assert_eq!(f.missing(t + 3000 * MS, &[], MS), 0);
    assert_eq!(leave_all(&mut f, t + 3000 * MS), []);
}

/// Acknowledgements of a long message name one part of what is missing after the other.
#[test]
fn what_was_named_before_goes_on_waiting() {
    let (t, mut f) = (now(), flight(40, 5 * MS));
    leave_all(&mut f, t);
    let later = t + 1000 * MS;
    assert_eq!(f.missing(later, &[(1, 15)], MS), 15);
    assert_eq!(leave(&mut f, later), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(f.missing(later, &[(30, 31)], MS), 2);
    assert_eq!(leave_all(&mut f, later), [30, 31, 11, 12, 13, 14, 15]);
}

#[test]
fn a_probe_is_fragment_one_and_what_was_lacking_last() {
    let (t, mut f) = (now(), flight(12, Duration::ZERO));
    leave_all(&mut f, t);
    f.probe();
    assert_eq!(leave_all(&mut f, t + MS), [1]);
    assert_eq!(f.missing(t + 2 * MS, &[(6, 8)], MS), 3);
    assert_eq!(leave_all(&mut f, t + 2 * MS), [6, 7, 8]);
    f.probe();
    assert_eq!(leave_all(&mut f, t + 3 * MS), [1, 6]);
    let mut small = flight(2, MS);
    leave_all(&mut small, t);
    small.probe();
    assert_eq!(leave_all(&mut small, t), [1, 2]);
}

#[test]
fn the_rest_can_leave_at_once() {
    let (t, mut f) = (now(), flight(12, 5 * MS));
    assert_eq!(leave(&mut f, t).len(), 10);
    let rest: Vec<_> =
        std::iter::from_fn(|| f.take_any()).map(|departure| departure.octets[0]).collect();
    assert_eq!(rest, [11, 12]);
}

#[test]
fn the_gap_follows_the_round_trip_time_within_bounds() {
    let mut rtt = Rtt::default();
    assert_eq!(gap(&rtt), USUAL_GAP);
    rtt.sample(700, 100 * MS);
    assert_eq!(gap(&rtt), 5 * MS);
    for (time, expected) in [(MS, LEAST_GAP), (600 * MS, MOST_GAP)] {
        let mut rtt = Rtt::default();
        rtt.sample(700, time);
        assert_eq!(gap(&rtt), expected);
    }
}
