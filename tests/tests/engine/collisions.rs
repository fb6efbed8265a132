//! Two exchanges at once, in every order of their messages, and with one message lost at any place.

use ike_proto::{Command, Failure};
use ike_tests::explore::{Choice, interleavings};
use ike_tests::{A, B, Pair};

/// Something one end does while the other does something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    RekeyChild,
    RekeyIke,
    CreateChild,
    DeleteChild,
    DeleteIke,
}

use Act::*;

impl Act {
    fn deletes(self) -> bool {
        matches!(self, DeleteChild | DeleteIke)
    }

    fn command(self, pair: &Pair, end: usize) -> Command {
        match self {
            RekeyChild => Command::RekeyChild(pair.child_id(end)),
            RekeyIke => Command::RekeyIke(pair.ike_id(end)),
            DeleteChild => Command::TerminateChild(pair.child_id(end)),
            DeleteIke => Command::TerminateIke(pair.ike_id(end)),
            CreateChild => Command::Initiate {
                connection: "ab".to_owned(),
                child: Some("net".to_owned()),
                local: pair.address(end),
                remote: pair.address(Pair::other(end)),
                packet: None,
            },
        }
    }
}

fn make(seed: u64, at_a: &[Act], at_b: &[Act]) -> Pair {
    let mut pair = Pair::established(seed);
    pair.net.manual = true;
    pair.traffic.watch();
    let commands_a: Vec<_> = at_a.iter().map(|act| act.command(&pair, A)).collect();
    let commands_b: Vec<_> = at_b.iter().map(|act| act.command(&pair, B)).collect();
    for command in commands_a {
        pair.command(A, command);
    }
    for command in commands_b {
        pair.command(B, command);
    }
    pair
}

/// What must be there in the end: IKE SAs, and the least and the most children.
fn expected(acts: &[Act]) -> (usize, usize, usize) {
    if acts.contains(&DeleteIke) {
        return (0, 0, 0);
    }
    let created = acts.iter().filter(|act| **act == CreateChild).count();
    match acts.contains(&DeleteChild) {
        // A child deleted during its rekey may be gone or replaced, as the order has it.
        true => (1, created, created + 1),
        false => (1, created + 1, created + 1),
    }
}

#[track_caller]
fn check(pair: &Pair, choices: &[Choice], acts: &[Act]) {
    let told = || format!("{acts:?} {choices:?}\n{}", pair.story());
    if let Err(what) = pair.agreement() {
        panic!("seed {}: {what}: {}", pair.seed, told());
    }
    let (ikes, least, most) = expected(acts);
    assert_eq!(pair.a().ikes().len(), ikes, "IKE SAs: {}", told());
    let children = pair.a().children().len();
    assert!((least..=most).contains(&children), "{children} children: {}", told());
    if !acts.iter().any(|act| act.deletes()) {
        let lost = &pair.traffic.lost;
        assert!(lost.is_empty(), "lost {lost:?}: {}", told());
        for host in [pair.a(), pair.b()] {
            assert!(host.child_downs().is_empty(), "a child went down: {}", told());
            assert!(host.ike_downs().is_empty(), "an IKE SA went down: {}", told());
        }
    }
    for host in [pair.a(), pair.b()] {
        for (_, reason) in host.ike_downs() {
            let orderly =
                matches!(reason, Failure::Terminated | Failure::DeletedByPeer | Failure::Timeout);
            assert!(orderly, "{reason:?}: {}", told());
        }
    }
    for number in 2..=u64::try_from(acts.len() + 1).unwrap() {
        let request = ike_proto::RequestId(number);
        let done = pair.hosts.iter().any(|host| host.done(request).is_some());
        assert!(done, "{request:?} never ended: {}", told());
    }
}

#[track_caller]
fn explore(at_a: &[Act], at_b: &[Act], losses: usize, seeds: u64) {
    let acts: Vec<_> = at_a.iter().chain(at_b).copied().collect();
    let mut runs = 0;
    for seed in 0..seeds {
        runs += interleavings(
            || make(seed, at_a, at_b),
            losses,
            |pair, choices| check(pair, choices, &acts),
        );
    }
    println!("{at_a:?} against {at_b:?}: {runs} runs");
    assert!(runs > 1);
}

/// One test per pair of acts; a pair and its mirror image differ only in who is the original initiator.
macro_rules! pairs {
    ($($name:ident: $a:ident, $b:ident;)*) => {
        $(
            #[test]
            fn $name() {
                explore(&[$a], &[$b], 1, 4);
                explore(&[$b], &[$a], 0, 4);
            }
        )*
    };
}

pairs! {
    child_rekeys_cross: RekeyChild, RekeyChild;
    ike_rekeys_cross: RekeyIke, RekeyIke;
    a_child_rekey_crosses_an_ike_rekey: RekeyChild, RekeyIke;
    a_child_rekey_crosses_the_delete_of_the_child: RekeyChild, DeleteChild;
    a_child_rekey_crosses_the_delete_of_the_ike_sa: RekeyChild, DeleteIke;
    an_ike_rekey_crosses_the_delete_of_a_child: RekeyIke, DeleteChild;
    an_ike_rekey_crosses_the_delete_of_the_ike_sa: RekeyIke, DeleteIke;
    a_new_child_crosses_an_ike_rekey: CreateChild, RekeyIke;
    a_new_child_crosses_a_child_rekey: CreateChild, RekeyChild;
    a_new_child_crosses_the_delete_of_the_ike_sa: CreateChild, DeleteIke;
    new_children_cross: CreateChild, CreateChild;
    deletes_of_a_child_cross: DeleteChild, DeleteChild;
    the_delete_of_a_child_crosses_that_of_the_ike_sa: DeleteChild, DeleteIke;
    deletes_of_the_ike_sa_cross: DeleteIke, DeleteIke;
}

#[test]
fn both_rekey_the_ike_sa_and_the_child() {
    explore(&[RekeyIke, RekeyChild], &[RekeyChild, RekeyIke], 0, 2);
    explore(&[RekeyChild, RekeyIke], &[RekeyChild, RekeyIke], 0, 2);
}

#[test]
fn one_end_rekeys_all_while_the_other_makes_a_child() {
    explore(&[RekeyChild, RekeyIke], &[CreateChild], 0, 2);
    explore(&[CreateChild, RekeyIke], &[RekeyChild], 0, 2);
}
