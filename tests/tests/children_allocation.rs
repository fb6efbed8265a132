//! What a peer with hundreds of children can make this end do.

use std::time::Duration;

use ike_proto::config::TsSpec;
use ike_tests::heap::{self, Counting};
use ike_tests::{A, B, Setup};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often memory is taken during a rekey of an IKE SA by the peer's command, which has made so many children.
fn rekey(children: usize) -> u64 {
    let mut setup = Setup::new(3);
    // Each is the same child at this end, with selectors of its own.
    for n in 1..children {
        let child = setup.b.add_child(&format!("net{n}"), 2, 1);
        let part = format!("10.1.{}.{}/32", n / 250, n % 250);
        child.remote_ts = vec![TsSpec::Fixed(part.parse().expect("a selector"))];
    }
    let mut pair = setup.build();
    pair.establish();
    pair.net.tracing = false;
    for n in 1..children {
        let request = pair.initiate(B, Some(&format!("net{n}")));
        assert!(pair.run_until(Duration::from_secs(60), |w| w.hosts[B].done(request).is_some()));
        assert_eq!(pair.b().done(request), Some(Ok(())));
    }
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.a().children_up().len(), children);
    let old = pair.ike_id(A);
    let before = heap::allocations();
    pair.rekey_ike(A);
    pair.run_for(Duration::from_secs(2));
    let taken = heap::allocations() - before;
    assert_ne!(pair.ike_id(A), old);
    assert_eq!(pair.a().children_up().len(), children);
    taken
}

/// Each rekey of the IKE SA has this end compare its children with each other: without a copy of them. Four times as many
/// cost about four times as much, and not sixteen times.
///
/// Fault: in `judge_crossings`, look at the peer's children, too, and in `ChildSa::is_like`, compare what `Carries::of`
/// makes of the two.
#[test]
fn the_rekey_of_an_ike_sa_costs_little_for_each_child() {
    assert!(heap::begin());
    let (few, many) = (rekey(100), rekey(400));
    println!("{few} allocations with 100 children, {many} with 400");
    assert!(many < 7 * few, "{few} allocations with 100 children, {many} with 400");
}
